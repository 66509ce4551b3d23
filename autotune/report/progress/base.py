"""What every display of progress has in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

from autotune.study.context import ProgressReporter


class Reports(Protocol):
    def report_error(self, error: Exception) -> None:
        """Say that progress cannot be shown."""
        ...


class Progress(ProgressReporter, Protocol):
    """A display that is closed with the run: ``with reporter(...) as progress: ...``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


P = ParamSpec("P")
T = TypeVar("T", bound=Reports)


def ignore_errors(
    method: Callable[Concatenate[T, P], None],
) -> Callable[Concatenate[T, P], None]:
    """Pass whatever ``method`` raises to ``report_error``."""

    @wraps(method)
    def wrapped(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  a study is worth more than its display
            self.report_error(error)

    return wrapped
