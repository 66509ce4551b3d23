"""A peak search under way: which rate to try next, and when there is a verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, floor, log
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from autotune.estimate import Estimate
from autotune.measure import onset
from autotune.measure.noise import SIGMAS, STEP, Noise
from autotune.measure.posterior import Posterior, Summary

if TYPE_CHECKING:
    from autotune.measure.limits import Limits
    from autotune.measure.reading import Reading
    from autotune.target.slo import Slo

CapacityVerdict = Literal["measured", "screened", "generator-limited", "unmeetable", "unsettled"]

_STEP_UP: Final = 0.4  # log step beyond the first passed rate while nothing has failed; doubled ...
_STRIDE: Final = 0.7  # ... up to this
_HARDLY: Final = 0.5
_STEP_DOWN: Final = 0.2  # and below the first failed one while nothing has passed
_LEAP: Final = log(5.0)  # the longest step down at first; taken once no peak at all looks likely
_SETTLE: Final = 0.46  # of one reading's noise: a further reading would narrow it by about 10 %
_COARSEST: Final = 0.2  # log rate that no reading is taken to be off by more than
_DEEP: Final = 100.0  # an objective not met at this fraction of the first rate is unmeetable


@dataclass(frozen=True)
class Hunt:
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
    ) -> Hunt:
        """Before the first reading: at what is expected, or else at the incumbent's peak."""
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

    def after(self, reading: Reading) -> Hunt:
        """With one more reading."""
        posterior = self.posterior.after(reading, self.slo)
        return replace(
            self,
            posterior=posterior,
            summary=posterior.summary(),
            readings=(*self.readings, reading),
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
        """Rates that did not."""
        return [r.rate for r in self.valid if not self.slo.met(r)]

    @property
    def ceiling(self) -> float:
        """The highest rate worth asking the generator for; it backs off the faster it fails."""
        limited = [r.rate for r in self.readings if r.limited is not None]
        if not limited:
            return self.limits.max_rate
        return min(self.limits.max_rate, min(limited) * 0.9 ** len(limited))

    @property
    def load_seconds(self) -> float:
        """Seconds under load so far, warm-up included."""
        return sum(r.seconds + self.limits.overhead for r in self.readings)

    @property
    def learned(self) -> Noise:
        """What is now believed of the noise."""
        return self.noise.learned(self.summary.noises, len(self.valid))

    def next_rate(self) -> float:
        """The rate worth trying next: a point of the lattice that may be offered."""
        origin = self.posterior.origin
        wanted = round((self._next_log_rate() - origin) / STEP)
        top = floor((log(max(self.ceiling, self.limits.min_rate)) - origin) / STEP + 1e-9)
        return exp(origin + STEP * min(wanted, top))

    def _next_log_rate(self) -> float:
        if not self.valid:
            return log(self.first)
        median = self.summary.quantile(0.5)
        passes, failures = self.passes, self.failures
        if not failures:
            return self._above(max(passes))
        if not passes:
            down = _STEP_DOWN * 2.0 ** (len(failures) - 1)
            if self.summary.unmeetable > 0.3:
                down = max(down, _LEAP)
            lowest = log(min(failures))
            wanted = max(min(median, lowest - down), lowest - max(down, _LEAP))
            return max(wanted, log(self.limits.min_rate))
        return median

    def _above(self, best: float) -> float:
        """Beyond the highest rate that passed: where the peak hardly lies any higher, but no leap."""
        step = min(_STEP_UP * 2.0 ** (len(self.passes) - 1), _STRIDE)
        return min(max(self.summary.quantile(_HARDLY), log(best) + STEP), log(best) + step)

    def seconds(self, rate: float) -> float:
        """Long enough to see a queue of the limit's length build up, and for some violations."""
        enough = max(10.0 * self.slo.limit, 4.0 / (max(self.slo.allowed, 1e-6) * rate))
        return max(self.limits.seconds, min(enough, self.limits.longest))

    def verdict(self) -> CapacityVerdict | None:
        """The verdict, or ``None`` while the search must go on."""
        if self._unmeetable():
            return "unmeetable"
        if self._generator_limited():
            return "generator-limited"
        if self._screened():
            return "screened"
        if self._settled():
            return "measured"
        spent = self.load_seconds >= self.limits.load_seconds
        return "unsettled" if spent or len(self.readings) >= self.limits.readings else None

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
        near = [rate for rate in self.passes if rate >= 0.9 * self.ceiling]
        return bool(near) and self.summary.chance_above(Estimate.of(self.ceiling)) > 0.9

    def _screened(self) -> bool:
        if self.beat is None or len(self.valid) < 2:
            return False
        return self.summary.chance_above(self.beat) < self.limits.screen

    def _settled(self) -> bool:
        if not self.passes or not self.failures or len(self.valid) < 3:
            return False
        return self.summary.sd <= max(self.target_sd, _SETTLE * self._spread())

    def _spread(self) -> float:
        """Expected sd of the log peak that a single reading shows: varying capacity, few counts."""
        rate = exp(self.summary.quantile(0.5))
        grain = onset.grain(max(self.slo.allowed, 1e-6) * rate * self.seconds(rate))
        squares = np.square(SIGMAS)[:, None] + np.minimum(grain, _COARSEST)[None, :] ** 2
        weights = self.summary.noises
        return float(np.sum(weights * np.sqrt(squares)) / weights.sum())
