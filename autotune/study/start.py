"""Start or continue a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from optuna.storages import BaseStorage

from autotune.environments.base import Environment
from autotune.environments.multi_bed import MultiBedEnvironment
from autotune.environments.multi_bed import prepare as prepare_beds
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError, TargetError
from autotune.optimize.ranking import transfer_settings
from autotune.optimize.searcher import Searcher
from autotune.optimize.storage import (
    check_database_files,
    open_sqlite,
    translate_content_errors,
    translate_storage_errors,
)
from autotune.study import journal, ownership, ranking, study_loop
from autotune.study.bed_workers import run_bed_workers as tune_on_beds
from autotune.study.directory import EVENTS_FILE
from autotune.study.journal_records import RecordedBudget
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.recorded_environment import RecordedEnvironment
from autotune.study.restore import has_saved_originals
from autotune.study.study_state import APPLY_PURPOSE, MEASURE_PURPOSE
from autotune.study.study_store import StudyStore, load_state, read_study_start
from autotune.study.trial_context import (
    TrialContext,
    begin_study,
    collect_versions,
    list_changed_inputs,
    open_locked_store,
    open_session,
    record_study_start,
)
from autotune.study.verdict import Verdict
from autotune.study_argument import format_study_argument
from autotune.target.beds import select_beds
from autotune.target.messages import format_count
from autotune.target.read_target import TargetFile, read_recorded_target, read_target
from autotune.target.write_target import list_differences

OPTUNA_FILE = "study.db"
EXPLAIN_HINT = "`autotune report {study}` shows the result; run explain where the study was started"


def start_study(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    *,
    keeps_winner: bool = False,
    earlier_study: Path | None = None,
) -> None:
    """Run a new study of a target until it is complete, in a directory that does not exist yet.

    If ``keeps_winner`` is true, a proven winner stays on the hosts. ``earlier_study`` is the directory
    of a study whose best configurations are tried first if they apply to this target.
    """
    if isinstance(environment, MultiBedEnvironment):
        with open_locked_store(environment, directory, progress) as store:
            record_study_start(environment, store, directory)
            if earlier_study is not None:
                _record_earlier_leaders(environment, store, progress, earlier_study)
            _run_on_beds(environment, store, progress)
        return
    with open_session(environment, directory, progress) as context:
        begin_study(environment, context, directory, keeps_winner=keeps_winner)
        if earlier_study is not None:
            _record_earlier_leaders(environment, context.store, progress, earlier_study)
        verdict = _run_search(environment, context, directory)
        if keeps_winner:
            _deploy_winner(context, verdict)


def _record_earlier_leaders(
    environment: Environment, store: StudyStore, progress: ProgressReporter, earlier_study: Path
) -> None:
    """Record the best configurations of an earlier study, so that they are tried first."""
    with ownership.guard_foreign_records(earlier_study):
        state = load_state(earlier_study)
        baseline = ranking.find_baseline(state)
        estimates = ranking.estimate_candidate_peaks(state)
        ranked_numbers = sorted(
            estimates, key=lambda trial_number: -estimates[trial_number].log_mean
        )
        configurations = transfer_settings(
            [state.find_trial(trial_number).effective_settings for trial_number in ranked_numbers],
            baseline.effective_settings if baseline else {},
            environment.space,
        )
    store.record_transferred(earlier_study.name, configurations)
    if not configurations:
        progress.note(f"no configuration of study {earlier_study.name} applies to this target")
        return
    leaders_text = format_count(len(configurations), "configuration")
    progress.note(f"tried first, from study {earlier_study.name}: {leaders_text}")


def prepare_unfinished(
    directory: Path, beds: str | None = None, *, keeps_winner: bool = False
) -> Environment:
    """Return the environment of a study that can be continued, on the current hosts.

    ``beds`` is the value of `--beds`; ``None`` means all beds of the study. If ``keeps_winner`` is true,
    a study that was stopped before it kept its proven winner can be continued, too. Raises the errors of
    `prepare_existing`, and AutotuneError if the study is finished, read-only or has no search.
    """
    state, study_argument = load_state(directory), format_study_argument(directory)
    if state.purpose:
        command_by_purpose = {
            APPLY_PURPOSE: f"`autotune restore {study_argument}` undoes it",
            MEASURE_PURPOSE: "`autotune measure TARGET` measures again",
        }
        raise AutotuneError(
            f"{directory.name} cannot be resumed: it only {state.purpose} a configuration",
            hint=command_by_purpose.get(
                state.purpose, f"`autotune report {study_argument}` shows it"
            ),
        )
    is_winner_missing = (
        state.verdict is not None
        and state.verdict.verdict == "improved"
        and state.kept_trial is None
    )
    if state.verdict is not None and not (keeps_winner and is_winner_missing):
        if has_saved_originals(directory) and state.kept_trial is None:
            raise AutotuneError(
                f"study {directory.name} is finished, but its hosts have not been restored",
                hint=f"`autotune restore {study_argument}` restores them",
            )
        raise AutotuneError(
            f"study {directory.name} is finished",
            hint=f"`autotune report {study_argument}` shows its results",
        )
    ownership.check_own_study(directory, ownership.NEW_STUDY_HINT)
    return prepare_existing(directory, beds)


def prepare_existing(directory: Path, beds: str | None = None) -> Environment:
    """Return the environment of an existing study, on the current hosts.

    Raises TargetError if a change of the target invalidates earlier readings, and AutotuneError if the
    study lacks values of a parameter that is tuned now.
    """
    ownership.check_own_study(directory, EXPLAIN_HINT)
    environment = _prepare_environment(directory, beds)
    trials = load_state(directory).trials
    recorded_settings = trials[0].settings if trials else environment.space.baseline
    if missing_names := [
        d.name for d in environment.space.tunable_dimensions if d.name not in recorded_settings
    ]:
        further_names_text = f" and {len(missing_names) - 1} more" if len(missing_names) > 1 else ""
        raise AutotuneError(
            f"study {directory.name} lacks values of {missing_names[0]}{further_names_text}: it was "
            f"started with another version of autotune or on other hosts",
            hint="start a new study with its best configurations: autotune run TARGET --from "
            f"{format_study_argument(directory)}",
        )
    return environment


def _prepare_environment(directory: Path, beds: str | None) -> Environment:
    """Return the environment of a study as it was when the study started.

    ``beds`` selects test beds by name; the default is all. For a study in a shared database, one joined
    bed is enough, because the beds are equal.
    """
    target_file, study_start = _read_current_target(directory), read_study_start(directory)
    if study_start.shared:
        return _prepare_joined_bed(target_file, directory)
    bed_names = study_start.beds
    if not bed_names and beds is None:
        return prepare(target_file)
    if not bed_names:
        raise AutotuneError(
            f"study {directory.name} does not use test beds",
            hint="omit `--beds`",
        )
    selected_names = select_beds(target_file.target, beds) if beds else tuple(bed_names)
    if unknown_names := [name for name in selected_names if name not in bed_names]:
        raise AutotuneError(
            f"bed {unknown_names[0]} is not a bed of study {directory.name}",
            hint=f"its beds: {', '.join(bed_names)}",
        )
    return prepare_beds(
        target_file, selected_names, {name: bed_names[name].adopted for name in selected_names}
    )


def _prepare_joined_bed(target_file: TargetFile, directory: Path) -> Environment:
    """Return the environment of the first joined bed that the study's target lists. Workers may have
    joined with beds that are not in this target.
    """
    adopted_by_bed = {
        r["bed"]: r.get("adopted") or {}
        for r in journal.read_records(directory / EVENTS_FILE)
        if r["event"] == "joined"
    }
    bed = next((bed for bed in adopted_by_bed if bed in target_file.target.beds), None)
    if bed is None:
        raise AutotuneError(
            f"the target of study {directory.name} lists no test bed that joined the study",
            hint=f"add one of the joined beds ({', '.join(adopted_by_bed) or 'none yet'}) to `beds:` of "
            f"{target_file.path}",
        )
    return prepare_beds(target_file, (bed,), {bed: adopted_by_bed[bed]})


def resume_study(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    *,
    keeps_winner: bool = False,
) -> None:
    """Continue a study; finished measurements are not repeated.

    If ``keeps_winner`` is true, a proven winner stays on the hosts.
    """
    if isinstance(environment, MultiBedEnvironment):
        with open_locked_store(environment, directory, progress) as store:
            beds = tuple(environment.environments)
            store.record_session_start(collect_versions(), beds, _read_budget(environment))
            _run_on_beds(environment, store, progress)
        return
    with open_session(environment, directory, progress) as context:
        context.store.record_session_start(
            collect_versions(), budget=_read_budget(environment), keeps_winner=keeps_winner
        )
        verdict = _run_search(environment, context, directory)
        if keeps_winner:
            _deploy_winner(context, verdict)


def _read_budget(environment: Environment) -> RecordedBudget:
    budget = environment.file.target.budget
    return RecordedBudget(budget.trials, budget.time)


@contextmanager
def open_search(environment: Environment, directory: Path) -> Iterator[Searcher]:
    """Open the search of the study in ``directory``, with all recorded outcomes, for a ``with`` block.

    Raises AutotuneError if the storage is unusable, and OSError if the disk is full.
    """
    path = check_database_files(directory, OPTUNA_FILE)
    with translate_storage_errors(path):
        path.touch(mode=0o600)
        with open_sqlite(path) as storage:
            with translate_content_errors(path):
                searcher = create_searcher(environment, directory.name, storage)
                searcher.check_trials()
            yield searcher


def create_searcher(
    environment: Environment | RecordedEnvironment,
    study_name: str,
    storage: BaseStorage,
    *,
    is_condensed: bool = False,
) -> Searcher:
    """Return the search of the study with this name in ``storage``."""
    target = environment.file.target
    return Searcher(
        storage,
        study_name,
        environment.space,
        target.search.sampler,
        target.search.seed,
        target.budget.trials,
        has_several_beds=isinstance(environment, MultiBedEnvironment),
        is_condensed=is_condensed,
    )


def _run_on_beds(
    environment: MultiBedEnvironment, store: StudyStore, progress: ProgressReporter
) -> None:
    with open_search(environment, store.directory) as searcher:
        progress.note(f"sampler {searcher.chosen.name}: {searcher.chosen.reason}")
        tune_on_beds(environment, store, searcher, environment.file.target.budget, progress)


def _run_search(environment: Environment, context: TrialContext, directory: Path) -> Verdict:
    with _open_timed_search(environment, context, directory) as searcher:
        context.progress.note(f"sampler {searcher.chosen.name}: {searcher.chosen.reason}")
        return study_loop.run_study_loop(context, searcher, environment.file.target.budget)


@contextmanager
def _open_timed_search(
    environment: Environment, context: TrialContext, directory: Path
) -> Iterator[Searcher]:
    """Open the study's search, and count the time for opening it as search time."""
    with ExitStack() as exit_stack:
        with context.clock.time_activity("search"):
            searcher = exit_stack.enter_context(open_search(environment, directory))
        yield searcher


