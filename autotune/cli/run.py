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
)
from autotune.cli.output import print_study
from autotune.cli.session import (
    build_set_overrides,
    confirm,
    prepare_search,
    run_session,
    run_sweep_session,
)
from autotune.cli.worker import join_and_report
from autotune.errors import UsageError

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
    from autotune.study.directory import find_free_directory, find_study
    from autotune.study.trial_context import check_can_keep

    options = {"--name": name, "--time": time, "--trials": trials}
    overrides = [(option, str(value)) for option, value in options.items() if value is not None]
    _check_storage(storage, beds, from_)
    environment = prepare_search(target, [*overrides, *build_set_overrides(set_)], beds)
    if keep and beds:
        raise UsageError(
            "--keep and --beds cannot be combined",
            hint="run `autotune export`, then `autotune apply`",
        )
    if keep:
        check_can_keep(environment)
    earlier_study = find_study(from_, studies) if from_ else None
    confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
    if storage is not None:
        _run_shared_study(environment, storage, studies, progress, json_=json_, exit_code=exit_code)
        return
    directory = find_free_directory(studies, environment.file.target.name)
    start_study = partial(start.start_study, keeps_winner=keep, earlier_study=earlier_study)
    run_session(start_study, environment, directory, json_=json_, options=progress)
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)


def _check_storage(storage: str | None, beds: str | None, earlier_study: str | None) -> None:
    if storage is not None and (earlier_study or not beds):
        raise UsageError(
            "--storage needs --beds, and cannot be combined with --from",
            hint="name at least one bed; `try:` in the target can list configurations to start with",
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


@add_progress_options(with_metrics=True)
def resume(
    study: StudyArgument,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    exit_code: ExitCodeOption = False,
    beds: BedsOption = None,
    storage: StorageUrlOption = None,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Continue a study after a stop or crash, without repeating measurements."""
    from autotune.study import start
    from autotune.study.directory import find_study
    from autotune.sweep.plan import is_sweep

    if storage is not None:
        from autotune.study.join_study import prepare_joining_beds, write_study_target
        from autotune.study.study_database import StudyDatabase

        with closing(StudyDatabase(storage)) as database:
            shared_study = database.find_study(study)
            target_file = write_study_target(shared_study, studies / shared_study.name)
            joining_beds = prepare_joining_beds(shared_study, database, target_file, beds or "all")
            confirm(joining_beds.describe_load(), yes=yes, quiet=progress.quiet)
            join_and_report(
                joining_beds,
                shared_study,
                database,
                studies,
                progress,
                json_=json_,
                exit_code=exit_code,
            )
        return
    directory = find_study(study, studies)
    environment = start.prepare_unfinished(directory, beds)
    confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
    if is_sweep(directory):
        run_sweep_session(environment, None, directory, None, json_=json_, options=progress)
        return
    run_session(start.resume_study, environment, directory, json_=json_, options=progress)
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)
