"""The peak of a configuration at a latency objective, with an interval.

Method: a posterior over log peak on a lattice, together with the steepness of the onset of
violations and the noise of the capacity, none of which is known. Each reading's *fraction* of
violations says how far its rate was from the peak (graded, not pass or fail); capacity noise blurs
that, and a one-sided term lets a reading be disturbed and look worse than the server is. The next
rate is where the posterior puts the peak; with nothing failed or nothing passed yet, rates grow or
shrink faster and faster. There are no brackets: a reading that turns out to have been disturbed
loses its say as others contradict it.

It assumes that more load never violates less, that noise is independent from reading to reading
(drift between configurations is the caller's, by re-measuring a reference), and that the probe lets
a backlog drain before it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, floor, log
from typing import Final, Literal

from autotune.measure.noise import STEP, Noise
from autotune.measure.posterior import Posterior, Prior, Summary, passed
from autotune.measure.reading import Reading
from autotune.target.slo import Slo

Probe = Callable[[float, float], Reading]
"""``probe(rate, seconds)``: offer ``rate`` requests/s and count for ``seconds``."""

CapacityVerdict = Literal["measured", "screened", "generator-limited", "unmeetable", "unsettled"]

_STEP_UP: Final = 0.25  # first log step beyond a passed rate while nothing has failed; then doubled
_STEP_DOWN: Final = 0.2
_LEAP: Final = log(5.0)  # step down once a server without any peak looks likely
_SETTLE: Final = (
    0.36  # of one reading's noise: a further reading would narrow the interval by < 5 %
)


@dataclass(frozen=True)
class Limits:
    """What a search may spend and offer. Rates in requests/s, times in seconds.

    ``start``: first rate when there is no prior. ``max_rate``: no probe goes above it. ``min_rate``:
    an objective that is not met there is unmeetable. ``seconds``: of a reading; it is stretched up to
    ``longest`` where that is too short to see a slow tail or to hold a few violations. ``overhead``:
    load that a reading costs without counting it (warm-up), for the accounting only. ``load_seconds``
    and ``readings``: the most a search spends. ``screen``: give up below this chance of beating the
    incumbent.
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


@dataclass(frozen=True)
class Capacity:
    """The long-run peak in requests/s, with the interval ``low`` to ``high`` that holds it with 90 %.

    ``sd`` is that of the log of the peak. ``load_seconds`` is all load the search made, warm-up
    (``Limits.overhead``) included. ``noise`` is for the study's next search.

    Verdicts: ``measured``; ``screened``: will hardly beat the incumbent, the posterior so far is
    given; ``generator-limited``: the load could not be raised (by the generator or ``max_rate``) to
    where the peak is: ``peak`` is the highest rate that could be offered, ``low`` is sound and
    ``high`` mostly prior; ``unmeetable``: no rate tried meets the objective, ``peak`` and ``low``
    are 0, ``high`` the lowest rate that failed; ``unsettled``: the caps came first.
    """

    peak: float
    low: float
    high: float
    sd: float
    verdict: CapacityVerdict
    readings: tuple[Reading, ...]
    load_seconds: float
    noise: Noise


@dataclass(frozen=True)
class _Hunt:
    """A search under way."""

    slo: Slo
    limits: Limits
    target_sd: float
    incumbent: tuple[float, float] | None  # log peak and its sd
    noise: Noise
    posterior: Posterior
    summary: Summary
    readings: tuple[Reading, ...] = ()

    def with_reading(self, reading: Reading) -> _Hunt:
        posterior = self.posterior.after(reading, self.slo)
        return replace(
            self,
            posterior=posterior,
            summary=posterior.summary(),
            readings=(*self.readings, reading),
        )

    @property
    def valid(self) -> list[Reading]:
        return [r for r in self.readings if r.limited is None]

    @property
    def passes(self) -> list[float]:
        return [r.rate for r in self.valid if passed(r, self.slo)]

    @property
    def failures(self) -> list[float]:
        return [r.rate for r in self.valid if not passed(r, self.slo)]

    @property
    def ceiling(self) -> float:
        """The highest rate worth asking the generator for; it backs off faster the more it fails."""
        limited = [r.rate for r in self.readings if r.limited is not None]
        if not limited:
            return self.limits.max_rate
        return min(self.limits.max_rate, min(limited) * 0.9 ** len(limited))

    @property
    def load_seconds(self) -> float:
        return sum(r.seconds + self.limits.overhead for r in self.readings)


def search(
    probe: Probe,
    slo: Slo,
    prior: Prior | float | None = None,
    *,
    target_sd: float = 0.018,
    incumbent: Capacity | float | None = None,
    noise: Noise | None = None,
    limits: Limits | None = None,
) -> Capacity:
    """Find the highest rate at which ``probe`` keeps within ``slo``.

    ``prior`` is what is expected (a bare number is a peak in requests/s), ``incumbent`` the peak to
    beat, ``noise`` the ``Capacity.noise`` of the study's last search. The search ends when the sd of
    the log peak is down to ``target_sd``, or to where a further reading would narrow it by less than
    a twentieth, or at ``limits``.
    """
    hunt = _open(slo, prior, target_sd, incumbent, noise or Noise(), limits or Limits())
    rate = _snap(hunt, _first(hunt.limits, _as_prior(prior)))
    while True:
        hunt = hunt.with_reading(probe(rate, _seconds(rate, hunt)))
        verdict = _verdict(hunt)
        if verdict is not None:
            return _result(hunt, verdict)
        rate = _snap(hunt, exp(_next(hunt)))


