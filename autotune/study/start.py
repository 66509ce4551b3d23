"""Starting a study and continuing one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from autotune import foreign_files
from autotune.environments.base import Environment, prepare
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.environments.multi_bed import prepare as prepare_beds
from autotune.errors import AutotuneError, TargetError
from autotune.loads.registry import compute_request_digests
from autotune.optimize.ranking import transfer_settings
from autotune.optimize.searcher import Searcher
from autotune.optimize.storage import open_sqlite, translate_storage_errors
from autotune.study import journal, ownership, ranking, study_loop
from autotune.study.bed_workers import run_bed_workers as tune_on_beds
from autotune.study.directory import EVENTS_FILE
from autotune.study.ranking import Verdict
from autotune.study.recorded_environment import RecordedEnvironment
from autotune.study.study_state import APPLY_PURPOSE, MEASURE_PURPOSE
from autotune.study.study_store import StudyStore, load_state, read_first_record
from autotune.study.trial_context import (
    ProgressReporter,
    TrialContext,
    begin_study,
    collect_versions,
    open_locked_store,
    open_session,
    record_study_start,
)
from autotune.target.beds import select_beds
from autotune.target.messages import format_count
from autotune.target.read_target import TargetFile, read_recorded_target, read_target
from autotune.target.write_target import list_differences

OPTUNA_FILE = "study.db"
EXPLAIN_HINT = "`autotune report {study}` shows what the study found; explain it where it was begun"


def start_study(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    *,
    keep: bool = False,
    earlier: Path | None = None,
) -> None:
    """Run a new study of a target to its end, in a directory that is not there yet.

    ``keep``: the winner, if it is proven, is left on the hosts. ``earlier``: the directory of a
    study whose leaders are tried first, as far as they apply here.
    """
    if isinstance(environment, MultiBedEnvironment):
        with open_locked_store(environment, directory, progress) as store:
            record_study_start(environment, store, directory)
            if earlier is not None:
                _record_earlier_leaders(environment, store, progress, earlier)
            _run_on_beds(environment, store, progress)
        return
    with open_session(environment, directory, progress) as context:
        begin_study(environment, context, directory)
        if earlier is not None:
            _record_earlier_leaders(environment, context.store, progress, earlier)
        verdict = _run_search(environment, context, directory)
        if keep:
            _deploy_winner(context, verdict)


def _record_earlier_leaders(
    environment: Environment, store: StudyStore, progress: ProgressReporter, earlier_study: Path
) -> None:
    """Put the leaders of an earlier study on record, to be tried first."""
    with ownership.guard_foreign_records(earlier_study):
        state = load_state(earlier_study)
        stock = ranking.find_baseline(state)
        estimates = ranking.estimate_candidates(state)
        ranked = sorted(estimates, key=lambda trial: -estimates[trial].log_mean)
        configurations = transfer_settings(
            [state.find_trial(trial).effective_settings for trial in ranked],
            stock.effective_settings if stock else {},
            environment.space,
        )
    store.record_transferred(earlier_study.name, configurations)
    leaders = format_count(len(configurations), "configuration")
    progress.note(f"tried first, from study {earlier_study.name}: {leaders}")


def prepare_unfinished(directory: Path, beds: str | None = None) -> Environment:
    """The environment of a study that can be continued, on today's hosts; ``beds`` are the test beds
    that `--beds` names, ``None`` all that the study has. Raises as `prepare_existing` does, and
    AutotuneError for a study that is finished, is only read, or is no study."""
    state, name = load_state(directory), shlex.quote(directory.name)
    if state.purpose:
        again = {
            APPLY_PURPOSE: f"autotune restore {name}",
            MEASURE_PURPOSE: "autotune measure TARGET",
        }
        raise AutotuneError(
            f"{directory.name} is no study: a configuration was {state.purpose}",
            hint=again.get(state.purpose),
        )
    if state.verdict is not None:
        raise AutotuneError(
            f"study {directory.name} is finished",
            hint=f"autotune report {name}",
        )
    ownership.check_own_study(directory, ownership.NEW_STUDY_HINT)
    return prepare_existing(directory, beds)


def prepare_existing(directory: Path, beds: str | None = None) -> Environment:
    """The environment of a study that has been run, on today's hosts.

    Raises TargetError when the target has changed so that earlier readings no longer apply to it,
    AutotuneError where a parameter is tuned today that the study has no values of.
    """
    ownership.check_own_study(directory, EXPLAIN_HINT)
    environment = _prepare_environment(directory, beds)
    trials = load_state(directory).trials
    recorded = trials[0].settings if trials else environment.space.baseline
    if new := [d.name for d in environment.space.tunable_dimensions if d.name not in recorded]:
        more = f" and {len(new) - 1} more" if len(new) > 1 else ""
        raise AutotuneError(
            f"study {directory.name} has no values of {new[0]}{more}: it was begun with another "
            "version of autotune, or on other hosts",
            hint="start a new study with its best configurations: autotune run TARGET --from "
            f"{shlex.quote(directory.name)}",
        )
    return environment


def _prepare_environment(directory: Path, beds: str | None) -> Environment:
    """The environment that a study was begun on. On test beds, those of the study that ``beds`` names,
    or all. For a study in a storage, one of the beds that joined, which are alike."""
    file, first = _read_current_target(directory), read_first_record(directory)
    if first.get("shared"):
        return _prepare_joined_bed(file, directory)
    recorded = first.get("beds")
    if recorded is None and beds is None:
        return prepare(file)
    if recorded is None:
        raise AutotuneError(
            f"study {directory.name} is not on test beds",
            hint="leave `--beds` out: a study stays where it was begun",
        )
    names = select_beds(file.target, beds) if beds else tuple(recorded)
    if new := [name for name in names if name not in recorded]:
        raise AutotuneError(
            f"study {directory.name} was not begun on bed {new[0]}",
            hint=f"its beds: {', '.join(recorded)}",
        )
    return prepare_beds(file, names, {name: recorded[name]["adopted"] for name in names})


def _prepare_joined_bed(file: TargetFile, directory: Path) -> Environment:
    """The first bed that joined a study in a storage and is in its target: workers may bring others."""
    adopted = {r["bed"]: r.get("adopted") or {} for r in journal.read_records(directory / EVENTS_FILE)
               if r["event"] == "joined"}  # fmt: skip
    bed = next((bed for bed in adopted if bed in file.target.beds), None)
    if bed is None:
        raise AutotuneError(
            f"no test bed that joined study {directory.name} is in its target",
            hint=f"{shlex.quote(directory.name)} has joined: {', '.join(adopted) or 'none yet'}; add one "
            f"to `beds:` of {file.path}",
        )
    return prepare_beds(file, (bed,), {bed: adopted[bed]})


def resume_study(environment: Environment, directory: Path, progress: ProgressReporter) -> None:
    """Continue a study where it stopped; nothing that was measured is measured again."""
    if isinstance(environment, MultiBedEnvironment):
        with open_locked_store(environment, directory, progress) as store:
            store.record_session_start(collect_versions(), tuple(environment.environments))
            _run_on_beds(environment, store, progress)
        return
    with open_session(environment, directory, progress) as context:
        context.store.record_session_start(collect_versions())
        _run_search(environment, context, directory)


@contextmanager
def open_search(environment: Environment, directory: Path) -> Iterator[Searcher]:
    """The search of the study in ``directory``, with all that it has recorded, until the block ends.

    Raises AutotuneError for a storage that cannot be used, OSError if the disk is full.
    """
    path = foreign_files.check_writable_path(
        directory, OPTUNA_FILE, foreign_files.MAX_DATABASE_BYTES
    )
    with translate_storage_errors(path):
        path.touch(mode=0o600)
        with open_sqlite(path) as storage:
            yield create_searcher(environment, directory.name, storage)


def create_searcher(
    environment: Environment | RecordedEnvironment,
    name: str,
    storage: BaseStorage,
    *,
    condensed: bool = False,
) -> Searcher:
    """The search of the study of this name in ``storage``."""
    target = environment.file.target
    return Searcher(
        storage,
        name,
        environment.space,
        target.search.sampler,
        target.search.seed,
        target.budget.trials,
        several=isinstance(environment, MultiBedEnvironment),
        is_condensed=condensed,
    )


def _run_on_beds(
    environment: MultiBedEnvironment, store: StudyStore, progress: ProgressReporter
) -> None:
    with open_search(environment, store.directory) as asking:
        progress.note(f"sampler {asking.chosen.name}: {asking.chosen.reason}")
        tune_on_beds(environment, store, asking, environment.file.target.budget, progress)


def _run_search(environment: Environment, context: TrialContext, directory: Path) -> Verdict:
    with _open_timed_search(environment, context, directory) as asking:
        context.progress.note(f"sampler {asking.chosen.name}: {asking.chosen.reason}")
        return study_loop.run_study_loop(context, asking, environment.file.target.budget)


@contextmanager
def _open_timed_search(
    environment: Environment, context: TrialContext, directory: Path
) -> Iterator[Searcher]:
    """The study's search; the time to open it counts as time spent searching."""
    with ExitStack() as stack:
        with context.clock.time_activity("search"):
            asking = stack.enter_context(open_search(environment, directory))
        yield asking


