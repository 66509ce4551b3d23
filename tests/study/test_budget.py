"""A study keeps to its time, and to the part of it that belongs to proof."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.clock import Clock
from autotune.environments.load_session import LoadSession
from autotune.environments.peak import Peak
from autotune.optimize.confirmation import LEAST_PAIRS
from autotune.optimize.searcher import Searcher
from autotune.study.loop import tune
from autotune.study.records import Phase, State, Trial
from autotune.study.schedule import (
    LEAST_SECONDS,
    MOST_RESERVE,
    Measure,
    allowance,
    next_step,
    reserve,
)
from autotune.study.store import Store
from autotune.target.model import Budget
from tests.study import simulated

TEN = Budget(trials=8, time="10m")  # type: ignore[arg-type]  # as a target says it
PEAK = Peak(peak=1000.0, low=950.0, high=1050.0, sd=0.03, verdict="measured")


def measured(*phases: Phase, each: float = 40.0) -> State:
    trials = tuple(Trial(n, phase, {}, peak=PEAK) for n, phase in enumerate(phases))
    return State(trials=trials, seconds={"load": each * len(trials)})


@pytest.mark.parametrize(
    ("done", "phase", "elapsed", "seconds"),
    [
        ((), Phase.BASELINE, 0.0, (1 - MOST_RESERVE) * 600),
        # The search may have what is not the proof's, …
        ((Phase.BASELINE,) * 2, Phase.SEARCH, 80.0, 520.0 - MOST_RESERVE * 600),
        # … of which each of its measurements has its share, …
        ((Phase.BASELINE,) * 8, Phase.CONFIRM, 480.0, 120.0 / (2 * LEAST_PAIRS)),
        ((*(Phase.BASELINE,) * 8, Phase.CONFIRM), Phase.CONFIRM, 500.0, 100.0 / 5),
        # … and those beyond what it needs all that is left, …
        ((*(Phase.BASELINE,) * 2, *(Phase.CONFIRM,) * 6), Phase.CONFIRM, 540.0, 60.0),
        # … but nothing can be measured in no time.
        ((Phase.BASELINE,) * 8, Phase.CONFIRM, 599.0, LEAST_SECONDS),
        ((Phase.BASELINE,) * 8, Phase.SEARCH, 599.0, LEAST_SECONDS),
    ],
)
def test_a_measurement_may_take_so_long(
    done: tuple[Phase, ...], phase: Phase, elapsed: float, seconds: float
) -> None:
    assert allowance(measured(*done), phase, TEN, elapsed) == pytest.approx(seconds)


def test_a_slow_baseline_leaves_the_search_its_part_of_the_time() -> None:
    """The pairs of the proof share what is left, however long the first measurement took."""
    state = measured(Phase.BASELINE, each=90.0)
    assert reserve(state, TEN) == MOST_RESERVE * 600
    assert isinstance(next_step(state, simulated.space(), TEN, 90.0), Measure)
    slow = measured(Phase.BASELINE, each=250.0)
    assert isinstance(next_step(slow, simulated.space(), TEN, 250.0), Measure)
    assert allowance(slow, Phase.SEARCH, TEN, 250.0) == 600 * (1 - MOST_RESERVE) - 250.0


@pytest.mark.long
def test_a_study_takes_its_time_and_no_more(tmp_path: Path) -> None:
    """In virtual time: a reading costs three seconds beyond what it counts."""
    with closing(Store(tmp_path)) as store:
        store.open_study("s", simulated.LOCAL.read_text(), source="s", facts={})
        fleet = simulated.FormulaFleet()
        made = simulated.context(store, simulated.climbing, fleet, seed=1, pace=0.0)
        session = made.session
        assert isinstance(session, LoadSession)
        now, offer = [0.0], session.meter.take

        def take(rate: float, seconds: float, *, ramp: float) -> WatchedReading:
            now[0] += seconds + ramp + 3.0
            return offer(rate, seconds, ramp=ramp)

        session.meter.take = take  # type: ignore[method-assign]
        session.clock = Clock(lambda: now[0])
        allowed: dict[str, Any] = {"trials": 40, "time": "11m"}
        searcher = Searcher(f"sqlite:///{tmp_path}/study.db", "s", made.space, "tpe", 1)
        tune(replace(made), searcher, Budget(**allowed))
        assert store.state.elapsed <= 1.05 * 660
        assert len(store.state.finished(Phase.CONFIRM)) >= 2 * LEAST_PAIRS
