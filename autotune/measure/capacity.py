"""Search for the peak of a configuration, the highest rate that meets a latency objective.

Method: the search keeps a posterior over the log peak on a grid. The posterior also covers the shape of
the onset of violations and the noise of the capacity, which are both unknown. The *fraction* of
violations in a reading shows how far its rate was from the peak (not only whether the reading passed or
failed). Capacity noise blurs this relation. A one-sided noise term allows for disturbed readings, which
show less than the server's capacity. CPU steal during a reading reduces the capacity, by an amount that
the search learns from the readings.

The next rate is the posterior's estimate of the peak. Until a reading fails, rates grow in ever larger
steps. If the first readings fail, rates shrink in ever larger steps until a reading passes. Readings set
no fixed lower or upper bounds: a disturbed reading loses weight as other readings contradict it. A
failed rate of slow pages is read again if it is doubtful (``PeakSearch._is_failure_doubtful``).

The search is only as precise as necessary. If a configuration is several times better than the
incumbent, the search climbs in steep steps and stops at a rough peak (``SearchLimits.rough_sd``).
Readings start short and get longer as the search needs more precision (``PeakSearch.reading_seconds``).

The search assumes that more load never means fewer violations, and that the noise of readings is
independent. Callers handle drift between configurations by measuring a reference again. Readings must
last long enough to show violations, and the probe must wait until a backlog has drained. The peak
reflects typical readings: one stall in many readings counts as a disturbance, not as a limit of the
server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, exp, floor, inf, log
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from autotune.estimate import Estimate
from autotune.measure import onset
from autotune.measure.noise import LOG_RATE_STEP, NOISE_SDS, Noise
from autotune.measure.posterior import PeakPosterior, PosteriorSummary
from autotune.measure.reading import Reading

if TYPE_CHECKING:
    from autotune.target.slo import Slo

__all__ = ["Capacity", "ReadingProbe", "SearchLimits", "search_peak"]

DEFAULT_PRIOR_SD = 0.35  # sd of the log peak if the expected peak is given without an sd
ReadingProbe = Callable[[float, float], Reading]
"""``probe(rate, seconds)`` offers ``rate`` requests/s and returns a reading over ``seconds``."""


@dataclass(frozen=True)
class SearchLimits:
    """Limits of a search, with rates in requests/s and times in seconds.

    - ``start_rate``: first rate if no peak is expected.
    - ``max_rate``: no probe exceeds this rate. ``min_rate``: an objective that is not met at this rate
      is unmeetable.
    - ``reading_seconds``: length of a reading. Readings last up to ``max_reading_seconds`` if a queue
      needs more time to reach the latency limit, or if violations are rare. ``min_length_share`` is
      the share of the full length that is enough while the peak is poorly known.
    - ``max_slow_load_seconds``: maximum load time if few requests arrive while a queue settles. With 0,
      no reading is extended for this reason.
    - ``overhead_seconds``: seconds of load before each reading (its warm-up), which count only towards
      the load time.
    - ``max_load_seconds``, ``max_readings``: maximum load time and number of readings of a search.
    - ``prune_probability``: the search gives up if the configuration beats the incumbent with a lower
      probability. ``early_prune_probability``: the same limit after the first two readings, which are
      taken at the expected rate (usually the incumbent's).
    - ``max_stalled_readings``: number of readings that hardly reduced an sd close to its target, after
      which the search stops. With 0, the search never stops for this reason.
    - ``rough_sd``: sd of the log peak that suffices if the peak is several times the incumbent's, or
      after a load time of ``rough_load_seconds``. An exploration may accept a larger sd. With 0, the
      target sd always applies. Readings of slow pages are so short that six of them fit into
      ``rough_load_seconds``, unless requests are rare.
    """

    start_rate: float = 100.0
    max_rate: float = 1e7
    min_rate: float = 1.0
    reading_seconds: float = 2.0
    max_reading_seconds: float = 10.0
    overhead_seconds: float = 1.0
    max_load_seconds: float = 90.0
    max_readings: int = 40
    prune_probability: float = 0.02
    early_prune_probability: float = 0.2
    max_stalled_readings: int = 0
    rough_sd: float = 0.0
    rough_load_seconds: float = inf
    min_length_share: float = 0.25
    max_slow_load_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless rates and times are positive and in order."""
        if not 0 < self.min_rate <= self.max_rate or self.start_rate <= 0:
            raise ValueError("rates must be positive, with min_rate <= max_rate")
        if self.reading_seconds <= 0 or self.max_load_seconds <= 0 or self.max_readings < 1:
            raise ValueError("seconds, load_seconds and readings must be positive")


CapacityVerdict = Literal[
    "measured", "rough", "screened", "limited", "unmeetable", "unsettled", "unmet"
]
# Value of ``limit`` if the load was limited by the maximum rate, not by the generator
MAX_RATE_KEY = "load.max_rate"

# maximum of the first log step above a passed rate; the maximum doubles after each further pass
_LOG_STEP_UP: Final = 0.4
# Minimum of the second log step; the minimum doubles after each further pass. Without it, the rates would
# hardly rise if the expected peak is far too low.
_MIN_SECOND_STEP_UP: Final = 0.05
_MAX_STEP_UP: Final = 0.7  # maximum log step above the highest passed rate
# If the log distance between the highest passed rate and the lowest failed rate is larger, the peak is
# poorly known.
_WIDE_BRACKET: Final = 0.25
# A repeated rate differs from the first one by fewer steps, because it is rounded to the grid.
_ROUNDING_STEPS: Final = 0.75
# After its second passed rate, a rough search climbs by this log step (a factor of 2). After the fourth,
# it climbs by twice this step.
_STEEP_LOG_STEP: Final = log(2.0)
# As long as peaks rise severalfold, this sd suffices for a configuration that is far above the incumbent.
# After a load time of ``rough_load_seconds``, this sd suffices for every configuration.
_EXPLORATION_SD: Final = 0.2
# A rough peak suffices only if it is at least this many sds above the incumbent, so that the
# configuration is certainly better.
_ROUGH_LEAD_SDS: Final = 3.3
# At this sd of the log peak, readings have their full length. At twice this sd, half the reading
# length is enough.
_FULL_LENGTH_SD: Final = 0.1
_FULL_LENGTH_VIOLATIONS, _MIN_VIOLATIONS = 4.0, 2.0
# At 10 % overload, a queue reaches the latency limit after this multiple of the limit.
_FULL_LENGTH_LIMITS: Final = 10.0
# A queue has settled after _SETTLED_LIMITS times the latency limit, or after a reading in which the SLO
# allows _SETTLED_VIOLATIONS violations. Shorter readings start with an empty queue and hide violations.
_SETTLED_LIMITS: Final = 20.0
_SETTLED_VIOLATIONS: Final = 8.0
# The constant part of a latency without a queue, as a share of this latency: service times vary. In
# simulated queues with constant service times, the intervals of a larger share were too narrow.
_CONSTANT_SHARE: Final = 0.8
# Waits are rounded to this share of the latency limit, which is also the shortest wait. Searches with
# similar waits share tables.
_WAIT_STEP_SHARE: Final = 0.05
# The load time of a search suffices for at least this many long readings.
_MIN_LONG_READINGS: Final = 6
_LOG_STEP_DOWN: Final = 0.2  # downward step of the log rate until a rate passes
_MAX_STEP_DOWN: Final = log(5.0)  # log of the step down if no rate is likely to meet the objective
_EARLY_PRUNE_READINGS: Final = 2  # readings before a configuration is compared with the incumbent
# If the sd of the log peak is this multiple of one reading's noise, a further reading would reduce the
# sd by only about 10 %.
_SETTLED_SD_RATIO: Final = 0.46
# A search has stalled if the sd of the log peak is at most _NEAR_TARGET_RATIO times the target sd and
# hardly falls. An sd hardly falls if it is at least _STALLED_SD_RATIO times an earlier sd.
_STALLED_SD_RATIO, _NEAR_TARGET_RATIO = 0.9, 2.0
_MAX_READING_SD: Final = 0.2  # maximum error of a reading, in log rate
# an objective that is not met at 1 / 100 of the first rate is unmeetable
_UNMEETABLE_RATE_RATIO: Final = 100.0
# Readings whose rates differ by at most this factor are at about the same rate.
_SAME_RATE_FACTOR: Final = 1.05
# The generator is too slow for a rate if its limited readings outnumber its complete readings by this
# number.
_MIN_LIMITED_LEAD: Final = 2


@dataclass(frozen=True)
class PeakSearch:
    """The state of a search: the posterior so far and its readings.

    ``incumbent`` is the capacity of the best configuration so far. ``is_exploration`` is true if a
    rough peak suffices even if it is close to the incumbent's peak.
    """

    slo: Slo
    limits: SearchLimits
    target_sd: float
    is_exploration: bool
    incumbent: Estimate | None
    noise: Noise
    first_rate: float
    posterior: PeakPosterior
    summary: PosteriorSummary
    readings: tuple[Reading, ...] = ()
    requested_rates: tuple[float, ...] = ()  # one per reading; some generators send a lower rate
    sd_history: tuple[float, ...] = ()  # sd of the log peak after each reading

    @classmethod
    def start(
        cls,
        slo: Slo,
        limits: SearchLimits,
        target_sd: float,
        *,
        prior: Estimate | None,
        incumbent: Estimate | None,
        noise: Noise,
        is_exploration: bool = False,
        base_latency: float = 0.0,
    ) -> PeakSearch:
        """Return the state before the first reading. The first rate is the expected peak, or else the
        incumbent's peak. ``base_latency`` is described at `search_peak`.
        """
        expected_peak = prior or incumbent
        expected_rate = expected_peak.value if expected_peak else limits.start_rate
        first_rate = min(max(expected_rate, limits.min_rate), limits.max_rate)
        posterior = PeakPosterior.start(
            prior,
            noise,
            _compute_longest_wait(slo.limit, base_latency),
            lowest_rate=limits.min_rate / 2.0,
            highest_rate=limits.max_rate * 4.0,
            expected_rate=first_rate,
        )
        summary = posterior.summarize()
        return cls(
            slo, limits, target_sd, is_exploration, incumbent, noise, first_rate, posterior, summary
        )

    def with_reading(self, reading: Reading, requested_rate: float | None = None) -> PeakSearch:
        """Return the state with one more reading, for which the search requested ``requested_rate``.

        Without ``requested_rate``, the generator sent exactly the requested rate.
        """
        posterior = self.posterior.with_reading(reading, self.slo)
        summary = posterior.summarize()
        return replace(
            self,
            posterior=posterior,
            summary=summary,
            readings=(*self.readings, reading),
            requested_rates=(*self.requested_rates, requested_rate or reading.rate),
            sd_history=(*self.sd_history, summary.sd),
        )

    @property
    def valid_readings(self) -> list[Reading]:
        """Return the readings that are valid measurements of the server."""
        return [r for r in self.readings if r.is_valid]

    @property
    def passed_rates(self) -> list[float]:
        """Return the rates of valid readings that met the objective."""
        return [r.rate for r in self.valid_readings if self.slo.is_met(r)]

    @property
    def failed_rates(self) -> list[float]:
        """Return the rates of valid readings that did not meet the objective."""
        return [r.rate for r in self.valid_readings if not self.slo.is_met(r)]

    @property
    def max_useful_rate(self) -> float:
        """Return the highest rate to request from the generator. Each rate that the generator
        repeatedly could not produce lowers the result.
        """
        limited_rates = [reading.rate for reading in self._list_repeated_limits()]
        if not limited_rates:
            return self.limits.max_rate
        # Each rate was requested twice.
        return min(self.limits.max_rate, min(limited_rates) * 0.9 ** ceil(len(limited_rates) / 2))

    def _list_repeated_limits(self) -> list[Reading]:
        """Return the limited readings at rates that the generator repeatedly could not produce. The
        search repeats a reading that was limited once, because a stall may have limited it.
        """
        return [
            reading
            for reading in self.readings
            if reading.is_beyond_generator and self._is_generator_too_slow(reading.rate)
        ]

    def _is_generator_too_slow(self, rate: float) -> bool:
        """True if the generator repeatedly could not produce ``rate``. Each complete reading at about
        this rate or above outweighs one limited reading.
        """
        limited_count = sum(
            reading.is_beyond_generator and reading.rate <= rate * _SAME_RATE_FACTOR
            for reading in self.readings
        )
        complete_count = sum(
            reading.limited is None
            and not reading.truncated
            and reading.rate >= rate / _SAME_RATE_FACTOR
            for reading in self.readings
        )
        return limited_count - complete_count >= _MIN_LIMITED_LEAD

    @property
    def _are_rates_too_low(self) -> bool:
        """True if the search needs rates at which the generator repeatedly sent no complete visit."""
        return sum(reading.is_rate_too_low for reading in self.readings) >= _MIN_LIMITED_LEAD

    @property
    def _highest_sent_rate(self) -> float:
        """Return the highest rate that the generator sends for requests up to ``max_useful_rate``.

        Some generators round down, for example to whole requests/s at each entry.
        """
        sent_rates = (
            reading.rate
            for requested_rate, reading in zip(self.requested_rates, self.readings, strict=True)
            if reading.is_valid and requested_rate >= (1 - 1e-9) * self.max_useful_rate
        )
        return min(self.max_useful_rate, max(sent_rates, default=self.max_useful_rate))

    @property
    def limit_reason(self) -> str:
        """Return the reason why the load cannot be raised further."""
        limited_readings = self._list_repeated_limits()
        if not self.valid_readings or self._are_rates_too_low:
            limited_readings = [reading for reading in self.readings if reading.limited]
        lowest_limited = min(limited_readings, key=lambda r: r.rate, default=None)
        return (
            MAX_RATE_KEY
            if lowest_limited is None or lowest_limited.limited is None
            else lowest_limited.limited
        )

    @property
    def load_seconds(self) -> float:
        """Return the seconds under load so far, including warm-up. A reading that could not start
        counts as 0 seconds, and a truncated reading counts until its end.
        """
        return sum(
            reading.offered_seconds + self.limits.overhead_seconds
            for reading in self.readings
            if reading.seconds > 0
        )

    @property
    def updated_noise(self) -> Noise:
        """Return the noise, updated by the readings so far."""
        return self.noise.learn(
            self.summary.noise_weights, len(self.valid_readings), self.summary.steal_effects
        )

    def next_rate(self) -> float:
        """Return the rate of the next reading: a point of the grid, or the highest allowed rate."""
        grid_origin, highest_rate = (
            self.posterior.log_rate_origin,
            max(self.max_useful_rate, self.limits.min_rate),
        )
        nearest_step = round((self._next_log_rate() - grid_origin) / LOG_RATE_STEP)
        top_step = floor((log(highest_rate) - grid_origin) / LOG_RATE_STEP + 1e-9)
        is_exact_maximum = nearest_step > top_step and highest_rate == self.limits.max_rate
        return (
            highest_rate
            if is_exact_maximum
            else min(highest_rate, exp(grid_origin + LOG_RATE_STEP * min(nearest_step, top_step)))
        )

    def _next_log_rate(self) -> float:
        if not self.valid_readings:
            return log(self.first_rate)
        median_log_rate = self.summary.quantile(0.5)
        passed_rates, failed_rates = self.passed_rates, self.failed_rates
        if (
            self.incumbent is not None
            and not passed_rates
            and len(failed_rates) < _EARLY_PRUNE_READINGS
        ):
            return log(self.first_rate)  # take two readings, because one may be disturbed
        if not failed_rates:
            return self._next_higher_log_rate(passed_rates)
        if not passed_rates:
            log_step_down = _LOG_STEP_DOWN * 2.0 ** (len(failed_rates) - 1)
            if self.summary.unmeetable_probability > 0.3:
                log_step_down = max(log_step_down, _MAX_STEP_DOWN)
            lowest_failure = log(min(failed_rates))
            lower_log_rate = max(
                min(median_log_rate, lowest_failure - log_step_down),
                lowest_failure - max(log_step_down, _MAX_STEP_DOWN),
            )
            return max(lower_log_rate, log(self.limits.min_rate))
        if self._is_failure_doubtful:
            return log(min(failed_rates))
        log_gap = log(min(failed_rates) / max(passed_rates))
        # After steep steps, the median is close to the highest passed rate, where a reading gives
        # little information.
        is_wide = self._may_be_rough and log_gap > _WIDE_BRACKET
        return log(max(passed_rates)) + log_gap / 2.0 if is_wide else median_log_rate

    def _next_higher_log_rate(self, passed_rates: list[float]) -> float:
        """Return the logarithm of a rate above the highest passed rate. The rate is the median of the
        posterior, within the limits for a step above the highest passed rate.
        """
        best_log_rate, pass_count = log(max(passed_rates)), len(passed_rates)
        max_step = min(_LOG_STEP_UP * 2.0 ** (pass_count - 1), _MAX_STEP_UP)
        min_step = (
            _MIN_SECOND_STEP_UP * 2.0 ** (pass_count - 2) if pass_count > 1 else LOG_RATE_STEP
        )
        if self._may_be_rough and pass_count > 1:
            return best_log_rate + _STEEP_LOG_STEP * (2.0 if pass_count > 3 else 1.0)
        step_to_median = self.summary.quantile(0.5) - best_log_rate
        return best_log_rate + min(max(step_to_median, min_step), max_step)

    @property
    def _is_failure_doubtful(self) -> bool:
        """True if the lowest failure of slow pages may have been a disturbance, and a repeat would show
        this best. Rates just above the highest passed rate would probably pass and leave this
        question open. Readings of fast pages are short, so small steps cost little.
        """
        lowest_failure = min(self.failed_rates)
        are_readings_long = _FULL_LENGTH_LIMITS * self.slo.limit > self.limits.reading_seconds
        log_gap = log(lowest_failure / max(self.passed_rates))
        is_above_passed_rates = log_gap > _ROUNDING_STEPS * LOG_RATE_STEP
        return (
            are_readings_long
            and self.slo.is_met(self.valid_readings[-1])
            and is_above_passed_rates
            and lowest_failure <= self.max_useful_rate
            and self.summary.find_variance_split() >= log(lowest_failure)
        )

    @property
    def _may_be_rough(self) -> bool:
        """True if a rough peak suffices for a configuration far above the incumbent."""
        return self.limits.rough_sd > 0.0 and self.incumbent is not None

    def reading_seconds(self, rate: float) -> float:
        """Return the length in seconds of a reading at ``rate``. A queue must reach the latency limit
        during the reading, and some violations must be expected.

        At an overload of ``x``, a queue takes ``limit / x`` seconds to reach the limit. The reading need
        not distinguish rates that are closer to each other than the sd of the peak.
        """
        reading_length_share = min(
            1.0, max(self.limits.min_length_share, _FULL_LENGTH_SD / self.summary.sd)
        )
        violations = max(_MIN_VIOLATIONS, _FULL_LENGTH_VIOLATIONS * reading_length_share**2)
        counted_seconds = violations / (max(self.slo.allowed_violations, 1e-6) * rate)
        enough_seconds = max(
            reading_length_share * _FULL_LENGTH_LIMITS * self.slo.limit, counted_seconds
        )
        shortest_seconds = max(self.limits.reading_seconds, self._compute_settled_seconds(rate))
        longest_seconds = max(self.limits.max_reading_seconds, shortest_seconds)
        return max(shortest_seconds, min(enough_seconds, longest_seconds))

    def _compute_settled_seconds(self, rate: float) -> float:
        """Return the length in seconds of a reading that shows a settled queue, or less if the load
        time of the search is too short.
        """
        if not self.limits.max_slow_load_seconds:
            return 0.0
        min_seconds = _MIN_VIOLATIONS / (max(self.slo.allowed_violations, 1e-6) * rate)
        load_seconds = min(self._compute_max_load_seconds(rate), self.limits.rough_load_seconds)
        return min(
            self._compute_settling_seconds(rate),
            max(min_seconds, load_seconds / _MIN_LONG_READINGS),
        )

    def _compute_settling_seconds(self, rate: float) -> float:
        counted_seconds = _SETTLED_VIOLATIONS / (max(self.slo.allowed_violations, 1e-6) * rate)
        return min(_SETTLED_LIMITS * self.slo.limit, counted_seconds)

    @property
    def max_load_seconds(self) -> float:
        """Return the maximum load time of the search in seconds. The time is longer if few requests
        arrive while a queue settles.
        """
        return self._compute_max_load_seconds(exp(self.summary.quantile(0.5)))

    def _compute_max_load_seconds(self, rate: float) -> float:
        """Return the maximum load time in seconds if readings are at about ``rate``."""
        settling_seconds = self._compute_settling_seconds(rate)
        slow_seconds = min(self.limits.max_slow_load_seconds, _MIN_LONG_READINGS * settling_seconds)
        return max(self.limits.max_load_seconds, slow_seconds)

    def find_verdict(self) -> CapacityVerdict | None:
        """Return the verdict, or ``None`` if the search must continue."""
        if self._is_unmeetable():
            return "unmeetable"
        if self._is_generator_limited():
            return "limited"
        if self._is_pruned():
            return "screened"
        if self._is_settled() or self._is_stalled():
            return "measured"
        if self._is_rough_enough():
            return "rough"
        is_time_spent = self.load_seconds >= self.max_load_seconds
        return (
            self.give_up_verdict
            if is_time_spent or len(self.readings) >= self.limits.max_readings
            else None
        )

    @property
    def give_up_verdict(self) -> CapacityVerdict:
        """Return the verdict of a search that ends early. Without a valid reading, the generator was
        the limit.
        """
        if not self.valid_readings:
            return "limited"
        return "unsettled" if self.passed_rates else "unmet"

    @property
    def is_peak_beyond_load(self) -> bool:
        """True if the peak is probably above the highest rate that could be offered."""
        log_peak = self.summary.quantile(0.5)
        if self.passed_rates and not self.failed_rates and log_peak > log(self.limits.max_rate):
            return True
        return self._has_passed_highest_rate() and log_peak > log(self._highest_sent_rate)

    def _is_unmeetable(self) -> bool:
        failed_rates = self.failed_rates
        if self.passed_rates or len(failed_rates) < 3:
            return False
        low_enough_rate = max(self.limits.min_rate * 1.01, failed_rates[0] / _UNMEETABLE_RATE_RATIO)
        meetable_probability = self.summary.probability_above(
            Estimate.from_value(self.limits.min_rate)
        )
        unmeetable_probability = (
            1.0 - (1.0 - self.summary.unmeetable_probability) * meetable_probability
        )
        return unmeetable_probability > 0.95 and min(failed_rates) <= low_enough_rate

    def _is_generator_limited(self) -> bool:
        if self.max_useful_rate <= self.limits.min_rate or self._are_rates_too_low:
            return True
        return (
            self._has_passed_highest_rate()
            and self.summary.probability_above(Estimate.from_value(self._highest_sent_rate)) > 0.9
        )

    def _has_passed_highest_rate(self) -> bool:
        """True if a reading near the highest rate that can be offered met the objective."""
        # The generator's highest rate is an estimate, so 90 % of it is enough. ``max_rate`` is exact, so
        # the stack must sustain the whole rate.
        needed_share = 1 - 1e-9 if self.max_useful_rate == self.limits.max_rate else 0.9
        return max(self.passed_rates, default=0.0) >= needed_share * self._highest_sent_rate

    def _is_pruned(self) -> bool:
        if self.incumbent is None or len(self.valid_readings) < _EARLY_PRUNE_READINGS:
            return False
        # The first two readings were at the incumbent's rate.
        is_early = len(self.valid_readings) == _EARLY_PRUNE_READINGS and not self.passed_rates
        prune_threshold = (
            self.limits.early_prune_probability if is_early else self.limits.prune_probability
        )
        return self.summary.probability_above(self.incumbent) < prune_threshold

    def _is_rough_enough(self) -> bool:
        """True if no decision needs a more precise peak, or if a rough peak must suffice because the load
        took ``rough_load_seconds``.
        """
        rough_sd = self.limits.rough_sd
        if not rough_sd or not self.passed_rates or not self.failed_rates:
            return False
        max_sd = max(rough_sd, _EXPLORATION_SD) if self.is_exploration else rough_sd
        if self.load_seconds >= self.limits.rough_load_seconds:
            return self.summary.sd <= max_sd
        if self.incumbent is None:
            return False
        log_lead = self.summary.quantile(0.5) - self.incumbent.log_mean
        needed_sd = min(log_lead / _ROUGH_LEAD_SDS, max_sd)
        return self.summary.sd <= (max(needed_sd, rough_sd) if self.is_exploration else needed_sd)

    def _is_settled(self) -> bool:
        if not self.passed_rates or not self.failed_rates or len(self.valid_readings) < 3:
            return False
        # Expected sd of the log peak from one reading, due to capacity noise and low counts.
        rate = exp(self.summary.quantile(0.5))
        reading_sds = onset.compute_reading_sds(
            max(self.slo.allowed_violations, 1e-6) * rate * self.reading_seconds(rate)
        )
        variances = (
            np.square(NOISE_SDS)[:, None] + np.minimum(reading_sds, _MAX_READING_SD)[None, :] ** 2
        )
        noise_weights = self.summary.noise_weights
        reading_sd = float(np.sum(noise_weights * np.sqrt(variances)) / noise_weights.sum())
        return self.summary.sd <= max(self.target_sd, _SETTLED_SD_RATIO * reading_sd)

    def _is_stalled(self) -> bool:
        stall_reading_count = self.limits.max_stalled_readings
        if (
            not stall_reading_count
            or not self.passed_rates
            or not self.failed_rates
            or len(self.sd_history) <= stall_reading_count
        ):
            return False
        return (
            _STALLED_SD_RATIO * self.sd_history[-1 - stall_reading_count]
            <= self.sd_history[-1]
            <= _NEAR_TARGET_RATIO * self.target_sd
        )


@dataclass(frozen=True)
class Capacity:
    """The long-run peak in requests/s, and its 90 % interval ``low`` to ``high``.

    ``sd`` is the sd of the log peak. ``load_seconds`` is the load time of the search, including warm-up
    (``SearchLimits.overhead_seconds``). ``noise`` is for the study's next search. The verdicts are:

    - ``measured``: the interval is narrow enough.
    - ``rough``: the interval is wide, but the configuration is several times better than the incumbent,
      or the search only explores, or the load took ``SearchLimits.rough_load_seconds``.
    - ``screened``: the configuration is unlikely to beat the incumbent. The peak is estimated from the
      readings so far.
    - ``limited``: the load could not reach the peak because of ``limit`` (``MAX_RATE_KEY``, or the
      generator's report). The capacity is at least ``peak``, the highest rate that met the objective.
      ``high`` depends mostly on the prior.
    - ``unmeetable``: no tried rate meets the objective. ``peak`` and ``low`` are 0, and ``high`` is the
      lowest rate that failed.
    - ``unsettled``: the search reached its maximum load time or number of readings before its target
      precision.
    - ``unmet``: the search ended in the same way, and no reading met the objective. ``peak`` is only an
      estimate, and the objective may be unmeetable.
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


def search_peak(
    probe: ReadingProbe,
    slo: Slo,
    prior: Estimate | float | None = None,
    *,
    target_sd: float = 0.024,
    incumbent: Capacity | Estimate | float | None = None,
    noise: Noise | None = None,
    limits: SearchLimits | None = None,
    is_late: Callable[[], bool] = lambda: False,
    is_exploration: bool = False,
    base_latency: float = 0.0,
) -> Capacity:
    """Return the highest rate at which ``probe`` stays within ``slo``.

    ``prior`` is the expected peak (a plain number is in requests/s), ``incumbent`` the peak to beat, and
    ``noise`` the ``Capacity.noise`` of the study's last search. The search stops when the sd of the log
    peak reaches ``target_sd``, or when a further reading would hardly reduce the sd. The search also
    stops at its ``limits``, and as soon as ``is_late()`` is true. With ``is_exploration``, the search
    stops at a rough peak.

    ``base_latency`` is the usual latency in seconds without a queue. Requests are late if they wait
    longer than the rest of the latency limit.
    """
    search = PeakSearch.start(
        slo,
        limits or SearchLimits(),
        target_sd,
        prior=Estimate.from_value(prior, DEFAULT_PRIOR_SD)
        if isinstance(prior, int | float)
        else prior,
        incumbent=_convert_incumbent(incumbent),
        noise=noise or Noise(),
        is_exploration=is_exploration,
        base_latency=base_latency,
    )
    while True:
        rate = search.next_rate()
        search = search.with_reading(probe(rate, search.reading_seconds(rate)), rate)
        verdict = search.find_verdict() or (search.give_up_verdict if is_late() else None)
        if verdict is not None:
            return _build_capacity(search, verdict)


def _compute_longest_wait(latency_limit: float, base_latency: float) -> float:
    """Return the wait in a queue, in seconds, beyond which a request is late."""
    wait_share = 1.0 - _CONSTANT_SHARE * base_latency / latency_limit
    return latency_limit * _WAIT_STEP_SHARE * max(1, round(wait_share / _WAIT_STEP_SHARE))


def _convert_incumbent(incumbent: Capacity | Estimate | float | None) -> Estimate | None:
    if isinstance(incumbent, Estimate):
        return incumbent
    if isinstance(incumbent, Capacity):
        return Estimate.from_value(incumbent.peak, incumbent.sd) if incumbent.peak > 0 else None
    return Estimate.from_value(incumbent) if incumbent is not None and incumbent > 0 else None


def _build_capacity(search: PeakSearch, verdict: CapacityVerdict) -> Capacity:
    interval_low, peak, interval_high = (exp(search.summary.quantile(q)) for q in (0.05, 0.5, 0.95))
    peak_sd = search.summary.sd
    limit = None
    if verdict in ("measured", "rough", "unsettled") and search.is_peak_beyond_load:
        verdict = "limited"  # a rate that was never offered is not a capacity
    if verdict == "limited":
        peak, limit = max(search.passed_rates, default=0.0), search.limit_reason
        interval_low, interval_high = peak, max(peak, interval_high)
    if verdict == "unmeetable":
        interval_low, peak, interval_high, peak_sd = 0.0, 0.0, min(search.failed_rates), 0.0
    # If the highest rate failed once, the median may be above it.
    interval_low, peak = (min(rate, search.limits.max_rate) for rate in (interval_low, peak))
    return Capacity(
        peak=peak,
        low=interval_low,
        high=interval_high,
        sd=peak_sd,
        verdict=verdict,
        readings=search.readings,
        load_seconds=search.load_seconds,
        noise=search.updated_noise,
        limit=limit,
    )
