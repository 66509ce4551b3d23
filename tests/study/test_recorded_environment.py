"""The space of a study as its records have it, and settings of records that are not deployed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy import templates
from autotune.errors import AutotuneError, RenderError
from autotune.foreign_files import MAX_TEMPLATE_BYTES, ForeignFileError
from autotune.space.facts import HostFacts
from autotune.space.target_space import build_space
from autotune.study.recorded_environment import read_environment
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase
from autotune.study.study_store import StudyStore
from autotune.study.trial import begin_trial
from autotune.target.read_target import read_target
from tests.space.targets import FLEET, ROOMY
from tests.study.simulated import LOCAL, FormulaFleet, context, space

CHILDREN = "web.php_fpm.max_children"
HERE = HostFacts(cpus=4, memory=8 * 2**30, nofile=65_536)


@pytest.mark.parametrize("children", [5, 200])
def test_a_space_is_that_of_the_recorded_hosts_and_baseline(tmp_path: Path, children: int) -> None:
    asked = build_space(read_target(LOCAL), {"here": HERE})
    store = StudyStore(tmp_path / "s")
    facts = {"here": dict(HERE.to_names())}
    store.record_study_start("s", LOCAL.read_text(), source="/gone/local.yaml", facts=facts)
    with pytest.raises(AutotuneError, match="no trials yet"):
        read_environment(tmp_path / "s")
    settings = {**asked.baseline, CHILDREN: children}
    store.begin_trial(Phase.BASELINE, asked.complete_without_repair(settings))
    recorded = read_environment(tmp_path / "s")
    assert recorded.space.baseline == settings
    assert [d.name for d in recorded.space.tunable_dimensions] == [
        d.name for d in asked.tunable_dimensions
    ]
    assert [d.bounds for d in recorded.space.tunable_dimensions if not d.choices] == [
        d.bounds for d in asked.tunable_dimensions if not d.choices
    ]
    store.close()


BEDS = """\
beds:
  a: {hosts: {here: {address: 127.0.0.1}}}
  b: {hosts: {here: {address: 127.0.0.2}}}
"""


@pytest.mark.parametrize("shared", [False, True])
def test_what_a_bed_does_not_tune_is_not_tuned(tmp_path: Path, shared: bool) -> None:
    """A study in a storage records each bed when it joins."""
    own = {"own": {}, "values": {}, "left": {CHILDREN: "no line of its files sets it"}, "notes": []}
    store = StudyStore(tmp_path / "s")
    store.record_study_start(
        "s", LOCAL.read_text() + BEDS, source="/gone/local.yaml",
        facts={"here": dict(HERE.to_names())}, beds={} if shared else {"a": {"adopted": own}},
    )  # fmt: skip
    if shared:
        store._record_event("joined", bed="a", adopted=own)
    asked = build_space(read_target(LOCAL), {"here": HERE})
    store.begin_trial(Phase.BASELINE, asked.complete_without_repair(asked.baseline), bed="a")
    store.close()
    recorded = read_environment(tmp_path / "s")
    assert CHILDREN not in [dimension.name for dimension in recorded.space.tunable_dimensions]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (CHILDREN, "5\nphp_admin_value[auto_prepend_file] = /tmp/x"),
        (CHILDREN, 2.5),
        (CHILDREN, 10**30),
        ("web.php_fpm.pm", "ondemand; }"),
        ("web.php_fpm.env", "x"),
        ("../../etc/passwd", 1),
    ],
)
@pytest.mark.parametrize("of", [None, 0])
def test_settings_of_a_record_are_not_deployed_unless_they_fit_the_target(
    tmp_path: Path, of: int | None, name: str, value: Any
) -> None:
    store, fleet = StudyStore(tmp_path / "s"), FormulaFleet()
    step = MeasureStep(Phase.SEARCH, {**space().baseline, name: value}, source_trial=of)
    with pytest.raises(AutotuneError, match="settings in the study do not fit its target"):
        begin_trial(step, context(store, lambda _: 1.0, fleet, seed=1, pace=0.0))
    assert not store.state.trials
    assert not fleet.settings
    store.close()


def test_a_template_has_a_size_limit(tmp_path: Path) -> None:
    with (tmp_path / "large.conf.j2").open("wb") as file:
        file.truncate(MAX_TEMPLATE_BYTES + 1)
    with pytest.raises((ForeignFileError, RenderError), match="larger than"):
        templates.render_file((tmp_path,), "large.conf.j2", {})


def test_a_space_is_rebuilt_from_a_target_that_is_refused_today(tmp_path: Path) -> None:
    """Earlier versions ignored the default of a parameter that is computed."""
    text = FLEET.replace("lb1, service: nginx", "lb1, service: apache")
    rule = "parameters: {lb.apache.MaxRequestWorkers: {default: 512}}\n"
    (tmp_path / "fleet.yaml").write_text(text)
    facts = dict.fromkeys(("lb1", "web1", "web2", "mc1", "db1"), ROOMY)
    asked = build_space(read_target(tmp_path / "fleet.yaml"), facts)
    recorded_facts = {host: dict(ROOMY.to_names()) for host in facts}
    with closing(StudyStore(tmp_path / "s")) as store:
        store.record_study_start("s", text + rule, source="/gone.yaml", facts=recorded_facts)
        store.begin_trial(Phase.BASELINE, asked.complete_without_repair(asked.baseline))
    assert read_environment(tmp_path / "s").space.baseline == asked.baseline
