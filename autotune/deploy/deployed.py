"""What a trial needs of the machines, whichever way their services are run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autotune.deploy.host_manifests import HostManifest
from autotune.errors import AutotuneError
from autotune.services.base import Action, Settings, Value


@dataclass(frozen=True)
class Difference:
    """A setting that took effect otherwise than it was asked for."""

    parameter: str
    asked: Value
    effective: Value

    def __str__(self) -> str:
        return f"{self.parameter}: asked {self.asked}, in effect {self.effective}"


class DeployFailed(AutotuneError):
    """A configuration did not validate, start or answer; the last good one is back in place."""


@dataclass(frozen=True)
class Deployed:
    """What a deployment did and what is in effect after it.

    ``hosts`` is what each host was made to be, where they are hosts and not private processes.
    """

    files: Mapping[str, bytes]
    actions: Mapping[str, Action]
    effective: Mapping[str, Value] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    hosts: Mapping[str, HostManifest] = field(default_factory=dict)

    @property
    def restarted(self) -> frozenset[str]:
        """Parts that lost what they had in memory."""
        return frozenset(n for n, action in self.actions.items() if action is Action.RESTART)


class Fleet(Protocol):
    """All tiers together: a deployment takes effect everywhere or nowhere.

    ``keeps``: its services can go on when the tuner has ended.
    """

    keeps: bool = False

    def deploy(self, settings: Settings) -> Deployed:
        """Make ``settings`` take effect with the least action. Raises DeployFailed."""
        ...

    def restore(self) -> None:
        """Leave every host as it was found."""
        ...

    def keep(self) -> None:
        """What is deployed now stays when hosts are given back; ``restore`` no longer undoes it."""
        return
