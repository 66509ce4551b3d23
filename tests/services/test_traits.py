from __future__ import annotations

import pytest

from autotune.loads import k6
from autotune.loads.base import ProcessLimits
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.httperf_sessions import SessionGenerator
from autotune.loads.target_request import find_traits
from autotune.report import parameters
from autotune.services.base import Effect, LoadTrait, on_reload, with_guidance
from autotune.services.registry import SHIPPED
from autotune.space.dimension import Dimension
from autotune.space.space import SearchSpace
from autotune.target.model import Load

NONE: frozenset[LoadTrait] = frozenset()


@pytest.mark.parametrize(
    ("url", "limits", "expected"),
    [
        (None, k6.PROCESS_LIMITS, set()),
        ("https://shop.example/", k6.PROCESS_LIMITS, {LoadTrait.TLS, LoadTrait.TLS_REUSE}),
        ("http://shop.example/", HttperfGenerator.limits, {LoadTrait.CHURN}),
        ("https://shop.example/", HttperfGenerator.limits, {LoadTrait.TLS, LoadTrait.CHURN}),
        (
            "https://shop.example/",
            SessionGenerator.limits,
            {LoadTrait.TLS, LoadTrait.TLS_REUSE, LoadTrait.CHURN},
        ),
    ],
)
def test_a_load_has_the_traits_that_its_target_and_generator_give_it(
    url: str | None, limits: ProcessLimits, expected: set[LoadTrait]
) -> None:
    assert find_traits(Load(url=url), limits) == expected


def test_a_load_raises_only_the_classes_of_what_it_makes_decisive() -> None:
    declared = with_guidance(
        tuple(
            on_reload(name, "-", low=0, high=9, stock=1, source="-")
            for name in ("workers", "timeout", "buffer")
        ),
        capacity="workers", decides={LoadTrait.TLS: "timeout"},
    )  # fmt: skip
    space = SearchSpace(tuple(Dimension(f"lb.x.{p.name}", p, 1, 0, 9) for p in declared), (), {})

    def core(load: frozenset[LoadTrait]) -> list[str]:
        return [
            dimension.parameter.name for dimension in space.with_load_traits(load).core_dimensions
        ]

    assert core(NONE) == core(frozenset({LoadTrait.CHURN})) == ["workers"]
    assert core(frozenset({LoadTrait.TLS})) == ["workers", "timeout"]


def test_names_that_are_no_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="timeout"):
        with_guidance((), decides={LoadTrait.TLS: "timeout"})


@pytest.mark.parametrize("trait", LoadTrait)
def test_every_trait_makes_a_parameter_decisive_that_hardly_matters_otherwise(
    trait: LoadTrait,
) -> None:
    decided = [p for s in SHIPPED.services for p in s.parameters if trait in p.decides]
    assert any(p.effect is not Effect.CAPACITY for p in decided)
    assert all(parameters.TRAIT_LABELS[trait] in parameters.format_effect(p) for p in decided)
