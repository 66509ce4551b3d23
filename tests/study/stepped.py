"""Run autotune with a shifted wall clock: ``stepped.py FILE WORDS…``.

The clock is ahead of this machine's by the number of seconds in FILE, which may change at any time.
The monotonic clock is not affected, as on a machine whose clock is set.
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from pathlib import Path

FILE = Path(sys.argv[1])
_time, _datetime = time.time, dt.datetime


def stepped() -> float:
    return _time() + float(FILE.read_text())


class _OfAnyKind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _datetime)


class Stepped(_datetime, metaclass=_OfAnyKind):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Stepped:
        return cls.fromtimestamp(stepped(), tz)


if __name__ == "__main__":
    time.time = stepped
    time.time_ns = lambda: int(stepped() * 1e9)
    dt.datetime = Stepped  # type: ignore[misc]
    from autotune.cli import main

    sys.argv = ["autotune", *sys.argv[2:]]
    main()
