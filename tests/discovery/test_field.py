"""Configurations as they are found in the field, valid and unusual: what counts in them is adopted, one
line is edited, and what cannot be tuned is said in words."""

from __future__ import annotations

from dataclasses import replace
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.config_text import decode
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tier_adoption import AdoptedTier, check_templates
from autotune.discovery.tiers import find_instances
from autotune.services.adoption import Listener
from autotune.space.facts import HostFacts
from tests.discovery.places import host
from tests.discovery.test_tier_adoption import adopted, given_back, rendered

FIELD = Path(__file__).parent / "field"
CASES = [pytest.param(path.stem, case, id=f"{path.stem}-{case['name']}")
         for path in sorted(FIELD.glob("*.yaml")) for case in YAML(typ="safe").load(path)]  # fmt: skip


def found_of(case: dict[str, Any]) -> DiscoveredHost:
    return replace(
        host("h1", "10.0.0.9", case["files"], *case.get("units", ()), links=case.get("links")),
        facts=HostFacts(4, 8 * 2**30, 524_288), processors=4, backlogs=case.get("listening", {}),
        effective={(deployment, port, service): values
                   for deployment, port, service, values in case.get("effective", ())},
        listeners=tuple(Listener(program, port, is_local=False)
                        for program, port in case.get("programs", {}).items()),
    )  # fmt: skip


def tier_of(found: DiscoveredHost, deployment: str) -> AdoptedTier:
    (tier,) = (t for t in adopted(found).values() if t.discovered_tier.deployment == deployment)
    return tier


@pytest.mark.parametrize(("service", "case"), CASES)
def test_what_counts_is_adopted_and_one_line_edited(service: str, case: dict[str, Any]) -> None:
    found = found_of(case)
    running, notes = find_instances(found)
    if "refused" in case:
        assert [i.deployment for i in running if service in i.services] == []
        for why in [case["refused"]] if isinstance(case["refused"], str) else case["refused"]:
            assert [note for note in notes if why in note], notes
        return
    tier = tier_of(found, case.get("deployment", service))
    check_templates(tier)
    assert tier.discovered_tier.port == case.get("port", tier.discovered_tier.port)
    values = {name.partition(".")[2]: value for name, value in tier.baseline_values.items()}
    assert {name: values.get(name) for name in case["values"]} == case["values"]
    left = {name.partition(".")[2]: why for name, why in tier.skipped.items()}
    for name, why in case.get("left", {}).items():
        assert why in left.get(name, "")
    assert not {*left} & {*values}
    unread = {why for i in running for config in i.configs.values() for why in config.unread_files}
    assert unread == {*case.get("unread", ())}
    if not case.get("changed"):
        return
    before = {f"h1{path}": decode(text) for path, text in found.tree.files.items()}
    given_back(tier, replace(found, tree=replace(found.tree, files={
        path: found.tree.files.get(path, b"") for path in {
            file.path for own in tier.adopted_configs.values() for file in own.files}})))  # fmt: skip
    after = rendered(tier, case["changed"])
    edited = [line for path, text in after.items()
              for line in ndiff(before.get(path, "").splitlines(), text.splitlines())
              if line[0] in "+-"]  # fmt: skip
    assert sorted(edited) == sorted(case["lines"])
