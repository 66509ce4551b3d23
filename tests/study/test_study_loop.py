from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial

from autotune.optimize.storage import open_sqlite
from autotune.study import journal
from autotune.study.schedule import MAX_FINALISTS, MIN_FINALISTS
from autotune.study.search_history import MODELLED_PHASES
from autotune.study.study_state import COUNTED_PHASES, Phase, State, replay_records
from autotune.target.model import Budget
from tests import soak

pytestmark = pytest.mark.long

_spec = importlib.util.spec_from_file_location("simulated", Path(__file__).parent / "simulated.py")
assert _spec is not None
assert _spec.loader is not None
simulated = importlib.util.module_from_spec(_spec)
sys.modules["simulated"] = simulated
_spec.loader.exec_module(simulated)


def stored_trials(path: Path) -> list[FrozenTrial]:
    with open_sqlite(path) as storage:
        return optuna.load_study(study_name="s", storage=storage).trials


def phases(state: State) -> list[Phase]:
    return [trial.phase for trial in state.trials]


def test_a_study_goes_from_the_baseline_to_a_proven_gain(tmp_path: Path) -> None:
    verdict, store = simulated.study(tmp_path)
    state = store.state
    assert phases(state)[:3] == [Phase.BASELINE, Phase.RECOMMENDED, Phase.PUBLISHED]
    assert len(state.list_finished_trials(*COUNTED_PHASES)) == 8
    assert MIN_FINALISTS <= len(state.list_finished_trials(Phase.FINALIST)) <= MAX_FINALISTS
    assert state.posterior is not None
    assert len(state.list_finished_trials(Phase.CONFIRM)) >= 6
    assert set(state.warmups) == {trial.number for trial in state.trials if trial.peak}
    assert all(record.settled for record in state.warmups.values())
    assert verdict.verdict == "improved"
    true = simulated.climbing(state.find_trial(verdict.best).settings) / simulated.climbing(
        state.find_trial(0).settings
    )
    assert verdict.gain is not None
    assert verdict.gain.low <= true <= verdict.gain.high


def test_what_is_measured_again_for_drift_is_learned_from(tmp_path: Path) -> None:
    _, store = simulated.study(tmp_path, budget=Budget(trials=40, time="120m"))
    references = {trial.number for trial in store.state.list_finished_trials(Phase.REFERENCE)}
    told = stored_trials(tmp_path / "study.db")
    assert references
    assert references <= {trial.user_attrs.get("trial") for trial in told}


def test_without_effect_there_is_no_claim(tmp_path: Path) -> None:
    verdicts = [
        simulated.study(
            tmp_path / str(seed), simulated.flat, seed=seed, budget=Budget(trials=4, time="10m")
        )[0].verdict
        for seed in range(3)
    ]
    assert verdicts.count("no-improvement") >= 2


def test_what_cannot_be_deployed_is_recorded_and_the_study_goes_on(tmp_path: Path) -> None:
    fleet = simulated.FormulaFleet(lambda s: s["web.php_fpm.pm"] == "ondemand")
    verdict, store = simulated.study(tmp_path, fleet=fleet)
    failed = [trial for trial in store.state.trials if trial.failure]
    assert all(trial.settings["web.php_fpm.pm"] == "ondemand" for trial in failed)
    assert all("out of luck" in (trial.failure or "") for trial in failed)
    assert verdict.verdict == "improved"


def test_a_baseline_that_cannot_be_deployed_leaves_the_rest_to_be_found(tmp_path: Path) -> None:
    fleet = simulated.FormulaFleet(lambda s: s["web.php_fpm.max_children"] == 5)
    verdict, _ = simulated.study(tmp_path, fleet=fleet)
    assert verdict.verdict == "improved"
    assert verdict.gain is None


def test_a_stack_that_never_meets_the_objective_is_unmeetable(tmp_path: Path) -> None:
    verdict, store = simulated.study(tmp_path, lambda _: 0.001)
    assert verdict.verdict == "unmeetable"
    assert {trial.peak.verdict for trial in store.state.trials if trial.peak} == {"unmeetable"}
    assert len(store.state.list_started_trials(Phase.BASELINE)) > 1
    assert [t.phase for t in store.state.list_counted_trials()].count(Phase.BASELINE) == 1


