"""Descriptions in `workloads/` fit their targets and the services."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from autotune.environments.target_warnings import find_warnings
from autotune.errors import AutotuneError
from autotune.lab.plan import build_plan
from autotune.lab.target_labs import LABS_DIRECTORY, build_lab_hosts
from autotune.parameter_name import ParameterName
from autotune.services.registry import SHIPPED
from autotune.target.model import Target
from autotune.target.read_target import read_target
from scripts.workloads import catalogue, page
from scripts.workloads.catalogue import Workload

NAMES = catalogue.list_names()


@pytest.fixture(params=NAMES)
def workload(request: pytest.FixtureRequest) -> Workload:
    return catalogue.read_workload(request.param)


@pytest.fixture
def target(workload: Workload) -> Target:
    return read_target(workload.target).target


def list_parameters(target: Target) -> Iterator[str]:
    for name, tier in target.tiers.items():
        for location in SHIPPED.list_tier_services(name, tier):
            for parameter in location.service.parameters:
                yield f"{name}.{location.service.name}.{parameter.name}"


def test_there_are_workloads() -> None:
    assert len(NAMES) >= 8


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AutotuneError) as refusal:
        catalogue.read_workload("../php-waits")
    assert str(refusal.value.hint) == "one of " + ", ".join(NAMES)


def test_its_settings_are_parameters_of_its_target(workload: Workload, target: Target) -> None:
    known = set(list_parameters(target))
    steps = [step for factor in workload.engineer for step in factor.steps]
    used = {name for settings in (*steps, workload.smoke.settings) for name in settings}
    assert {*used, *workload.decisive} - known == set()
    assert {factor.service for factor in workload.engineer} <= {
        ParameterName.parse(name).service_prefix for name in known
    }
    assert all(factor.steps for factor in workload.engineer)
    assert set(workload.decisive) & set(workload.smoke.settings)


def test_its_site_is_complete(workload: Workload, target: Target) -> None:
    assert target.name == workload.name
    assert set(workload.hosts) <= set(target.hosts)
    assert any(tier.app for tier in target.tiers.values()) or workload.hosts
    for setup in workload.hosts.values():
        for source in (*setup.files.values(), *filter(None, [setup.script])):
            assert source.is_file(), source


def test_its_hosts_are_a_lab_with_the_ssh_configuration(workload: Workload, target: Target) -> None:
    plan = build_plan(build_lab_hosts(target), LABS_DIRECTORY / workload.name)
    assert target.ssh.config == str(plan.names.ssh_config)


def test_its_target_has_no_warnings(workload: Workload) -> None:
    assert find_warnings(read_target(workload.target)) == []


def test_no_two_workloads_share_a_network() -> None:
    targets = [read_target(catalogue.read_workload(name).target).target for name in NAMES]
    networks = [
        str(build_plan(build_lab_hosts(target), LABS_DIRECTORY / target.name).network)
        for target in targets
    ]
    assert len(set(networks)) == len(networks)


def test_every_source_is_used() -> None:
    used = {
        source
        for name in NAMES
        for setup in catalogue.read_workload(name).hosts.values()
        for source in (*setup.files.values(), setup.script)
    }
    stored = {
        path
        for path in catalogue.WORKLOADS_DIRECTORY.rglob("*")
        if path.is_file()
        and path.name not in ("target.yaml", "workload.yaml", ".gitkeep")
        and catalogue.RESULTS_DIRECTORY not in path.parents
    }
    assert stored - used == set()


def test_results_are_those_of_workloads() -> None:
    for file in catalogue.RESULTS_DIRECTORY.glob("*.json"):
        assert json.loads(file.read_text())["workload"] == file.stem
        assert file.stem in NAMES


def test_the_page_is_the_generated_one() -> None:
    shown = page.PAGE.read_text(encoding="utf-8")
    assert shown == page.format_page(), "run python -m scripts.workloads --page"


def test_the_table_of_the_readme_is_the_generated_one() -> None:
    readme = page.README.read_text(encoding="utf-8")
    assert readme == page.format_readme(readme), "run python -m scripts.workloads --page"
