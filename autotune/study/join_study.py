"""Create a study in a shared database, or add the test beds of this machine to an existing study."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from optuna.storages import InMemoryStorage

from autotune import __version__, durable_files, foreign_files
from autotune.environments.multi_bed import (
    MultiBedEnvironment,
    collect_parameter_limits,
    list_limit_differences,
)
from autotune.environments.multi_bed import prepare as prepare_beds
from autotune.errors import AutotuneError, TargetError
from autotune.study import journal, ownership, start
from autotune.study.bed_barrier import BedBarrier
from autotune.study.bed_workers import run_bed_workers
from autotune.study.database_records import COMPROMISED_HINT
from autotune.study.directory import EVENTS_FILE, iterate_candidate_directories
from autotune.study.optuna_copy import copy_in_background
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.shared_store import HeartbeatPolicy, SharedStore, check_same_study
from autotune.study.state_replay import replay_records
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_store import build_first_record, format_current_timestamp
from autotune.study.trial_context import (
    collect_versions,
    describe_environment,
    format_target,
    list_changed_inputs,
    open_locked_store,
)
from autotune.target.beds import select_beds
from autotune.target.read_target import TARGET_FILE_NAME, TargetFile, read_recorded_target
from autotune.target.write_target import dump_yaml, list_differences


def create_shared_study(
    environment: MultiBedEnvironment, database: StudyDatabase, root: Path
) -> SharedStudy:
    """Create a study in a shared database, with a name that is free both in the database and in
    ``root``.
    """
    target_text, environment_fields = format_target(environment), describe_environment(environment)
    for directory in iterate_candidate_directories(root, environment.file.target.name):
        study_name = directory.name
        records = [
            # The study's beds are recorded when they join.
            {
                **build_first_record(study_name, **{**environment_fields, "beds": {}}),
                "shared": True,
                "space": collect_parameter_limits(environment.space),
            },
            {"event": "session", "at": format_current_timestamp(), "versions": collect_versions()},
        ]
        if not directory.exists() and database.create_study(study_name, target_text, records):
            return database.find_study(study_name)
    raise AssertionError("there is always an unused name")


def join_study(
    environment: MultiBedEnvironment,
    directory: Path,
    progress: ProgressReporter,
    *,
    study: SharedStudy,
    storage: StudyDatabase,
    heartbeat: HeartbeatPolicy | None = None,
    barrier: BedBarrier | None = None,
) -> None:
    """Run trials of a study on the beds of ``environment`` until the study is complete.

    ``directory`` contains the files of the study on this machine. Raises AutotuneError if the beds are
    unusable, and LockedError if other workers use them.
    """
    bed_fields = {
        bed: {"versions": collect_versions(), "adopted": bed_environment.file.adopted}
        for bed, bed_environment in environment.environments.items()
    }
    write_study_target(study, directory)
    create_store = partial(SharedStore, database=storage, study=study, heartbeat_policy=heartbeat)
    with open_locked_store(environment, directory, progress, create_store) as store:
        assert isinstance(store, SharedStore)
        store.join_beds(bed_fields)
        # A refused worker must not replace the targets of the worker that uses the beds.
        own_target = dump_yaml(environment.file.target).encode()
        for bed in environment.environments:
            ownership.seal_bed(directory, bed, own_target)
        searcher = start.create_searcher(environment, study.name, InMemoryStorage())
        searcher.reseed_sampler()
        progress.note(f"sampler {searcher.chosen.name}: {searcher.chosen.reason}")
        create_copy_searcher = partial(
            start.create_searcher, environment, study.name, is_condensed=True
        )
        with storage.convert_errors(), copy_in_background(storage, study, create_copy_searcher):
            run_bed_workers(
                environment, store, searcher, environment.file.target.budget, progress, barrier
            )
        store.refresh_state()
        storage.copy_files(study, journal.read_records(directory / EVENTS_FILE), directory)


def _check_first_record(study: SharedStudy) -> None:
    """Raise AutotuneError if the first record lacks fields that every shared study has."""
    first_record = study.first_record
    is_complete = isinstance(first_record.get("autotune"), str)
    if not is_complete or not isinstance(first_record.get("space"), dict):
        raise AutotuneError(
            f"the first record of study {study.name} is incomplete", hint=COMPROMISED_HINT
        )


def prepare_joining_beds(
    study: SharedStudy, database: StudyDatabase, target_file: TargetFile, beds: str
) -> MultiBedEnvironment:
    """Return the test beds of a target that will join a study, prepared on the current hosts.

    Raises AutotuneError if the beds, their target or this version of autotune do not fit the study.
    """
    records = database.read_records(study)
    if replay_records(records).verdict is not None:
        raise AutotuneError(
            f"study {study.name} is finished",
            hint=f"`autotune report {shlex.quote(study.name)} --storage URL` shows its results",
        )
    _check_first_record(study)
    if study.first_record["autotune"] != __version__:
        raise AutotuneError(
            f"study {study.name} needs autotune {study.first_record['autotune']}; this is "
            f"{__version__}",
            hint="all workers of a study need the same version: install that version here",
        )
    target_file, bed_names = (
        _adapt_target(target_file, study),
        select_beds(target_file.target, beds),
    )
    adopted_by_bed = {r["bed"]: r.get("adopted") for r in records if r["event"] == "joined"}
    environment = prepare_beds(
        target_file, bed_names, {bed_name: adopted_by_bed.get(bed_name) for bed_name in bed_names}
    )
    parameter_limits = collect_parameter_limits(environment.space)
    difference_lines = [
        f"  {line}"
        for line in list_limit_differences(
            "the study", study.first_record["space"], bed_names[0], parameter_limits
        )
    ]
    if difference_lines:
        raise AutotuneError(
            "\n".join(
                [f"the stack differs from the stack of study {study.name}:", *difference_lines]
            ),
            hint="make the hosts identical: `autotune check TARGET --beds all` shows the differences",
        )
    return environment


def write_study_target(study: SharedStudy, directory: Path) -> TargetFile:
    """Write the target of a study to ``directory``, and return the target file. Paths in the target are
    relative to the directory that the study read the target from. If this machine has no such directory,
    they are relative to ``directory``.

    Raises AutotuneError if ``directory`` contains a different study with this name, whose target must
    not change.
    """
    check_same_study(directory, study)
    durable_files.make_directory(directory, 0o700)
    foreign_files.check_ownership(directory)
    target_bytes = study.target_text.encode()
    durable_files.write_file(
        foreign_files.check_writable_path(directory, TARGET_FILE_NAME), target_bytes, 0o600
    )
    ownership.seal_study(directory, target_bytes, study.first_record)
    recorded_target = read_recorded_target(directory)
    source = study.first_record.get("source")
    # `Path.is_dir` raises an error below a directory that this account cannot enter.
    if not source or not os.path.isdir(Path(source).parent):  # noqa: PTH112
        return recorded_target
    located_document = replace(recorded_target.document, path=Path(source))
    return replace(recorded_target, document=located_document)


def _adapt_target(target_file: TargetFile, study: SharedStudy) -> TargetFile:
    """Return the target with the study's budget and search settings.

    Raises TargetError if anything but the beds differs from the target of the study, also in its files
    of requests and templates.
    """
    with TemporaryDirectory() as directory:
        target = write_study_target(study, Path(directory)).target
    changes = list_differences(target, target_file.target)
    breaking_changes = [
        f"  {c}" for c in changes if c.invalidates_readings and not c.path.startswith("beds.")
    ]
    breaking_changes += [
        f"  {name}: the file differs"
        for name in list_changed_inputs(study.first_record.get("asked") or {}, target_file)
    ]
    if breaking_changes:
        differences_text = "\n".join(breaking_changes)
        raise TargetError(
            f"{target_file.path} differs from the target of study {study.name}:\n{differences_text}",
            hint="undo the change, or use the study's own target: `autotune resume "
            f"{shlex.quote(study.name)} --storage URL --beds …`",
        )
    study_values = {"budget": target.budget, "search": target.search}
    return replace(target_file, target=target_file.target.model_copy(update=study_values))
