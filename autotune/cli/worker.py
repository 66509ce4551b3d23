"""Studies in a shared database: `autotune worker`, and `--storage` of `run` and `resume`."""

from __future__ import annotations

import shlex
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    DEFAULT_PROGRESS,
    DEFAULT_STUDIES_DIRECTORY,
    ExitCodeOption,
    JsonOption,
    ProgressOptions,
    StudiesOption,
    TargetArgument,
    YesOption,
    add_progress_options,
)
from autotune.cli.output import print_study
from autotune.cli.session import confirm, run_session
from autotune.study_argument import format_studies_option

if TYPE_CHECKING:
    from autotune.environments.multi_bed import MultiBedEnvironment
    from autotune.study.study_database import SharedStudy, StudyDatabase


@add_progress_options(with_metrics=True)
def worker(
    target: TargetArgument,
    bed: Annotated[
        str,
        typer.Option(
            "--bed", metavar="BED,…", help="Names of the target's test beds to use, or `all`."
        ),
    ],
    storage: Annotated[
        str, typer.Option(metavar="URL", help="PostgreSQL database of the shared study.")
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Study to join. [default: the target's name]")
    ] = None,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    exit_code: ExitCodeOption = False,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Join a shared study, with test beds that this machine can reach."""
    from autotune.study.join_study import prepare_joining_beds
    from autotune.study.study_database import StudyDatabase
    from autotune.target.read_target import read_target

    target_file = read_target(target)
    with closing(StudyDatabase(storage)) as database:
        study = database.find_study(name or target_file.target.name)
        environment = prepare_joining_beds(study, database, target_file, bed)
        confirm(environment.describe_load(), yes=yes, quiet=progress.quiet)
        join_and_report(
            environment, study, database, studies, progress, json_=json_, exit_code=exit_code
        )


def join_and_report(
    environment: MultiBedEnvironment,
    study: SharedStudy,
    database: StudyDatabase,
    studies: Path,
    options: ProgressOptions,
    *,
    json_: bool,
    exit_code: bool,
) -> None:
    """Measure for a shared study until it is complete, and print its results."""
    from autotune.study.join_study import join_study

    directory = studies / study.name
    argument_words = (study.name, "--storage", database.display_url)
    arguments = f"{shlex.join(argument_words)}{format_studies_option(studies)} --beds …"
    run_session(
        partial(join_study, study=study, storage=database),
        environment,
        directory,
        json_=json_,
        options=options,
        resume_arguments=arguments,
    )
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)
