"""The peak of a configuration at a latency objective, with an interval.

Method: a posterior over log peak on a grid, together with the shape of the onset of violations
and the noise of the capacity, none of which is known. Each reading's *fraction* of violations says
how far its rate was from the peak (graded, not pass or fail); capacity noise blurs that, and a
one-sided term allows for a disturbed reading, which looks worse than the server is. CPU time stolen
during a reading took a part of the capacity; how large a part is learned from the readings. The next
rate is where the posterior puts the peak; while no reading has failed (or none has passed), rates grow
(or shrink) in ever larger steps. There are no brackets: a reading that turns out to have been
disturbed loses weight as others contradict it.

It assumes that more load never means fewer violations, that noise is independent from reading to
reading (drift between configurations is left to the caller, who re-measures a reference), that readings
last long enough to show violations, and that the probe lets a backlog drain before it returns. What
counts as the peak is what typical readings show: a stall seen once in many readings is taken for a
disturbance, not for a limit of the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, floor, log
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from autotune.estimate import Estimate
from autotune.measure import onset
from autotune.measure.noise import SIGMAS, STEP, Noise
from autotune.measure.posterior import Posterior, Summary
from autotune.measure.reading import Reading

if TYPE_CHECKING:
    from autotune.target.slo import Slo

__all__ = ["Capacity", "Limits", "Probe", "search"]

UNKNOWN_SD = 0.35  # of the log peak, where an expected peak comes without an sd
Probe = Callable[[float, float], Reading]
"""``probe(rate, seconds)``: offer ``rate`` requests/s and count for ``seconds``."""


@dataclass(frozen=True)
class Limits:
    """Rates in requests/s, times in seconds.

    ``start``: first rate when nothing is expected. ``max_rate``: no probe goes above it.
    ``min_rate``: an objective that is not met there is unmeetable. ``seconds``: length of a
    reading, stretched up to ``longest`` where it is too short for a queue as long as the objective's
    limit to build up, or for a few violations. ``overhead``: seconds of load before each reading
    counts (its warm-up), for the accounting only. ``load_seconds`` and ``readings``: the most a search
    spends. ``screen``: give up below this chance of beating the incumbent, and ``gate`` after the first
    two readings, which are taken at the expected rate, mostly the incumbent's. ``stalled_after``: end
    the search once the sd is close to its target and this many readings have hardly narrowed it
    (0: never).
    """

    start: float = 100.0
    max_rate: float = 1e7
    min_rate: float = 1.0
    seconds: float = 2.0
    longest: float = 10.0
    overhead: float = 1.0
    load_seconds: float = 90.0
    readings: int = 40
    screen: float = 0.02
    gate: float = 0.2
    stalled_after: int = 0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless rates and times are positive and in order."""
        if not 0 < self.min_rate <= self.max_rate or self.start <= 0:
            raise ValueError("rates must be positive, with min_rate <= max_rate")
        if self.seconds <= 0 or self.load_seconds <= 0 or self.readings < 1:
            raise ValueError("seconds, load_seconds and readings must be positive")


CapacityVerdict = Literal["measured", "screened", "limited", "unmeetable", "unsettled"]
MAX_RATE = "load.max_rate"  # what limits a search whose generator made every load

_STEP_UP: Final = 0.4  # log step beyond the first passed rate while nothing has failed; doubled ...
_STRIDE: Final = 0.7  # ... up to this
_HARDLY: Final = 0.5
_STEP_DOWN: Final = 0.2  # and below the first failed one while nothing has passed
_LEAP: Final = log(5.0)  # the longest step down at first; taken once there is likely no peak
_GATE: Final = 2  # readings before a configuration is given up against the incumbent
# Of one reading's noise: a further reading would narrow this sd by about 10 %.
_SETTLE: Final = 0.46
_NARROWED, _NEARLY = 0.9, 2.0  # of an earlier sd; of the target
_COARSEST: Final = 0.2  # the most that a reading is taken to be off by, in log rate
_DEEP: Final = 100.0  # an objective not met at this fraction of the first rate is unmeetable