def _deploy_winner(context: TrialContext, verdict: Verdict) -> None:
    """Deploy the winner once more, to stay; without one everything is restored."""
    if verdict.verdict != "improved" or verdict.best is None:
        context.progress.note("nothing is kept: no configuration is proven to be better")
        return
    fleet, settings = context.session.fleet, context.store.state.find_trial(verdict.best).settings
    context.space.validate_settings(settings)
    fleet.deploy(settings)
    fleet.keep_deployed()
    context.progress.note(f"the configuration of trial {verdict.best} stays on the hosts")


def _read_current_target(directory: Path) -> TargetFile:
    """The target as the user has it now, or as the study ran it if that file is gone. Raises TargetError
    where it means something else by now."""
    record = read_first_record(directory)
    source, adopted = Path(record["source"]), record.get("adopted", {})
    kept = read_recorded_target(directory)
    if not source.exists():
        return replace(kept, adopted=adopted)
    today = read_target(source, [(option, value) for option, value in record.get("overrides", ())])
    changes = list_differences(kept.target, today.target)
    breaking = [str(change) for change in changes if change.invalidates_readings]
    if not breaking:
        asked = record.get("asked", {})
        now = compute_request_digests(today) if asked else {}
        breaking = [
            f"{name}: other requests than then" for name in asked if now[name] != asked[name]
        ]
    if breaking:
        listed = "\n".join(f"  {change}" for change in breaking)
        raise TargetError(
            f"{source} has changed since study {directory.name} began, and its readings no longer "
            f"speak of it:\n{listed}",
            hint="change it back to resume, or start a new study with `autotune run`",
        )
    return replace(today, adopted=adopted)
