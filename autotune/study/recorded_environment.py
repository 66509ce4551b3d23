"""Rebuild a study's target and space from its records, without contacting any host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from autotune.study import journal
from autotune.study.directory import EVENTS_FILE
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
    records = tuple(journal.read_records(directory / EVENTS_FILE))
    if not trials:
        raise AutotuneError("the study has no trials yet", hint="`autotune status` shows it")
    file, settings = read_recorded_target(directory), trials[0].settings
    add_declared(file.target.services)
    bed = next(iter(_find_bed_records(records)), None)
    if bed is not None:
        file = file.for_bed(bed)
    adopted = find_adopted_record(records, bed)
    skipped = from_record(adopted or {}).adopted_values.skipped
    facts = {} if file.target.command else _read_facts(first_record["facts"], file, settings)
    full_space = space.build_space(file, facts, AdoptedValues(settings, skipped))
    # Parameters that were added to the catalogue later were not tried.
    dimensions = tuple(d for d in full_space.dimensions if d.name in settings)
    return RecordedEnvironment(file, replace(full_space, dimensions=dimensions))


def find_adopted_record(
    records: Sequence[Mapping[str, Any]], bed: str | None
) -> Mapping[str, Any] | None:
    """Return the record of the hosts' own files that a study edits, or ``None``.

    ``bed`` is the test bed, in a study with several. In a storage, each bed has its own record.
    """
    if bed is None:
        adopted: Mapping[str, Any] | None = records[0].get("adopted")
        return adopted
    return _find_bed_records(records).get(bed, {}).get("adopted")


def _find_bed_records(records: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    joined = {record["bed"]: record for record in records if record["event"] == "joined"}
    return {**(records[0].get("beds") or {}), **joined}


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
