"""What a study may rely on in every environment's session, whatever is behind it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.environments.base import Environment
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    FailedEvaluation,
    Measurement,
    MeasurementHistory,
)
from autotune.environments.load_session import LoadSession
from autotune.environments.preparation import prepare
from autotune.services.base import Settings
from autotune.target.read_target import read_target

PAPER = Path(__file__).parents[2] / "targets" / "paper.yaml"
COMMAND = f"""
name: toy
command: [{sys.executable}, toy.py]
maximize: throughput
parameters:
  x: {{range: [1, 100], default: 5}}
"""
TOY = """
import json, sys
print(json.dumps({"value": json.load(sys.stdin)["parameters"]["x"]}))
"""


@dataclass
class Recorder:
    """Remembers in which order it was told what."""

    events: list[str] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def on_deployed(self, deployed: Any) -> None:
        self.events.append("deployed")

    def on_warm_up(self, warm_up: Any) -> None:
        self.events.append("warmed")

    def on_reading(self, watched: Any, purpose: str) -> None:
        self.events.append(purpose)
        self.rates.append(watched.reading.rate)

    def on_references(self, references: Any) -> None:
        self.events.append("references")

    def on_answer(self, answer: Any, seconds: float) -> None:
        self.events.append("answer")

    def note(self, text: str) -> None:
        self.events.append("note")


def model(directory: Path) -> Environment:
    return prepare(read_target(PAPER))


def command(directory: Path) -> Environment:
    (directory / "toy.py").write_text(TOY)
    (directory / "toy.yaml").write_text(COMMAND)
    return prepare(read_target(directory / "toy.yaml"))


Made = Callable[[Path], Environment]
each = pytest.mark.parametrize("made", [model, command])


def evaluated(
    environment: Environment, directory: Path, *several: Settings
) -> list[tuple[Evaluation, Recorder]]:
    """Each configuration in turn, in one session."""
    outcomes = []
    with environment.open_session(directory, lambda _: None, MeasurementHistory()) as session:
        for number, settings in enumerate(several):
            recorder = Recorder()
            request = EvaluationRequest(number, is_reference=True)
            outcomes.append((session.evaluate(settings, request, recorder), recorder))
    return outcomes


@each
def test_deployed_first_then_measured(made: Made, tmp_path: Path) -> None:
    environment = made(tmp_path)
    ((outcome, recorder),) = evaluated(environment, tmp_path / "s", environment.space.baseline)
    assert isinstance(outcome, Measurement)
    assert outcome.peak.is_feasible
    assert recorder.events[0] == "deployed"
    measured = [event for event in recorder.events if event in ("peak", "answer")]
    assert len(measured) == outcome.reading_count
    if "warm-up" in recorder.events:
        assert recorder.events.index("warmed") < recorder.events.index("peak")


def test_nothing_is_loaded_after_a_failed_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = model(tmp_path)
    with environment.open_session(tmp_path / "s", lambda _: None, MeasurementHistory()) as session:
        assert isinstance(session, LoadSession)

        def refuse(settings: Settings) -> None:
            raise DeployFailed("it does not start")

        monkeypatch.setattr(session.fleet, "deploy", refuse)
        recorder = Recorder()
        outcome = session.evaluate(environment.space.baseline, EvaluationRequest(0), recorder)
    assert outcome == FailedEvaluation("it does not start")
    assert recorder.events == []


def test_a_command_that_fails_says_nothing_of_the_configuration(tmp_path: Path) -> None:
    environment = command(tmp_path)
    (tmp_path / "toy.py").write_text("raise SystemExit(3)")
    ((outcome, recorder),) = evaluated(environment, tmp_path / "s", environment.space.baseline)
    assert isinstance(outcome, FailedEvaluation)
    assert outcome.is_fault
    assert recorder.events == ["deployed", "answer", "answer"]


@each
def test_sessions_at_once_share_nothing(made: Made, tmp_path: Path) -> None:
    environment = made(tmp_path)
    space = environment.space
    several = [
        space.baseline,
        space.build_candidate(space.preset_settings("recommended")).settings,
        space.baseline,
    ]
    alone = evaluated(environment, tmp_path / "alone", *several)
    results: dict[str, list[tuple[Evaluation, Recorder]]] = {}

    def run(name: str) -> None:
        results[name] = evaluated(environment, tmp_path / name, *several)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a", "b"):
        assert [recorder.rates for _, recorder in results[name]] == [r.rates for _, r in alone]
        assert list(map(peak, results[name])) == list(map(peak, alone))


def peak(result: tuple[Evaluation, Recorder]) -> float:
    assert isinstance(result[0], Measurement)
    return result[0].peak.peak
