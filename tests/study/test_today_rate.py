"""The proof measures the latency of both sides at the rate of today's users."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.environments.load_session import (
    MAX_TODAY_SECONDS,
    MIN_TODAY_SECONDS,
    LoadSession,
    compute_today_seconds,
)
from autotune.estimate import Estimate
from autotune.measure import Reading, SearchLimits, Slo
from autotune.measure.reading import TODAY_PURPOSE
from autotune.study import trial
from autotune.study.reading_records import RecordedReading, load_readings
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase, State, Trial
from autotune.study.study_store import StudyStore, load_state
from autotune.study.today_rate import select_today_rate
from tests.study import simulated
from tests.study.test_time_budget import PEAK, measured

# Rates (requests/s) of the target, of the limit and of the stack's capacity, and whether latency is
# measured.
CAPACITY = 1000.0
RATES = [
    (400.0, 8000.0, True),
    (1050.0, 8000.0, True),  # within what the capacity is known to
    (2500.0, 8000.0, False),  # the latency of an overload says how long it lasted
    (400.0, 300.0, False),
    (400.0, 400.0, True),
    (None, 8000.0, False),
]


def today_readings(directory: Path) -> list[RecordedReading]:
    return [r for r in load_readings(directory) if r.purpose == TODAY_PURPOSE]


def run_trial(
    directory: Path, phase: Phase, today: float | None, max_rate: float, seconds: float = 600.0
) -> list[RecordedReading]:
    """Readings of latency in one trial of a stack with a known capacity."""
    directory.mkdir(exist_ok=True)
    with closing(StudyStore(directory)) as store:
        made = simulated.context(
            store, simulated.flat, simulated.FormulaFleet(), seed=3, pace=0.0, today=today
        )
        session = made.session
        assert isinstance(session, LoadSession)
        session._limits = SearchLimits(max_rate=max_rate)
        step = MeasureStep(phase, made.space.baseline)
        trial.run_trial(step, made, Estimate.from_value(CAPACITY, 0.1), None, seconds)
    assert max(reading.rate for reading in load_readings(directory)) <= max_rate
    return today_readings(directory)


@pytest.mark.parametrize(("today", "max_rate", "taken"), RATES)
def test_latency_is_measured_if_stack_and_limit_allow_it(
    today: float | None, max_rate: float, taken: bool, tmp_path: Path
) -> None:
    readings = run_trial(tmp_path, Phase.CONFIRM, today, max_rate)
    assert [reading.rate for reading in readings] == ([today] if taken else [])
    kinds = [reading.purpose for reading in load_readings(tmp_path)]
    if taken:  # nothing has overloaded the stack before
        assert kinds.index(TODAY_PURPOSE) < kinds.index("peak")


@pytest.mark.parametrize("phase", list(Phase))
def test_only_the_proof_and_measurements_take_it(phase: Phase, tmp_path: Path) -> None:
    taken = len(run_trial(tmp_path, phase, 400.0, 8000.0))
    assert taken == (phase in (Phase.CONFIRM, Phase.MEASURE))


@settings(max_examples=30, deadline=None)
@given(
    today=st.floats(0.1, 20_000.0), max_rate=st.floats(1.0, 20_000.0), seconds=st.floats(0.0, 60.0)
)
def test_no_reading_exceeds_the_limit(
    today: float, max_rate: float, seconds: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    readings = run_trial(
        tmp_path_factory.mktemp("s"), Phase.CONFIRM, today, max_rate, seconds=seconds
    )
    for reading in readings:  # `run_trial` checks all rates
        assert reading.rate == today
        assert MIN_TODAY_SECONDS <= reading.seconds <= MAX_TODAY_SECONDS


@pytest.mark.parametrize(
    ("rate", "slo", "seconds"),
    [
        (400.0, Slo(), 5.0),  # 20 of 2,000 requests are above p99
        (10_000.0, Slo(), MIN_TODAY_SECONDS),
        (10.0, Slo(), MAX_TODAY_SECONDS),
        (400.0, Slo(quantile=0.999), MAX_TODAY_SECONDS),
    ],
)
def test_a_reading_lasts_until_enough_requests_are_slow(
    rate: float, slo: Slo, seconds: float
) -> None:
    assert compute_today_seconds(rate, slo) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("state", "phase", "today", "rate"),
    [
        (measured(Phase.BASELINE), Phase.CONFIRM, None, 0.4 * PEAK.peak),
        (measured(Phase.BASELINE), Phase.CONFIRM, 250.0, 250.0),
        (measured(Phase.BASELINE), Phase.SEARCH, 250.0, None),
        (measured(Phase.BASELINE), Phase.MEASURE, None, None),
        (State(), Phase.MEASURE, 250.0, 250.0),
        (State(), Phase.CONFIRM, None, None),
        (State(values={0: (1.0,)}), Phase.CONFIRM, 250.0, None),  # a command has no rate
    ],
)
def test_the_rate_is_the_targets_or_a_share_of_the_baselines_capacity(
    state: State, phase: Phase, today: float | None, rate: float | None
) -> None:
    assert select_today_rate(state, phase, today) == rate


@pytest.mark.long
@pytest.mark.parametrize("today", [None, 150.0])
def test_each_measurement_of_the_proof_has_one_reading_at_one_rate(
    today: float | None, tmp_path: Path
) -> None:
    _, store = simulated.study(tmp_path, today=today)
    proof = store.state.list_finished_trials(Phase.CONFIRM)
    readings = today_readings(tmp_path)
    assert [reading.trial for reading in readings] == [trial.number for trial in proof]
    baseline = store.state.find_trial(0)
    assert baseline.peak is not None
    expected = today or pytest.approx(0.4 * baseline.peak.peak, rel=0.005)
    assert {reading.rate for reading in readings} == {readings[0].rate}
    assert readings[0].rate == expected


class Killed(simulated.Silent):
    """Kills its own process at a reading of latency."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_reading(self, _: Trial, __: Reading, purpose: str) -> None:
        self.number -= purpose == TODAY_PURPOSE
        if self.number == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_killed_proof_loses_no_reading_and_keeps_its_rate(tmp_path: Path) -> None:
    forks = multiprocessing.get_context("fork")
    kept: list[RecordedReading] = []
    for number in (1, 2, 1):
        arguments = {"progress": Killed(number)}
        process = forks.Process(target=simulated.study, args=(tmp_path,), kwargs=arguments)
        process.start()
        process.join(200)
        assert process.exitcode == -signal.SIGKILL
        readings = today_readings(tmp_path)
        assert readings[: len(kept)] == kept
        assert len(readings) == len(kept) + number
        kept = readings
    simulated.study(tmp_path)
    state, readings = load_state(tmp_path), today_readings(tmp_path)
    assert readings[: len(kept)] == kept
    assert state.verdict is not None
    assert {reading.rate for reading in readings} == {kept[0].rate}
    # The trial of each kill was measured again, with its own reading.
    proof = [trial.number for trial in state.list_finished_trials(Phase.CONFIRM)]
    assert [r.trial for r in readings if r.trial in proof] == proof
    assert len(readings) == len(proof) + 3
