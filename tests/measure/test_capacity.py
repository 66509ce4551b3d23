from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import floor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.estimate import Estimate
from autotune.loads.base import LOW_RATE_ERROR
from autotune.measure import Capacity, Noise, Reading, SearchLimits, Slo, search_peak
from autotune.measure.capacity import MAX_RATE_KEY, PeakSearch
from autotune.measure.noise import LOG_RATE_STEP
from tests.measure.test_noise import expected_sd

if TYPE_CHECKING:
    from autotune.measure.capacity import ReadingProbe

SLO = Slo(quantile=0.99, limit=0.050, errors=0.001)
Curve = Callable[[float], float]


def exponential(peak: float, slope: float = 60.0, allowed: float = 0.01) -> Curve:
    """The allowed fraction at ``peak``, e times as much for ``1 / slope`` more load."""
    return lambda rate: min(allowed * float(np.exp(min(slope * np.log(rate / peak), 9.0))), 0.97)


def cliff(peak: float) -> Curve:
    """No violation up to ``peak``, nothing but violations above."""
    return lambda rate: 0.0 if rate <= peak else 1.0


@dataclass
class Served:
    """A probe: counts drawn from ``curve`` at a capacity that varies by ``noise`` per reading."""

    curve: Curve
    seed: int = 0
    noise: float = 0.03
    limit: float | None = None  # requests/s beyond which the generator cannot go
    disturb: frozenset[int] = frozenset()  # readings with less capacity
    disturbance: float = 0.4  # by which log capacity is less in these readings
    rates: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def __call__(self, rate: float, seconds: float) -> Reading:
        loss = self.noise * self.rng.standard_normal()
        loss += self.disturbance if len(self.rates) in self.disturb else 0.0
        self.rates.append(rate)
        n = max(1, int(rate * seconds))
        late = int(self.rng.binomial(n, self.curve(rate * float(np.exp(loss)))))
        stuck = self.limit is not None and rate > self.limit
        return Reading(rate, seconds, n, late, limited="one slow process" if stuck else None)


@pytest.mark.parametrize(
    ("peak", "expected", "within"),
    [
        (1500.0, 1500.0, 0.05),
        (1500.0, 500.0, 0.07),  # three times better than expected
        (1500.0, 4500.0, 0.10),
        (1500.0, 30_000.0, 0.10),
        (100_000.0, 80_000.0, 0.05),
    ],
)
def test_finds_the_peak(peak: float, expected: float, within: float) -> None:
    found = search_peak(Served(exponential(peak)), SLO, expected)
    # The first search of a study may not come to know in its time that no bursts are missed.
    assert found.verdict in ("measured", "unsettled")
    assert found.low < peak < found.high
    assert found.peak == pytest.approx(peak, rel=within)


def test_a_study_soon_knows_that_its_server_makes_no_bursts() -> None:
    first = search_peak(Served(exponential(1500.0)), SLO, 1500.0)
    second = search_peak(Served(exponential(1500.0), seed=2), SLO, 1500.0, noise=first.noise)
    assert second.verdict == "measured"
    assert second.load_seconds < first.load_seconds / 2
    assert second.low < 1500.0 < second.high


def test_a_server_too_slow_to_show_many_violations_may_stay_unsettled() -> None:
    found = search_peak(Served(exponential(50.0)), SLO, 60.0)
    assert found.verdict in ("measured", "unsettled")
    assert found.low < 50.0 < found.high
    assert found.peak == pytest.approx(50.0, rel=0.10)


@pytest.mark.parametrize("slope", [6.0, 15.0, 200.0])
def test_finds_the_peak_whatever_the_onset(slope: float) -> None:
    found = search_peak(Served(exponential(2000.0, slope), seed=3), SLO, 2500.0)
    assert found.low <= 2000.0 <= found.high
    assert found.peak == pytest.approx(2000.0, rel=0.1)


def test_finds_a_cliff() -> None:
    found = search_peak(Served(cliff(700.0), seed=5, noise=0.02), SLO, 1000.0)
    assert found.peak == pytest.approx(700.0, rel=0.04)


def test_without_a_prior_the_rates_grow_until_something_fails() -> None:
    probe = Served(exponential(23_000.0))
    found = search_peak(probe, SLO, limits=SearchLimits(start_rate=100.0))
    assert found.peak == pytest.approx(23_000.0, rel=0.06)
    assert probe.rates[0] == pytest.approx(100.0)
    assert len(probe.rates) < 20


