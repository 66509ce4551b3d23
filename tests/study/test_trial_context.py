"""The lock and the store of a study, opened for a session."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.environments.preparation import prepare
from autotune.environments.simulated import SimulatedEnvironment
from autotune.errors import AutotuneError, TargetError
from autotune.study import start
from autotune.study.study_store import StudyStore, load_state
from autotune.study.trial_context import format_target, open_locked_store
from autotune.study.verdict import Verdict
from autotune.target.read_target import read_recorded_target, read_target
from tests.modelled import noisy
from tests.study.test_bed_workers import Noting
from tests.sweep.modelled import Silent

TARGETS = Path(__file__).parents[2] / "targets"


def test_parameters_without_an_effect_are_reported_before_the_first_trial(tmp_path: Path) -> None:
    (tmp_path / "modelled.yaml").write_text(noisy(""))
    environment = prepare(read_target(tmp_path / "modelled.yaml"))
    assert isinstance(environment, SimulatedEnvironment)
    excluded = ("kept at the baseline because the model ignores them: web.nginx.gzip",)
    progress: Any = Noting()
    with open_locked_store(
        replace(environment, excluded=excluded), tmp_path / "study", progress
    ) as store:
        assert tuple(progress.notes) == excluded
        assert not store.state.trials


def test_a_study_records_the_target_that_it_runs(tmp_path: Path) -> None:
    """The target is edited while the user is asked for confirmation."""
    path, directory = tmp_path / "modelled.yaml", tmp_path / "studies" / "modelled"
    path.write_text(noisy(""))
    environment = prepare(read_target(path))
    path.write_text(noisy("").replace("p99: 50ms", "p99: 60ms"))
    with pytest.raises(KeyboardInterrupt):
        start.start_study(environment, directory, Silent(1))
    assert read_recorded_target(directory).target == environment.file.target
    with pytest.raises(TargetError, match=r"slo.*50ms → 60ms"):
        start.prepare_unfinished(directory)


@pytest.mark.parametrize(
    ("verdict", "kept_trial", "has_originals", "keeps_winner", "message"),
    [
        ("improved", None, True, True, None),
        ("improved", None, False, True, None),
        ("improved", None, True, False, "but its hosts have not been restored"),
        ("improved", 3, True, True, "modelled is finished$"),
        ("no-improvement", None, True, True, "but its hosts have not been restored"),
        ("no-improvement", None, False, True, "modelled is finished$"),
    ],
)
def test_a_study_that_died_after_its_verdict_is_restored_or_keeps_its_winner(
    verdict: str,
    kept_trial: int | None,
    has_originals: bool,
    keeps_winner: bool,
    message: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, directory = tmp_path / "modelled.yaml", tmp_path / "studies" / "modelled"
    path.write_text(noisy(""))
    with pytest.raises(KeyboardInterrupt):
        start.start_study(prepare(read_target(path)), directory, Silent(1))
    ended = replace(load_state(directory), verdict=Verdict(verdict), kept_trial=kept_trial)
    monkeypatch.setattr(start, "load_state", lambda _: replace(ended, keeps_winner=True))
    monkeypatch.setattr(start, "has_saved_originals", lambda _: has_originals)
    if message is None:
        start.prepare_unfinished(directory, keeps_winner=keeps_winner)
        return
    with pytest.raises(AutotuneError, match=message):
        start.prepare_unfinished(directory, keeps_winner=keeps_winner)


@pytest.mark.parametrize(
    ("name", "is_used"),
    [
        ("files.json", True),
        ("web1/etc/nginx/nginx.conf.j2", True),
        ("web1/etc/nginx/nginx.conf.j2~", False),
        ("README.md", False),
    ],
)
def test_readings_do_not_speak_of_other_templates(tmp_path: Path, name: str, is_used: bool) -> None:
    path, directory = tmp_path / "modelled.yaml", tmp_path / "studies" / "modelled"
    path.write_text(noisy("").replace("service: redis", "service: redis, templates: own"))
    template = tmp_path / "own" / name
    template.parent.mkdir(parents=True)
    template.write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        start.start_study(prepare(read_target(path)), directory, Silent(1))
    start.prepare_unfinished(directory)
    for change in (lambda: template.write_text('{"a": 1}'), template.unlink):
        change()
        if not is_used:
            start.prepare_unfinished(directory)
            continue
        with pytest.raises(TargetError, match=rf"(?s)has changed since.*  own/{name}: the file"):
            start.prepare_unfinished(directory)


def test_readings_do_not_speak_of_an_added_template(tmp_path: Path) -> None:
    """The template may override one of autotune's own."""
    path, directory = tmp_path / "modelled.yaml", tmp_path / "studies" / "modelled"
    path.write_text(noisy("").replace("service: redis", "service: redis, templates: own"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "files.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        start.start_study(prepare(read_target(path)), directory, Silent(1))
    start.prepare_unfinished(directory)
    (tmp_path / "own" / "redis.conf.j2").write_text("port 6379\n")
    with pytest.raises(
        TargetError, match=r"(?s)has changed since.*  own/redis\.conf\.j2: the file"
    ):
        start.prepare_unfinished(directory)


def test_a_study_records_the_services_that_the_user_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that continues with another declaration would mix the readings of two stacks."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    text = (TARGETS / "declared.yaml").read_text(encoding="utf-8")
    head, _, rest = text.partition("services:\n  lighttpd:\n")
    declaration, _, constraints = rest.partition("\nconstraints:")
    service = tmp_path / "autotune" / "services" / "lighttpd.yaml"
    service.parent.mkdir(parents=True)
    service.write_text(dedent(declaration))
    path, directory = tmp_path / "declared.yaml", tmp_path / "study"
    path.write_text(f"{head}constraints:{constraints}")
    environment: Any = SimpleNamespace(file=read_target(path))
    with closing(StudyStore(directory)) as store:
        store.record_study_start("study", format_target(environment), source=str(path), facts={})
    assert read_recorded_target(directory).target == environment.file.target
    service.write_text(dedent(declaration).replace("default: 512", "default: 1024"))
    with pytest.raises(TargetError, match=r"services\.lighttpd.*512 → 1024"):
        start._read_current_target(directory)