@dataclass(frozen=True)
class PeakSearch:
    """The posterior so far and what it rests on. ``beat``: the incumbent's capacity."""

    slo: Slo
    limits: Limits
    target_sd: float
    beat: Estimate | None
    noise: Noise
    first: float
    posterior: Posterior
    summary: Summary
    readings: tuple[Reading, ...] = ()
    sds: tuple[float, ...] = ()  # of the log peak, after each of them

    @classmethod
    def opening(
        cls,
        slo: Slo,
        limits: Limits,
        target_sd: float,
        *,
        prior: Estimate | None,
        beat: Estimate | None,
        noise: Noise,
    ) -> PeakSearch:
        """Before the first reading, which is taken at the expected peak, or else at the incumbent's."""
        expected = prior or beat
        start = expected.value if expected else limits.start
        first = min(max(start, limits.min_rate), limits.max_rate)
        posterior = Posterior.opening(
            prior,
            noise,
            slo,
            lowest=limits.min_rate / 2.0,
            highest=limits.max_rate * 4.0,
            through=first,
        )
        summary = posterior.summary()
        return cls(slo, limits, target_sd, beat, noise, first, posterior, summary)

    def after(self, reading: Reading) -> PeakSearch:
        """With one more reading."""
        posterior = self.posterior.after(reading, self.slo)
        summary = posterior.summary()
        return replace(
            self,
            posterior=posterior,
            summary=summary,
            readings=(*self.readings, reading),
            sds=(*self.sds, summary.sd),
        )

    @property
    def valid(self) -> list[Reading]:
        """Readings that say something of the server."""
        return [r for r in self.readings if r.is_valid]

    @property
    def passes(self) -> list[float]:
        """Rates that met the objective."""
        return [r.rate for r in self.valid if self.slo.met(r)]

    @property
    def failures(self) -> list[float]:
        """Rates that did not meet the objective."""
        return [r.rate for r in self.valid if not self.slo.met(r)]

    @property
    def ceiling(self) -> float:
        """The highest rate worth asking the generator for: lower with each reading it did not make."""
        limited = [r.rate for r in self.readings if r.limited is not None]
        if not limited:
            return self.limits.max_rate
        return min(self.limits.max_rate, min(limited) * 0.9 ** len(limited))

    @property
    def limit(self) -> str:
        """What keeps the load from being raised further."""
        lowest = min((r for r in self.readings if r.limited), key=lambda r: r.rate, default=None)
        return MAX_RATE if lowest is None or lowest.limited is None else lowest.limited

    @property
    def load_seconds(self) -> float:
        """Seconds under load so far, warm-up included; a reading that could not begin took none."""
        return sum(r.seconds + self.limits.overhead for r in self.readings if r.seconds > 0)

    @property
    def learned(self) -> Noise:
        """What is now believed of the noise."""
        return self.noise.learned(self.summary.noises, len(self.valid), self.summary.effects)

    def next_rate(self) -> float:
        """The rate worth trying next: a point of the grid, or the highest rate that may be offered."""
        origin, highest = self.posterior.origin, max(self.ceiling, self.limits.min_rate)
        nearest = round((self._next_log_rate() - origin) / STEP)
        top = floor((log(highest) - origin) / STEP + 1e-9)
        exact = nearest > top and highest == self.limits.max_rate
        return highest if exact else min(highest, exp(origin + STEP * min(nearest, top)))

    def _next_log_rate(self) -> float:
        if not self.valid:
            return log(self.first)
        median = self.summary.quantile(0.5)
        passes, failures = self.passes, self.failures
        if self.beat is not None and not passes and len(failures) < _GATE:
            return log(self.first)  # twice: one reading may have been disturbed
        if not failures:
            # The posterior's ``_HARDLY`` quantile, but at most ``step`` above the highest passed rate.
            best, step = log(max(passes)), min(_STEP_UP * 2.0 ** (len(passes) - 1), _STRIDE)
            return min(max(self.summary.quantile(_HARDLY), best + STEP), best + step)
        if not passes:
            down = _STEP_DOWN * 2.0 ** (len(failures) - 1)
            if self.summary.unmeetable > 0.3:
                down = max(down, _LEAP)
            lowest = log(min(failures))
            lower = max(min(median, lowest - down), lowest - max(down, _LEAP))
            return max(lower, log(self.limits.min_rate))
        return median

    def seconds(self, rate: float) -> float:
        """Long enough to see a queue of the limit's length build up, and for some violations."""
        enough = max(10.0 * self.slo.limit, 4.0 / (max(self.slo.allowed, 1e-6) * rate))
        return max(self.limits.seconds, min(enough, self.limits.longest))

    def verdict(self) -> CapacityVerdict | None:
        """The verdict, or ``None`` while the search must go on."""
        if self._unmeetable():
            return "unmeetable"
        if self._generator_limited():
            return "limited"
        if self._screened():
            return "screened"
        if self._settled() or self._stalled():
            return "measured"
        spent = self.load_seconds >= self.limits.load_seconds
        return self.given_up if spent or len(self.readings) >= self.limits.readings else None

    @property
    def given_up(self) -> CapacityVerdict:
        """The verdict of a search cut short: without a valid reading nothing is known of the server."""
        return "unsettled" if self.valid else "limited"

    def _unmeetable(self) -> bool:
        failures = self.failures
        if self.passes or len(failures) < 3:
            return False
        deep = max(self.limits.min_rate * 1.01, failures[0] / _DEEP)
        alive = self.summary.chance_above(Estimate.of(self.limits.min_rate))
        none = 1.0 - (1.0 - self.summary.unmeetable) * alive
        return none > 0.95 and min(failures) <= deep

    def _generator_limited(self) -> bool:
        if self.ceiling <= self.limits.min_rate:
            return True
        # What the generator can make is a guess. ``max_rate`` is none: it has to be carried itself.
        share = 1 - 1e-9 if self.ceiling == self.limits.max_rate else 0.9
        reached = max(self.passes, default=0.0) >= share * self.ceiling
        return reached and self.summary.chance_above(Estimate.of(self.ceiling)) > 0.9

    def _screened(self) -> bool:
        if self.beat is None or len(self.valid) < _GATE:
            return False
        at_first = len(self.valid) == _GATE and not self.passes  # both at the incumbent's rate
        gate = self.limits.gate if at_first else self.limits.screen
        return self.summary.chance_above(self.beat) < gate

    def _settled(self) -> bool:
        if not self.passes or not self.failures or len(self.valid) < 3:
            return False
        # How far off the log peak of one reading is expected to be (sd), as the capacity varies and
        # counts are few.
        rate = exp(self.summary.quantile(0.5))
        grain = onset.grain(max(self.slo.allowed, 1e-6) * rate * self.seconds(rate))
        squares = np.square(SIGMAS)[:, None] + np.minimum(grain, _COARSEST)[None, :] ** 2
        weights = self.summary.noises
        spread = float(np.sum(weights * np.sqrt(squares)) / weights.sum())
        return self.summary.sd <= max(self.target_sd, _SETTLE * spread)

    def _stalled(self) -> bool:
        stalled_after = self.limits.stalled_after
        if (
            not stalled_after
            or not self.passes
            or not self.failures
            or len(self.sds) <= stalled_after
        ):
            return False
        return _NARROWED * self.sds[-1 - stalled_after] <= self.sds[-1] <= _NEARLY * self.target_sd


