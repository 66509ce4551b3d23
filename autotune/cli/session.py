"""Run a study or a sweep from the command line: progress, results, and how to go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from autotune import errors
from autotune.cli.output import print_study, print_sweep
from autotune.terminal import echo

if TYPE_CHECKING:
    from autotune.environments.base import Environment
    from autotune.report.progress import Progress
    from autotune.study.context import ProgressReporter
    from autotune.study.records import State
    from autotune.sweep.plan import Plan
    from autotune.target.model import Target


def prepared(target: Path) -> Environment:
    """A target file understood on its hosts. Raises TargetError, AutotuneError."""
    from autotune.environments.registry import prepare
    from autotune.target.read import read

    return prepare(read(target))


def reporting(
    environment: Environment, directory: Path, *, verbose: bool, paged: bool = True
) -> AbstractContextManager[ProgressReporter]:
    """Progress on standard error and, if ``paged``, in the study's own page."""
    from autotune.report.progress import WithPage
    from autotune.study.store import Follow

    target = environment.file.target
    progress = reporter(target, Follow(directory), sys.stderr, os.environ, verbose=verbose)
    return WithPage(progress, directory) if paged else progress


def reporter(
    target: Target,
    state: Callable[[], State],
    stream: TextIO,
    environment: Mapping[str, str],
    *,
    verbose: bool = False,
) -> Progress:
    """A live panel where ``stream`` is a terminal that can be redrawn, plain lines otherwise.

    ``TERM=dumb`` and ``verbose`` ask for lines; ``NO_COLOR`` for a panel without colours.
    """
    if verbose or not stream.isatty() or environment.get("TERM") == "dumb":
        from autotune.report.progress import Plain

        return Plain(target, state, stream, verbose=verbose)
    from autotune.report.live import Live

    return Live(target, state, stream)


def sit(
    act: Callable[[Environment, Path, ProgressReporter], None],
    environment: Environment,
    directory: Path,
    *,
    json_: bool,
    verbose: bool,
) -> None:
    """A sitting of a study; with ``json_``, one that is stopped says what it has found too."""
    with _resumable(directory):
        try:
            with reporting(environment, directory, verbose=verbose) as progress:
                act(environment, directory, progress)
        except KeyboardInterrupt:
            if json_ and (directory / "events.jsonl").exists():
                print_study(directory, json_=True, exit_code=False)
            raise


def sit_sweep(
    environment: Environment,
    plan: Plan | None,
    directory: Path,
    html: Path | None,
    *,
    json_: bool,
    verbose: bool,
) -> None:
    """A sitting of a sweep, which is drawn at its end; without a plan, what is left of its own."""
    from autotune.sweep import runner

    with (
        _resumable(directory),
        reporting(environment, directory, verbose=verbose, paged=False) as progress,
    ):
        runner.sweep(environment.file, plan, directory, progress)
    print_sweep(directory, html or directory / "sweep.html", json_=json_)


@contextmanager
def _resumable(directory: Path) -> Iterator[None]:
    """Whoever stops it hears how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        echo(
            f"stopped, and everything is put back; continue with: autotune resume {directory.name}",
            err=True,
        )
        raise typer.Exit(errors.INTERRUPTED) from None
