"""Run a session of a study or a sweep: read the target, confirm, show progress, print results."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TextIO

import typer

from autotune import errors
from autotune.cli.options import ProgressOptions
from autotune.cli.output import print_study, print_sweep
from autotune.errors import AutotuneError, TargetError, UsageError
from autotune.exit_handling import print_mistake
from autotune.study_argument import STUDIES_DIRECTORY, format_study_argument
from autotune.terminal import echo, wrap_lines

if TYPE_CHECKING:
    from autotune.environments.base import Environment
    from autotune.report.progress import ProgressDisplay
    from autotune.study.progress_reporter import ProgressReporter
    from autotune.study.study_state import State
    from autotune.sweep.plan import SweepPlan
    from autotune.target.model import Target
    from autotune.target.overrides import Override
    from autotune.target.read_target import TargetFile


def prepare_target(
    target: Path, overrides: Iterable[Override] = (), beds: str | None = None
) -> Environment:
    """Return the environment of a target file with ``overrides`` from options. If ``beds`` is given,
    the environment uses the test beds with these names.

    Raises TargetError or AutotuneError.
    """
    from autotune.target.read_target import read_target

    return prepare_file(read_target(target, overrides), beds)


def prepare_search(
    target: Path, overrides: Iterable[Override] = (), beds: str | None = None
) -> Environment:
    """Print warnings of the target, and return the environment as `prepare_target` does.

    Raises TargetError if there is nothing to tune.
    """
    from autotune.environments.target_checks import check_can_search
    from autotune.target.read_target import read_target

    target_file = read_target(target, overrides)
    print_target_warnings(target_file)
    environment = prepare_file(target_file, beds)
    check_can_search(environment)
    return environment


def print_target_warnings(target_file: TargetFile) -> list[TargetError]:
    """Print and return the warnings of a target. They come before hosts are contacted, which may fail."""
    from autotune.environments.target_warnings import find_warnings

    warnings = find_warnings(target_file)
    for warning in warnings:
        print_mistake(warning, "warning: ")
    return warnings


def prepare_file(target_file: TargetFile, beds: str | None = None) -> Environment:
    """Return the environment of a target, or of its test beds. Raises TargetError or AutotuneError."""
    from autotune.environments.preparation import prepare

    if beds is None:
        return prepare(target_file)
    from autotune.environments.multi_bed import prepare as prepare_beds
    from autotune.target.beds import select_beds

    return prepare_beds(target_file, select_beds(target_file.target, beds))


def build_set_overrides(assignments: Iterable[str] | None) -> list[Override]:
    """Return the overrides of `--set`. Raises UsageError if a parameter is set twice."""
    from autotune.target.overrides import SET_OPTION

    parameter_names: set[str] = set()
    for parameter_name in list_assigned_names(assignments):
        if parameter_name in parameter_names:
            raise UsageError(
                f"--set {parameter_name} is given twice", hint="give each parameter once"
            )
        parameter_names.add(parameter_name)
    return [(SET_OPTION, assignment) for assignment in assignments or ()]


def list_assigned_names(assignments: Iterable[str] | None) -> list[str]:
    """Return the parameters that `--set` assigns."""
    return [assignment.partition("=")[0].strip() for assignment in assignments or ()]


@contextmanager
def open_studies_directory(
    storage_url: str | None, studies: Path, study_names: Iterable[str] | None = None
) -> Iterator[Path]:
    """Yield the directory of the studies. With a ``storage_url``, the directory is temporary and contains
    copies.

    ``study_names`` are the studies to copy, by default all studies. Raises AutotuneError.
    """
    if storage_url is None:
        yield studies
        return
    _reject_local_studies(studies)
    from autotune.study.study_database import StudyDatabase

    with closing(StudyDatabase(storage_url)) as database, TemporaryDirectory() as directory:
        for study_name in database.list_study_names() if study_names is None else study_names:
            database.copy_study(database.find_study(study_name), Path(directory))
        yield Path(directory)


def _reject_local_studies(studies: Path) -> None:
    """Raise UsageError for a directory of studies, in addition to a database of studies."""
    if studies != STUDIES_DIRECTORY:
        raise UsageError(
            "--storage and --studies cannot be combined",
            hint="omit --studies to read from the database, or --storage to read from the directory",
        )


def reject_sweep(directory: Path, missing_content: str) -> None:
    """Raise UsageError if the directory contains a sweep, which has no ``missing_content``."""
    from autotune.sweep.plan import is_sweep

    if is_sweep(directory):
        raise UsageError(
            f"{directory.name} is a sweep, so it has no {missing_content}",
            hint=f"`autotune report {format_study_argument(directory)}` shows its results",
        )


@contextmanager
def follow_study(
    storage_url: str | None, studies: Path, study_name: str
) -> Iterator[Callable[[], Path]]:
    """Yield a function that returns the directory of a study. With a ``storage_url``, each call first
    copies the latest records to this directory. Raises AutotuneError.
    """
    from autotune.study.directory import find_study

    if storage_url is None:
        directory = find_study(study_name, studies)
        yield lambda: directory
        return
    _reject_local_studies(studies)
    from autotune.study.study_database import StudyDatabase

    with closing(StudyDatabase(storage_url)) as database, TemporaryDirectory() as copies_directory:
        study = database.find_study(study_name)
        yield lambda: database.copy_study(study, Path(copies_directory))


def confirm(announcement: str, *, yes: bool, quiet: bool = False) -> None:
    """Print the announcement, and ask for confirmation. Raises AutotuneError if the user declines, or
    if no one can be asked.
    """
    if not (yes and quiet):
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        for line, _ in wrap_lines(((line, "") for line in announcement.splitlines()), width):
            echo(line, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise AutotuneError(
            "refusing to continue without confirmation (stdin is not a terminal)", hint="pass --yes"
        )
    if not typer.confirm("Go ahead?", err=True):
        raise AutotuneError(
            "not confirmed, so nothing was started", hint="answer y to start, or pass --yes"
        )


@contextmanager
def open_progress(
    environment: Environment, directory: Path, options: ProgressOptions, *, with_page: bool = True
) -> Iterator[ProgressReporter]:
    """Show progress on standard error and in the log file, if given. ``with_page`` also updates the
    HTML report.
    """
    from autotune.environments.multi_bed import MultiBedEnvironment
    from autotune.report.progress import PageWriter, PlainProgress, TeeProgress
    from autotune.study.study_store import JournalTail
    from autotune.transports import wait_notices

    target, read_state, verbose = environment.file.target, JournalTail(directory), options.verbose
    needs_plain_lines = verbose or isinstance(environment, MultiBedEnvironment)
    with ExitStack() as exit_stack:
        displays: list[ProgressDisplay] = []
        if not options.quiet:
            displays.append(
                create_progress(
                    target,
                    read_state,
                    sys.stderr,
                    os.environ,
                    verbose=verbose,
                    plain_lines=needs_plain_lines,
                )
            )
        if options.log_file is not None:
            log_stream = exit_stack.enter_context(_open_log(options.log_file))
            displays.append(PlainProgress(target, read_state, log_stream, verbose=True))
        progress: ProgressDisplay = displays[0] if len(displays) == 1 else TeeProgress(*displays)
        if with_page:
            progress = PageWriter(
                progress, directory, *_open_metrics_publishers(options, exit_stack)
            )
        exit_stack.enter_context(progress)
        exit_stack.enter_context(wait_notices.listening(progress.note))
        yield progress


@contextmanager
def _open_log(path: Path) -> Iterator[TextIO]:
    """Yield a log file to append to. If the log cannot be written completely, print a warning, because
    the study and its records do not depend on it.
    """
    log_stream = path.open("a", encoding="utf-8")
    try:
        yield log_stream
    finally:
        try:
            log_stream.close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            warning = AutotuneError(
                f"{path} is incomplete: {reason}",
                hint="the directory of the study contains every reading",
            )
            print_mistake(warning, "warning: ")


def _open_metrics_publishers(
    options: ProgressOptions, exit_stack: ExitStack
) -> Iterator[Callable[[str], object]]:
    """Yield the functions that publish metrics. A metrics server stops when ``exit_stack`` closes."""
    if (path := options.metrics_file) is not None:
        from autotune.report.page import write_atomically

        yield partial(write_atomically, path)
    if options.metrics_server is not None:
        server = exit_stack.enter_context(options.metrics_server)
        yield server.publish


def create_progress(
    target: Target,
    read_state: Callable[[], State],
    stream: TextIO,
    environment: Mapping[str, str],
    *,
    verbose: bool = False,
    plain_lines: bool = False,
) -> ProgressDisplay:
    """Return a live panel if ``stream`` is a terminal that can be redrawn, otherwise plain lines.

    ``TERM=dumb``, ``verbose`` and ``plain_lines`` select plain lines. ``NO_COLOR`` selects a panel
    without colours.
    """
    if verbose or plain_lines or not stream.isatty() or environment.get("TERM") == "dumb":
        from autotune.report.progress import PlainProgress

        return PlainProgress(target, read_state, stream, verbose=verbose)
    from autotune.report.live_progress import LiveProgress

    return LiveProgress(target, read_state, stream)


def run_session(
    run: Callable[[Environment, Path, ProgressReporter], None],
    environment: Environment,
    directory: Path,
    *,
    json_: bool,
    options: ProgressOptions,
    resume_arguments: str | None = None,
    keeps_winner: bool = False,
) -> None:
    """Run a session of a study. With ``json_``, print the current results if the session is
    interrupted. Raises KeyboardInterrupt if the session recorded nothing.

    ``resume_arguments`` are the arguments of `autotune resume`; the default is the study, and `--keep`
    if ``keeps_winner`` is true.
    """
    arguments = resume_arguments or format_study_argument(directory, keeps_winner=keeps_winner)
    try:
        with open_progress(environment, directory, options) as progress:
            run(environment, directory, progress)
    except KeyboardInterrupt:
        is_recorded = _has_records(directory)
        if json_ and is_recorded:
            print_study(directory, json_=True, exit_code=False)
        if is_recorded or resume_arguments:  # a study in a shared database is always recorded
            _print_resume_command(arguments, environment)
        if is_recorded:
            raise typer.Exit(errors.INTERRUPTED_EXIT_CODE) from None
        raise


def run_sweep_session(
    environment: Environment,
    plan: SweepPlan | None,
    directory: Path,
    html: Path | None,
    *,
    json_: bool,
    options: ProgressOptions,
) -> None:
    """Run a sweep, and plot its results. If ``plan`` is ``None``, complete the recorded plan.

    With ``json_``, raises KeyboardInterrupt if the sweep is interrupted.
    """
    from autotune.sweep import runner

    try:
        with open_progress(environment, directory, options, with_page=False) as progress:
            runner.run_sweep(environment.file, plan, directory, progress)
    except KeyboardInterrupt:
        if _has_records(directory):
            _print_resume_command(format_study_argument(directory), environment)
            if not json_:
                raise typer.Exit(errors.INTERRUPTED_EXIT_CODE) from None
        raise
    print_sweep(directory, html or directory / "sweep.html", json_=json_)


def _has_records(directory: Path) -> bool:
    """True if the study recorded its start. Otherwise, there is nothing to resume or to show."""
    from autotune.study import journal
    from autotune.study.directory import EVENTS_FILE

    return journal.has_records(directory / EVENTS_FILE)


def _print_resume_command(arguments: str, environment: Environment) -> None:
    """Print how to continue an interrupted study."""
    target = environment.file.target
    has_hosts = target.simulated is None and target.command is None
    restored_text = "; the hosts are restored" if has_hosts else ""
    echo(f"stopped{restored_text}. Continue with `autotune resume {arguments}`", err=True)
