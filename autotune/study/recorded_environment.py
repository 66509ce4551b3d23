"""Rebuild a study's target and space from its records, without contacting any host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.discovery.host_templates import from_record
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.space import kernel
from autotune.space.dimension import AdoptedValues
from autotune.space.facts import HostFacts
from autotune.space.space import SearchSpace
from autotune.space.target_space import build_space
from autotune.study import journal
from autotune.study.directory import EVENTS_FILE
from autotune.study.journal_records import BedJoined, RecordedBed, RecordedFacts, StudyStart
from autotune.study.record_codec import decode
from autotune.study.state_replay import decode_valid_record
from autotune.study.study_state import Trial
from autotune.study.study_store import load_state
from autotune.study_argument import format_study_argument
from autotune.target.read_target import TargetFile, read_recorded_target


@dataclass(frozen=True)
class RecordedEnvironment:
    """The recorded target of a study, and the search space of its trials."""

    file: TargetFile
    space: SearchSpace


def read_environment(directory: Path) -> RecordedEnvironment:
    """Return the environment in which the trials of a study ran.

    Raises TargetError, and AutotuneError for a study without trials.
    """
    records = tuple(journal.read_records(directory / EVENTS_FILE))
    return rebuild_environment(directory, records, load_state(directory).trials)


def rebuild_environment(
    directory: Path, records: Sequence[Mapping[str, Any]], trials: Sequence[Trial]
) -> RecordedEnvironment:
    """Return the environment of a study from its records and trials; see ``read_environment``."""
    if not trials:
        raise AutotuneError(
            "the study has no trials yet",
            hint=f"`autotune status {format_study_argument(directory)}` shows its state; repeat this "
            "command after the first trial",
        )
    study_start = decode_valid_record(StudyStart, records[0])
    target_file, settings = read_recorded_target(directory), trials[0].settings
    bed = next(iter(_find_beds(records)), None)
    if bed is not None:
        target_file = target_file.for_bed(bed)
    adopted_record = find_adopted_record(records, bed) or {}
    target_file = replace(target_file, adopted=adopted_record)
    skipped_reasons = from_record(adopted_record).adopted_values.skipped
    facts = (
        {}
        if target_file.target.command
        else _read_host_facts(study_start.facts, target_file, settings)
    )
    full_space = build_space(target_file, facts, AdoptedValues(settings, skipped_reasons))
    # Parameters that were added to the catalogue later had no value in these trials.
    dimensions = tuple(d for d in full_space.dimensions if d.name in settings)
    return RecordedEnvironment(target_file, replace(full_space, dimensions=dimensions))


def find_adopted_record(
    records: Sequence[Mapping[str, Any]], bed: str | None
) -> Mapping[str, object] | None:
    """Return the recorded values from existing files that a study edits on its hosts, or ``None``.

    ``bed`` is the test bed, in a study with several beds. In a shared database, each bed has its own
    record.
    """
    if bed is None:
        return decode(StudyStart, records[0]).adopted
    return _find_beds(records).get(bed, RecordedBed()).adopted


def _find_beds(records: Sequence[Mapping[str, Any]]) -> dict[str, RecordedBed]:
    joined_records = [
        decode(BedJoined, record) for record in records if record["event"] == "joined"
    ]
    return {**decode(StudyStart, records[0]).beds, **{bed.bed: bed for bed in joined_records}}


def _read_host_facts(
    recorded_facts: Mapping[str, RecordedFacts], target_file: TargetFile, settings: Settings
) -> dict[str, HostFacts]:
    """Return the facts of each host, with kernel values from the first trial."""
    kernel_values = kernel.list_kernel_values(target_file.target, settings)
    hosts = [host for tier in target_file.target.tiers.values() for host in tier.hosts]
    return {
        host: recorded_facts[host].to_host_facts(kernel_values.get(host, {}))
        for host in dict.fromkeys(hosts)
    }