@dataclass(frozen=True)
class Capacity:
    """The long-run peak in requests/s, and its 90 % interval ``low`` to ``high``.

    ``sd`` is that of the log of the peak. ``load_seconds`` is all load the search made, warm-up
    (``Limits.overhead``) included. ``noise`` is for the study's next search.

    Verdicts: ``measured``; ``screened``: will hardly beat the incumbent, the posterior so far is
    given; ``limited``: the load could not be raised to where the peak is, because of ``limit``
    (``MAX_RATE`` or what the generator reported): the capacity is at least ``peak``, the highest rate
    that met the objective, and ``high`` rests mostly on the prior;
    ``unmeetable``: no rate tried meets the objective, ``peak`` and ``low`` are 0, ``high`` the
    lowest rate that failed; ``unsettled``: the search reached its limits first.
    """

    peak: float
    low: float
    high: float
    sd: float
    verdict: CapacityVerdict
    readings: tuple[Reading, ...]
    load_seconds: float
    noise: Noise
    limit: str | None = None


def search(
    probe: Probe,
    slo: Slo,
    prior: Estimate | float | None = None,
    *,
    target_sd: float = 0.024,
    incumbent: Capacity | Estimate | float | None = None,
    noise: Noise | None = None,
    limits: Limits | None = None,
    late: Callable[[], bool] = lambda: False,
) -> Capacity:
    """Find the highest rate at which ``probe`` keeps within ``slo``.

    ``prior`` is what is expected (a bare number is a peak in requests/s), ``incumbent`` the peak to
    beat, ``noise`` the ``Capacity.noise`` of the study's last search. The search ends when the sd
    of the log peak is down to ``target_sd``, or so far below the noise of one reading that a
    further one would narrow it by less than a tenth, or at ``limits``, or as soon as it is ``late``.
    """
    state = PeakSearch.opening(
        slo,
        limits or Limits(),
        target_sd,
        prior=Estimate.of(prior, UNKNOWN_SD) if isinstance(prior, int | float) else prior,
        beat=_to_beat(incumbent),
        noise=noise or Noise(),
    )
    while True:
        rate = state.next_rate()
        state = state.after(probe(rate, state.seconds(rate)))
        verdict = state.verdict() or (state.given_up if late() else None)
        if verdict is not None:
            return _result(state, verdict)


def _to_beat(incumbent: Capacity | Estimate | float | None) -> Estimate | None:
    if isinstance(incumbent, Estimate):
        return incumbent
    if isinstance(incumbent, Capacity):
        return Estimate.of(incumbent.peak, incumbent.sd) if incumbent.peak > 0 else None
    return Estimate.of(incumbent) if incumbent is not None and incumbent > 0 else None


def _result(state: PeakSearch, verdict: CapacityVerdict) -> Capacity:
    low, peak, high = (exp(state.summary.quantile(q)) for q in (0.05, 0.5, 0.95))
    sd = state.summary.sd
    limit = None
    if verdict == "limited":
        peak, limit = max(state.passes, default=0.0), state.limit
        low, high = peak, max(peak, high)
    if verdict == "unmeetable":
        low, peak, high, sd = 0.0, 0.0, min(state.failures), 0.0
    return Capacity(
        peak=peak,
        low=low,
        high=high,
        sd=sd,
        verdict=verdict,
        readings=state.readings,
        load_seconds=state.load_seconds,
        noise=state.learned,
        limit=limit,
    )
