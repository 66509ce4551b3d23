"""The peak of a configuration at a latency objective, with an interval.

Method: the search keeps a posterior over log peak on a grid. It also covers the shape of the onset of
violations and the noise of the capacity, which are both unknown. The *fraction* of violations in a
reading shows how far its rate was from the peak (graded, not pass or fail). Capacity noise blurs this.
A one-sided term allows for a disturbed reading, which looks worse than the server is. CPU steal during a
reading takes part of the capacity. The readings show how large that part is.

The next rate is the posterior's estimate of the peak. While no reading has failed (or none has passed),
rates grow (or shrink) in ever larger steps. The search uses no brackets: a disturbed reading loses weight
as others contradict it.

The search assumes that more load never means fewer violations, and that noise is independent between
readings. Callers handle drift between configurations by measuring a reference again. Readings must last
long enough to show violations, and the probe must let a backlog drain before it returns. The peak
reflects typical readings: one stall in many readings counts as a disturbance, not as a limit of the
server.
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

UNKNOWN_SD = 0.35  # sd of the log peak, if an expected peak comes without one
Probe = Callable[[float, float], Reading]
"""``probe(rate, seconds)``: offer ``rate`` requests/s and count for ``seconds``."""


@dataclass(frozen=True)
class Limits:
    """Rates in requests/s, times in seconds.

    - ``start``: first rate without an expected peak.
    - ``max_rate``: no probe exceeds it. ``min_rate``: an objective not met there is unmeetable.
    - ``seconds``: length of a reading. It grows up to ``longest`` if a queue as long as the objective's
      limit, or a few violations, need more time.
    - ``overhead``: seconds of load before each reading counts (its warm-up), only for the accounting.
    - ``load_seconds``, ``readings``: maximum effort of a search.
    - ``screen``: give up below this chance of beating the incumbent. ``gate``: the same after the first
      two readings, which are taken at the expected rate, mostly the incumbent's.
    - ``stalled_after``: stop once the sd is close to its target and this many readings have hardly
      narrowed it (0: never).
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
MAX_RATE = "load.max_rate"  # limit of a search whose generator produced every load

_STEP_UP: Final = 0.4  # log step above the first passed rate while nothing has failed; doubled ...
_STRIDE: Final = 0.7  # ... up to this
_HARDLY: Final = 0.5
_STEP_DOWN: Final = 0.2  # log step below the first failed rate while nothing has passed
_LEAP: Final = log(5.0)  # longest first step down; taken if there is likely no peak
_GATE: Final = 2  # readings before a configuration is compared with the incumbent
# In units of one reading's noise: a further reading would narrow this sd by about 10 %.
_SETTLE: Final = 0.46
_NARROWED, _NEARLY = 0.9, 2.0  # share of an earlier sd; multiple of the target
_COARSEST: Final = 0.2  # maximum error of a reading, in log rate
_DEEP: Final = 100.0  # an objective not met at this fraction of the first rate is unmeetable


@dataclass(frozen=True)
class PeakSearch:
    """The posterior so far and its readings. ``beat`` is the incumbent's capacity."""

    slo: Slo
    limits: Limits
    target_sd: float
    beat: Estimate | None
    noise: Noise
    first: float
    posterior: Posterior
    summary: Summary
    readings: tuple[Reading, ...] = ()
    sds: tuple[float, ...] = ()  # sds of the log peak, after each reading

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
        """Return the state before the first reading, at the expected or the incumbent's peak."""
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
        """Return the state with one more reading."""
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
        """Readings that are valid for the server."""
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
        """The highest rate to request from the generator; each missed rate lowers it."""
        limited = [r.rate for r in self.readings if r.limited is not None]
        if not limited:
            return self.limits.max_rate
        return min(self.limits.max_rate, min(limited) * 0.9 ** len(limited))

    @property
    def limit(self) -> str:
        """The reason why the load cannot be raised further."""
        lowest = min((r for r in self.readings if r.limited), key=lambda r: r.rate, default=None)
        return MAX_RATE if lowest is None or lowest.limited is None else lowest.limited

    @property
    def load_seconds(self) -> float:
        """Seconds under load so far with warm-up; a reading that could not start took none."""
        return sum(r.seconds + self.limits.overhead for r in self.readings if r.seconds > 0)

    @property
    def learned(self) -> Noise:
        """The noise after the readings so far."""
        return self.noise.learned(self.summary.noises, len(self.valid), self.summary.effects)

    def next_rate(self) -> float:
        """Return the next rate: a point of the grid, or the highest allowed rate."""
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
        """Return enough seconds for a queue of the limit's length and for some violations."""
        enough = max(10.0 * self.slo.limit, 4.0 / (max(self.slo.allowed, 1e-6) * rate))
        return max(self.limits.seconds, min(enough, self.limits.longest))

    def verdict(self) -> CapacityVerdict | None:
        """Return the verdict, or ``None`` if the search must continue."""
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
        """The verdict of a search cut short; without a valid reading the server is unknown."""
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
        # The generator's limit is a guess. ``max_rate`` is exact, so the stack must sustain it.
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
        # Expected error of one reading's log peak (sd), from capacity noise and low counts.
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

    ``sd`` belongs to the log of the peak. ``load_seconds`` is all load of the search, with warm-up
    (``Limits.overhead``). ``noise`` is for the study's next search. Verdicts:

    - ``measured``: the interval is narrow enough.
    - ``screened``: the configuration will hardly beat the incumbent. The values come from the readings
      so far.
    - ``limited``: the load could not reach the peak because of ``limit`` (``MAX_RATE``, or the
      generator's report). The capacity is at least ``peak``, the highest rate that met the objective.
      ``high`` rests mostly on the prior.
    - ``unmeetable``: no rate tried meets the objective. ``peak`` and ``low`` are 0, ``high`` is the
      lowest rate that failed.
    - ``unsettled``: the search reached its limits first.
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
    """Return the highest rate at which ``probe`` stays within ``slo``.

    ``prior`` is the expected peak (a bare number is in requests/s), ``incumbent`` the peak to beat, and
    ``noise`` the ``Capacity.noise`` of the study's last search. The search stops when the sd of the log
    peak is down to ``target_sd``, or when a further reading would narrow it by less than a tenth. It also
    stops at ``limits``, and as soon as ``late`` returns true.
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
