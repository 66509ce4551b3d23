"""Beginning a study in a storage, and joining one with test beds of this machine."""

from __future__ import annotations

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
from autotune.study.directory import EVENTS_FILE, iterate_candidate_directories
from autotune.study.optuna_copy import copy_in_background
from autotune.study.shared_store import HeartbeatPolicy, SharedStore, check_same_study
from autotune.study.study_database import SharedStudy, StudyDatabase
from autotune.study.study_state import replay_records
from autotune.study.study_store import build_first_record, current_timestamp
from autotune.study.trial_context import (
    ProgressReporter,
    collect_versions,
    describe_environment,
    format_target,
    open_locked_store,
)
from autotune.target.beds import select_beds
from autotune.target.read_target import TARGET_FILE_NAME, TargetFile, read_recorded_target
from autotune.target.write_target import list_differences


def create_shared_study(
    environment: MultiBedEnvironment, database: StudyDatabase, root: Path
) -> SharedStudy:
    """A new study in a storage, under a name that is free there and in ``root``."""
    text, first = format_target(environment), describe_environment(environment)
    for directory in iterate_candidate_directories(root, environment.file.target.name):
        name = directory.name
        records = [
            # Its beds are on record when they join.
            {**build_first_record(name, **{**first, "beds": {}}), "shared": True,
             "space": collect_parameter_limits(environment.space)},
            {"event": "session", "at": current_timestamp(), "versions": collect_versions()},
        ]  # fmt: skip
        if not directory.exists() and database.create_study(name, text, records):
            return database.find_study(name)
    raise AssertionError("counting never ends")


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
    """Measure for a study with the beds of ``environment`` until it ends; this machine keeps its files
    of the study in ``directory``.

    Raises AutotuneError where the beds cannot be used, LockedError where others measure on them.
    """
    beds = {
        bed: {"versions": collect_versions(), "adopted": each.file.adopted}
        for bed, each in environment.environments.items()
    }
    write_study_target(study, directory)
    store_in = partial(SharedStore, database=storage, study=study, pulse=heartbeat)
    with open_locked_store(environment, directory, progress, store_in) as store:
        assert isinstance(store, SharedStore)
        store.join_beds(beds)
        search = start.create_searcher(environment, study.name, InMemoryStorage())
        search.reseed()
        progress.note(f"sampler {search.chosen.name}: {search.chosen.reason}")
        in_tables = partial(start.create_searcher, environment, study.name, condensed=True)
        with storage.convert_errors(), copy_in_background(storage, study, in_tables):
            run_bed_workers(
                environment, store, search, environment.file.target.budget, progress, barrier
            )
        store.refresh()
        storage.copy_files(study, journal.read_records(directory / EVENTS_FILE), directory)


def prepare_joining_beds(
    study: SharedStudy, database: StudyDatabase, file: TargetFile, beds: str
) -> MultiBedEnvironment:
    """The test beds of a target that are to join a study, prepared on today's hosts.

    Raises AutotuneError where the beds, their target or this version of autotune do not fit the study.
    """
    records = database.read_records(study)
    if replay_records(records).verdict is not None:
        raise AutotuneError(
            f"study {study.name} is finished",
            hint=f"autotune report {shlex.quote(study.name)} --storage URL",
        )
    if study.first_record["autotune"] != __version__:
        raise AutotuneError(
            f"study {study.name} is of autotune {study.first_record['autotune']}, and this is "
            f"{__version__}",
            hint="all workers of a study have one version: install that one here",
        )
    file, names = _adapt_target(file, study), select_beds(file.target, beds)
    adopted = {r["bed"]: r["adopted"] for r in records if r["event"] == "joined"}
    environment = prepare_beds(file, names, {name: adopted.get(name) for name in names})
    here = collect_parameter_limits(environment.space)
    lines = [
        f"  {line}"
        for line in list_limit_differences("the study", study.first_record["space"], names[0], here)
    ]
    if lines:
        raise AutotuneError(
            "\n".join([f"study {study.name} is of another stack:", *lines]),
            hint="make the hosts alike: `autotune check TARGET --beds all` shows how they differ",
        )
    return environment


def write_study_target(study: SharedStudy, directory: Path) -> TargetFile:
    """The target that a study was begun with, put into ``directory``.

    Raises AutotuneError where ``directory`` has another study of this name, whose target is kept.
    """
    check_same_study(directory, study)
    durable_files.make_directory(directory, 0o700)
    foreign_files.check_ownership(directory)
    target = study.target_text.encode()
    durable_files.write_file(
        foreign_files.check_writable_path(directory, TARGET_FILE_NAME), target, 0o600
    )
    ownership.seal_study(directory, target, study.first_record)
    return read_recorded_target(directory)


def _adapt_target(file: TargetFile, study: SharedStudy) -> TargetFile:
    """The target with the study's budget and search. Raises TargetError where it contradicts the target
    that the study was begun with; only the beds may differ."""
    with TemporaryDirectory() as directory:
        target = write_study_target(study, Path(directory)).target
    changes = list_differences(target, file.target)
    if other := [
        f"  {c}" for c in changes if c.invalidates_readings and not c.path.startswith("beds.")
    ]:
        listed = "\n".join(other)
        raise TargetError(
            f"{file.path} says something else than the target of study {study.name}:\n{listed}",
            hint=f"the study's own is that of `autotune resume {study.name} --storage URL --beds …`",
        )
    shared = {"budget": target.budget, "search": target.search}
    return replace(file, target=file.target.model_copy(update=shared))
