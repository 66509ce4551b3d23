"""What a configuration is measured against."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.deploy_result import DeployResult, SettingMismatch
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError, UsageError
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study import measure_capacity
from autotune.study.measure_capacity import (
    ComparisonConfiguration,
    Measurement,
    _measure_once,
    build_comparison_configuration,
    build_measurement_request,
    find_unapplied_settings,
)
from autotune.study.study_state import Phase, Trial
from autotune.study.study_store import StudyStore
from tests.space.targets import fleet
from tests.study import simulated
from tests.study.simulated import FormulaFleet

CHILDREN = "web.php_fpm.max_children"
CHOICE = ("service: nginx, forwards_to", "service: [nginx, apache], forwards_to")


def effective(space: SearchSpace, settings: Settings) -> Settings:
    return space.select_active_settings(space.complete_without_repair(settings).settings)


def test_the_baseline_changes_nothing(tmp_path: Path) -> None:
    space = fleet(tmp_path)
    asked = {"web.php_fpm.max_children": 7}
    assert build_comparison_configuration(space, "baseline", asked) == ComparisonConfiguration(
        "baseline", {}
    )


@pytest.mark.parametrize("preset", ["recommended", "published"])
@pytest.mark.parametrize("chosen", ["nginx", "apache"])
def test_presets_are_those_of_the_software_at_hand(
    preset: str, chosen: str, tmp_path: Path
) -> None:
    space = fleet(tmp_path, "", CHOICE)
    found = build_comparison_configuration(
        space, preset, {"lb.service": chosen, "web.php_fpm.max_children": 7}
    )
    assert found.settings == space.preset_settings(preset, {"lb.service": chosen})
    assert found.name_in_sentence == f"the {preset} settings"
    assert any(name.startswith(f"lb.{chosen}.") for name in effective(space, found.settings))


def test_without_a_choice_presets_are_the_baselines_own(tmp_path: Path) -> None:
    space = fleet(tmp_path, "", CHOICE)
    assert (
        build_comparison_configuration(space, "recommended", {}).settings["lb.service"] == "nginx"
    )


def test_another_export_brings_its_settings_and_what_it_knew(tmp_path: Path) -> None:
    told = {"parameters": {"web.php_fpm.max_children": 9}, "rss": {"web.php_fpm": 5}}
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    for path in (tmp_path, tmp_path / "manifest.json"):
        found = build_comparison_configuration(fleet(tmp_path), str(path), {})
        assert found == ComparisonConfiguration(str(path), told["parameters"], told["rss"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot measure against"),
        ("{}", "is not the manifest of an export"),
        ('{"parameters": {"web.php_fpm.children": 9}}', "which is not a parameter of this target"),
    ],
)
def test_what_is_neither_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    export = tmp_path / "export.json"
    if text is not None:
        export.write_text(text)
    with pytest.raises(AutotuneError, match=said):
        build_comparison_configuration(fleet(tmp_path), str(export), {})


def test_what_has_no_effect_is_no_difference(tmp_path: Path) -> None:
    space = fleet(tmp_path, "", CHOICE)
    parameter = next(
        d for d in space.tunable_dimensions if d.name.startswith("lb.apache.") and d.choices
    )
    other = next(c for c in parameter.choices if c != parameter.baseline)
    assert effective(space, {parameter.name: other}) == effective(space, {})
    changed = {"lb.service": "apache", parameter.name: other}
    assert effective(space, changed) != effective(space, {"lb.service": "apache"})


@pytest.mark.parametrize(
    ("requested", "is_refused"), [({}, False), ({"backlog": 885}, False), ({"backlog": 4096}, True)]
)
def test_an_exported_effective_value_is_not_refused(requested: Settings, is_refused: bool) -> None:
    """The file requests 4096, of which another setting of the export leaves 885."""
    difference = "backlog: requested 4096, effective 885"
    trial = Trial(0, Phase.MEASURE, {"backlog": 4096, "somaxconn": 885}, effective={"backlog": 885},
                  differences=(difference,))  # fmt: skip
    assert find_unapplied_settings(trial, requested) == [difference] * is_refused


class ComputingFleet(FormulaFleet):
    """A fleet whose software computes the number of its processes itself."""

    def deploy(self, settings: Settings) -> DeployResult:
        self.settings = settings
        mismatch = SettingMismatch(CHILDREN, settings[CHILDREN], 4)
        return DeployResult({}, {}, {CHILDREN: 4}, (mismatch,))


@pytest.mark.parametrize("is_fixed", [False, True])
def test_software_may_compute_a_value_that_the_target_fixes(is_fixed: bool, tmp_path: Path) -> None:
    """The study of an export measured the same computed value."""
    with closing(StudyStore(tmp_path)) as store:
        made = simulated.context(store, simulated.flat, ComputingFleet(), seed=1, pace=0.0)
        space = made.space.with_fixed_parameters({CHILDREN} if is_fixed else ())
        fixed = {CHILDREN: space.baseline[CHILDREN]}
        expectation: AbstractContextManager[object] = nullcontext()
        if not is_fixed:
            expectation = pytest.raises(AutotuneError, match="took effect with different values")
        with expectation:
            _measure_once(replace(made, space=space), fixed, [], "the configuration")
        assert store.state.trials[0].effective_settings[CHILDREN] == 4


def test_memory_that_the_other_side_showed_changes_no_value_silently(tmp_path: Path) -> None:
    with closing(StudyStore(tmp_path)) as store:
        made = simulated.context(store, simulated.flat, FormulaFleet(), seed=1, pace=0.0)
        first, _ = _measure_once(made, {}, [], "the baseline")
        store.record_memory(first, {"web.php_fpm": 500 * 2**20})
        with pytest.raises(AutotuneError, match="the configuration does not satisfy the rules: "):
            _measure_once(made, {CHILDREN: 60}, [], "the configuration")


def test_a_rate_is_reached_only_if_every_repeat_meets_the_objective() -> None:
    good, unmet = (
        Peak(120.0, 110.0, 130.0, 0.03, "measured"),
        Peak(0.0, 0.0, 0.0, 0.5, "unmeetable"),
    )
    bound = Peak(110.0, 110.0, 110.0, 0.03, "limited", limit="load.max_rate")

    def reaches(*peaks: Peak) -> bool:
        trials = tuple(Trial(n, Phase.MEASURE, {}, peak=peak) for n, peak in enumerate(peaks))
        return Measurement("shop", trials).reaches_rate(110.0)

    assert reaches(good, good)
    assert reaches(good, bound)
    assert reaches(bound, bound), "the mean of equal capacities is rounded"
    assert not reaches(good, unmet)
    assert not reaches(unmet)


@pytest.mark.parametrize(
    ("verdicts", "rate", "is_unknown"),
    [
        (("limited",), 121.0, True),
        (("limited",), 119.0, False),  # reached
        (("measured", "limited"), 121.0, True),
        (("measured",), 121.0, False),
        (("limited", "unmeetable"), 121.0, False),  # the SLO was not met at any rate
    ],
)
def test_a_limited_load_does_not_show_that_the_capacity_is_lower(
    verdicts: tuple[str, ...], rate: float, is_unknown: bool
) -> None:
    limits = {"limited": "the load generator fell behind"}
    trials = tuple(
        Trial(n, Phase.MEASURE, {}, peak=Peak(120.0, 110.0, 130.0, 0.03, v, limit=limits.get(v)))
        for n, v in enumerate(verdicts)
    )
    assert Measurement("shop", trials).is_rate_unknown(rate) is is_unknown


@pytest.mark.parametrize(
    ("verdicts", "has_interval"),
    [
        (("measured",), False),
        (("measured", "measured"), True),
        (("measured", "unmeetable"), False),
        (("unmeetable", "unmeetable"), False),
    ],
)
def test_only_repeats_that_all_find_a_capacity_have_an_interval(
    verdicts: tuple[str, ...], has_interval: bool
) -> None:
    trials = tuple(
        Trial(n, Phase.MEASURE, {}, peak=Peak(120.0, 110.0, 130.0, 0.03, verdict))
        for n, verdict in enumerate(verdicts)
    )
    interval = Measurement("shop", trials).interval
    assert (interval is not None) is has_interval
    assert interval is None or interval[0] < 120.0 < interval[1]


@pytest.mark.parametrize(("children", "is_refused"), [(None, True), (5, True), (9, False)])
def test_an_export_with_the_baseline_settings_is_not_compared_with_the_baseline(
    tmp_path: Path, children: int | None, is_refused: bool
) -> None:
    """The default number of children is 5."""
    settings = {} if children is None else {"web.php_fpm.max_children": children}
    (tmp_path / "manifest.json").write_text(json.dumps({"parameters": settings}))
    environment: Any = SimpleNamespace(space=fleet(tmp_path))
    if is_refused:
        with pytest.raises(UsageError, match="have the same settings"):
            build_measurement_request(environment, None, str(tmp_path), 1)
        return
    request = build_measurement_request(environment, None, str(tmp_path), 1)
    assert request.against is not None
    assert (request.settings, request.against.settings) == ({}, settings)


@pytest.mark.parametrize("verdict", ["unmeetable", "unmet"])
def test_a_configuration_that_met_the_objective_at_no_rate_has_no_gain(
    verdict: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The peak of a search that ran out of time is only an estimate."""
    good = Peak(120.0, 110.0, 130.0, 0.03, "measured")
    missed = Peak(700.0, 300.0, 1600.0, 0.5, verdict)

    def measure_once(*inputs: Any) -> tuple[Trial, Peak]:
        peak = missed if inputs[-1] == measure_capacity.CONFIGURATION_LABEL else good
        return Trial(0, Phase.MEASURE, {}, peak=peak), peak

    monkeypatch.setattr(measure_capacity, "_measure_once", measure_once)
    baseline = ComparisonConfiguration("baseline", {})
    request = measure_capacity.MeasurementRequest({}, baseline, 1)
    unused: Any = None
    with pytest.raises(AutotuneError, match=r"^the configuration: the SLO is not met at any rate"):
        measure_capacity._measure_alternately(unused, request, baseline, tmp_path)
