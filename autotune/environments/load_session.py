"""Evaluations of a stack under load, in the order that keeps hosts and readings safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from autotune.deploy.deployed import DeployFailed, Fleet
from autotune.diagnose.context import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading, worst_rss
from autotune.environments.clock import Clock
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    Failed,
    History,
    Measured,
    Recorder,
)
from autotune.environments.peak import Peak
from autotune.estimate import Estimate, PartCapacity
from autotune.loads.offer import check_rate
from autotune.measure import Capacity, Limits, Reading, Slo, search
from autotune.measure.steal import MUCH, Steal, worst
from autotune.measure.warmup import MOST_WINDOWS, PREFILLED_STEPS, STEPS, WarmUpResult, warm_up
from autotune.services.base import Settings
from autotune.services.registry import named

WARM_UP = "warm-up"  # purpose of a reading
# Seconds of load before a reading counts: pools of processes grow to what the rate needs. Hardly any
# where the rate is at most a fifth above what was offered just before.
RAMP, SETTLED, SIMILAR = 1.0, 0.25, 0.2
WARMING = 0.4  # warm-up windows for each second that an evaluation may take
# Target sd of the log peak, for a claim and for the search. A configuration that is measured again
# differs by 5 % or more (`estimate.NOISE`), so the search learns more from measuring another one.
CLAIM_SD, SEARCH_SD = 0.03, 0.05
# In the search, a measurement ends after so many readings that tell nothing new: one configuration
# differs more from measurement to measurement than further readings could say, and the leaders are
# measured again.
STALLED_AFTER = 5
# A configuration that cannot carry this share of the expected peak need not be measured lower down.
HOPELESS = 0.02
# If a warm-up ends below this share of its first rate, the stack held it back. The peak is then taken
# to be BEYOND times what the stack carried.
HELD_BACK = 0.9
BEYOND = 1.5
# How far a configuration nobody has measured may be from what is expected: sd of the log peak.
UNMEASURED_SD = 0.5
LAST_WINDOWS = 2  # last windows of a warm-up, which show the stack as it stays
# A single search for a peak loads the servers for at most so many seconds.
LOAD_SECONDS = 60.0


def capacity_limits(max_rate: float) -> Limits:
    """What a single search for a peak may spend and offer, in requests/s."""
    least = min(Limits.min_rate, max_rate)
    return Limits(max_rate=max_rate, min_rate=least, load_seconds=LOAD_SECONDS)


class Meter(Protocol):
    """Loads a deployed stack and watches it meanwhile."""

    def take(self, rate: float, seconds: float, *, ramp: float) -> WatchedReading:
        """Offer ``rate`` requests/s for ``seconds``, after ``ramp`` seconds that do not count."""
        ...

    def diagnose(self, settings: Settings, watched: Sequence[WatchedReading]) -> Bottleneck | None:
        """What holds the peak down, by the readings around it."""
        ...

    def capacities(
        self, settings: Settings, watched: Sequence[WatchedReading]
    ) -> Mapping[str, PartCapacity]:
        """What each part of the stack carries, by the readings that met the SLO."""
        ...

    def begin_trial(self, *, deployed: bool) -> Sequence[Mapping[str, Any]]:
        """Called before a configuration is deployed and once it is; returns new reference answers.

        Raises AutotuneError if the stack does not answer right before the first trial."""
        ...

    def end_warm_up(self, windows: int) -> None:
        """Only the last ``windows`` of the warm-up show how the stack answers."""
        ...

    def lookups(self) -> tuple[int, int] | None:
        """Hits and misses of all caches since they started; ``None`` without a cache."""
        ...

    def drain(self) -> object:
        """Wait until what an overload left behind is gone."""
        ...


class LoadSession:
    """A stack, real or modelled, ready to be deployed to and loaded: see `base.Session`.

    It keeps what belongs to this stack: how much readings scatter, whether the caches are filled, and
    how much CPU time is stolen.
    """

    def __init__(
        self,
        fleet: Fleet,
        meter: Meter,
        slo: Slo,
        limits: Limits,
        history: History,
        clock: Clock | None = None,
        *,
        highest_rate: Callable[[], float] = lambda: inf,
    ) -> None:
        """``highest_rate``: the highest rate that the load may have, known once a stack is deployed."""
        self.fleet, self.meter, self.slo = fleet, meter, slo
        self._limits, self._highest_rate = limits, highest_rate
        self.clock = clock or Clock()
        self.steal = Steal()
        self._told = False  # whether the user was told that CPU time is stolen
        self._offered = 0.0  # rate of the last reading, where it was not cut short
        self._noise = history.noise
        self._windows: list[WatchedReading] = []  # of the last warm-up
        self._warm = False  # whether the caches hold what they can, as far as this session knows

    @property
    def limits(self) -> Limits:
        """What a search may spend and offer, in units of the load."""
        highest = self._highest_rate()
        if highest >= self._limits.max_rate:
            return self._limits
        least = min(self._limits.min_rate, highest)
        return replace(self._limits, max_rate=highest, min_rate=least)

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Deploy (render, validate, apply, ready, read back) → warm-up → capacity → diagnosis.

        Each reading is on record before anything is concluded from it. After a failed deployment
        what ran before is back in place.
        """
        began = self.clock.now()
        self.check_answers(record, deployed=False)
        try:
            with self.clock.on("deploy"):
                deployed = self.fleet.deploy(settings)
        except DeployFailed as error:
            self._warm = False  # what was restored may have been restarted
            return Failed(error.message)
        record.deployed(deployed)
        self._warm = self._warm and not any(_forgets(name) for name in deployed.restarted)
        self._offered = 0.0
        self.check_answers(record, deployed=True)
        ends = began + request.seconds
        warm_up_result = self._warm_up(request, record, prefilled=deployed.prefilled)
        capacity, watched = self._capacity(request, warm_up_result, record, ends)
        try:
            self.fleet.verify()  # before the value goes on record
        except DeployFailed as error:
            self._warm = False
            return Failed(error.message)
        if (why := _unread(capacity.readings)) is not None:
            return Failed(f"the load could not be made: {why}", fault=True)
        self._noise = capacity.noise
        return Measured(
            _peak(capacity, self.slo),
            readings=len(capacity.readings),
            load_seconds=capacity.load_seconds,
            bottleneck=self.meter.diagnose(settings, watched),
            # Only the last windows: earlier misses, of caches still filling, would count against the
            # tiers behind them.
            capacities=self.meter.capacities(settings, [*self._windows[-LAST_WINDOWS:], *watched]),
            rss=worst_rss(watched),
            noise=capacity.noise,
        )

    def check_answers(self, record: Recorder, *, deployed: bool) -> None:
        """Take reference answers if it is time, and put them on record: see `Meter.begin_trial`."""
        if references := self.meter.begin_trial(deployed=deployed):
            record.references(references)

    def _warm_up(
        self, request: EvaluationRequest, record: Recorder, *, prefilled: bool
    ) -> WarmUpResult:
        def probe(rate: float, seconds: float) -> Reading:
            self._windows.append(self.read(rate, seconds, record, WARM_UP))
            return self._windows[-1].reading

        self._windows = []
        expected = request.expected.value if request.expected else None
        # A hit rate takes many windows to settle; caches that kept what they held need not be awaited.
        lookups = (lambda: None) if self._warm else self.meter.lookups
        warm_up_result = warm_up(
            probe,
            lookups,
            expected,
            max_rate=self.limits.max_rate,
            steps=PREFILLED_STEPS if prefilled else STEPS,
            most=int(min(MOST_WINDOWS, max(2.0, WARMING * request.seconds))),
        )
        self._warm = self._warm or warm_up_result.settled
        record.warmed(warm_up_result)
        self.meter.end_warm_up(LAST_WINDOWS)
        self.meter.drain()
        return warm_up_result

    def _capacity(
        self,
        request: EvaluationRequest,
        warm_up_result: WarmUpResult,
        record: Recorder,
        ends: float,
    ) -> tuple[Capacity, list[WatchedReading]]:
        watched: list[WatchedReading] = []
        longest = 0.0  # seconds that a reading took

        def probe(rate: float, seconds: float) -> Reading:
            nonlocal longest
            began = self.clock.now()
            watched.append(self.read(rate, seconds, record, "peak"))
            reading = watched[-1].reading
            if not self.slo.met(reading):
                self.meter.drain()
            longest = max(longest, self.clock.now() - began)
            return reading

        expected = request.expected
        limits = self.limits if request.claim else replace(self.limits, stalled_after=STALLED_AFTER)
        if expected:
            least = max(limits.min_rate, expected.value * HOPELESS)
            limits = replace(limits, min_rate=min(least, limits.max_rate))
        capacity = search(
            probe,
            self.slo,
            expectation(expected, warm_up_result),
            target_sd=CLAIM_SD if request.claim else SEARCH_SD,
            incumbent=request.incumbent,
            noise=self._noise,
            limits=limits,
            # Another reading begins only if at least half of it fits into the time left.
            late=lambda: self.clock.now() + longest / 2 >= ends,
        )
        return capacity, watched

    def read(self, rate: float, seconds: float, record: Recorder, purpose: str) -> WatchedReading:
        """Offer ``rate`` requests/s for ``seconds``; the reading is on record with how much more CPU
        time than usual was stolen in it. Raises RateTooHigh above the target's limit."""
        check_rate(rate, self.limits.max_rate)
        with self.clock.on("load"):
            watched = self.meter.take(rate, seconds, ramp=self._ramp(rate, purpose))
        self._offered = 0.0 if watched.reading.truncated else rate
        stolen = round(self.steal.beyond(watched.hosts), 4)
        watched = replace(watched, reading=replace(watched.reading, stolen=stolen))
        self.steal = self.steal.after(watched.hosts)
        record.reading(watched, purpose)
        if stolen > MUCH and not self._told:
            self._told = True
            name, fraction = worst(watched.hosts)
            record.note(
                f"{fraction:.0%} of the CPU time of {name} was taken by the machine below it: readings "
                "are corrected for it (the report counts them)"
            )
        return watched

    def _ramp(self, rate: float, purpose: str) -> float:
        """Seconds of load before a reading counts: none in a warm-up, whose readings do not count, and
        hardly any where about as much or more has just been offered, carried or not, because what grows
        with the load has grown. After a collapse, which ends a reading early, there is a full ramp."""
        if purpose == WARM_UP:
            return 0.0
        return SETTLED if rate <= (1 + SIMILAR) * self._offered else RAMP


