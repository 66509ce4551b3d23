from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure import Noise, Reading, Slo
from autotune.measure.capacity import PeakSearch, SearchLimits
from autotune.measure.noise import STEAL_EFFECTS
from autotune.measure.steal import MAX_REMEMBERED_READINGS, CpuSteal, find_worst_steal
from autotune.monitor.activity import HostUsage


def hosts(*stolen: float) -> dict[str, HostUsage]:
    """web1, web2, … by what was stolen from each."""
    return {f"web{number}": HostUsage(0.5, steal, 1.0, 1.0, 0.5, 10, 0, 1e6)
            for number, steal in enumerate(stolen, 1)}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "beyond"),
    [
        # The first one is all that is known.
        ((), (0.01, 0.30), 0.0),
        # Where little is ever stolen, that is usual …
        ((0.0, 0.3, 0.3, 0.3, 0.3), (0.1, 0.3), 0.3),
        # … but a machine that always loses time is what it is.
        ((0.3, 0.2, 0.2, 0.25, 0.2), (0.22,), 0.02),
        # Nothing was seen, so nothing is known.
        ((0.0,), (), 0.0),
    ],
)
def test_a_reading_is_held_against_what_is_usual(
    before: tuple[float, ...], now: tuple[float, ...], beyond: float
) -> None:
    steal = CpuSteal()
    for stolen in before:
        steal = steal.with_reading(hosts(stolen))
    assert steal.excess_steal(hosts(*now)) == pytest.approx(beyond)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=3 * MAX_REMEMBERED_READINGS))
def test_what_is_usual_was_seen(past: list[float]) -> None:
    steal = CpuSteal()
    for stolen in past:
        steal = steal.with_reading(hosts(stolen))
    assert len(steal.steal_history) <= MAX_REMEMBERED_READINGS
    assert steal.usual_steal in past


def test_the_worst_host_of_none() -> None:
    assert find_worst_steal({}) == ("", 0.0)


SLO = Slo()


def reading(rate: float, peak: float, stolen: float = 0.0) -> Reading:
    """Of a server whose violations grow with the 25th power of the load; ``stolen`` for nothing."""
    intended = round(10 * rate)
    late = round(intended * min(1.0, 0.01 * (rate / peak) ** 25))
    return Reading(rate, 10.0, intended, late, stolen=stolen)


def searched(readings: list[Reading], noise: Noise | None = None) -> PeakSearch:
    state = PeakSearch.start(
        SLO, SearchLimits(max_rate=8000.0), 0.03, prior=None, incumbent=None, noise=noise or Noise()
    )
    for taken in readings:
        state = state.with_reading(taken)
    return state


RATES = (900.0, 980.0, 1040.0, 960.0, 1010.0)


def test_steal_moves_a_peak_by_what_it_took() -> None:
    """Of a machine that loses a tenth in every reading, the capacity is a tenth less than shown."""
    calm = searched([reading(rate, 1000.0) for rate in RATES])
    stormy = searched([reading(rate, 1000.0, stolen=0.1) for rate in RATES])
    moved = stormy.summary.quantile(0.5) - calm.summary.quantile(0.5)
    assert moved == pytest.approx(-math.log(0.9), abs=0.02)
    # One for one is a guess, and nothing here tells: the interval says so.
    assert stormy.summary.sd > calm.summary.sd + 0.02


@pytest.mark.parametrize("effect", [0.0, 1.0, 2.0])
def test_what_steal_takes_is_learned(effect: float) -> None:
    stolen = [0.0, 0.15] * 5
    taken = [
        reading(rate, 1000.0 * (1 - effect * part), part)
        for rate, part in zip(RATES * 2, stolen, strict=True)
    ]
    state = searched(taken)
    assert state.summary.steal_effects is not None
    assert STEAL_EFFECTS[int(np.argmax(state.summary.steal_effects))] == effect
    assert state.summary.quantile(0.5) == pytest.approx(math.log(1000), abs=0.03)
    # The next search of the study begins with it.
    assert STEAL_EFFECTS[int(np.argmax(state.updated_noise.build_steal_prior()))] == effect


def test_without_steal_nothing_is_learned_and_nothing_changes() -> None:
    calm = [reading(rate, 1000.0) for rate in RATES]
    state = searched(calm)
    assert state.updated_noise.effects == ()
    hardly = searched([replace(taken, stolen=0.0004) for taken in calm])
    assert np.array_equal(
        hardly.summary.cumulative_probability, state.summary.cumulative_probability
    )
