"""Rebuild a study's target and space from its records, without contacting any host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.discovery.host_templates import from_record
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.services.registry import add_declared
from autotune.space import kernel, space
from autotune.space.dimension import AdoptedValues
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.study.study_store import load_state, read_first_record
from autotune.target.read_target import TargetFile, read_recorded_target


@dataclass(frozen=True)
class RecordedEnvironment:
    """The target as the study ran it, and the space of its trials."""

    file: TargetFile
    space: SearchSpace


def read_environment(directory: Path) -> RecordedEnvironment:
    """Return the environment in which the trials of a study ran.

    Raises TargetError, and AutotuneError for a study without trials.
    """
    first_record, trials = read_first_record(directory), load_state(directory).trials
    if not trials:
        raise AutotuneError("the study has no trials yet", hint="`autotune status` shows it")
    file, settings = read_recorded_target(directory), trials[0].settings
    add_declared(file.target.services)
    adopted = first_record.get("adopted")
    for bed, described in list((first_record.get("beds") or {}).items())[:1]:
        file, adopted = file.for_bed(bed), described.get("adopted")
    skipped = from_record(adopted or {}).adopted_values.skipped
    facts = {} if file.target.command else _read_facts(first_record["facts"], file, settings)
    full_space = space.build_space(file, facts, AdoptedValues(settings, skipped))
    # Parameters that were added to the catalogue later were not tried.
    dimensions = tuple(d for d in full_space.dimensions if d.name in settings)
    return RecordedEnvironment(file, replace(full_space, dimensions=dimensions))


def _read_facts(
    recorded: dict[str, Any], file: TargetFile, settings: Settings
) -> dict[str, HostFacts]:
    """Return the facts of each host, with kernel values from the first trial."""
    values = kernel.list_set_keys(file.target, settings)
    return {
        host: HostFacts(
            float(recorded[host]["cpus"]),
            int(recorded[host]["memory"]),
            int(recorded[host]["nofile"]),
            kernel_values=values.get(host, {}),
        )
        for tier in file.target.tiers.values()
        for host in tier.hosts
    }
