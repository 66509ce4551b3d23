from __future__ import annotations

import pytest

from autotune.loads.of_target import traits
from autotune.report import parameters
from autotune.services.base import Effect, Trait, guided, on_reload
from autotune.services.registry import ALL
from autotune.space.dimension import Dimension
from autotune.space.space import Space
from autotune.target.model import Load

NONE: frozenset[Trait] = frozenset()


@pytest.mark.parametrize(
    ("url", "kept", "expected"),
    [
        (None, True, set()),
        ("https://shop.example/", True, {Trait.TLS}),
        ("http://shop.example/", False, {Trait.CHURN}),
        ("https://shop.example/", False, {Trait.TLS, Trait.CHURN}),
    ],
)
def test_a_load_has_the_traits_that_its_target_and_generator_give_it(
    url: str | None, kept: bool, expected: set[Trait]
) -> None:
    assert traits(Load(url=url), kept=kept) == expected


def test_a_load_raises_only_the_classes_of_what_it_makes_decisive() -> None:
    declared = guided(
        tuple(
            on_reload(name, "-", low=0, high=9, stock=1, source="-")
            for name in ("workers", "timeout", "buffer")
        ),
        capacity="workers", decides={Trait.TLS: "timeout"},
    )  # fmt: skip
    space = Space(tuple(Dimension(f"lb.x.{p.name}", p, 1, 0, 9) for p in declared), (), {})

    def core(load: frozenset[Trait]) -> list[str]:
        return [dimension.parameter.name for dimension in space.under(load).core]

    assert core(NONE) == core(frozenset({Trait.CHURN})) == ["workers"]
    assert core(frozenset({Trait.TLS})) == ["workers", "timeout"]


def test_names_that_are_no_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="timeout"):
        guided((), decides={Trait.TLS: "timeout"})


@pytest.mark.parametrize("trait", Trait)
def test_every_trait_makes_a_parameter_decisive_that_hardly_matters_otherwise(trait: Trait) -> None:
    decided = [p for s in ALL for p in s.parameters if trait in p.decides]
    assert any(p.effect is not Effect.CAPACITY for p in decided)
    assert all(parameters.LOADS[trait] in parameters.effect(p) for p in decided)
