"""Which environment a target runs in."""

from __future__ import annotations

from autotune.environments.base import Environment
from autotune.target.model import Target
from autotune.target.read import TargetFile


def kind(target: Target) -> str:
    """What a target runs on: a command, a model, or what all its tiers agree on."""
    if target.command is not None:
        return "command"
    if target.simulated is not None:
        return "simulated"
    return next(iter({tier.runtime for tier in target.tiers.values()}))


def prepare(file: TargetFile) -> Environment:
    """Look at the hosts and work out the space; read-only.

    Raises TargetError for a target that does not fit its hosts, AutotuneError for missing programs.
    """
    chosen = kind(file.target)
    if chosen != "simulated":
        _agree(file)
    return _prepared(chosen, file)


def _prepared(chosen: str, file: TargetFile) -> Environment:
    """Each is imported when it is needed: a study on this machine need not wait for the libraries
    of remote ones."""
    if chosen == "command":
        from autotune.environments import command

        return command.prepare(file)
    if chosen == "simulated":
        from autotune.environments import simulated

        return simulated.prepare(file)
    if chosen == "systemd":
        from autotune.environments import systemd

        return systemd.prepare(file)
    from autotune.environments import processes

    return processes.prepare(file)


def _agree(file: TargetFile) -> None:
    """Raises TargetError unless all tiers run alike."""
    tiers = file.target.tiers
    first = kind(file.target)
    for name, tier in tiers.items():
        if tier.runtime != first:
            raise file.document.error(
                ["tiers", name], f"tier {name}: all tiers of a target must have the same `runtime:`"
            )
