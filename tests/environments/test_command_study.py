"""Studies of benchmarks that are functions of this file, with everything else as it really is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.environments.command import REFERENCE_CALLS, CommandSession
from autotune.errors import AutotuneError
from autotune.measure.benchmark import (
    BenchmarkAnswer,
    BenchmarkFault,
    BenchmarkValue,
    UnusableConfiguration,
)
from autotune.optimize.searcher import Searcher
from autotune.optimize.storage import open_sqlite
from autotune.report.studies import open_study
from autotune.report.summary import build_summary
from autotune.report.view import build_study_view
from autotune.services.base import Settings
from autotune.space.target_space import build_space
from autotune.study import journal
from autotune.study.study_loop import run_study_loop
from autotune.study.study_state import COUNTED_PHASES, Phase, State
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import TrialContext, read_history
from autotune.study.verdict import Verdict
from autotune.target.read_target import read_target

pytestmark = pytest.mark.long

TARGET = """
name: toy
command: [sh, bench.sh]
{goal}
parameters:
  x: {{range: [1, 100], log: true, default: 5}}
  mode: {{choices: [slow, fast]}}
  depth: {{range: [0.0, 10.0], when: {{mode: fast}}}}
try: [{{x: 30}}, {{mode: fast, depth: 2}}, {{x: 5}}]
budget: {{trials: 10, time: 10m}}
"""
Function = Callable[[Settings, np.random.Generator], BenchmarkAnswer | float]


def hill(told: Settings, rng: np.random.Generator) -> float:
    """Best at x = 20 in fast mode, about twice the baseline; 3 % noise."""
    height = 100.0 * np.exp(-0.2 * np.log(float(told["x"]) / 20.0) ** 2)
    if told["mode"] == "fast":
        height *= 1.3 * np.exp(-((float(told["depth"]) - 2.0) ** 2) / 40.0)
    return float(height * np.exp(rng.normal(0, 0.03)))


class Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@dataclass
class Asked:
    """A benchmark that remembers what it was told."""

    function: Function
    maximize: bool
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    told: list[Settings] = field(default_factory=list)

    def call_program(self, trial: int, parameters: Settings) -> BenchmarkAnswer:
        self.told.append(parameters)
        found = self.function(parameters, self.rng)
        return BenchmarkValue(found) if isinstance(found, float) else found


@dataclass(frozen=True)
class Study:
    verdict: Verdict
    state: State
    asked: Asked
    report: dict[str, Any]


def study(
    directory: Path, function: Function, goal: str = "maximize: throughput", **budget: int
) -> Study:
    """Start or continue a study."""
    path = directory / "toy.yaml"
    path.write_text(TARGET.format(goal=goal))
    file = read_target(path)
    space = build_space(file, {})
    assert file.target.command_goal is not None
    asked = Asked(function, file.target.command_goal.maximize)
    where = directory / "studies" / "toy"
    with closing(StudyStore(where)) as store:
        if store.state.started is None:
            store.record_study_start("toy", path.read_text(), source=str(path), facts={})
        silent: Any = Silent()  # takes every call there is
        session = CommandSession(asked, space, read_history(store), maximize=asked.maximize)
        with open_sqlite(where / "study.db") as storage:
            verdict = run_study_loop(
                TrialContext(space, session, store, silent),
                Searcher(storage, "toy", space, "tpe", 1),
                file.target.budget.model_copy(update=budget),
            )
    read_back = open_study(where)
    said = build_summary(build_study_view(read_back))
    return Study(verdict, store.state, asked, said)


def phases(state: State) -> list[Phase]:
    return [trial.phase for trial in state.trials]


def test_from_the_baseline_to_a_proven_gain(tmp_path: Path) -> None:
    done = study(tmp_path, hill)
    assert phases(done.state)[:3] == [Phase.BASELINE, Phase.TRY_FIRST, Phase.TRY_FIRST]
    assert phases(done.state).count(Phase.TRY_FIRST) == 2  # the third is the baseline
    assert len(done.state.list_finished_trials(*COUNTED_PHASES)) == 10
    assert done.verdict.verdict == "improved"
    assert done.report["goal"] == {"direction": "maximize", "name": "throughput", "unit": ""}
    assert done.report["slo"] is None
    gain, best, baseline = (done.report[key] for key in ("gain", "best", "baseline"))
    assert gain["low"] < gain["ratio"] < gain["high"]
    assert best["peak"] / baseline["peak"] == pytest.approx(gain["ratio"], rel=0.1)
    assert gain["difference"]["value"] == pytest.approx(
        baseline["peak"] * (gain["ratio"] - 1), rel=0.01
    )


def test_what_has_no_effect_is_not_sent(tmp_path: Path) -> None:
    told = study(tmp_path, hill).asked.told
    assert {("depth" in settings) == (settings["mode"] == "fast") for settings in told} == {True}
    assert all(isinstance(settings["x"], int) for settings in told)


def test_less_can_be_better(tmp_path: Path) -> None:
    done = study(tmp_path, lambda told, rng: 1000.0 / hill(told, rng), "minimize: seconds")
    assert done.verdict.verdict == "improved"
    gain = done.report["gain"]
    assert 0 < gain["low"] < gain["ratio"] < gain["high"] < 1
    assert gain["difference"]["high"] < 0
    assert done.report["best"]["peak"] < done.report["baseline"]["peak"]
    assert done.report["best"]["low"] < done.report["best"]["peak"] < done.report["best"]["high"]


@pytest.mark.parametrize("goal", ["maximize: true", "minimize: true"])
def test_values_of_any_sign(tmp_path: Path, goal: str) -> None:
    sign = 1 if goal.startswith("max") else -1
    done = study(tmp_path, lambda told, rng: sign * (hill(told, rng) - 90.0), goal)
    assert done.verdict.verdict == "improved"
    gain = done.report["gain"]
    assert gain["ratio"] is None
    assert sign * gain["difference"]["value"] > 0
    assert sign * done.report["best"]["peak"] > 0 > sign * done.report["baseline"]["peak"]


def level(rng: np.random.Generator, *_: object) -> float:
    return float(100 * np.exp(rng.normal(0, 0.05)))


def test_without_effect_there_is_no_claim(tmp_path: Path) -> None:
    verdicts = []
    for seed in range(3):
        flat = tmp_path / str(seed)
        flat.mkdir()
        rng = np.random.default_rng(seed)
        done = study(flat, partial(level, rng), trials=4)
        verdicts.append(done.verdict.verdict)
    assert verdicts.count("no-improvement") >= 2


def test_an_exact_benchmark_proves_the_smallest_gain(tmp_path: Path) -> None:
    done = study(tmp_path, lambda told, _: 100.0 + 0.5 * (told["mode"] == "fast"))
    assert done.verdict.verdict == "improved"
    assert done.report["gain"]["low"] > 1.004


def test_noise_is_learned_from_the_first_calls_or_told(tmp_path: Path) -> None:
    learned = study(tmp_path / _made(tmp_path, "a"), hill, trials=3)
    assert learned.asked.told[:REFERENCE_CALLS] == [learned.asked.told[0]] * REFERENCE_CALLS
    first = learned.state.trials[0].peak
    assert first is not None
    assert 0.002 < first.sd < 0.05
    told = study(
        tmp_path / _made(tmp_path, "b"),
        lambda told, rng: BenchmarkValue(hill(told, rng), 3.0),
        trials=3,
    )
    assert told.asked.told[0] != told.asked.told[1]
    peak = told.state.trials[0].peak
    assert peak is not None
    assert peak.sd == pytest.approx(3.0 / peak.peak)


def _made(directory: Path, name: str) -> str:
    (directory / name).mkdir()
    return name


def test_what_cannot_be_used_teaches_the_search(tmp_path: Path) -> None:
    def walled(told: Settings, rng: np.random.Generator) -> BenchmarkAnswer | float:
        return UnusableConfiguration("too large") if float(told["x"]) > 25 else hill(told, rng)

    done = study(tmp_path, walled, trials=14)
    failed = [trial for trial in done.state.trials if trial.failure]
    assert failed
    assert all(trial.failure == "infeasible: too large" for trial in failed)
    assert not any(trial.is_fault for trial in failed)
    assert done.report["trials"]["failed"] == len(failed)
    assert done.verdict.verdict == "improved"


def flaky(times: Iterator[bool]) -> Function:
    return lambda told, rng: (
        BenchmarkFault("exit code 3", "boom") if next(times, False) else hill(told, rng)
    )


def test_a_fault_is_asked_about_once_more(tmp_path: Path) -> None:
    # The first call fails, the next ones do not; later one fails twice and its trial is lost.
    done = study(tmp_path, flaky(iter([True] + [False] * 5 + [True, True])))
    faults = [trial for trial in done.state.trials if trial.is_fault]
    assert len(faults) == 1
    assert faults[0].failure == "the command failed: exit code 3\nboom"
    assert len(done.state.list_finished_trials(*COUNTED_PHASES)) == 10
    calls = list(journal.read_records(tmp_path / "studies" / "toy" / "readings.jsonl"))
    assert len(calls) == len(done.asked.told)
    assert sum(call.get("said") == "boom" for call in calls) == 3


def test_a_broken_benchmark_stops_the_study_and_is_mended(tmp_path: Path) -> None:
    with pytest.raises(
        AutotuneError, match="baseline could not be measured: the command failed: exit code 3"
    ):
        study(tmp_path, flaky(iter([True] * 99)))
    with pytest.raises(AutotuneError, match="3 trials in a row"):
        study(tmp_path, flaky(iter([False] * 4 + [True] * 99)))
    done = study(tmp_path, hill)
    assert done.verdict.verdict == "improved"
    assert done.report["gain"] is not None
    assert len(done.state.list_finished_trials(*COUNTED_PHASES)) == 10


def test_a_baseline_that_cannot_be_used_is_no_ratio(tmp_path: Path) -> None:
    done = study(
        tmp_path,
        lambda told, rng: UnusableConfiguration("no") if told["x"] == 5 else hill(told, rng),
    )
    assert done.verdict.verdict == "improved"
    assert done.report["gain"] is None


def test_the_budget_is_counted_once(tmp_path: Path) -> None:
    assert len(study(tmp_path, hill, trials=5).state.list_finished_trials(*COUNTED_PHASES)) == 5
    assert study(tmp_path, hill, trials=5).asked.told == []
