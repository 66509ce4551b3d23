"""`autotune run` and `autotune resume`: sessions of a study."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import (
    STUDIES,
    Beds,
    Detail,
    ExitCode,
    Json,
    LogFile,
    MetricsFile,
    MetricsPort,
    Quiet,
    StorageUrl,
    Studies,
    StudyName,
    TargetPath,
    Verbose,
    Yes,
    listening,
)
from autotune.cli.output import print_study
from autotune.cli.session import confirm, prepared, run_session, run_sweep_session
from autotune.cli.shared import measure
from autotune.errors import AutotuneError

Name = Annotated[str | None, typer.Option(metavar="NAME", help="Override the target's `name:`.")]
Trials = Annotated[
    int | None, typer.Option(metavar="N", help="Override the target's `budget: {trials: …}`.")
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Override the target's `budget: {time: …}`, such as 15m."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Fix a parameter; may be repeated.",
        autocompletion=completion.parameters,
    ),
]


def run(
    target: TargetPath,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    log_file: LogFile = None,
    metrics_file: MetricsFile = None,
    metrics_port: MetricsPort = None,
    exit_code: ExitCode = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave a proven winner in place."),
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="STUDY",
            help="Start with the best configurations of this study.",
            autocompletion=completion.studies,
        ),
    ] = None,
    name: Name = None,
    time: Time = None,
    trials: Trials = None,
    set_: Set = None,
    beds: Beds = None,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Run a study: baseline, search, confirmation, verdict."""
    from autotune.study import start
    from autotune.study.context import check_stays
    from autotune.study.directory import find, new_directory

    options = {"--name": name, "--time": time, "--trials": trials}
    overrides = [(option, str(value)) for option, value in options.items() if value is not None]
    if storage is not None and (from_ or not beds):
        raise AutotuneError(
            "--storage needs --beds, and excludes --from",
            hint="name at least one bed; `try:` of the target lists configurations to start with",
        )
    environment = prepared(target, [*overrides, *(("--set", text) for text in set_ or ())], beds)
    if keep and beds:
        raise AutotuneError(
            "--keep and --beds exclude each other",
            hint="run `autotune export`, then `autotune apply`",
        )
    detail = Detail(verbose, quiet, log_file, metrics_file, listening(metrics_port))
    if keep:
        check_stays(environment)
    earlier = find(from_, studies) if from_ else None
    if storage is not None:
        from autotune.environments.beds import Beds as Several
        from autotune.study.joining import begin
        from autotune.study.storage import Storage

        assert isinstance(environment, Several)
        confirm(environment.announce(), yes=yes, quiet=quiet)
        with closing(Storage(storage)) as database:
            shared = begin(environment, database, studies)
            measure(
                environment, shared, database, studies, detail, json_=json_, exit_code=exit_code
            )
        return
    confirm(environment.announce(), yes=yes, quiet=quiet)
    directory = new_directory(studies, environment.file.target.name)
    act = partial(start.start, keep=keep, earlier=earlier)
    run_session(act, environment, directory, json_=json_, detail=detail)
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)


def resume(
    study: StudyName,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    log_file: LogFile = None,
    metrics_file: MetricsFile = None,
    metrics_port: MetricsPort = None,
    exit_code: ExitCode = False,
    beds: Beds = None,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Continue a study after a stop or crash, without repeating measurements."""
    from autotune.study import start
    from autotune.study.directory import find
    from autotune.sweep.plan import is_sweep

    detail = Detail(verbose, quiet, log_file, metrics_file, listening(metrics_port))
    if storage is not None:
        from autotune.study.joining import joining, own_target
        from autotune.study.storage import Storage

        with closing(Storage(storage)) as database:
            shared = database.find(study)
            file = own_target(shared, studies / shared.name)
            several = joining(shared, database, file, beds or "all")
            confirm(several.announce(), yes=yes, quiet=quiet)
            measure(several, shared, database, studies, detail, json_=json_, exit_code=exit_code)
        return
    directory = find(study, studies)
    environment = start.unfinished(directory, beds)
    confirm(environment.announce(), yes=yes, quiet=quiet)
    if is_sweep(directory):
        run_sweep_session(environment, None, directory, None, json_=json_, detail=detail)
        return
    run_session(start.resume, environment, directory, json_=json_, detail=detail)
    print_study(directory, json_=json_, exit_code=exit_code, brief=True)
