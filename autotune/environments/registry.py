"""Which bed a target runs on."""

from __future__ import annotations

from importlib import import_module

from autotune.environments.base import Bed
from autotune.target.model import Target
from autotune.target.read import TargetFile

# Kind of target → the module whose ``prepare(file)`` makes its bed. Imported when it is needed:
# a study on this machine need not wait for the libraries of remote ones.
BEDS = {
    "embedded": "autotune.environments.processes",
    "simulated": "autotune.environments.simulated",
    "systemd": "autotune.environments.systemd",
    "command": "autotune.environments.command",
}


def kind(target: Target) -> str:
    """What a target runs on: a command, a model, or what all its tiers agree on."""
    if target.command is not None:
        return "command"
    if target.simulated is not None:
        return "simulated"
    return next(iter({tier.runtime for tier in target.tiers.values()}))


def prepare(file: TargetFile) -> Bed:
    """Look at the hosts and work out the space; read-only.

    Raises TargetError for a target that does not fit its hosts, AutotuneError for missing programs.
    """
    chosen = kind(file.target)
    if chosen != "simulated":
        _agree(file)
    bed: Bed = import_module(BEDS[chosen]).prepare(file)
    return bed


def _agree(file: TargetFile) -> None:
    """Raises TargetError unless all tiers run alike."""
    tiers = file.target.tiers
    first = kind(file.target)
    for name, tier in tiers.items():
        if tier.runtime != first:
            raise file.document.error(
                ["tiers", name], f"tier {name}: all tiers of a target must have the same `runtime:`"
            )
