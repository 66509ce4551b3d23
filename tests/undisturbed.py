"""Repeat measurements that CPU steal may have disturbed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Taken = TypeVar("Taken")


def undisturbed(take: Callable[[], Taken], right: Callable[[Taken], bool], most: int = 60) -> Taken:
    """Return the first result that is right, or the last of ``most`` results. Tests treat it as the
    only result.
    """
    for _ in range(most):
        taken = take()
        if right(taken):
            break
    return taken
