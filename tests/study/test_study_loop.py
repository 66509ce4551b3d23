from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.searcher import Searcher, Suggestion
from autotune.optimize.storage import open_sqlite
from autotune.space.space import SearchSpace
from autotune.study import journal
from autotune.study.bed_barrier import BedBarrier
from autotune.study.ranking import REQUIRED_REPRODUCTIONS, list_failed_baselines, list_repeats
from autotune.study.schedule import MAX_FINALISTS
from autotune.study.schedule_steps import MeasureStep
from autotune.study.search_history import MODELLED_PHASES, catch_up_search
from autotune.study.state_replay import replay_records
from autotune.study.study_loop import (
    PREFETCH_MIN_BEDS,
    STOP_PROBABILITY,
    Proposal,
    StudyLoop,
    _record_ranking,
    _record_simplification,
    _request_suggestion,
    prepare_measurement,
)
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.study_store import StudyStore, load_state
from autotune.study.time_budget import MIN_FINALISTS
from autotune.study.trial import run_trial
from autotune.study.trial_context import TrialContext
from autotune.target.model import Budget
from bench import stacks
from tests import soak
from tests.study.ranked import build_searched_study

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


@pytest.mark.long
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


@pytest.mark.long
def test_what_is_measured_again_for_drift_is_learned_from(tmp_path: Path) -> None:
    _, store = simulated.study(tmp_path, budget=Budget(trials=40, time="120m"))
    references = {trial.number for trial in store.state.list_finished_trials(Phase.REFERENCE)}
    told = stored_trials(tmp_path / "study.db")
    assert references
    assert references <= {trial.user_attrs.get("trial") for trial in told}


@pytest.mark.long
def test_without_effect_there_is_no_claim(tmp_path: Path) -> None:
    verdicts = [
        simulated.study(
            tmp_path / str(seed), simulated.flat, seed=seed, budget=Budget(trials=4, time="10m")
        )[0].verdict
        for seed in range(3)
    ]
    assert verdicts.count("no-improvement") >= 2


@pytest.mark.long
def test_what_cannot_be_deployed_is_recorded_and_the_study_goes_on(tmp_path: Path) -> None:
    fleet = simulated.FormulaFleet(lambda s: s["web.php_fpm.pm"] == "ondemand")
    verdict, store = simulated.study(tmp_path, fleet=fleet)
    failed = [trial for trial in store.state.trials if trial.failure]
    assert all(trial.settings["web.php_fpm.pm"] == "ondemand" for trial in failed)
    assert all("out of luck" in (trial.failure or "") for trial in failed)
    assert verdict.verdict == "improved"


@pytest.mark.long
def test_a_baseline_that_cannot_be_deployed_leaves_the_rest_to_be_found(tmp_path: Path) -> None:
    fleet = simulated.FormulaFleet(lambda s: s["web.php_fpm.max_children"] == 5)
    verdict, store = simulated.study(tmp_path, fleet=fleet)
    assert verdict.verdict == "improved"
    assert verdict.gain is None
    assert verdict.best is not None
    assert len(list_failed_baselines(store.state)) >= REQUIRED_REPRODUCTIONS
    assert len(list_repeats(store.state, verdict.best)) >= REQUIRED_REPRODUCTIONS


@pytest.mark.long
def test_a_stack_that_never_meets_the_objective_is_unmeetable(tmp_path: Path) -> None:
    verdict, store = simulated.study(tmp_path, lambda _: 0.001)
    assert verdict.verdict == "unmeetable"
    assert {trial.peak.verdict for trial in store.state.trials if trial.peak} == {"unmeetable"}
    assert len(store.state.list_started_trials(Phase.BASELINE)) > 1
    assert [t.phase for t in store.state.list_counted_trials()].count(Phase.BASELINE) == 1


