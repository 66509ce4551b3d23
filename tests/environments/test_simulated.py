"""The whole command line on a modelled stack: no host, no load, no waiting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.environments.preparation import prepare, select_environment_module
from autotune.errors import AutotuneError, TargetError
from autotune.study import ranking, start
from autotune.study.reading_records import load_readings
from autotune.study.study_state import COUNTED_PHASES
from autotune.study.study_store import load_state
from autotune.target.read_target import TargetFile, read_target
from tests.modelled import noisy
from tests.printed import printed

pytestmark = pytest.mark.long

TARGET = noisy("budget: {trials: 5, time: 30m}\n")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "modelled.yaml"
    path.write_text(TARGET)
    return path


def autotune(*words: object, cwd: Path) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_a_plan_names_the_servers_once_and_no_settings_of_the_host() -> None:
    paper = Path(__file__).parents[2] / "targets" / "paper.yaml"
    servers = prepare(read_target(paper)).build_preview().servers
    assert [name.rpartition(".")[2] for name in servers if name.startswith("web.")] == [
        "apache", "php_fpm", "nginx",
    ]  # fmt: skip


def test_a_study_from_check_to_export(target: Path, tmp_path: Path) -> None:
    studies = ("--studies", tmp_path / "studies")
    assert "no host is changed" in autotune("check", target, cwd=tmp_path).stdout
    planned = printed("plan", autotune("plan", target, "--json", cwd=tmp_path).stdout)
    assert planned["simulated"] is True
    assert "(of a model)" in planned["entry"]
    assert "no load is sent" in autotune("plan", target, cwd=tmp_path).stdout
    assert "+    worker_connections" in planned["diff"]

    done = autotune("run", target, "--yes", "--json", *studies, cwd=tmp_path)
    found = printed("study", done.stdout)
    assert "autotune changes no host and sends no load" in done.stderr
    assert found["verdict"] == "improved"
    assert found["warnings"][0]["code"] == "simulated"
    assert found["seconds"]["load"] > 100  # virtual ones
    assert found["bottleneck"]["baseline"]["service"] == "php_fpm"

    said = autotune("report", "modelled", *studies, cwd=tmp_path).stdout
    assert "(simulated; no host was touched)" in said.splitlines()[0]
    assert "max_children" in autotune("diff", "modelled", *studies, cwd=tmp_path).stdout
    out = tmp_path / "out"
    autotune("export", "modelled", "--of-a-model", "--out", out, *studies, cwd=tmp_path)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["simulated"] is True
    children = manifest["parameters"]["web.php_fpm.max_children"]
    assert f"pm.max_children = {children}" in next(out.rglob("php-fpm.conf")).read_text()

    measured = autotune(
        "measure", target, "--config", out, "--yes", "--json", *studies, cwd=tmp_path
    )
    peak = printed("measurement", measured.stdout)["peaks"][0]["peak"]
    assert peak == pytest.approx(found["best"]["peak"], rel=0.12)


def test_a_tuned_configuration_against_recommended_settings_and_another_export(
    target: Path, tmp_path: Path
) -> None:
    studies = ("--studies", tmp_path / "studies")
    for name, children in (("tuned", 60), ("other", 20)):
        manifest = {"parameters": {"web.php_fpm.max_children": children}}
        (tmp_path / f"{name}.json").write_text(json.dumps(manifest))
    words = ("measure", target, "--config", tmp_path / "tuned.json", "--yes", "--against")

    done = autotune(*words, "recommended", "--json", *studies, cwd=tmp_path)
    found = printed("measurement", done.stdout)
    assert found["against"] == "recommended"
    assert found["gain"]["pairs"] == len(found["configuration"]) == len(found["other"]) == 3
    assert found["gain"]["low"] < found["gain"]["ratio"] < found["gain"]["high"]
    state = load_state(tmp_path / "studies" / found["study"])
    space = prepare(read_target(target)).space
    recommended = space.build_candidate(space.preset_settings("recommended")).settings
    sides = [trial.settings == recommended for trial in state.list_finished_trials()]
    assert sides == [True, False, False, True, True, False]

    other = str(tmp_path / "other.json")
    said = autotune(*words, other, *studies, cwd=tmp_path).stdout
    assert f"against {other}, 3 alternating pairs" in said.splitlines()[0]
    assert said.startswith("+")


@pytest.mark.parametrize("rate", [100.0, 9000.0])
def test_a_comparison_measures_latency_at_the_rate_of_today(
    target: Path, tmp_path: Path, rate: float
) -> None:
    studies = ("--studies", tmp_path / "studies")
    text = target.read_text().replace("max_rate: 20000/s", f"max_rate: 20000/s, today: {rate:g}/s")
    target.write_text(text)
    (tmp_path / "tuned.json").write_text('{"parameters": {"web.php_fpm.max_children": 60}}')
    words = (
        "measure",
        target,
        "--config",
        tmp_path / "tuned.json",
        "--yes",
        "--against",
        "baseline",
    )
    done = autotune(*words, "--json", *studies, cwd=tmp_path)
    latency = printed("measurement", done.stdout)["latency"]
    assert latency["rate"] == rate
    for side in (latency["configuration"], latency["comparison"]):
        assert (side is not None) == (rate < 1000)  # the model sustains less than 9,000/s
        assert side is None or 0 < side["low"] < side["latency"] < side["high"] < 0.05
    said = autotune(*words, *studies, cwd=tmp_path).stdout
    assert ("at today's 100/s" in said) == (rate < 1000)


class Impatient:
    """Ends the session after so many readings, as Ctrl-C would."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None

    def on_reading(self, *_: Any) -> None:
        self.patience -= 1
        if self.patience == 0:
            raise KeyboardInterrupt


