from __future__ import annotations

import json
import shutil
from contextlib import closing
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.optimize.ablation import FAILED
from autotune.optimize.confirmation import Gain
from autotune.optimize.model_view import ModelView, ParameterEffect
from autotune.optimize.reversal_cost import ReversalCost
from autotune.space.space import SearchSpace
from autotune.study.explain_study import (
    ModelAnalysis,
    _AblationTrials,
    _get_proven_log_gain,
    analyze_study,
)
from autotune.study.study_state import Phase, State, Trial
from autotune.study.study_store import StudyStore
from autotune.study.verdict import Verdict
from tests.printed import printed

TARGET = Path(__file__).parents[2] / "targets" / "paper.yaml"


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One short study of a modelled stack, and a second that begins with its leaders."""
    root = tmp_path_factory.mktemp("studies")
    target = root / "short.yaml"
    text = TARGET.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("budget:")]
    target.write_text("\n".join([*lines, "budget: {trials: 12, time: 10h}", ""]), encoding="utf-8")
    run = ["run", str(target), "--yes", "--studies", str(root)]
    assert CliRunner().invoke(app, run).exit_code == 0
    assert CliRunner().invoke(app, [*run, "--from", "paper"]).exit_code == 0
    return root


def explained(studies: Path, *more: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["explain", "paper", "--studies", str(studies), *more])
    assert done.exit_code == 0, done.output
    return dict(printed("explanation", done.stdout.splitlines()[-1]))


def events(study: Path, kind: str) -> list[dict[str, object]]:
    lines = (study / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for line in lines if (record := json.loads(line))["event"] == kind]


@pytest.mark.long
def test_the_model_says_what_matters_without_a_measurement(studies: Path) -> None:
    before = len(events(studies / "paper", "trial"))
    found = explained(studies, "--json")
    assert found["importance"]
    assert found["changes"]
    assert len(events(studies / "paper", "trial")) == before
    shown = CliRunner().invoke(app, ["explain", "paper", "--studies", str(studies)]).stdout
    for change in found["changes"]:
        (line,) = [
            line for line in shown.splitlines() if line.startswith(f"  {change['parameter']} ")
        ][:1]
        assert ("not distinguishable" in line) is not change["distinguishable"]


@pytest.mark.long
def test_explain_report_and_json_give_one_cost_for_each_change(studies: Path) -> None:
    found = explained(studies, "--json")
    report = CliRunner().invoke(app, ["report", "paper", "--json", "--studies", str(studies)])
    changes = {
        c["parameter"]: c["cost"] for c in json.loads(report.stdout.splitlines()[-1])["changes"]
    }
    assert found["changes"]
    for change in found["changes"]:
        cost = changes[change["parameter"]]
        assert cost["ratio"] == pytest.approx(exp(-change["loss"]), abs=1e-4)
        assert cost["distinguishable"] == change["distinguishable"]


@pytest.mark.long
def test_measured_the_smallest_set_can_be_exported(studies: Path, tmp_path: Path) -> None:
    found = explained(studies, "--measure", "--yes", "--maximum", "24", "--json")
    minimal = found["minimal"]
    assert isinstance(minimal, dict)
    assert minimal["kept"]
    assert set(minimal["kept"]) | set(minimal["dropped"]) == {
        change["parameter"] for change in found["changes"]
    }
    export = ["export", "paper", "--minimal", "--format", "json", "--of-a-model",
              "--studies", str(studies)]  # fmt: skip
    done = CliRunner().invoke(app, [*export, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    exported = json.loads((tmp_path / "out" / "settings.json").read_text())["parameters"]
    assert set(exported) >= set(minimal["kept"])  # and what a rule makes of others
    assert not set(exported) & set(minimal["dropped"])


@pytest.mark.long
def test_the_leaders_of_an_earlier_study_are_tried_first(studies: Path) -> None:
    (record,) = events(studies / "paper-2", "transferred")
    assert record["of"] == "paper"
    known = [t for t in events(studies / "paper-2", "trial") if t["phase"] == "known"]
    tried = [t for t in known if t["of"] is None]  # a rough leader may be measured again
    assert 1 <= len(tried) <= len(record["configurations"]) <= 3


@pytest.mark.long
def test_a_study_of_somebody_else_is_explained_and_not_changed(
    studies: Path, tmp_path: Path
) -> None:
    """It has no seal of this account here. Its hosts and its own storage are not needed."""
    foreign = tmp_path / "received"
    shutil.copytree(studies / "paper", foreign)
    for name in ("seal", "study.db", "study.db-wal", "study.db-shm"):
        (foreign / name).unlink(missing_ok=True)
    before = {path: path.stat().st_mtime_ns for path in foreign.rglob("*")}
    done = CliRunner().invoke(app, ["explain", "received", "--json", "--studies", str(tmp_path)])
    assert done.exit_code == 0, done.output
    theirs = printed("explanation", done.stdout.splitlines()[-1])
    mine = explained(studies, "--json")
    assert {**theirs, "study": "paper", "minimal": None} == {**mine, "minimal": None}
    assert {path: path.stat().st_mtime_ns for path in foreign.rglob("*")} == before
    refused = CliRunner().invoke(
        app, ["explain", "received", "--measure", "--yes", "--studies", str(tmp_path)]
    )
    assert refused.exit_code != 0
    assert "is read-only" in str(refused.exception)


MODEL = ModelView((ParameterEffect("t.s.a", 0.4),), (), (), {})
COSTS = {"t.s.a": ReversalCost(0.4, 0.05)}
GAIN = Gain(1.3, 1.2, 1.4, pairs=4)


@pytest.mark.parametrize(
    "state",
    [
        State(model=MODEL, verdict=Verdict("no-improvement")),
        State(model=MODEL, reversal_costs=COSTS),
        State(model=MODEL, verdict=Verdict("improved", 1), reversal_costs=COSTS),
    ],
)
def test_a_recorded_analysis_is_not_computed_again(state: State, tmp_path: Path) -> None:
    assert analyze_study(tmp_path, state, 1) == ModelAnalysis(MODEL, state.reversal_costs)


@pytest.mark.parametrize(
    "verdict",
    [None, Verdict("no-improvement", 1, GAIN), Verdict("unmeetable"), Verdict("improved", 1)],
)
def test_changes_are_measured_only_for_a_proven_gain(verdict: Verdict | None) -> None:
    proven = State(verdict=Verdict("improved", 1, GAIN))
    assert exp(_get_proven_log_gain(proven)) == pytest.approx(GAIN.ratio)
    with pytest.raises(AutotuneError, match="needs a proven gain"):
        _get_proven_log_gain(State(verdict=verdict))


@pytest.mark.parametrize("state", [State(), State(model=MODEL), State(verdict=Verdict("improved"))])
def test_an_incomplete_analysis_is_computed_from_the_trials(state: State, tmp_path: Path) -> None:
    with closing(StudyStore(tmp_path)) as store:
        store.record_study_start("s", TARGET.read_text(encoding="utf-8"), source="s", facts={})
    with pytest.raises(AutotuneError, match="the study has no trials yet"):
        analyze_study(tmp_path, state, 1)


PEAK = Peak(200.0, 190.0, 210.0, 0.03, "measured")
WINNER = Trial(1, Phase.SEARCH, {}, peak=PEAK)


@pytest.mark.parametrize(
    ("outcome", "log_peak"),
    [
        ({"peak": PEAK}, log(200.0)),
        ({"failure": "it stopped"}, FAILED),
        ({"peak": Peak(0.0, 0.0, 0.0, 0.5, "unmeetable")}, FAILED),
        ({"failure": "the load broke", "is_fault": True}, None),
        ({"peak": Peak(80.0, 80.0, 80.0, 0.03, "limited", limit="load.max_rate")}, None),
    ],
)
def test_only_a_measured_configuration_counts_as_failed(
    outcome: dict[str, Any], log_peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_trial = Trial(9, Phase.EXPLAIN, {}, **outcome)
    monkeypatch.setattr("autotune.study.trial.run_trial", lambda *_: finished_trial)
    space, reverted = SearchSpace((), (), {}), frozenset({"t.s.a"})
    context: Any = SimpleNamespace(space=space, record_time_spent=lambda: None)
    ablation_trials = _AblationTrials(context, {}, WINNER)
    assert ablation_trials.measure_log_peak(reverted) == log_peak
    assert ablation_trials.trials == ({reverted: 9} if outcome == {"peak": PEAK} else {})
