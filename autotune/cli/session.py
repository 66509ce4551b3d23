"""From a target file to a session of a study or a sweep: confirmation, progress, results."""

from __future__ import annotations

import errno
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
from autotune.cli.options import Detail
from autotune.cli.output import print_study, print_sweep
from autotune.errors import AutotuneError
from autotune.terminal import echo, wrapped

if TYPE_CHECKING:
    from autotune.environments.base import Environment
    from autotune.report.progress import Progress
    from autotune.study.context import ProgressReporter
    from autotune.study.records import State
    from autotune.sweep.plan import Plan
    from autotune.target.model import Target
    from autotune.target.override import Override


def prepared(
    target: Path, overrides: Iterable[Override] = (), beds: str | None = None
) -> Environment:
    """The environment of a target file with the overrides of options, or of its ``beds``.

    Raises TargetError, AutotuneError.
    """
    from autotune.environments.base import prepare
    from autotune.target.read import read

    file = read(target, overrides)
    if beds is None:
        return prepare(file)
    from autotune.environments.beds import prepare as prepare_beds
    from autotune.target.beds import chosen

    return prepare_beds(file, chosen(file.target, beds))


@contextmanager
def studies_in(
    storage: str | None, studies: Path, names: Iterable[str] | None = None
) -> Iterator[Path]:
    """The directory of the studies; with a ``storage``, a temporary one with copies.

    ``names`` are the studies to copy, by default all. Raises AutotuneError.
    """
    if storage is None:
        yield studies
        return
    from autotune.study.storage import Storage

    with closing(Storage(storage)) as database, TemporaryDirectory() as directory:
        for name in database.names() if names is None else names:
            database.copy(database.find(name), Path(directory))
        yield Path(directory)


@contextmanager
def looking(storage: str | None, studies: Path, name: str) -> Iterator[Callable[[], Path]]:
    """A function that returns the directory of a study with its latest records. Raises AutotuneError."""
    from autotune.study.directory import find

    if storage is None:
        directory = find(name, studies)
        yield lambda: directory
        return
    from autotune.study.storage import Storage

    with closing(Storage(storage)) as database, TemporaryDirectory() as copies:
        study = database.find(name)
        yield lambda: database.copy(study, Path(copies))


def confirm(what: str, *, yes: bool, quiet: bool = False) -> None:
    """Print what is about to happen, and ask for confirmation. Raises AutotuneError, Exit."""
    if not (yes and quiet):
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        for line, _ in wrapped(((line, "") for line in what.splitlines()), width):
            echo(line, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise AutotuneError(
            "refusing to continue without confirmation (stdin is not a terminal)", hint="pass --yes"
        )
    if not typer.confirm("Go ahead?", err=True):
        raise typer.Exit(errors.OPERATIONAL)


@contextmanager
def reporting(
    environment: Environment, directory: Path, detail: Detail, *, paged: bool = True
) -> Iterator[ProgressReporter]:
    """Progress on standard error, in the log file if there is one and, if ``paged``, in the HTML page."""
    from autotune.environments.beds import Beds
    from autotune.report.progress import Plain, Several, WithPage
    from autotune.study.store import Follow
    from autotune.transports import waiting

    target, state, verbose = environment.file.target, Follow(directory), detail.verbose
    lines = verbose or isinstance(environment, Beds)
    with ExitStack() as files:
        displays: list[Progress] = []
        if not detail.quiet:
            displays.append(
                reporter(target, state, sys.stderr, os.environ, verbose=verbose, lines=lines)
            )
        if detail.log_file is not None:
            log = files.enter_context(detail.log_file.open("a", encoding="utf-8"))
            displays.append(Plain(target, state, log, verbose=True))
        progress: Progress = displays[0] if len(displays) == 1 else Several(*displays)
        if paged:
            progress = WithPage(progress, directory, *_publishers(detail, files))
        files.enter_context(progress)
        files.enter_context(waiting.listening(progress.note))
        yield progress


def _publishers(detail: Detail, files: ExitStack) -> Iterator[Callable[[str], object]]:
    """Where metrics go; a server ends with ``files``."""
    if (path := detail.metrics_file) is not None:
        from autotune.report.page import write_whole

        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        yield partial(write_whole, path)
    if detail.metrics_server is not None:
        server = files.enter_context(detail.metrics_server)
        yield server.publish


def reporter(
    target: Target,
    state: Callable[[], State],
    stream: TextIO,
    environment: Mapping[str, str],
    *,
    verbose: bool = False,
    lines: bool = False,
) -> Progress:
    """A live panel if ``stream`` is a terminal that can be redrawn, otherwise plain lines.

    ``TERM=dumb``, ``verbose`` and ``lines`` select lines. ``NO_COLOR`` selects a panel without colours.
    """
    if verbose or lines or not stream.isatty() or environment.get("TERM") == "dumb":
        from autotune.report.progress import Plain

        return Plain(target, state, stream, verbose=verbose)
    from autotune.report.live import Live

    return Live(target, state, stream)


def run_session(
    act: Callable[[Environment, Path, ProgressReporter], None],
    environment: Environment,
    directory: Path,
    *,
    json_: bool,
    detail: Detail,
    again: str | None = None,
) -> None:
    """Run a study's session; with ``json_``, one that is stopped prints its results so far too.

    ``again``: the arguments of `autotune resume`, if not the study's name.
    """
    with _resumable(again or directory.name):
        try:
            with reporting(environment, directory, detail) as progress:
                act(environment, directory, progress)
        except KeyboardInterrupt:
            if json_ and (directory / "events.jsonl").exists():
                print_study(directory, json_=True, exit_code=False)
            raise


def run_sweep_session(
    environment: Environment,
    plan: Plan | None,
    directory: Path,
    html: Path | None,
    *,
    json_: bool,
    detail: Detail,
) -> None:
    """Run a sweep, and plot it at the end; without ``plan``, the rest of its recorded plan."""
    from autotune.sweep import runner

    with (
        _resumable(directory.name),
        reporting(environment, directory, detail, paged=False) as progress,
    ):
        runner.sweep(environment.file, plan, directory, progress)
    print_sweep(directory, html or directory / "sweep.html", json_=json_)


@contextmanager
def _resumable(study: str) -> Iterator[None]:
    """Print how to continue a stopped study."""
    try:
        yield
    except KeyboardInterrupt:
        echo(
            f"stopped; the hosts are restored. Continue with `autotune resume {study}`",
            err=True,
        )
        raise typer.Exit(errors.INTERRUPTED) from None