def test_an_expected_peak_that_is_far_too_low_is_left_behind_in_growing_steps() -> None:
    """A baseline was measured during a disturbance, and is now measured again for the proof."""
    probe = Served(cliff(56.0), noise=0.0)
    slow = SearchLimits(reading_seconds=6.0, max_load_seconds=45.0)
    search_peak(probe, Slo(limit=0.3), Estimate.from_value(23.6, 0.08), limits=slow)
    first_failed = next(n for n, rate in enumerate(probe.rates) if rate > 56.0)
    assert first_failed <= 5
    steps = np.diff(np.log(probe.rates[: first_failed + 1]))
    assert (np.diff(steps) > 0.0).all()


def test_without_a_prior_one_hopeless_reading_is_no_reason_to_leap_to_nothing() -> None:
    probe = Served(cliff(700.0), seed=2, noise=0.02)
    found = search_peak(probe, SLO, limits=SearchLimits(start_rate=5000.0))
    assert found.peak == pytest.approx(700.0, rel=0.05)
    assert probe.rates[1] > 900.0


def test_a_bare_number_is_a_prior() -> None:
    probe = Served(exponential(900.0))
    search_peak(probe, SLO, 1000.0)
    assert probe.rates[0] == pytest.approx(1000.0)


@pytest.mark.parametrize("which", [0, 1, 2, 4])
def test_a_disturbed_reading_brackets_nothing(which: int) -> None:
    probe = Served(exponential(1000.0), noise=0.01, disturb=frozenset({which}))
    found = search_peak(probe, SLO, 1000.0)
    assert found.peak == pytest.approx(1000.0, rel=0.06)


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.03, 0.08])
def test_the_interval_holds_the_peak_nine_times_in_ten(noise: float) -> None:
    hits, known = 0, Noise()
    for seed in range(40):
        served = Served(exponential(1200.0, slope=70.0), seed=seed, noise=noise)
        found = search_peak(served, SLO, 1300.0, noise=known)
        known = found.noise
        hits += found.low <= 1200.0 <= found.high
    assert 31 <= hits <= 40


@pytest.mark.long
def test_noise_is_learned_and_handed_on() -> None:
    quiet = loud = Noise()
    for seed in range(6):
        quiet = search_peak(
            Served(exponential(900.0), seed, noise=0.01), SLO, 900.0, noise=quiet
        ).noise
        loud = search_peak(
            Served(exponential(900.0), seed, noise=0.09), SLO, 900.0, noise=loud
        ).noise
    # A part of the scatter may be bursts of a queue.
    assert 2.0 * expected_sd(quiet) < expected_sd(loud)
    assert expected_sd(quiet) < expected_sd(Noise())
    assert quiet.readings > 20


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.75])
def test_a_bad_configuration_is_screened_for_a_few_seconds(ratio: float) -> None:
    found = search_peak(Served(exponential(1000.0 * ratio)), SLO, 1000.0, incumbent=1000.0)
    assert found.verdict == "screened"
    assert found.load_seconds <= 9.0
    assert found.peak < 1000.0


def test_what_is_a_little_worse_costs_two_readings_at_the_rate_to_beat() -> None:
    found = search_peak(
        Served(exponential(850.0)), SLO, 1000.0, incumbent=Estimate.from_value(1000.0, 0.03)
    )
    assert found.verdict == "screened"
    assert [round(reading.rate) for reading in found.readings] == [1000, 1000]


def test_what_begins_far_below_the_incumbent_is_not_given_up_for_that() -> None:
    """Two readings that meet the objective say nothing against a rate thirty times as high."""
    found = search_peak(
        Served(exponential(1100.0)),
        SLO,
        Estimate.from_value(10.0, 0.5),
        incumbent=Estimate.from_value(300.0, 0.1),
    )
    assert found.verdict == "measured"
    assert found.peak == pytest.approx(1100.0, rel=0.15)


def test_a_search_that_is_late_ends_with_what_it_knows() -> None:
    taken: list[float] = []

    def probe(rate: float, seconds: float) -> Reading:
        taken.append(rate)
        return Served(exponential(1000.0), seed=len(taken))(rate, seconds)

    found = search_peak(probe, SLO, 1000.0, is_late=lambda: len(taken) == 3)
    assert (found.verdict, len(found.readings)) == ("unsettled", 3)
    assert found.low < 1000.0 < found.high


