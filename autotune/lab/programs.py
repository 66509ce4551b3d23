"""Programs of this machine, run to their end or not at all."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from autotune.errors import AutotuneError


def ran(argv: Sequence[str], *, input: str | None = None, timeout: float = 30.0) -> str:
    """What ``argv`` printed; raises ``AutotuneError`` with its own words if it failed."""
    try:
        done = subprocess.run(
            argv, input=input, capture_output=True, text=True, timeout=timeout, check=False
        )
    except FileNotFoundError:
        raise AutotuneError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise AutotuneError(f"{' '.join(argv)} did not end within {timeout:g} s") from None
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise AutotuneError(f"{' '.join(argv)}: {said}")
    return done.stdout
