"""Programs of this machine, run to their end or not at all."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from autotune.errors import AutotuneError

_LOCK: ContextVar[tuple[int, ...]] = ContextVar("_LOCK", default=())


@contextlib.contextmanager
def holding(lock: int) -> Iterator[None]:
    """Let every program hold the open file ``lock`` too.

    A lock on it lasts until the last program has ended, even if this process is killed first:
    nobody tidies up around a program that is still making something.
    """
    token = _LOCK.set((lock,))
    try:
        yield
    finally:
        _LOCK.reset(token)


def ran(argv: Sequence[str], *, text: str | None = None, timeout: float = 30.0) -> str:
    """What ``argv`` printed; raises ``AutotuneError`` with its own words if it failed."""
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            pass_fds=_LOCK.get(),
        )
    except FileNotFoundError:
        raise AutotuneError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise AutotuneError(f"{' '.join(argv)} did not end within {timeout:g} s") from None
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise AutotuneError(f"{' '.join(argv)}: {said}")
    return done.stdout
