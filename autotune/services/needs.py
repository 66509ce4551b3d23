"""What a service takes of its host and of the tiers behind it, for rules that hold in every trial.

Expressions are over the service's own parameters by their bare names, in base units (a memory of
64 MB is 67108864).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from autotune.services.base import Service


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The worst case of one service on one host; what is empty is not limited by any rule.

    ``workers`` are the processes or threads that work on a request each, with connections of their
    own to the tiers behind. ``processes`` of ``rss`` bytes each, and ``memory`` bytes beside, are
    what it occupies; ``rss`` is the figure until a trial has measured one, ``source`` says where it
    is from. ``connections`` are the clients it serves at one time, ``descriptors`` those one of its
    processes opens.
    """

    workers: str = ""
    processes: str = ""
    rss: int = 0
    memory: str = ""
    connections: str = ""
    descriptors: str = ""
    source: str = ""


@runtime_checkable
class Sized(Protocol):
    """A service that says what it takes."""

    @property
    def needs(self) -> Needs: ...


def needs(service: Service) -> Needs:
    """What the service takes; nothing if it does not say."""
    return service.needs if isinstance(service, Sized) else Needs()