def _as_prior(prior: Prior | float | None) -> Prior | None:
    return Prior(float(prior)) if isinstance(prior, int | float) else prior


def _first(limits: Limits, prior: Prior | None) -> float:
    wanted = limits.start if prior is None else prior.peak
    return min(max(wanted, limits.min_rate), limits.max_rate)


def _open(
    slo: Slo,
    prior: Prior | float | None,
    target_sd: float,
    incumbent: Capacity | float | None,
    noise: Noise,
    limits: Limits,
) -> _Hunt:
    expected = _as_prior(prior)
    posterior = Posterior.opening(
        expected,
        noise,
        lowest=limits.min_rate / 2.0,
        highest=limits.max_rate * 4.0,
        through=_first(limits, expected),
    )
    beat = None
    if isinstance(incumbent, Capacity):
        beat = (log(incumbent.peak), incumbent.sd) if incumbent.peak > 0 else None
    elif incumbent is not None and incumbent > 0:
        beat = (log(incumbent), 0.0)
    return _Hunt(slo, limits, target_sd, beat, noise, posterior, posterior.summary())


def _seconds(rate: float, hunt: _Hunt) -> float:
    """Long enough to see a queue of the limit's length build up, and for some violations."""
    slo, limits = hunt.slo, hunt.limits
    enough = max(10.0 * slo.limit, 4.0 / (max(slo.allowed, 1e-6) * rate))
    return max(limits.seconds, min(enough, limits.longest))


def _snap(hunt: _Hunt, rate: float) -> float:
    """The nearest rate on the lattice that may be offered."""
    origin = hunt.posterior.origin
    top = floor((log(max(hunt.ceiling, hunt.limits.min_rate)) - origin) / STEP + 1e-9)
    return exp(origin + STEP * min(round((log(rate) - origin) / STEP), top))


def _next(hunt: _Hunt) -> float:
    """Log of the rate that is worth trying next."""
    median = hunt.summary.quantile(0.5)
    passes, failures = hunt.passes, hunt.failures
    if not hunt.valid:
        return median
    if not failures:
        return max(median, log(max(passes)) + _STEP_UP * 2.0 ** (len(passes) - 1))
    if not passes:
        down = _STEP_DOWN * 2.0 ** (len(failures) - 1)
        if hunt.summary.unmeetable > 0.3:
            down = max(down, _LEAP)
        return max(min(median, log(min(failures)) - down), log(hunt.limits.min_rate))
    return median


def _verdict(hunt: _Hunt) -> CapacityVerdict | None:
    if _unmeetable(hunt):
        return "unmeetable"
    if _generator_limited(hunt):
        return "generator-limited"
    if _screened(hunt):
        return "screened"
    if _settled(hunt):
        return "measured"
    spent = hunt.load_seconds >= hunt.limits.load_seconds
    return "unsettled" if spent or len(hunt.readings) >= hunt.limits.readings else None


def _unmeetable(hunt: _Hunt) -> bool:
    failures = hunt.failures
    if hunt.passes or len(failures) < 3:
        return False
    low_enough = max(hunt.limits.min_rate * 1.01, failures[0] / 100.0)
    below = hunt.summary.chance_above(log(hunt.limits.min_rate))
    none = hunt.summary.unmeetable + (1.0 - hunt.summary.unmeetable) * (1.0 - below)
    return none > 0.95 and min(failures) <= low_enough


def _generator_limited(hunt: _Hunt) -> bool:
    ceiling = hunt.ceiling
    if ceiling <= hunt.limits.min_rate:
        return True
    near = [rate for rate in hunt.passes if rate >= 0.9 * ceiling]
    return bool(near) and hunt.summary.chance_above(log(ceiling)) > 0.9


def _screened(hunt: _Hunt) -> bool:
    if hunt.incumbent is None or len(hunt.valid) < 2:
        return False
    return hunt.summary.chance_above(*hunt.incumbent) < hunt.limits.screen


def _settled(hunt: _Hunt) -> bool:
    if not hunt.passes or not hunt.failures or len(hunt.valid) < 3:
        return False
    sigma = replace(hunt.noise, weights=tuple(hunt.summary.sigmas)).sigma
    return hunt.summary.sd <= max(hunt.target_sd, _SETTLE * sigma)


def _result(hunt: _Hunt, verdict: CapacityVerdict) -> Capacity:
    low, middle, high = (exp(hunt.summary.quantile(q)) for q in (0.05, 0.5, 0.95))
    sd = hunt.summary.sd
    if verdict == "generator-limited":
        middle = max(low, min(hunt.ceiling, middle))
    if verdict == "unmeetable":
        low, middle, high, sd = 0.0, 0.0, min(hunt.failures), 0.0
    noise = hunt.noise.learned(hunt.summary.sigmas, len(hunt.valid))
    return Capacity(
        peak=middle,
        low=low,
        high=high,
        sd=sd,
        verdict=verdict,
        readings=hunt.readings,
        load_seconds=hunt.load_seconds,
        noise=noise,
    )
