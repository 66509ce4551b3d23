"""Values that the kernel caps: the same configuration as what takes effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.services.base import Action, Parameter
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.parameter_caps import Clamp
from autotune.space.space import SearchSpace
from tests.space.targets import ROOMY, fleet

BACKLOG = "web.php_fpm.listen_backlog"
KERNEL = "web.sysctl.net.core.somaxconn"


def host(somaxconn: int, *, tuned: bool) -> HostFacts:
    kernel = {"net.core.somaxconn": str(somaxconn)} if tuned else {}
    return HostFacts(ROOMY.cpus, ROOMY.memory, ROOMY.nofile, somaxconn, kernel_values=kernel)


@pytest.mark.parametrize(
    ("somaxconn", "asked", "effective"),
    [
        (4096, 23_170, 4096),
        (4096, 4096, 4096),
        (4096, 700, 700),
        (128, 23_170, 511),  # the baseline's own value is capped to 128 as well
        (128, 128, 511),
        (128, 100, 100),
    ],
)
def test_values_with_one_effect_are_one_configuration(
    tmp_path: Path, somaxconn: int, asked: int, effective: int
) -> None:
    space = fleet(tmp_path, "", web1=host(somaxconn, tuned=False))
    candidate = space.build_candidate({BACKLOG: asked})
    assert candidate.settings[BACKLOG] == effective
    assert candidate.settings == space.build_candidate({BACKLOG: effective}).settings
    named = [str(b) for b in candidate.repairs if b.parameter == BACKLOG]
    assert all(f"net.core.somaxconn of web1 = {somaxconn}" in text for text in named)
    assert bool(named) == (asked != effective)


def test_a_kernel_value_that_is_tuned_caps_by_what_the_candidate_has(tmp_path: Path) -> None:
    space = fleet(tmp_path, "", web1=host(4096, tuned=True))
    settings = space.build_candidate({BACKLOG: 23_170, KERNEL: 8192}).settings
    assert (settings[BACKLOG], settings[KERNEL]) == (8192, 8192)


def test_the_baseline_is_never_changed(tmp_path: Path) -> None:
    space = fleet(tmp_path, "", web1=host(64, tuned=False))
    assert space.build_candidate({}).settings == space.baseline
    assert space.build_candidate({}).repairs == ()


@pytest.mark.parametrize(
    ("clamp", "asked", "effective"),
    [
        (Clamp(maximum=1000), 4000, 1000),
        (Clamp(maximum=1000), 900, 900),
        (Clamp(minimum=80), 64, 80),
        (Clamp(minimum=80, maximum=1000), 2000, 1000),
        (Clamp(maximum=100), 300, 511),  # with the effect of the baseline, which is above the limit
    ],
)
def test_a_limit_that_a_deployment_showed_caps_as_a_known_one(
    tmp_path: Path, clamp: Clamp, asked: int, effective: int
) -> None:
    space = fleet(tmp_path, "", web1=host(65_535, tuned=False)).with_clamps({BACKLOG: clamp})
    candidate = space.build_candidate({BACKLOG: asked})
    assert candidate.settings[BACKLOG] == effective
    assert candidate.capped_parameters == ((BACKLOG,) if asked != effective else ())
    assert space.get_effective_settings({BACKLOG: asked}) == {BACKLOG: effective}
    assert space.has_same_effect(BACKLOG, effective, candidate.settings)
    assert space.has_same_effect(BACKLOG, asked, candidate.settings) is (asked == effective)


@pytest.mark.parametrize(
    "clamp", [Clamp(maximum=1000), Clamp(minimum=80), Clamp(maximum=100), Clamp(1e9)]
)
def test_the_searched_range_ends_at_the_limit(tmp_path: Path, clamp: Clamp) -> None:
    whole = fleet(tmp_path, "", web1=host(65_535, tuned=False))
    space = whole.with_clamps({BACKLOG: clamp})
    before, after = (next(d for d in s.dimensions if d.name == BACKLOG) for s in (whole, space))
    low, high = after.bounds
    assert before.bounds[0] <= low <= float(after.baseline) <= high <= before.bounds[1]
    assert low >= min(clamp.minimum, 511)
    assert high <= max(clamp.maximum, 511)
    assert space.with_clamps({"no.such.parameter": clamp}) is space


def test_choices_and_text_are_never_limited(tmp_path: Path) -> None:
    space = fleet(tmp_path, "", web1=host(4096, tuned=False))
    assert space.with_clamps({"web.php_fpm.pm": Clamp(maximum=1)}) is space


@pytest.mark.parametrize(("asked", "effective"), [(0, 0), (-1, -1), (5, 64), (64, 64), (90, 90)])
def test_a_limit_leaves_the_values_that_stand_for_a_default(asked: int, effective: int) -> None:
    parameter = Parameter("x", "-", stock=0, action=Action.RELOAD, source="-")
    whole = SearchSpace((Dimension("lb.nginx.x", parameter, 0, low=-1, high=512),), (), {})
    space = whole.with_clamps({"lb.nginx.x": Clamp(minimum=64, maximum=400)})
    assert space.build_candidate({"lb.nginx.x": asked}).settings == {"lb.nginx.x": effective}
    assert space.dimensions[0].bounds == (-1, 400)
