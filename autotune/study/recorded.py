"""What a study's own records say of its target and its space: no host is asked, and nothing is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.discovery.in_place import of_record
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.services.registry import declare
from autotune.space import kernel, space
from autotune.space.dimension import Running
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.store import first_record, state_of
from autotune.target.read import TargetFile, read_recorded


@dataclass(frozen=True)
class RecordedEnvironment:
    """The target as the study ran it, and the space of its trials."""

    file: TargetFile
    space: Space


def recorded_environment(directory: Path) -> RecordedEnvironment:
    """The environment that the trials of a study had.

    Raises TargetError, and AutotuneError for a study without trials.
    """
    first, trials = first_record(directory), state_of(directory).trials
    if not trials:
        raise AutotuneError("the study has no trials yet", hint="`autotune status` shows it")
    file, settings = read_recorded(directory), trials[0].settings
    declare(file.target.services)
    adopted = first.get("adopted")
    for bed, described in list((first.get("beds") or {}).items())[:1]:
        file, adopted = file.of_bed(bed), described.get("adopted")
    left = of_record(adopted or {}).running.left
    facts = {} if file.target.command else _facts(first["facts"], file, settings)
    whole = space.build(file, facts, Running(settings, left))
    # Parameters that today's catalogue has in addition were not tried.
    dimensions = tuple(d for d in whole.dimensions if d.name in settings)
    return RecordedEnvironment(file, replace(whole, dimensions=dimensions))


def _facts(recorded: dict[str, Any], file: TargetFile, settings: Settings) -> dict[str, HostFacts]:
    """The facts of each host; its kernel values are those of the first trial."""
    values = kernel.set_by(file.target, settings)
    return {
        host: HostFacts(
            float(recorded[host]["cpus"]),
            int(recorded[host]["memory"]),
            int(recorded[host]["nofile"]),
            kernel=values.get(host, {}),
        )
        for tier in file.target.tiers.values()
        for host in tier.hosts
    }
