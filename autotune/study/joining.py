"""Beginning a study in a storage, and joining one with test beds of this machine."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from optuna.storages import InMemoryStorage

from autotune import __version__, durable, foreign_files
from autotune.environments.beds import Beds, limits, unlike
from autotune.environments.beds import prepare as prepare_beds
from autotune.errors import AutotuneError, TargetError
from autotune.study import journal, origin, start
from autotune.study.beds import tune
from autotune.study.context import ProgressReporter, described, held, target_text, versions
from autotune.study.directory import EVENTS, directories
from autotune.study.optuna_copy import copying
from autotune.study.records import replay
from autotune.study.shared import Pulse, SharedStore, check_same
from autotune.study.storage import SharedStudy, Storage
from autotune.study.store import first_record_of, now
from autotune.study.turns import Turns
from autotune.target.beds import chosen
from autotune.target.read import TARGET, TargetFile, read_recorded
from autotune.target.write import differences


def begin(environment: Beds, storage: Storage, root: Path) -> SharedStudy:
    """A new study in a storage, under a name that is free there and in ``root``."""
    text, first = target_text(environment), described(environment)
    for directory in directories(root, environment.file.target.name):
        name = directory.name
        records = [
            # Its beds are on record when they join.
            {**first_record_of(name, **{**first, "beds": {}}), "shared": True,
             "space": limits(environment.space)},
            {"event": "session", "at": now(), "versions": versions()},
        ]  # fmt: skip
        if not directory.exists() and storage.create(name, text, records):
            return storage.find(name)
    raise AssertionError("counting never ends")


def join(
    environment: Beds,
    directory: Path,
    progress: ProgressReporter,
    *,
    study: SharedStudy,
    storage: Storage,
    pulse: Pulse | None = None,
    turns: Turns | None = None,
) -> None:
    """Measure for a study with the beds of ``environment`` until it ends; this machine keeps its files
    of the study in ``directory``.

    Raises AutotuneError where the beds cannot be used, LockedError where others measure on them.
    """
    beds = {
        bed: {"versions": versions(), "adopted": each.file.adopted}
        for bed, each in environment.environments.items()
    }
    own_target(study, directory)
    store_in = partial(SharedStore, database=storage, study=study, pulse=pulse)
    with held(environment, directory, progress, store_in) as store:
        assert isinstance(store, SharedStore)
        store.join(beds)
        search = start.search(environment, study.name, InMemoryStorage())
        search.part()
        progress.note(f"sampler {search.chosen.name}: {search.chosen.why}")
        in_tables = partial(start.search, environment, study.name, condensed=True)
        with storage.errors(), copying(storage, study, in_tables):
            tune(environment, store, search, environment.file.target.budget, progress, turns)
        store.refresh()
        storage.copy_files(study, journal.read(directory / EVENTS), directory)


def joining(study: SharedStudy, storage: Storage, file: TargetFile, beds: str) -> Beds:
    """The test beds of a target that are to join a study, prepared on today's hosts.

    Raises AutotuneError where the beds, their target or this version of autotune do not fit the study.
    """
    records = storage.records(study)
    if replay(records).verdict is not None:
        raise AutotuneError(
            f"study {study.name} is finished",
            hint=f"autotune report {shlex.quote(study.name)} --storage URL",
        )
    if study.first["autotune"] != __version__:
        raise AutotuneError(
            f"study {study.name} is of autotune {study.first['autotune']}, and this is {__version__}",
            hint="all workers of a study have one version: install that one here",
        )
    file, names = _fitting(file, study), chosen(file.target, beds)
    adopted = {r["bed"]: r["adopted"] for r in records if r["event"] == "joined"}
    environment = prepare_beds(file, names, {name: adopted.get(name) for name in names})
    here = limits(environment.space)
    lines = [f"  {line}" for line in unlike("the study", study.first["space"], names[0], here)]
    if lines:
        raise AutotuneError(
            "\n".join([f"study {study.name} is of another stack:", *lines]),
            hint="make the hosts alike: `autotune check TARGET --beds all` shows how they differ",
        )
    return environment


def own_target(study: SharedStudy, directory: Path) -> TargetFile:
    """The target that a study was begun with, put into ``directory``.

    Raises AutotuneError where ``directory`` has another study of this name, whose target is kept.
    """
    check_same(directory, study)
    durable.make_directory(directory, 0o700)
    foreign_files.check_own(directory)
    target = study.target.encode()
    durable.write(foreign_files.writable(directory, TARGET), target, 0o600)
    origin.seal(directory, target, study.first)
    return read_recorded(directory)


def _fitting(file: TargetFile, study: SharedStudy) -> TargetFile:
    """The target with the study's budget and search. Raises TargetError where it contradicts the target
    that the study was begun with; only the beds may differ."""
    with TemporaryDirectory() as directory:
        target = own_target(study, Path(directory)).target
    changes = differences(target, file.target)
    if other := [f"  {c}" for c in changes if c.breaks and not c.path.startswith("beds.")]:
        listed = "\n".join(other)
        raise TargetError(
            f"{file.path} says something else than the target of study {study.name}:\n{listed}",
            hint=f"the study's own is that of `autotune resume {study.name} --storage URL --beds …`",
        )
    shared = {"budget": target.budget, "search": target.search}
    return replace(file, target=file.target.model_copy(update=shared))