@pytest.mark.parametrize("is_exploration", [False, True])
@pytest.mark.parametrize("peak", [1010.0, 1100.0, 3000.0])
@pytest.mark.parametrize("seed", range(12))
def test_no_capacity_above_the_highest_allowed_rate_is_reported(
    seed: int, peak: float, is_exploration: bool
) -> None:
    """No more than 1,000/s is offered, and the search may end at any time."""
    taken: list[float] = []

    def probe(rate: float, seconds: float) -> Reading:
        taken.append(rate)
        return Served(exponential(peak, slope=15.0), seed * 100 + len(taken))(rate, seconds)

    found = search_peak(
        probe,
        SLO,
        600.0,
        incumbent=200.0,
        limits=SearchLimits(max_rate=1000.0, rough_sd=0.13),
        is_late=lambda: len(taken) == 1 + seed,
        is_exploration=is_exploration,
    )
    assert max(taken) <= 1000.0
    assert found.peak <= 1000.0, found.verdict
    assert found.low <= found.peak <= found.high


@pytest.mark.parametrize(
    ("max_rate", "rounded"),
    [
        (1000.0, lambda rate: 3.0 * floor(rate / 3.0)),  # oha, with three entries
        (3.7, floor),
        (1000.0, lambda rate: 0.9 * rate),
    ],
)
def test_a_highest_rate_that_the_generator_rounds_down_is_reached(
    max_rate: float, rounded: Callable[[float], float]
) -> None:
    served = Served(cliff(2.0 * max_rate))
    found = search_peak(
        lambda rate, seconds: served(rounded(rate), seconds),
        SLO,
        max_rate,
        limits=SearchLimits(max_rate=max_rate),
    )
    assert (found.verdict, found.limit) == ("limited", MAX_RATE_KEY)
    assert found.peak == pytest.approx(rounded(max_rate))
    assert len(found.readings) <= 10


@pytest.mark.parametrize("seed", range(20))
def test_no_capacity_above_a_highest_rate_that_failed_is_reported(seed: int) -> None:
    """A failed reading at or near the highest rate may have been disturbed."""
    served = Served(exponential(1000.0, slope=6.0), seed, noise=0.08)
    limits = SearchLimits(max_rate=1000.0)
    found = search_peak(served, SLO, 900.0, limits=limits, is_late=lambda: len(served.rates) == 3)
    assert found.low <= found.peak <= min(1000.0, found.high)


@pytest.mark.parametrize(("expected", "verdict"), [(500.0, "unsettled"), (3000.0, "unmet")])
def test_a_search_that_is_late_at_once_knows_if_a_rate_met_the_objective(
    expected: float, verdict: str
) -> None:
    found = search_peak(Served(exponential(1000.0)), SLO, expected, is_late=lambda: True)
    assert (found.verdict, len(found.readings)) == (verdict, 1)
    assert found.peak > 0


def test_readings_that_tell_nothing_new_end_a_search() -> None:
    learned = Noise()
    for seed in range(20, 24):
        served = Served(exponential(1000.0, slope=70.0), seed, noise=0.05)
        learned = search_peak(served, SLO, 1000.0, noise=learned).noise

    def spent(stalled_after: int) -> list[tuple[int, float]]:
        limits = SearchLimits(max_load_seconds=60.0, max_stalled_readings=stalled_after)
        searches = [
            search_peak(Served(exponential(1000.0, slope=70.0), seed, noise=0.05), SLO, 1000.0,
                   target_sd=0.02, limits=limits, noise=learned)
            for seed in (4, 7, 8, 9)
        ]  # fmt: skip
        assert all(found.low <= 1000.0 <= found.high for found in searches)
        return [(len(found.readings), found.peak) for found in searches]

    whole, shortened = spent(0), spent(5)
    assert all(few <= many for (few, _), (many, _) in zip(shortened, whole, strict=True))
    assert sum(n for n, _ in shortened) < sum(n for n, _ in whole) - 2
    assert all(peak == pytest.approx(1000.0, rel=0.05) for _, peak in shortened)


