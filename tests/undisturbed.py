"""What a machine may spoil whose CPUs others take away for seconds: it is taken again until it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Taken = TypeVar("Taken")


def undisturbed(take: Callable[[], Taken], right: Callable[[Taken], bool], most: int = 60) -> Taken:
    """What is right, or the last of so many: tests look at it as if it were the only one."""
    for _ in range(most):
        taken = take()
        if right(taken):
            break
    return taken
