"""What a study needs of the place its trials run at, whichever kind of target it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

from autotune.deploy.deployed import Fleet
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.clock import Clock
from autotune.environments.command_objective import Benchmark
from autotune.environments.load_meter import Gauge
from autotune.measure.capacity import Limits
from autotune.services.base import Settings
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.progress import Narrator
from autotune.target.read import TargetFile

# Servers are asked for at most this much by a single peak search, in seconds under load.
LOAD_SECONDS = 60.0


@dataclass(frozen=True)
class Checked:
    """What held, and what cannot be known before a run."""

    held: tuple[str, ...]
    left_out: tuple[str, ...]
    not_checked: tuple[str, ...]


def size(file: TargetFile, space: Space) -> str:
    """How much of a target there is to tune, the first of the things that `check` finds right."""
    return (
        f"{file.path}: {len(file.target.tiers)} tiers, {len(space.dimensions)} parameters, "
        f"{len(space.tunable)} of them tunable, {len(space.constraints)} rules"
    )


@dataclass(frozen=True)
class Preview:
    """What would run: where requests enter, the servers, and the files of any settings.

    ``files(settings)`` maps ``part/path`` to content.
    """

    entry: str
    servers: tuple[str, ...]
    files: Callable[[Settings], Mapping[str, bytes]]


def search_limits(max_rate: float) -> Limits:
    """What a single search for a peak may spend and offer, in requests/s."""
    return Limits(max_rate=max_rate, load_seconds=LOAD_SECONDS)


@dataclass(frozen=True)
class Equipment:
    """The effects a trial has: deploying, loading, looking.

    ``take(rate, seconds)`` offers load and returns the reading with what was seen meanwhile;
    ``diagnose`` names what held it down; ``lookups()`` are the cache's hits and misses so far;
    ``drain()`` waits until a backlog is gone; ``clock`` is what a study's budget is counted with.
    ``gauge`` knows the way to the stack and the load hosts, where there is one.
    With a ``benchmark``, the user's own command takes the place of loading and looking.
    """

    fleet: Fleet
    limits: Limits
    take: Callable[[float, float], WatchedReading]
    diagnose: Callable[[Settings, Sequence[WatchedReading]], Bottleneck | None]
    lookups: Callable[[], tuple[int, int] | None]
    drain: Callable[[], object]
    clock: Clock = field(default_factory=Clock)
    benchmark: Benchmark | None = None
    gauge: Gauge | None = None

    @classmethod
    def measuring(cls, fleet: Fleet, gauge: Gauge, max_rate: float) -> Equipment:
        """For a stack that is loaded and watched, with at most ``max_rate`` requests/s."""
        return cls(fleet, search_limits(max_rate), gauge.take, gauge.diagnose, gauge.lookups,
                   gauge.drain, gauge=gauge)  # fmt: skip

    @classmethod
    def calling(cls, benchmark: Benchmark, fleet: Fleet) -> Equipment:
        """For a target that is a command: nothing is loaded, watched or drained."""
        return cls(fleet, Limits(), _no_load, lambda *_: None, lambda: None, _no_load,
                   benchmark=benchmark)  # fmt: skip


def _no_load(*_: object) -> NoReturn:
    raise AssertionError("a command makes its own load")


class Bed(Protocol):
    """A target understood on its hosts: what may be tried, and where it would run."""

    @property
    def file(self) -> TargetFile: ...

    @property
    def space(self) -> Space: ...

    @property
    def facts(self) -> Mapping[str, HostFacts]:
        """Facts of each host, by its name in the target."""
        ...

    @property
    def dropped(self) -> tuple[str, ...]:
        """What was taken out of the space because these hosts cannot do it, a line each."""
        ...

    def announce(self) -> str:
        """One sentence before the first request: where load goes, how much of it, for how long."""
        ...

    def check(self) -> Checked:
        """Everything that can be found out without changing anything. Raises AutotuneError."""
        ...

    def headroom(self) -> str:
        """What load the generator can make, in words; sends load to a private server."""
        ...

    def preview(self) -> Preview:
        """What would run; read-only."""
        ...

    def opened(self, directory: Path, narrator: Narrator) -> AbstractContextManager[Equipment]:
        """The hosts ready for trials of the study in ``directory``, left as found at the end."""
        ...