def test_a_study_that_is_stopped_and_resumed_goes_on_in_its_own_time(
    target: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "studies" / "modelled"
    with pytest.raises(KeyboardInterrupt):
        start.start_study(prepare(read_target(target)), directory, Impatient(15))
    stopped = load_state(directory)
    assert len(load_readings(directory)) == 15
    start.resume_study(start.prepare_unfinished(directory), directory, Impatient(-1))
    state = load_state(directory)
    assert state.verdict is not None
    assert len(state.list_finished_trials(*COUNTED_PHASES)) == 5
    assert state.elapsed_seconds > stopped.elapsed_seconds > 15


def test_a_baseline_that_the_load_may_not_exhaust_ends_the_study_until_it_may(
    target: Path, tmp_path: Path
) -> None:
    """It would otherwise search for half an hour below what the stack carries."""
    directory, text = tmp_path / "studies" / "modelled", target.read_text()
    target.write_text(text.replace("max_rate: 20000/s", "max_rate: 500/s"))
    with pytest.raises(
        AutotuneError, match=r"baseline .* at least 500 requests/s .limited by load.max_rate"
    ) as limited:
        start.start_study(prepare(read_target(target)), directory, Impatient(-1))
    assert "raise load.max_rate" in (limited.value.hint or "")
    assert len(load_state(directory).list_finished_trials()) == 1
    target.write_text(text)
    start.resume_study(start.prepare_unfinished(directory), directory, Impatient(-1))
    state = load_state(directory)
    measured = ranking.find_baseline(state)
    assert measured is not None
    assert measured.peak is not None
    assert measured.peak.peak > 500
    assert ranking.baseline_meets_slo(state)


def test_the_same_seed_takes_the_same_readings(target: Path, tmp_path: Path) -> None:
    taken = []
    for name in ("one", "two"):
        with pytest.raises(KeyboardInterrupt):
            start.start_study(prepare(read_target(target)), tmp_path / name, Impatient(12))
        taken.append([(r.rate, r.histogram) for r in load_readings(tmp_path / name)])
    assert taken[0] == taken[1]


def test_what_the_model_does_not_answer_to_is_left_out_and_said(target: Path) -> None:
    environment = prepare(read_target(target))
    assert "kept at the baseline because the model ignores them" in environment.excluded[-1]
    searched = {dimension.name for dimension in environment.space.tunable_dimensions}
    assert "lb.nginx.worker_connections" in searched
    assert "lb.nginx.keepalive_timeout" not in searched
    assert "lb.nginx.keepalive_timeout" in environment.space.baseline


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  cache: {hosts: mc1, service: memcached}\n", "", "unknown tier 'cache'"),
        (
            "  store: {hosts: db1, service: redis}\n",
            "  store: {hosts: db1, service: memcached}\n",
            "tier store cannot be simulated",
        ),
        ("noise: 2%", "noise: 2", "noise"),
    ],
)
def test_a_target_that_is_no_chain_is_refused(target: Path, old: str, new: str, said: str) -> None:
    target.write_text(TARGET.replace(old, new))
    with pytest.raises(TargetError, match=said):
        prepare(read_target(target))


def test_a_target_with_a_model_never_asks_its_hosts(target: Path) -> None:
    file: TargetFile = read_target(target)
    assert select_environment_module(file.target) == "simulated"
    assert prepare(file).facts["web1"].cpus == 4
