"""Which display of progress a stream gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TextIO

from autotune.report.progress.base import Progress
from autotune.report.progress.plain import Plain
from autotune.study.records import State
from autotune.target.model import Target


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
        return Plain(target, state, stream, verbose=verbose)
    from autotune.report.progress.live import Live

    return Live(target, state, stream)