def expectation(expected: Estimate | None, warm_up_result: WarmUpResult) -> Estimate | None:
    """What to expect of the peak now that the stack has been warmed up.

    A stack without an expected peak, or one that did not keep up with it, peaks somewhat above what it
    carried; a stack that fails at any load, hardly above the lowest rate it was offered. A search that
    begins there measures how good the stack is, and not only that it is worse than the best.
    """
    if (least := warm_up_result.failed_at) is not None:
        return Estimate.of(least, UNMEASURED_SD)
    carried = warm_up_result.carried
    most = max((window.rate for window in warm_up_result.windows), default=0.0)
    if carried is not None and (expected is None or carried < HELD_BACK * most):
        return Estimate.of(BEYOND * carried, UNMEASURED_SD)
    return expected


def _unread(readings: Sequence[Reading]) -> str | None:
    """Why none of the readings says anything of the stack; ``None`` where one does."""
    if any(reading.is_valid for reading in readings):
        return None
    return next((r.limited for r in reversed(readings) if r.limited), None)


def _forgets(part: str) -> bool:
    """Whether a part, by its name, is a service that forgets what it held when it is restarted."""
    return any(service.forgets_on_restart for service in named(part.rpartition(".")[2]))


def _peak(capacity: Capacity, slo: Slo) -> Peak:
    return Peak(
        capacity.peak,
        capacity.low,
        capacity.high,
        capacity.sd,
        str(capacity.verdict),
        p99_at_peak(capacity, slo),
        capacity.limit,
    )


def p99_at_peak(capacity: Capacity, slo: Slo) -> float | None:
    """The 99th percentile, in seconds, of the highest reading up to the peak that met the SLO:
    a reading below the peak that missed it was disturbed."""
    met = [r for r in capacity.readings if r.rate <= capacity.peak and slo.met(r)]
    return max(met, key=lambda r: r.rate).percentile(0.99) if met else None
