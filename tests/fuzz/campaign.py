"""A campaign: many inputs for one parser, each with a limit of 5 s, and their results.

A parser accepts an input, or refuses it with one of its documented exceptions. All other results
are faults: another exception, a hang, or an impossible value.
"""

from __future__ import annotations

import dataclasses
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any

from autotune.errors import AutotuneError
from tests.fuzz import mutate

PATIENCE = 5.0  # seconds for one input
PACKAGE = str(Path(__file__).parents[2] / "autotune")
LARGEST = 2**64  # larger than any valid count


class Hang(BaseException):
    """An input took longer than PATIENCE. The class is not an Exception, so that no ``except
    Exception`` hides it.
    """


class Impossible(AssertionError):
    """An impossible value was accepted."""


def sane(value: object) -> None:
    """Check that numbers are finite, integers fit in 64 bits, and text can be encoded."""
    match value:
        case bool() | None:
            pass
        case float() if not isfinite(value):
            raise Impossible(f"{value} was accepted")
        case int() if abs(value) > LARGEST:
            raise Impossible("a number beyond 64 bits was accepted")
        case str():
            _writable(value)
        case _:
            for part in _parts(value):
                sane(part)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return (*value, *value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    return [getattr(value, field.name) for field in fields]


def _writable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Impossible("text was accepted that cannot be written") from None


@dataclass(frozen=True)
class Entry:
    """A parser under test. ``parse`` receives inputs derived from ``seeds``, and may raise
    ``refusals``. ``check`` raises for a value that should have been refused. ``weight`` is the
    relative number of inputs.
    """

    name: str
    seeds: Sequence[str]
    parse: Callable[[str], Any]
    mutation: Callable[[Random, Sequence[str]], str] = mutate.text
    refusals: tuple[type[Exception], ...] = (AutotuneError,)
    check: Callable[[Any], None] = sane
    weight: float = 1.0


@dataclass
class Result:
    """The results of one entry's inputs. ``faults`` are by position in the code, each with one
    example.
    """

    name: str
    tried: int = 0
    accepted: int = 0
    refused: int = 0
    faulty: int = 0
    slowest: float = 0.0
    faults: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return (f"{self.name:28} {self.tried:7} tried {self.accepted:7} accepted {self.refused:7} "
                f"refused {self.faulty:5} faulty {len(self.faults):3} places, slowest "
                f"{1000 * self.slowest:.0f} ms")  # fmt: skip


def run(entry: Entry, seed: int, inputs: int) -> Result:
    """Run ``inputs`` inputs for one entry. The same ``seed`` creates the same inputs."""
    random, result = Random(f"{seed} {entry.name}"), Result(entry.name)
    for _ in range(inputs):
        given = entry.mutation(random, entry.seeds)
        begun = time.process_time()
        try:
            with alarm(PATIENCE):
                value = entry.parse(given)
                entry.check(value)
            result.accepted += 1
        except entry.refusals:
            result.refused += 1
        except (Exception, Hang) as error:  # noqa: BLE001  # what a campaign is for
            result.faulty += 1
            result.faults.setdefault(_place(error), f"{str(error)[:100]!r} for {given[:300]!r}")
        result.tried += 1
        result.slowest = max(result.slowest, time.process_time() - begun)
    return result


def _place(error: BaseException) -> str:
    """Return the exception, and the last line of the package in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith(PACKAGE)] or list(frames)
    place = f"{Path(own[-1].filename).relative_to(PACKAGE)}:{own[-1].lineno}" \
        if own[-1].filename.startswith(PACKAGE) else Path(own[-1].filename).name  # fmt: skip
    return f"{place} {type(error).__name__}"


@contextmanager
def alarm(cpu: float, real: float = 0.0) -> Iterator[None]:
    """Raise Hang after ``cpu`` seconds of CPU time or ``real`` seconds of real time (0: no limit),
    because other processes may use the CPU.
    """

    def ring(*_: object) -> None:
        raise Hang(f"more than {cpu:g} s")

    limits = {
        signal.SIGPROF: (signal.ITIMER_PROF, cpu),
        signal.SIGALRM: (signal.ITIMER_REAL, real),
    }
    before = {number: signal.signal(number, ring) for number in limits}
    for timer, seconds in limits.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in limits.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
