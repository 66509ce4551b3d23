"""Studies in a shared database: `autotune worker`, and `--storage` of `run` and `resume`."""

from __future__ import annotations

import shlex
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    STUDIES,
    Detail,
    ExitCode,
    Json,
    LogFile,
    MetricsFile,
    MetricsPort,
    Quiet,
    Studies,
    TargetPath,
    Verbose,
    Yes,
    listening,
)
from autotune.cli.output import print_study
from autotune.cli.session import confirm, run_session

if TYPE_CHECKING:
    from autotune.environments.beds import Beds
    from autotune.study.storage import SharedStudy, Storage


def worker(
    target: TargetPath,
    bed: Annotated[
        str,
        typer.Option("--bed", metavar="all|A,B", help="Test beds of the target to use."),
    ],
    storage: Annotated[
        str, typer.Option(metavar="URL", help="PostgreSQL database of the shared study.")
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Study to join. [default: the target's name]")
    ] = None,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    log_file: LogFile = None,
    metrics_file: MetricsFile = None,
    metrics_port: MetricsPort = None,
    exit_code: ExitCode = False,
    studies: Studies = STUDIES,
) -> None:
    """Join a shared study, with test beds that this machine can reach."""
    from autotune.study.joining import joining
    from autotune.study.storage import Storage
    from autotune.target.read import read

    file = read(target)
    detail = Detail(verbose, quiet, log_file, metrics_file, listening(metrics_port))
    with closing(Storage(storage)) as database:
        study = database.find(name or file.target.name)
        environment = joining(study, database, file, bed)
        confirm(environment.announce(), yes=yes, quiet=quiet)
        measure(environment, study, database, studies, detail, json_=json_, exit_code=exit_code)


def measure(
    environment: Beds,
    study: SharedStudy,
    database: Storage,
    studies: Path,
    detail: Detail,
    *,
    json_: bool,
    exit_code: bool,
) -> None:
    """Take part in a study until it ends, and print its results."""
    from autotune.study.joining import join

    directory = studies / study.name
    again = f"{shlex.quote(study.name)} --storage {shlex.quote(database.shown)} --beds …"
    run_session(
        partial(join, study=study, storage=database),
        environment,
        directory,
        json_=json_,
        detail=detail,
        again=again,
    )
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)