@pytest.mark.long
def test_no_time_left_ends_a_study_with_what_it_has(tmp_path: Path) -> None:
    verdict, store = simulated.study(
        tmp_path, budget=Budget(trials=8, time="30s").model_copy(update={"time": 1.0}), pace=0.05
    )
    assert verdict.verdict in ("improved", "no-improvement")
    assert phases(store.state)[0] is Phase.BASELINE


# The first ones are those of opening a study; each study goes on from where the one before was killed.
SYNCS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_changes_without_an_effect_are_noted_once(tmp_path: Path) -> None:
    noted = Noted()
    simulated.study(tmp_path, budget=Budget(trials=12, time="120m"), progress=noted)
    records = journal.read_records(tmp_path / "events.jsonl")
    assert len([r for r in records if r.get("accepted") is not None]) > 1
    assert sum("Measurements show no effect" in note for note in noted.notes) == 1


class SharedRecords(StudyStore):
    """The records of a study that other machines write to as well."""

    is_shared = True


@pytest.fixture
def searcher(tmp_path: Path) -> Iterator[Searcher]:
    with open_sqlite(tmp_path / "study.db") as storage:
        yield Searcher(storage, "s", simulated.space(), "tpe", 1)


@contextmanager
def open_context(store: StudyStore, peaks: Any = simulated.climbing) -> Iterator[TrialContext]:
    """The context of a study without trials."""
    with closing(store):
        store.record_study_start("s", simulated.LOCAL.read_text(), source="s", facts={})
        yield simulated.context(store, peaks, simulated.FormulaFleet(), seed=1, pace=0.0)


@pytest.mark.parametrize(
    ("store_type", "bed_count", "phase", "is_requested"),
    [
        (SharedRecords, PREFETCH_MIN_BEDS, Phase.SEARCH, True),
        (SharedRecords, PREFETCH_MIN_BEDS, Phase.BASELINE, True),
        (SharedRecords, PREFETCH_MIN_BEDS, Phase.REFERENCE, False),
        (SharedRecords, PREFETCH_MIN_BEDS, Phase.CONFIRM, False),
        (SharedRecords, PREFETCH_MIN_BEDS - 1, Phase.SEARCH, False),
        (StudyStore, PREFETCH_MIN_BEDS, Phase.SEARCH, False),
    ],
)
def test_only_many_beds_of_a_shared_study_request_a_configuration_during_the_search(
    store_type: type[StudyStore],
    bed_count: int,
    phase: Phase,
    is_requested: bool,
    tmp_path: Path,
    searcher: Searcher,
) -> None:
    beds = tuple(f"b{number}" for number in range(bed_count))
    with open_context(store_type(tmp_path)) as context:
        context.store.record_session_start({}, beds)
        loop = StudyLoop(context.space, context.store, searcher, Budget(), BedBarrier(beds))
        with closing(loop):
            loop._prefetch_proposal(replace(context, bed="b0"), Trial(0, phase, {}, bed="b0"))
            proposals = {bed: future.result() for bed, future in loop._proposals.items()}
    assert list(proposals) == ["b0"] * is_requested
    assert all(proposal.suggestion.values for proposal in proposals.values())


@pytest.mark.parametrize(
    ("probability", "is_over"),
    [(None, False), (0.5, False), (STOP_PROBABILITY, False), (0.9 * STOP_PROBABILITY, True)],
)
def test_the_search_stops_if_a_further_gain_is_improbable(
    probability: float | None, is_over: bool, tmp_path: Path, searcher: Searcher
) -> None:
    values = {"web.php_fpm.max_children": 9}
    proposal = Proposal(Suggestion(0, values, probability), trial_count=0, finished_count=0)
    with open_context(StudyStore(tmp_path)) as context:
        step = _request_suggestion(context, searcher, proposal)
    state = load_state(tmp_path)
    if is_over:
        assert step is None
        assert "the probability of another" in (state.stop_reason or "")
    else:
        assert step is not None
        assert (step.phase, step.suggested) == (Phase.SEARCH, values)
        assert state.stop_reason is None


