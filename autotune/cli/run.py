"""`autotune run` and `autotune resume`: sessions of a study."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import (
    DEFAULT_PROGRESS,
    DEFAULT_STUDIES_DIRECTORY,
    BedsOption,
    ExitCodeOption,
    JsonOption,
    ProgressOptions,
    SetOption,
    StorageUrlOption,
    StudiesOption,
    StudyArgument,
    TargetArgument,
    YesOption,
    add_progress_options,
    find_given_option,
)
from autotune.cli.output import print_study, print_sweep
from autotune.cli.session import (
    build_set_overrides,
    confirm,
    prepare_search,
    reject_sweep,
    run_session,
    run_sweep_session,
)
from autotune.cli.worker import join_and_report
from autotune.errors import UsageError
from autotune.study_argument import format_study_argument
from autotune.terminal import echo

if TYPE_CHECKING:
    from autotune.environments.base import Environment

NameOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Override the target's `name:`.")
]
TrialsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Override the target's `budget: {trials: …}`.")
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Override the target's `budget: {time: …}`, such as 15m."
    ),
]


NEW_STUDY_HINT = "`autotune run {target}` starts a new study"
KeepOption = Annotated[bool, typer.Option("--keep", help="Leave a proven winner in place.")]
EarlierStudyOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="STUDY",
        help="Start with the best configurations of this study.",
        autocompletion=completion.complete_studies,
    ),
]


@add_progress_options(with_metrics=True)
def run(
    target: TargetArgument,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    exit_code: ExitCodeOption = False,
    keep: KeepOption = False,
    from_: EarlierStudyOption = None,
    name: NameOption = None,
    time: TimeOption = None,
    trials: TrialsOption = None,
    set_: SetOption = None,
    beds: BedsOption = None,
    storage: StorageUrlOption = None,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Run a study: send load, change hosts, prove the best configuration, restore the hosts."""
    from autotune.study import start
    from autotune.study.directory import find_free_directory

    options = {"--name": name, "--time": time, "--trials": trials}
    overrides = [(option, str(value)) for option, value in options.items() if value is not None]
    _check_storage(storage, beds, from_)
    _reject_study(target, studies)
    environment = prepare_search(target, [*overrides, *build_set_overrides(set_)], beds)
    if keep:
        _check_keep(environment)
    earlier_study = _find_earlier_study(from_, studies)
    confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
    if storage is not None:
        _run_shared_study(environment, storage, studies, progress, json_=json_, exit_code=exit_code)
        return
    study_name = environment.file.target.name
    directory = find_free_directory(studies, study_name)
    if directory.name != study_name and not progress.quiet:
        echo(f"study {study_name} exists, so the new study is {directory.name}", err=True)
    start_study = partial(start.start_study, keeps_winner=keep, earlier_study=earlier_study)
    run_session(
        start_study, environment, directory, json_=json_, options=progress, keeps_winner=keep
    )
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)


def _find_earlier_study(study_name: str | None, studies: Path) -> Path | None:
    """Return the directory of the study that `--from` names. Raises UsageError."""
    from autotune.study.directory import find_study
    from autotune.study.study_store import load_state

    if study_name is None:
        return None
    directory = find_study(study_name, studies)
    reject_sweep(directory, "configurations to start with")
    if purpose := load_state(directory).purpose:
        raise UsageError(
            f"{directory.name} only {purpose} a configuration, so no search can start with it",
            hint="name a study that `autotune run` started, or list settings under `try:` in the target",
        )
    return directory


def _check_keep(environment: Environment) -> None:
    """Raise UsageError if a winner cannot stay in place."""
    from autotune.study.trial_context import check_can_keep, find_test_beds

    _reject_beds(has_beds=bool(find_test_beds(environment)))
    check_can_keep(environment)


def _reject_beds(*, has_beds: bool) -> None:
    """Raise UsageError for `--keep` if a study uses test beds."""
    if has_beds:
        raise UsageError(
            "--keep does not apply to studies on test beds",
            hint="omit --keep; after the study, run `autotune export` and then `autotune apply`",
        )


def _reject_study(target: Path, studies: Path) -> None:
    """Raise UsageError if a study was named instead of a target."""
    from autotune.study.directory import find_study, is_study

    if not target.is_file() and is_study(target, studies):
        study = format_study_argument(find_study(str(target), studies))
        raise UsageError(
            f"{target} is a study, not a target",
            hint=f"`autotune resume {study}` continues it; `autotune run TARGET` starts a new study",
        )


def _check_storage(storage: str | None, beds: str | None, earlier_study: str | None) -> None:
    """Raise UsageError for options that a study in a shared database does not support."""
    if storage is None:
        return
    if earlier_study:
        raise UsageError(
            "--storage and --from cannot be combined",
            hint="omit --from to share the study, or --storage to start from an earlier study",
        )
    if not beds:
        raise UsageError(
            "--storage needs --beds",
            hint="add `--beds all`, or omit --storage to run the study on this machine alone",
        )