def test_no_time_left_ends_a_study_with_what_it_has(tmp_path: Path) -> None:
    verdict, store = simulated.study(
        tmp_path, budget=Budget(trials=8, time="30s").model_copy(update={"time": 1.0}), pace=0.05
    )
    assert verdict.verdict in ("improved", "no-improvement")
    assert phases(store.state)[0] is Phase.BASELINE


# The first ones are those of opening a study; each study goes on from where the one before was killed.
SYNCS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_as_it_writes_it_loses_no_reading_and_counts_no_trial_twice(tmp_path: Path) -> None:
    """Killed at its n-th fsync, half of the times before that is done."""
    # A fork has everything imported already: the test is about the study, not about start-up.
    forks = multiprocessing.get_context("fork")
    readings = 0
    for attempt, number in enumerate(SYNCS):
        process = forks.Process(
            target=_killed_at, args=(number, attempt % 2 == 0, tmp_path), kwargs={"seed": attempt}
        )
        process.start()
        process.join(200)
        assert process.exitcode == -signal.SIGKILL
        now = _count(tmp_path / "readings.jsonl")
        assert now >= readings
        readings = now
    assert readings > 0
    simulated.study(tmp_path, seed=len(SYNCS))
    _check_integrity(tmp_path)


def _killed_at(number: int, done: bool, directory: Path, **given: Any) -> None:
    sync, numbers = os.fsync, itertools.count(1)

    def fsync(handle: int) -> None:
        last = next(numbers) == number
        if done or not last:
            sync(handle)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = fsync
    simulated.study(directory, **given)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_at_any_moment_it_loses_no_reading_and_counts_no_trial_twice(tmp_path: Path) -> None:
    moments, kills = soak.moments(), soak.kills(10)
    forks = multiprocessing.get_context("fork")
    readings = 0
    for attempt in range(kills + 1):
        process = forks.Process(
            target=simulated.study, args=(tmp_path,), kwargs={"seed": attempt, "pace": 0.005}
        )
        process.start()
        if attempt < kills:
            _wait_for_more(tmp_path / "readings.jsonl", readings, process)
            time.sleep(moments.uniform(0, 0.5))  # how far it gets is for chance to decide
            process.kill()
        process.join(200)
        now = _count(tmp_path / "readings.jsonl")
        assert now >= readings
        readings = now
    assert process.exitcode == 0
    _check_integrity(tmp_path)


def _wait_for_more(path: Path, readings: int, process: Any) -> None:
    deadline = time.monotonic() + 120
    while _count(path) <= readings and process.is_alive():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _count(path: Path) -> int:
    return len(list(journal.read_records(path)))


def _check_integrity(directory: Path) -> None:
    state = replay_records(journal.read_records(directory / "events.jsonl"))
    assert state.verdict is not None
    assert len(state.list_finished_trials(*COUNTED_PHASES)) == 8
    read = {record["trial"] for record in journal.read_records(directory / "readings.jsonl")}
    assert {trial.number for trial in state.trials if trial.peak} <= read
    told = stored_trials(directory / "study.db")
    complete = [t for t in told if t.state is optuna.trial.TrialState.COMPLETE]
    numbers = [trial.user_attrs["trial"] for trial in complete]
    assert sorted(numbers) == sorted(
        trial.number for trial in state.list_finished_trials(*MODELLED_PHASES)
    )
    assert not [t for t in told if t.state is optuna.trial.TrialState.RUNNING]


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_a_name_that_reads_back(phase: Phase) -> None:
    assert Phase(str(phase)) is phase


class Noted:
    """A reporter that collects notices, and accepts every other call."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def test_changes_without_an_effect_are_noted_once(tmp_path: Path) -> None:
    noted = Noted()
    simulated.study(tmp_path, budget=Budget(trials=12, time="120m"), progress=noted)
    records = journal.read_records(tmp_path / "events.jsonl")
    assert len([r for r in records if r.get("accepted") is not None]) > 1
    assert sum("Measurements show no effect" in note for note in noted.notes) == 1