def test_a_study_that_is_stopped_while_it_is_ranked_is_ranked_again(tmp_path: Path) -> None:
    space = SearchSpace(tuple(stacks.number(f"t.s.{name}", 1, 9, 1) for name in "abc"), (), {})
    searcher = Searcher(InMemoryStorage(), "s", space, "tpe", 1)
    state = replace(build_searched_study(space), posterior=None)
    catch_up_search(searcher, state)

    class Stopped:
        """A search that is stopped before the effects of parameters are estimated."""

        compute_posterior_peaks = searcher.compute_posterior_peaks

        def build_model_view(self, _: object) -> None:
            raise KeyboardInterrupt

    stopped: Any = Stopped()
    with open_context(StudyStore(tmp_path)) as opened:
        context = replace(opened, space=space)
        context.store.state = state
        with pytest.raises(KeyboardInterrupt):
            _record_ranking(context, stopped)
        assert context.store.state.posterior is None
        _record_ranking(context, searcher)
        assert context.store.state.posterior is not None
        assert context.store.state.model is not None


def test_blocks_of_changes_without_an_effect_are_noted_once(tmp_path: Path) -> None:
    space = SearchSpace(tuple(stacks.number(f"t.s.{name}", 1, 9, 1) for name in "abc"), (), {})
    noted, state, noted_counts = Noted(), build_searched_study(space), list[int]()
    searcher = Searcher(InMemoryStorage(), "s", space, "tpe", 1)
    catch_up_search(searcher, state)
    with open_context(StudyStore(tmp_path)) as opened:
        context = replace(opened, space=space, progress=noted)
        context.store.state = state
        for _ in range(3):
            _record_simplification(context, searcher, 12)
            noted_counts.append(len(noted.notes))
            state = context.store.state
            assert state.simplification is not None
            block = Trial(
                len(state.trials),
                Phase.SIMPLIFIED,
                state.simplification.settings,
                12,
                peak=state.trials[12].peak,
            )
            context.store.state = replace(state, trials=(*state.trials, block))
    assert state.simplification is not None
    assert state.simplification.accepted is not None
    assert [note.partition(" no effect")[0] for note in noted.notes] == [
        "The model expects",
        "Measurements show",
    ]
    assert noted_counts == [1, 2, 2]


def build_finals(space: SearchSpace, winner_peak: float, first_peak: float) -> State:
    """A study whose finals are over. The winner's first peak was ``first_peak``."""
    baseline, winner, again = (
        Peak(peak, 0.95 * peak, 1.05 * peak, 0.03, "measured")
        for peak in (winner_peak / 2, first_peak, winner_peak)
    )
    settings = {**space.baseline, "web.php_fpm.max_children": 20}
    measured_trials = (
        Trial(0, Phase.BASELINE, space.baseline, peak=baseline),
        Trial(1, Phase.SEARCH, settings, peak=winner),
        Trial(2, Phase.FINALIST, settings, source_trial=1, peak=again),
    )
    posterior = PosteriorPeaks({1: Estimate.from_value(winner_peak, 0.03)}, 0.03)
    return State(trials=measured_trials, posterior=posterior)


@pytest.mark.parametrize(
    ("kept_share", "first_peak", "is_pruned"),
    [
        (0.6, 1000.0, True),
        (1.0, 1000.0, False),
        # The first peak was too high by chance, so it must not prune an equally good configuration.
        (1.0, 1300.0, False),
    ],
)
def test_a_simplified_winner_is_pruned_only_if_it_loses_much(
    kept_share: float, first_peak: float, is_pruned: bool, tmp_path: Path
) -> None:
    step = MeasureStep(Phase.SIMPLIFIED, simulated.space().baseline, source_trial=1)
    with open_context(StudyStore(tmp_path), lambda _: kept_share * 1000.0) as context:
        context.store.state = build_finals(context.space, 1000.0, first_peak)
        inputs = prepare_measurement(step, context, Budget())
        trial = run_trial(step, context, *inputs)
    assert trial.peak is not None
    assert trial.peak.is_pruned is is_pruned