def _run_shared_study(
    environment: Environment,
    storage: str,
    studies: Path,
    progress: ProgressOptions,
    *,
    json_: bool,
    exit_code: bool,
) -> None:
    """Create a study in a shared database, and join the study."""
    from autotune.environments.multi_bed import MultiBedEnvironment
    from autotune.study.join_study import create_shared_study
    from autotune.study.study_database import StudyDatabase

    assert isinstance(environment, MultiBedEnvironment)
    with closing(StudyDatabase(storage)) as database:
        study = create_shared_study(environment, database, studies)
        join_and_report(
            environment, study, database, studies, progress, json_=json_, exit_code=exit_code
        )


def _check_sweep_options(
    progress: ProgressOptions, beds: str | None, *, exit_code: bool, keep: bool
) -> None:
    """Raise UsageError for an option that has no effect on a sweep."""
    values_by_option = {
        "--beds": beds,
        "--exit-code": exit_code,
        "--keep": keep,
        "--metrics-file": progress.metrics_file,
        "--metrics-port": progress.metrics_server,
    }
    if useless_option := find_given_option(values_by_option):
        raise UsageError(
            f"{useless_option} applies only to studies, and this is a sweep",
            hint=f"omit {useless_option}",
        )


@add_progress_options(with_metrics=True)
def resume(
    study: StudyArgument,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    exit_code: ExitCodeOption = False,
    keep: KeepOption = False,
    beds: BedsOption = None,
    storage: StorageUrlOption = None,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Continue a study after a stop or crash, without repeating measurements."""
    from autotune.study.directory import find_study
    from autotune.sweep.plan import is_sweep

    if storage is not None:
        _reject_beds(has_beds=keep)  # studies in a shared database always use test beds
        _resume_shared_study(
            study,
            storage,
            studies,
            beds or "all",
            progress,
            yes=yes,
            json_=json_,
            exit_code=exit_code,
        )
        return
    directory = find_study(study, studies, target_hint=NEW_STUDY_HINT)
    if is_sweep(directory):
        _check_sweep_options(progress, beds, exit_code=exit_code, keep=keep)
        _resume_sweep(directory, progress, yes=yes, json_=json_)
        return
    _resume_study(directory, beds, progress, yes=yes, json_=json_, keep=keep)
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)


def _resume_study(
    directory: Path,
    beds: str | None,
    progress: ProgressOptions,
    *,
    yes: bool,
    json_: bool,
    keep: bool,
) -> None:
    """Continue a study. Print a notice if only its last session would have left a winner in place."""
    from autotune.study import start
    from autotune.study.study_store import load_state

    environment = start.prepare_unfinished(directory, beds, keeps_winner=keep)
    if keep:
        _check_keep(environment)
    elif load_state(directory).keeps_winner and not progress.quiet:
        echo(
            f"the last session of study {directory.name} used --keep; without --keep, this session "
            "restores the hosts",
            err=True,
        )
    confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
    resume_study = partial(start.resume_study, keeps_winner=keep)
    run_session(
        resume_study, environment, directory, json_=json_, options=progress, keeps_winner=keep
    )


def _resume_sweep(directory: Path, progress: ProgressOptions, *, yes: bool, json_: bool) -> None:
    """Continue a sweep. If it is finished, only print its results."""
    from autotune.study import start
    from autotune.study.ownership import guard_foreign_records
    from autotune.sweep.plan import is_finished

    with guard_foreign_records(directory):
        if is_finished(directory):
            _restore_killed_sweep(directory)
            echo(
                f"sweep {directory.name} is finished, so nothing is left to measure; `autotune report "
                f"{format_study_argument(directory)}` shows its results",
                err=True,
            )
            print_sweep(directory, None, json_=json_)
            return
    environment = start.prepare_unfinished(directory)
    confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
    _restore_killed_sweep(directory)
    run_sweep_session(environment, None, directory, None, json_=json_, options=progress)


def _restore_killed_sweep(directory: Path) -> None:
    """Restore the hosts that a killed sweep left changed. The remaining measurements may not use all of
    them, and sessions restore only the hosts that they use.
    """
    from autotune.study.restore import RestoreReport, has_saved_originals, restore_study

    if has_saved_originals(directory):
        report = RestoreReport()
        restore_study(directory, report)
        for line in report.unwrap():
            echo(line, err=True)


def _resume_shared_study(
    study_name: str,
    storage: str,
    studies: Path,
    beds: str,
    progress: ProgressOptions,
    *,
    yes: bool,
    json_: bool,
    exit_code: bool,
) -> None:
    """Join a study in a shared database, with the study's own target."""
    from autotune.study.join_study import prepare_joining_beds, write_study_target
    from autotune.study.study_database import StudyDatabase

    with closing(StudyDatabase(storage)) as database:
        study = database.find_study(study_name)
        target_file = write_study_target(study, studies / study.name)
        environment = prepare_joining_beds(study, database, target_file, beds)
        confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
        join_and_report(
            environment, study, database, studies, progress, json_=json_, exit_code=exit_code
        )
