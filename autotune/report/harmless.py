"""Telling that can go wrong without harm to what is told about."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Troubled(Protocol):
    def trouble(self, error: Exception) -> None:
        """Say once that the display itself went wrong."""
        ...


P = ParamSpec("P")
T = TypeVar("T", bound=Troubled)


def harmless(
    method: Callable[Concatenate[T, P], None],
) -> Callable[Concatenate[T, P], None]:
    """Whatever goes wrong in telling must not end what is told about."""

    @wraps(method)
    def careful(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  a study is worth more than its display
            self.trouble(error)

    return careful