@pytest.mark.long
def test_a_better_configuration_is_not_screened() -> None:
    verdicts = [
        search_peak(
            Served(exponential(1030.0), seed, noise=0.05), SLO, 1000.0, incumbent=1000.0
        ).verdict
        for seed in range(25)
    ]
    assert verdicts.count("screened") <= 1


def test_a_measured_incumbent_is_as_uncertain_as_it_is() -> None:
    incumbent = search_peak(Served(exponential(1000.0), seed=1), SLO, 1000.0)
    found = search_peak(Served(exponential(400.0), seed=2), SLO, incumbent=incumbent)
    assert found.verdict == "screened"


def _bad_gateway(rate: float, seconds: float) -> Reading:
    n = max(1, int(rate * seconds))
    return Reading(rate, seconds, n, n, errors={"status 502": n})


def _half_broken(rate: float, seconds: float) -> Reading:
    n = max(1, int(rate * seconds))
    return Reading(rate, seconds, n, n // 2, errors={"wrong body": n // 2})


def _slow(rate: float, seconds: float) -> Reading:
    n = max(1, int(rate * seconds))
    return Reading(rate, seconds, n, n)


def _cut_short(rate: float, seconds: float) -> Reading:
    return Reading(rate, 0.5, max(1, int(rate * 0.5)), 0, truncated=True)


@pytest.mark.parametrize("probe", [_bad_gateway, _half_broken, _slow, _cut_short])
@pytest.mark.parametrize("prior", [None, 1000.0])
def test_what_no_rate_can_meet_is_unmeetable(probe: ReadingProbe, prior: float | None) -> None:
    found = search_peak(probe, SLO, prior)
    assert (found.verdict, found.peak, found.low) == ("unmeetable", 0.0, 0.0)
    assert len(found.readings) <= 10


def test_a_reading_that_ended_early_is_charged_until_its_end() -> None:
    def ended_in_ramp(rate: float, seconds: float) -> Reading:
        n = max(1, int(rate))
        is_failed = rate > 500.0
        return (
            Reading(rate, seconds, n, n, truncated=True)
            if is_failed
            else Reading(rate, seconds, n * int(seconds), 0)
        )

    slow = Slo(limit=1.0)  # readings of 10 s
    found = search_peak(ended_in_ramp, slow, 1000.0)
    failed = [reading for reading in found.readings if reading.truncated]
    assert failed
    assert min(reading.seconds for reading in failed) > 2.0
    passed_seconds = sum(r.seconds + 1.0 for r in found.readings if not r.truncated)
    assert found.load_seconds == pytest.approx(passed_seconds + 2.0 * len(failed), rel=0.01)


def test_a_few_errors_fail_though_everything_is_fast() -> None:
    def broken_above_500(rate: float, seconds: float) -> Reading:
        n = int(rate * seconds)
        failed = n // 200 if rate > 500.0 else 0
        return Reading(rate, seconds, n, failed, errors={"status 503": failed})

    found = search_peak(broken_above_500, SLO, 800.0)
    assert found.low <= 500.0 <= found.high
    assert found.peak == pytest.approx(500.0, rel=0.06)


def test_a_generator_that_is_too_slow_is_named() -> None:
    found = search_peak(Served(exponential(5000.0), limit=800.0), SLO, 1500.0)
    assert found.verdict == "limited"
    assert found.limit == "one slow process"
    assert 500.0 <= found.low <= found.peak <= 800.0


@pytest.mark.parametrize("stalls", [{0}, {1}, {3}, {2, 5}, {3, 6, 9}])
def test_a_generator_that_stalls_now_and_then_limits_no_search(stalls: set[int]) -> None:
    served = Served(exponential(1000.0), noise=0.01)

    def probe(rate: float, seconds: float) -> Reading:
        limited = "a stall" if len(served.rates) in stalls else None
        return replace(served(rate, seconds), limited=limited)

    found = search_peak(probe, SLO, 1000.0)
    assert found.verdict in ("measured", "unsettled")
    assert found.peak == pytest.approx(1000.0, rel=0.06)
    for stall in stalls & {*range(len(served.rates) - 1)}:
        assert served.rates[stall + 1] == served.rates[stall]


def test_a_rate_that_is_too_low_for_a_visit_limits_no_higher_rates() -> None:
    served = Served(exponential(1000.0), noise=0.01)

    def probe(rate: float, seconds: float) -> Reading:
        reading = served(rate, seconds)
        if len(served.rates) == 1:
            return as_too_low(reading)
        return replace(reading, limited="a stall" if len(served.rates) == 2 else None)

    found = search_peak(probe, SLO, 1000.0)
    assert found.verdict in ("measured", "unsettled")
    assert found.peak == pytest.approx(1000.0, rel=0.06)


def test_a_search_that_needs_rates_too_low_for_a_visit_ends() -> None:
    served = Served(cliff(3.0))

    def probe(rate: float, seconds: float) -> Reading:
        reading = served(rate, seconds)
        return as_too_low(reading) if rate < 6.0 else reading

    found = search_peak(probe, SLO, 40.0)
    assert (found.verdict, found.limit, found.peak) == ("limited", "the rate is too low", 0.0)
    assert sum(rate < 6.0 for rate in served.rates) == 2


def as_too_low(reading: Reading) -> Reading:
    n = reading.intended
    return Reading(reading.rate, 0.0, n, n, {LOW_RATE_ERROR: n}, limited="the rate is too low")


def test_a_stall_is_not_named_as_the_limit() -> None:
    served = Served(exponential(5000.0))

    def probe(rate: float, seconds: float) -> Reading:
        limited = "a stall" if not served.rates else None
        return replace(served(rate, seconds), limited=limited)

    found = search_peak(probe, SLO, 800.0, limits=SearchLimits(max_rate=1000.0))
    assert (found.verdict, found.limit, found.peak) == ("limited", MAX_RATE_KEY, 1000.0)


def test_a_peak_below_the_generators_limit_is_measured() -> None:
    found = search_peak(Served(exponential(600.0), limit=800.0), SLO, 1500.0)
    assert found.verdict == "measured"
    assert found.low < 600.0 < found.high
    assert found.peak == pytest.approx(600.0, rel=0.1)


def test_a_generator_that_can_do_nothing_ends_the_search() -> None:
    found = search_peak(Served(exponential(600.0), limit=0.5), SLO, 50.0)
    assert found.verdict == "limited"


def test_max_rate_is_never_exceeded() -> None:
    probe = Served(exponential(5000.0))
    found = search_peak(probe, SLO, 4000.0, limits=SearchLimits(max_rate=2000.0))
    assert found.verdict == "limited"
    assert max(probe.rates) <= 2000.0 * (1 + 1e-9)


@pytest.mark.long
@given(
    peak=st.floats(20.0, 50_000.0),
    ratio=st.floats(0.2, 5.0),
    noise=st.sampled_from([0.0, 0.03, 0.2]),
    cap=st.integers(1, 6),
)
@settings(max_examples=25)
def test_stays_within_its_caps(peak: float, ratio: float, noise: float, cap: int) -> None:
    limits = SearchLimits(max_readings=cap, max_load_seconds=15.0, max_rate=1e6)
    found = search_peak(Served(exponential(peak), noise=noise), SLO, peak * ratio, limits=limits)
    assert len(found.readings) <= cap
    assert found.load_seconds == sum(r.seconds + limits.overhead_seconds for r in found.readings)
    assert found.load_seconds <= 15.0 + limits.max_reading_seconds + limits.overhead_seconds
    assert 0.0 <= found.low <= found.peak <= found.high
    assert found.sd >= 0.0


@pytest.mark.parametrize("ends", ["early", "late"])
def test_readings_that_say_nothing_of_the_server_give_no_peak(ends: str) -> None:
    def unmade(rate: float, seconds: float) -> Reading:
        return Reading(rate, 0.0, 100, 100, {"no free port": 100}, limited="no client ports")

    found = search_peak(unmade, SLO, 1500.0, is_late=lambda: ends == "early")
    assert (found.verdict, found.peak, found.low) == ("limited", 0.0, 0.0)
    assert found.load_seconds == 0.0


ROUGH_LIMITS = SearchLimits(rough_sd=0.13)


def measure_candidate(
    lead: float, limits: SearchLimits = ROUGH_LIMITS, *, is_exploration: bool = False
) -> tuple[Capacity, Served]:
    """Measure a candidate that sustains ``lead`` times the incumbent's 400/s."""
    probe, expected = Served(exponential(400.0 * lead, slope=20.0)), Estimate.from_value(400.0, 0.5)
    incumbent = Estimate.from_value(400.0, 0.05)
    found = search_peak(
        probe, SLO, expected, target_sd=0.05, incumbent=incumbent, limits=limits,
        is_exploration=is_exploration,
    )  # fmt: skip
    return found, probe


@pytest.mark.parametrize("lead", [2.0, 3.5, 8.0])
def test_a_candidate_ahead_by_factors_is_measured_roughly(lead: float) -> None:
    rough, _ = measure_candidate(lead)
    precise, _ = measure_candidate(lead, SearchLimits())
    assert rough.verdict == "rough"
    assert rough.low < 400.0 * lead < rough.high
    assert rough.peak == pytest.approx(400.0 * lead, rel=0.25)
    assert rough.low > 400.0
    assert rough.load_seconds < precise.load_seconds
    assert rough.sd > precise.sd


def test_a_candidate_close_to_the_incumbent_is_measured_precisely() -> None:
    close, _ = measure_candidate(1.15)
    assert close.verdict != "rough"
    exploring, _ = measure_candidate(1.15, is_exploration=True)
    assert exploring.verdict == "rough"
    assert exploring.load_seconds < close.load_seconds


def test_a_claim_is_never_rough() -> None:
    assert measure_candidate(8.0, SearchLimits(), is_exploration=True)[0].verdict != "rough"


def test_the_rates_of_a_rough_search_double() -> None:
    _, probe = measure_candidate(8.0)
    first = next(n for n, rate in enumerate(probe.rates) if rate > 3200.0)
    steps = np.diff(np.log(probe.rates[1 : first + 1]))
    assert (steps > 0.6).all()


def test_a_doubtful_failure_of_slow_pages_is_repeated_without_small_steps_towards_it() -> None:
    probe = Served(exponential(2000.0), disturb=frozenset({2}), disturbance=2.0)
    capacity = search_peak(probe, replace(SLO, limit=0.5), prior=300.0)
    failed_rate, later_rates = probe.rates[2], probe.rates[3:6]
    assert max(later_rates) >= 0.99 * failed_rate
    assert capacity.low <= 2000.0 <= capacity.high


@pytest.mark.parametrize("seed", range(10))
def test_a_doubtful_rate_that_passes_is_not_read_again_and_again(seed: int) -> None:
    probe = Served(exponential(4000.0), seed, disturb=frozenset({2}), disturbance=2.0)
    prior = 600.0 * float(np.exp(seed / 30.0))
    search_peak(probe, replace(SLO, limit=0.5), prior=prior)
    doubtful_rate = probe.rates[2]
    assert sum(abs(rate / doubtful_rate - 1.0) < 0.001 for rate in probe.rates[3:]) <= 2


@pytest.mark.parametrize("top_step", [76.2, 76.8])
def test_a_doubtful_failure_at_the_maximum_rate_is_repeated_at_this_rate(top_step: float) -> None:
    """The maximum rate is between two points of the grid."""
    probe = Served(exponential(4000.0), disturb=frozenset({2}), disturbance=2.0)
    limits = SearchLimits(max_rate=600.0 * float(np.exp(LOG_RATE_STEP * top_step)))
    found = search_peak(probe, replace(SLO, limit=0.5), prior=600.0, limits=limits)
    assert (found.verdict, found.limit) == ("limited", MAX_RATE_KEY)


@pytest.mark.parametrize(
    ("sd", "rate", "share"),
    [
        (0.05, 1000.0, 1.0),
        (0.3, 1000.0, 0.5),  # a rough peak needs shorter readings …
        (0.3, 20.0, 1.0),  # … unless so few requests would show no violation
    ],
)
def test_readings_get_longer_as_the_search_needs_precision(
    sd: float, rate: float, share: float
) -> None:
    slow = Slo(quantile=0.99, limit=0.8, errors=0.001)
    prior = Estimate.from_value(rate, sd)
    state = PeakSearch.start(
        slo=slow, limits=SearchLimits(), target_sd=0.03, prior=prior, incumbent=None, noise=Noise()
    )
    seconds = state.reading_seconds(rate)
    full = min(10.0, max(8.0, 4.0 / (0.01 * rate)))
    assert seconds == pytest.approx(full) if share == 1.0 else seconds <= share * full
    assert seconds >= SearchLimits.reading_seconds
