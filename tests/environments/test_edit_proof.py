"""Edits are proven by what the software reads: those without effect are not tuned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.environments.edit_proof import EditProof, list_alternatives, prove_edits
from autotune.services.base import Action, Parameter, Settings, Value
from autotune.space.dimension import Dimension
from autotune.space.parameter_caps import ParameterCap
from autotune.space.space import SearchSpace


def number(name: str, baseline: float, low: float, high: float, **more: Any) -> Dimension:
    parameter = Parameter(
        name.rpartition(".")[2], "", stock=baseline, action=Action.RELOAD, source=""
    )
    return Dimension(name, parameter, baseline, low, high, **more)


def choice(name: str, baseline: Value, *choices: Value, **more: Any) -> Dimension:
    parameter = Parameter(
        name.rpartition(".")[2], "", stock=baseline, action=Action.RELOAD, source=""
    )
    return Dimension(name, parameter, baseline, choices=choices, **more)


DIMENSIONS = (
    number("web.server.workers", 4, 1, 64),
    number("web.server.timeout", 5.0, 1.0, 60.0),
    choice("web.server.mode", "static", "static", "dynamic"),
    number("web.server.spare", 3, 1, 9, conditions=(("web.server.mode", ("dynamic",)),)),
)


def instance(host: str, service: str = "server", *, answers: bool = True) -> Any:
    placement = SimpleNamespace(adopted=SimpleNamespace(files=("conf",)))
    readbacks = ("command",) if answers else ()
    return SimpleNamespace(
        name=f"web.{host}.{service}",
        parameter_prefix=f"web.{service}",
        placement=placement,
        service=SimpleNamespace(list_file_readbacks=lambda _: readbacks),
    )


class Software:
    """Reads settings as files would mean; ``read`` changes what it reads."""

    def __init__(self, read: Callable[[Settings], Settings] = dict) -> None:
        self.read, self.exchanges = read, 0

    def __call__(self, cases: Sequence[tuple[Any, Settings]]) -> list[Mapping[str, Value]]:
        self.exchanges += 1
        return [
            {name.rpartition(".")[2]: v for name, v in self.read(settings).items()
             if name.startswith(f"{part.parameter_prefix}.")}
            for part, settings in cases
        ]  # fmt: skip


def prove(
    software: Software, *instances: Any, dimensions: Sequence[Dimension] = DIMENSIONS
) -> EditProof:
    space = SearchSpace(tuple(dimensions), (), {})
    return prove_edits(space, instances or (instance("web1"),), software)


def test_edits_that_take_effect_are_proven_at_once() -> None:
    software = Software()
    proof = prove(software, instance("web1"), instance("web2"))
    assert proof.proven == tuple(sorted(d.name for d in DIMENSIONS))
    assert (proof.refuted, proof.unproven) == ({}, ())
    assert software.exchanges == 2
    assert [*proof.describe_proven()] == [
        "edits that take effect, according to the software: web.server 4"
    ]


def ignores_workers(settings: Settings) -> Settings:
    return {**settings, "web.server.workers": 4}


def rejects_workers(settings: Settings) -> Settings:
    return settings if settings["web.server.workers"] == 4 else {}


def doubles_workers(settings: Settings) -> Settings:
    timeout = 9.0 if settings["web.server.workers"] != 4 else settings["web.server.timeout"]
    return {**settings, "web.server.timeout": timeout}


def reads_even_workers(settings: Settings) -> Settings:
    return {**settings, "web.server.workers": int(settings["web.server.workers"]) // 2 * 2}


def hides_workers(settings: Settings) -> Settings:
    return {name: value for name, value in settings.items() if name != "web.server.workers"}


CASES = [
    (ignores_workers, "an edit to 2 has no effect: the software reads 4"),
    (rejects_workers, "the software rejects 2 in its files"),
    (doubles_workers, "an edit also changes timeout"),
]


@pytest.mark.parametrize(("read", "reason"), CASES)
def test_an_edit_without_its_effect_is_refuted_with_the_reason(
    read: Callable[[Settings], Settings], reason: str
) -> None:
    proof = prove(Software(read))
    assert proof.refuted == {"web.server.workers": reason}
    assert "web.server.timeout" in proof.proven
    assert len(proof.proven) == 3


def test_a_value_that_the_software_rounds_is_tried_with_another() -> None:
    assert prove(Software(reads_even_workers)).refuted == {}


def test_what_the_software_does_not_print_is_not_proven_and_named() -> None:
    proof = prove(Software(hides_workers))
    assert proof.unproven == ("web.server.workers",)
    assert "web.server.workers" not in proof.refuted
    silent = prove(Software(), instance("web1", answers=False))
    assert len(silent.unproven) == len(DIMENSIONS)
    assert [*silent.describe_unproven()] == [
        "web.server: effect of edits to mode, spare, timeout, workers (its program does not print them)"
    ]


def test_what_cannot_be_changed_now_is_not_proven_and_named() -> None:
    """The kernel's limit is the lowest value in the range, as long as the study does not raise it."""
    dimensions = (number("web.server.backlog", 4, 4, 64), *DIMENSIONS)
    caps = {"web.server.backlog": ParameterCap("net.core.somaxconn", {"web1": 4})}
    space = SearchSpace(dimensions, (), {}, caps=caps)
    proof = prove_edits(space, [instance("web1")], Software())
    assert proof.untested == ("web.server.backlog",)
    assert proof.proven == tuple(sorted(d.name for d in DIMENSIONS))
    assert (proof.refuted, proof.unproven) == ({}, ())
    assert [*proof.describe_unproven()] == [
        "web.server: effect of edits to backlog (the rules currently allow no other value)"
    ]


def test_every_host_must_read_the_value() -> None:
    class Second(Software):
        def __call__(self, cases: Sequence[tuple[Any, Settings]]) -> list[Mapping[str, Value]]:
            values = super().__call__(cases)
            return [
                {**own, "workers": 4} if part.name == "web.web2.server" else own
                for own, (part, _) in zip(values, cases, strict=True)
            ]

    proof = prove(Second(), instance("web1"), instance("web2"))
    assert list(proof.refuted) == ["web.server.workers"]


def test_hosts_without_edited_files_are_not_asked() -> None:
    whole = instance("web1")
    whole.placement.adopted = None
    assert prove(Software(), whole) == EditProof()


@pytest.mark.parametrize(
    ("dimension", "alternatives"),
    [
        (number("a.b.c", 4, 1, 64), (5, 8, 2)),
        (number("a.b.c", 64, 1, 64), (32, 63, 1)),
        (number("a.b.c", 0.5, 0.0, 1.0), (1.0, 0.25, 0.0)),
        (choice("a.b.c", False, False, True), (True,)),
        (number("a.b.c", 7, 7, 7), ()),
    ],
)
def test_alternatives_are_other_allowed_values(
    dimension: Dimension, alternatives: tuple[Value, ...]
) -> None:
    assert list_alternatives(dimension) == alternatives
