"""`autotune measure`: the peak of one configuration, or of one against another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from statistics import fmean, stdev

from autotune.environments.base import Bed
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.loads.memcaslap import PROTOCOL
from autotune.optimize import confirmation
from autotune.optimize.confirmation import Gain, Measured, gain
from autotune.services.base import Settings
from autotune.services.registry import speaks
from autotune.study import session
from autotune.study import trial as trials
from autotune.study.ceilings import OfCaches, OfStack, of_caches, of_stack
from autotune.study.comparison import Opponent, acting, opponent
from autotune.study.exported import exported_rss, exported_settings
from autotune.study.loop import KNOWN_SD
from autotune.study.progress import Narrator
from autotune.study.records import Peak, Phase, Trial
from autotune.study.schedule import Measure
from autotune.study.start import open_study
from autotune.study.trial import Bench
from autotune.target.messages import instead

CONFIGURATION = "the configuration"
MOST_CLIENTS = 500  # a closed loop of more has a thousand descriptors and one core to do it with


@dataclass(frozen=True)
class Request:
    """What to measure: ``settings`` over the baseline, alone or ``against`` others, so many times.

    ``rss`` are the sizes of processes, in bytes by `tier.service`, that were known to where the
    settings come from.
    """

    settings: Settings
    against: Opponent | None
    repeat: int
    rss: Mapping[str, int] = field(default_factory=dict)


def request(bed: Bed, config: Path | None, against: str | None, repeat: int) -> Request:
    """Raises AutotuneError for an export that cannot be read or does not fit the target, and where
    the stack as it is would be measured against itself."""
    settings = exported_settings(bed.space, config) if config else {}
    rss = exported_rss(config) if config else {}
    if against is None:
        return Request(settings, None, repeat, rss)
    other = opponent(bed.space, against, settings)
    if config is None and acting(bed.space, settings) == acting(bed.space, other.settings):
        raise AutotuneError(
            f"the baseline is measured, and {against} has the same settings: there is no gain",
            hint="--config EXPORT is what to measure in place of the baseline",
        )
    return Request(settings, other, repeat, {**other.rss, **rss})


@dataclass(frozen=True)
class Found:
    """Measurements of the configuration and, where it alternated with another, of the ``other``;
    with the gain over it and what it is. Each of them has a peak."""

    study: str
    measured: tuple[Trial, ...]
    other: tuple[Trial, ...] = ()
    gain: Gain | None = None
    against: Opponent | None = None

    @property
    def spread(self) -> float | None:
        """Relative standard deviation between repeats."""
        logs = self._logs
        return stdev(logs) if len(logs) > 1 else None

    @property
    def peak(self) -> float:
        """The geometric mean of all repeats that met the objective."""
        return exp(fmean(self._logs)) if self._logs else 0.0

    @property
    def _logs(self) -> list[float]:
        peaks = [trial.peak for trial in self.measured]
        return [log(peak.peak) for peak in peaks if peak is not None and peak.feasible]


def measure(bed: Bed, wanted: Request, directory: Path, narrator: Narrator) -> Found:
    """Measure and keep every reading in a directory like a study's."""
    with session.opened(bed, directory, narrator) as bench:
        open_study(bed, bench, directory)
        bench.space = bench.space.knowing(wanted.rss)
        if wanted.against is not None:
            return _alternate(bench, wanted, wanted.against, directory)
        return _repeat(bench, wanted, directory)


@dataclass(frozen=True)
class Ceilings:
    """Which ones: of the caches of ``tier``, or of the stack with so many ``clients`` in turn."""

    settings: Settings
    tier: str | None
    clients: tuple[int, ...]


def ceilings_wanted(bed: Bed, wanted: Request, tier: str | None, concurrency: str) -> Ceilings:
    """``concurrency`` is ``"1,5"``. Raises AutotuneError for what has no ceiling to measure."""
    target = bed.file.target
    if wanted.against is not None or wanted.repeat > 1:
        raise AutotuneError("a ceiling is measured once: no --against, no --repeat")
    if target.command is not None or target.simulated is not None:
        raise AutotuneError(
            "only a stack of servers has a ceiling to measure", hint="leave --closed and --tier out"
        )
    if tier is not None:
        caches = [name for name, one in target.tiers.items() if speaks(one.service, PROTOCOL)]
        if tier not in caches:
            raise AutotuneError(
                f"tier {tier!r} has no {PROTOCOL} to measure", hint=instead(tier, caches)
            )
        return Ceilings(wanted.settings, tier, ())
    return Ceilings(wanted.settings, None, _clients(concurrency))


def ceilings(bed: Bed, wanted: Ceilings, directory: Path, narrator: Narrator) -> OfStack | OfCaches:
    """Measure them. Raises AutotuneError."""
    if wanted.tier is not None:
        return of_caches(bed, wanted.tier, wanted.settings, directory, narrator)
    return of_stack(bed, wanted.settings, wanted.clients, directory, narrator)


def _clients(concurrency: str) -> tuple[int, ...]:
    try:
        clients = [int(number) for number in concurrency.split(",")]
    except ValueError:
        clients = []
    if not clients or not all(1 <= number <= MOST_CLIENTS for number in clients):
        raise AutotuneError(
            f"--concurrency {concurrency!r} is no list of numbers from 1 to {MOST_CLIENTS}",
            hint="such as --concurrency 1,5",
        )
    return tuple(clients)


def _repeat(bench: Bench, wanted: Request, directory: Path) -> Found:
    measured: list[Trial] = []
    for _ in range(wanted.repeat):
        measured.append(_measured(bench, wanted.settings, measured, CONFIGURATION)[0])
    return Found(directory.name, tuple(measured))


def _alternate(bench: Bench, wanted: Request, against: Opponent, directory: Path) -> Found:
    """The other and the configuration in turn: A B B A A B … in at least as many pairs as a study's."""
    sides: dict[bool, list[Trial]] = {False: [], True: []}
    measured: list[Measured] = []
    for index in range(2 * max(confirmation.LEAST_PAIRS, wanted.repeat)):
        configured = confirmation.side(index)
        settings = wanted.settings if configured else against.settings
        called = CONFIGURATION if configured else against.called
        trial, peak = _measured(bench, settings, sides[configured], called)
        if not peak.feasible:
            raise AutotuneError(f"{called}: the objective is not met at any rate tried")
        sides[configured].append(trial)
        measured.append(Measured(configured, peak.estimate))
    found = tuple(sides[True]), tuple(sides[False])
    return Found(directory.name, *found, gain(measured), against)


def _measured(
    bench: Bench, settings: Settings, earlier: list[Trial], called: str
) -> tuple[Trial, Peak]:
    known = [trial.peak.peak for trial in earlier if trial.peak and trial.peak.feasible]
    prior = Estimate.of(known[-1], KNOWN_SD) if known else None
    done = trials.run(Measure(Phase.MEASURE, settings), bench, prior, None)
    bench.store.spent(bench.clock.collect())
    if done.peak is None:
        raise AutotuneError(f"{called} cannot be used: {done.failure}")
    return done, done.peak
