"""Several deployments for a tier: one more dimension, the parameters of the others without effect."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.space.dimension import NAMED_SETTINGS
from autotune.space.space import SearchSpace
from tests.space.targets import fleet
from tests.space.test_built_in import sampled

BOTH = "service: [nginx+php-fpm, apache+mod_php]"


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> SearchSpace:
    more = "constraints: ['web.workers * count(web.hosts) <= 300']\n"
    change = ("lb: {hosts: lb1, service: nginx", "lb: {hosts: lb1, service: [nginx, apache]")
    return fleet(tmp_path_factory.mktemp("choices"), more, change, ("service: nginx+php-fpm", BOTH))


def test_the_choice_is_a_dimension_and_its_first_is_the_baseline(space: SearchSpace) -> None:
    chosen = {d.name: d.choices for d in space.tunable_dimensions if d.name.endswith(".service")}
    assert chosen == {
        "lb.service": ("nginx", "apache"),
        "web.service": ("nginx+php-fpm", "apache+mod_php"),
    }
    assert space.baseline["lb.service"] == "nginx"
    assert space.deployments == (
        {"lb.service": "nginx", "web.service": "nginx+php-fpm"},
        {"lb.service": "nginx", "web.service": "apache+mod_php"},
        {"lb.service": "apache", "web.service": "nginx+php-fpm"},
        {"lb.service": "apache", "web.service": "apache+mod_php"},
    )


def test_parameters_of_the_others_have_no_effect(space: SearchSpace) -> None:
    for deployment in space.deployments:
        acting = space.active_parameters(space.preset_settings("recommended", deployment))
        services = {".".join(name.split(".")[:2]) for name in acting}
        assert ("lb.nginx" in services) == (deployment["lb.service"] == "nginx")
        assert ("lb.apache" in services) == (deployment["lb.service"] == "apache")
        assert ("web.php_fpm" in services) == (deployment["web.service"] == "nginx+php-fpm")
        assert ("web.apache" in services) == (deployment["web.service"] == "apache+mod_php")
        assert {"cache.memcached", "store.redis"} <= services


def test_every_preset_exists_for_every_deployment(space: SearchSpace) -> None:
    presets = list(space.iterate_presets(NAMED_SETTINGS))
    assert [name for name, _ in presets] == [name for name in NAMED_SETTINGS for _ in range(4)]
    assert presets[0][1] == space.baseline
    assert [{name: settings[name] for name in space.deployments[0]} for _, settings in presets] == [
        *space.deployments
    ] * len(NAMED_SETTINGS)
    assert list(space.iterate_presets()) == presets[4:]


def test_a_rule_about_a_tier_is_over_what_runs_there(space: SearchSpace) -> None:
    asked = {"web.php_fpm.max_children": 200, "web.apache.MaxRequestWorkers": 500}
    php = space.build_candidate({"web.service": "nginx+php-fpm", **asked})
    assert php.settings["web.php_fpm.max_children"] == 150
    assert php.settings["web.apache.MaxRequestWorkers"] == 500
    apache = space.build_candidate({"web.service": "apache+mod_php", **asked})
    assert apache.settings["web.php_fpm.max_children"] == 200
    assert apache.settings["web.apache.MaxRequestWorkers"] == 150
    assert apache.settings["web.apache.ServerLimit"] == 256


@pytest.mark.long
def test_no_candidate_of_a_thousand_breaks_a_rule_that_applies(space: SearchSpace) -> None:
    rng = random.Random(7)
    product_bound = 0
    for _ in range(1000):
        candidate = space.build_candidate(
            {d.name: sampled(d, rng) for d in space.tunable_dimensions}
        )
        settings = candidate.settings
        for rule in space.constraints:
            assert not rule.applies(settings) or space.is_kept(rule, settings), rule.text
        workers = int(settings["lb.apache.ServerLimit"]) * int(
            settings["lb.apache.ThreadsPerChild"]
        )
        assert settings["lb.apache.MaxRequestWorkers"] == workers
        changed = {b.parameter.partition(".")[0] for b in candidate.repairs
                   if ".apache." in b.parameter}  # fmt: skip
        assert all("apache" in str(settings[f"{tier}.service"]) for tier in changed)
        product_bound += any(b.parameter.startswith("lb.apache.") for b in candidate.repairs)
    assert product_bound > 0


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("web.service: {choices: [nginx+php-fpm, iis]}", "cannot be 'iis'"),
        ("web.service: {range: [1, 2]}", "takes choices, not a range"),
        ("store.service: {fixed: redis}", "unknown parameter 'store.service'"),
    ],
)
def test_a_choice_is_adjusted_like_any_parameter(tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(TargetError, match=said):
        fleet(tmp_path, f"parameters: {{{rule}}}\n", ("service: nginx+php-fpm", BOTH))


def test_what_the_fixed_choice_leaves_out_is_not_searched(tmp_path: Path) -> None:
    rule = "parameters: {web.service: {fixed: apache+mod_php}}\n"
    fixed = fleet(tmp_path, rule, ("service: nginx+php-fpm", BOTH))
    services = {".".join(d.name.split(".")[:2]) for d in fixed.tunable_dimensions}
    assert "web.apache" in services
    assert not {"web.nginx", "web.php_fpm", "web.service"} & services
    assert fixed.deployments == ({"web.service": "apache+mod_php"},)
