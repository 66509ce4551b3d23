"""Decorator: errors while reporting progress must not stop the study."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Reports(Protocol):
    def report_error(self, error: Exception) -> None:
        """Say that progress cannot be shown."""
        ...


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