def _deploy_winner(context: TrialContext, verdict: Verdict) -> None:
    """Deploy a proven winner permanently. Without a proven winner, restore everything."""
    if verdict.verdict != "improved" or verdict.best is None:
        context.progress.note("no configuration is kept: none is proven better than the baseline")
        return
    fleet, settings = context.session.fleet, context.store.state.find_trial(verdict.best).settings
    context.space.validate_settings(settings)
    fleet.deploy(settings)
    fleet.keep_deployed()
    context.store.record_kept_winner(verdict.best)
    context.progress.note(f"the configuration of trial {verdict.best} stays on the hosts")


def _read_current_target(directory: Path) -> TargetFile:
    """Return the user's current target, or the recorded target if the user's file no longer exists.

    Raises TargetError if a change of the target invalidates earlier readings.
    """
    study_start = read_study_start(directory)
    source_path, adopted_record = Path(study_start.source), study_start.adopted or {}
    recorded_target = read_recorded_target(directory)
    # Paths in a target are relative to the directory that the study read it from.
    located_document = replace(recorded_target.document, path=source_path)
    current_target = replace(recorded_target, document=located_document)
    if source_path.exists():
        current_target = read_target(
            source_path, [(option, value) for option, value in study_start.overrides]
        )
    changes = list_differences(recorded_target.target, current_target.target)
    breaking_changes = [str(change) for change in changes if change.invalidates_readings]
    if not breaking_changes:
        breaking_changes = [
            f"{name}: the file has changed"
            for name in list_changed_inputs(study_start.asked, current_target)
        ]
    if breaking_changes:
        differences_text = "\n".join(f"  {change}" for change in breaking_changes)
        raise TargetError(
            f"{source_path} has changed since study {directory.name} started, so its readings no longer "
            f"apply:\n{differences_text}",
            hint="undo the change to resume, or start a new study with `autotune run`",
        )
    return replace(current_target, adopted=adopted_record)
