"""Readings are corrected for CPU steal; a warm-up says what to expect of the peak."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.deploy.backends import ServersDown
from autotune.deploy.deploy_result import DeployFailed
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.load_session import (
    OVERLOAD_PEAK_FACTOR,
    RAMP_SECONDS,
    SHORT_RAMP_INCREASE,
    SHORT_RAMP_SECONDS,
    UNMEASURED_PEAK_SD,
    LoadSession,
    StackMeter,
    update_expected_peak,
)
from autotune.errors import AutotuneError, LockedError
from autotune.estimate import Estimate
from autotune.measure.reading import WARM_UP_PURPOSE
from autotune.measure.warm_up import WarmUpResult, WarmUpWindow
from autotune.monitor.activity import HostUsage
from autotune.monitor.host_watch import Observations
from autotune.services.registry import SHIPPED
from autotune.study import trial
from autotune.study.reading_records import load_readings
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase, Trial
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import TrialContext
from autotune.transports.base import ConnectionLost
from tests.study.simulated import FormulaFleet, context, flat

CALM, STOLEN = 0.01, 0.2
FIRST_RATE = 150.0  # sustained by a stack of 1,000/s without connections to its next tier


class Weather:
    """Readings number ``first`` to ``last`` are in a storm: what is stolen is gone."""

    def __init__(self, first: int, last: int) -> None:
        self.storm, self.count = range(first, last + 1), 0

    def over(self, meter: StackMeter) -> StackMeter:
        calm = meter.take_reading

        def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
            stolen = STOLEN if self.count in self.storm else CALM
            self.count += 1
            watched = calm(rate / (1 - stolen), seconds, ramp_seconds=ramp_seconds)
            hosts = {"web1": HostUsage(0.5, stolen, 1, 1, 0.1, 9, 0, 1e6)}
            return replace(watched, reading=replace(watched.reading, rate=rate), hosts=hosts)

        meter.take_reading = take  # type: ignore[method-assign]  # the storm is between the two
        return meter


class ColdPools:
    """After an overload, only a load that rises in steps is sustained."""

    def __init__(self) -> None:
        self.sustained = FIRST_RATE

    def over(self, meter: StackMeter) -> StackMeter:
        calm = meter.take_reading

        def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
            watched = calm(rate, seconds, ramp_seconds=ramp_seconds)
            reading = watched.reading
            if rate > 2.5 * self.sustained:
                reading = replace(reading, violations=reading.intended)
            fails = reading.violations > 0.5 * reading.intended
            self.sustained = FIRST_RATE if fails else max(self.sustained, rate)
            return replace(watched, reading=reading)

        meter.take_reading = take  # type: ignore[method-assign]
        return meter


@contextmanager
def measured(directory: Path, weather: Weather | ColdPools) -> Iterator[tuple[Trial, LoadSession]]:
    """One trial of a stack with a peak of 1,000/s, and where it was measured."""
    directory.mkdir()
    with closing(StudyStore(directory)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        session = made.session
        assert isinstance(session, LoadSession)
        session.meter = weather.over(session.meter)
        step = MeasureStep(Phase.BASELINE, made.space.baseline)
        yield trial.run_trial(step, made, Estimate.from_value(1000.0, 0.3), None), session


def test_a_storm_changes_no_peak_and_loses_no_reading(tmp_path: Path) -> None:
    for first in range(1, 6, 2):
        weather = Weather(first, first + 2)
        with measured(tmp_path / str(first), weather) as (done, _):
            assert done.peak is not None
            assert abs(math.log(done.peak.peak / 1000)) < 0.08, first
        kept = load_readings(tmp_path / str(first))
        assert len(kept) == weather.count
        stormy = [r for r in kept if r.hosts["web1"].steal == STOLEN]
        assert {r.stolen for r in stormy} == {round(STOLEN - CALM, 4)}
        assert len(stormy) == 3


def test_half_of_the_readings_in_a_storm_teach_what_it_takes(tmp_path: Path) -> None:
    weather = Weather(0, 0)
    weather.storm = range(3, 1000, 2)
    with measured(tmp_path / "s", weather) as (done, session):
        assert done.peak is not None
        assert abs(math.log(done.peak.peak / 1000)) < 0.08
        assert session._noise.effects[2] == max(session._noise.effects)  # one for one


def test_steal_is_told_of_once(tmp_path: Path) -> None:
    notes: list[str] = []
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        session = made.session
        assert isinstance(session, LoadSession)
        session.meter = Weather(1, 1000).over(session.meter)
        made.progress.note = notes.append  # type: ignore[method-assign]
        trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
    assert sum("CPU steal on host" in note for note in notes) == 1


def change_readings(made: TrialContext, change: Callable[[WatchedReading], WatchedReading]) -> None:
    """Let the session of ``made`` take the readings that ``change`` returns."""
    session = made.session
    assert isinstance(session, LoadSession)
    calm = session.meter.take_reading

    def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        return change(calm(rate, seconds, ramp_seconds=ramp_seconds))

    session.meter.take_reading = take  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("observations", "start", "reason"),
    [
        (Observations(unsampled={"web1": "disk full"}),
         "host web1 sent no CPU and memory samples", ": disk full. "),
        (Observations(counters={"db.db1.server": (None, None)}),
         "the counters of db.db1.server could not be read. ", "Diagnoses do not find"),
    ],
)  # fmt: skip
def test_missing_figures_are_told_of_once(
    observations: Observations, start: str, reason: str, tmp_path: Path
) -> None:
    notes: list[str] = []
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        change_readings(made, lambda watched: replace(watched, observations=observations))
        made.progress.note = notes.append  # type: ignore[method-assign]
        trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
    (told,) = [note for note in notes if note.startswith(start)]
    assert reason in told


def test_a_load_that_cannot_be_made_ends_the_study_with_its_reason(tmp_path: Path) -> None:
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        limited = "0 ports free: widen the range"  # no load goes through it
        change_readings(
            made,
            lambda watched: replace(
                watched, reading=replace(watched.reading, seconds=0.0, limited=limited)
            ),
        )
        with pytest.raises(
            AutotuneError, match=r"baseline .* not be measured: .* ports free"
        ) as stop:
            trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
        assert "autotune resume" in (stop.value.hint or "")
        (done,) = store.state.trials
        assert (done.peak, done.is_fault) == (None, True)
        assert done.failure == "the load could not be generated: 0 ports free: widen the range"


LOST = "load1: the connection was lost while sh ran"


@pytest.mark.parametrize("lost_readings", [{2}, {0, 3}])
def test_a_reading_is_repeated_once_after_a_lost_connection(
    tmp_path: Path, lost_readings: set[int]
) -> None:
    notes: list[str] = []
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        sent = lose_connections(made.session, lost_readings)
        made.progress.note = notes.append  # type: ignore[method-assign]
        done = trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
        assert done.peak is not None
        assert abs(math.log(done.peak.peak / 1000)) < 0.08
        assert notes.count(f"{LOST}; the reading is repeated") == len(lost_readings)
        assert all(sent[number] == sent[number + 1] for number in lost_readings)
    assert len(load_readings(tmp_path)) == len(sent) - len(lost_readings)


def test_a_connection_that_is_lost_twice_ends_the_study(tmp_path: Path) -> None:
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        sent = lose_connections(made.session, {2, 3})
        with pytest.raises(ConnectionLost, match=LOST):
            trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
    assert len(sent) == 4


def lose_connections(session: object, lost_readings: set[int]) -> list[float]:
    """Lose the connection in these readings; return the list that the rates of all are added to."""
    assert isinstance(session, LoadSession)
    calm = session.meter.take_reading
    sent: list[float] = []

    def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        sent.append(rate)
        if len(sent) - 1 in lost_readings:
            raise ConnectionLost(LOST)
        return calm(rate, seconds, ramp_seconds=ramp_seconds)

    session.meter.take_reading = take  # type: ignore[method-assign]  # the connection is in between
    return sent


EXPECTED = Estimate.from_value(1000.0, 0.1)


def warm_up_result(*windows: tuple[float, bool], failed: float = 0.0) -> WarmUpResult:
    """Windows by their rate, and whether it was too much; ``failed`` of the requests in each."""
    seen = tuple(WarmUpWindow(rate, overloaded, 0.01, None, failed) for rate, overloaded in windows)
    return WarmUpResult(is_settled=True, windows=seen)


@pytest.mark.parametrize(
    ("prior", "seen", "guess"),
    [
        # Nobody has measured it: somewhat above what it carried, if it carried anything.
        (None, warm_up_result((200, False), (300, False)),
         Estimate.from_value(300 * OVERLOAD_PEAK_FACTOR, UNMEASURED_PEAK_SD)),
        (None, warm_up_result((200, True), (100, True)), None),
        # It kept up with what is expected: so it is expected.
        (EXPECTED, warm_up_result((600, False), (600, False)), EXPECTED),
        # It did not, and says itself what it can do …
        (EXPECTED, warm_up_result((600, True), (300, False), (360, False)),
         Estimate.from_value(360 * OVERLOAD_PEAK_FACTOR, UNMEASURED_PEAK_SD)),
        # … but not by one window that was disturbed.
        (EXPECTED, warm_up_result((600, False), (600, True), (300, False), (580, False)), EXPECTED),
        (EXPECTED, warm_up_result((600, True), (300, True)), EXPECTED),
        # As much fails at any load: no more is expected of it than it was offered last.
        (EXPECTED, warm_up_result((600, True), (300, True), (150, True), failed=0.3),
         Estimate.from_value(150, UNMEASURED_PEAK_SD)),
    ],
)  # fmt: skip
def test_a_peak_is_guessed_from_what_was_carried(
    prior: Estimate | None, seen: WarmUpResult, guess: Estimate | None
) -> None:
    assert update_expected_peak(prior, seen) == guess


@pytest.mark.parametrize(
    ("part", "forgets"),
    [("cache.cache1.memcached", True), ("store.store1.redis", False), ("web.web1.php_fpm", False)],
)
def test_only_a_restarted_cache_has_to_be_filled_again(part: str, forgets: bool) -> None:  # a case
    assert SHIPPED.loses_cache(part) is forgets


class Interrupted(FormulaFleet):
    """One that did not stay as it was deployed."""

    def __init__(self, error: AutotuneError) -> None:
        super().__init__()
        self.error = error

    def verify(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [DeployFailed("cache ended"), LockedError("web1: taken over")])
def test_no_value_of_a_trial_that_was_interrupted_goes_on_record(
    tmp_path: Path, error: AutotuneError
) -> None:
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, Interrupted(error), seed=3, pace=0.0)
        step = MeasureStep(Phase.BASELINE, made.space.baseline)
        if isinstance(error, DeployFailed):  # under load its own configuration is to blame
            assert (
                trial.run_trial(step, made, Estimate.from_value(1000.0, 0.3), None).failure
                == error.message
            )
        else:
            with pytest.raises(LockedError):
                trial.run_trial(step, made, Estimate.from_value(1000.0, 0.3), None)
        assert all(of_study.peak is None for of_study in store.state.trials)
        assert load_readings(tmp_path)


def test_a_ramp_comes_before_readings_of_rates_that_were_not_just_offered(tmp_path: Path) -> None:
    taken: list[tuple[float, float, bool]] = []
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        session = made.session
        assert isinstance(session, LoadSession)
        offer = session.meter.take_reading

        def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
            watched = offer(rate, seconds, ramp_seconds=ramp_seconds)
            taken.append((rate, ramp_seconds, watched.reading.truncated))
            return watched

        session.meter.take_reading = take  # type: ignore[method-assign]
        trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
    purposes = [reading.purpose for reading in load_readings(tmp_path)]
    before = (0.0, 0.0, True)
    for purpose, now in zip(purposes, taken, strict=True):
        offered = not before[2] and now[0] <= before[0] * (1 + SHORT_RAMP_INCREASE)
        assert now[1] == (
            0.0 if purpose == "warm-up" else SHORT_RAMP_SECONDS if offered else RAMP_SECONDS
        )
        before = now
    assert {ramp for _, ramp, _ in taken} == {0.0, SHORT_RAMP_SECONDS, RAMP_SECONDS}


class WatchedFleet(FormulaFleet):
    """Notes each wait for servers. The wait number ``failing`` ends without them."""

    def __init__(self, failing: int | None = None) -> None:
        super().__init__()
        self.waits: list[bool] = []
        self._failing = failing

    def await_service(self, *, is_answer_doubtful: bool) -> None:
        self.waits.append(is_answer_doubtful)
        if len(self.waits) == self._failing:
            raise ServersDown("servers are still down after 120 s: app/w1 (HAProxy on lb1)")


def test_each_reading_waits_for_the_servers_of_the_balancer(tmp_path: Path) -> None:
    fleet = WatchedFleet()
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, fleet, seed=3, pace=0.0)
        trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
    assert len(fleet.waits) == len(load_readings(tmp_path)) > 3


def test_servers_that_stay_down_fail_the_trial_and_not_the_study(tmp_path: Path) -> None:
    fleet = WatchedFleet(failing=4)
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, fleet, seed=3, pace=0.0)
        step = MeasureStep(Phase.SEARCH, made.space.baseline)
        done = trial.run_trial(step, made, None, None)
    assert done.failure is not None
    assert "app/w1 (HAProxy on lb1)" in done.failure
    assert len(load_readings(tmp_path)) == 3


@pytest.mark.parametrize(
    ("latency", "rate"), [(1.0, 1.0), (5.0, 0.2), (0.001, 200.0), (None, 200.0)]
)
def test_the_first_rate_follows_the_latency(
    tmp_path: Path, latency: float | None, rate: float
) -> None:
    with closing(StudyStore(tmp_path)) as store:
        made = context(store, flat, FormulaFleet(), seed=3, pace=0.0)
        session = made.session
        assert isinstance(session, LoadSession)
        session.meter.probe_latency = lambda: latency  # type: ignore[method-assign]
        trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
        assert load_readings(tmp_path)[0].rate == rate
        assert session.limits.min_rate == pytest.approx(min(1.0, 0.1 / (latency or 0.001)))


def test_a_stack_that_does_not_recover_by_itself_is_loaded_in_steps(tmp_path: Path) -> None:
    with measured(tmp_path / "study", ColdPools()) as (done, session):
        assert done.peak is not None
        assert abs(math.log(done.peak.peak / 1000)) < 0.1
        readings = list(load_readings(tmp_path / "study"))
        first_peak = next(i for i, one in enumerate(readings) if one.purpose == "peak")
        steps = [one for one in readings[first_peak:] if one.purpose == WARM_UP_PURPOSE]
        assert steps, [
            (one.purpose, round(one.rate), one.violations, one.intended) for one in readings
        ]
        assert all(one.rate < session.limits.max_rate for one in steps)
