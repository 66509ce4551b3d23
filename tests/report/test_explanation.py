"""`autotune explain` as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.optimize.model_view import (
    InteractingPair,
    ModelView,
    ParameterEffect,
    RangeEdge,
)
from autotune.optimize.reversal_cost import ReversalCost
from autotune.report.explanation import Explanation, format_explanation
from autotune.report.importance import ImportanceRow, build_importance_rows
from autotune.report.studies import Study
from autotune.report.view import build_study_view
from autotune.study.study_state import Phase, Trial

Opened = Callable[[str], Study]
EDGE = RangeEdge("a.b.c", 64, "high", (8, 128))


@pytest.mark.parametrize("configurations", [1, 9, 10, 40])
def test_costs_come_first_and_too_few_configurations_show_none(
    configurations: int, study: Opened
) -> None:
    explanation = Explanation(
        2, configurations,
        {"lb.nginx.use": ReversalCost(0.3, 0.01), "web.nginx.use": ReversalCost(0.1, 0.1)},
        (ImportanceRow(("lb.nginx.use", "lb.nginx.backlog"), 0.2, 0.05, 5),),
        ModelView((), (InteractingPair("a", "b", 0.1),), (EDGE,), {}),
    )  # fmt: skip
    text = format_explanation(build_study_view(study("improved")), explanation)
    indented = [" ".join(line.split()) for line in text.splitlines() if line.startswith("  ")]
    assert indented == (
        [
            "lb.nginx.use -26 % [-27, -25]",
            "web.nginx.use not distinguishable",
            "lb.nginx.use + lb.nginx.backlog ±20.0 % [15.0, 25.0] changed in 5",
            "a × b: ±10.0 %",
        ]
        if configurations >= 10
        else []
    )
    assert ("try {range: [8, 128]}" in text) is (configurations >= 10)
    assert (f"{configurations} configuration" in text) is True


def test_settings_that_changed_together_share_a_row() -> None:
    trials = [
        Trial(n, Phase.SEARCH, {"a": n % 2, "b": 10 * (n % 2), "c": n}) for n in range(4)
    ]  # fmt: skip
    effects = [ParameterEffect(name, 0.1, 0.01) for name in ("a", "b", "c")]
    rows = build_importance_rows(effects, trials, trials[0])
    assert [(row.names, row.changed_in) for row in rows] == [(("a", "b"), 2), (("c",), 3)]
    assert rows[0].effect == pytest.approx(0.2)
    assert rows[0].half_width == pytest.approx(2 * 1.645 * 0.01)


@pytest.mark.parametrize(
    ("name", "is_offered"), [("improved", True), ("aa", False), ("killed", False)]
)
def test_only_a_proven_gain_can_be_reduced(name: str, is_offered: bool, study: Opened) -> None:
    explanation = Explanation(2, 40, {}, (), ModelView((), (), (), {}))
    text = format_explanation(build_study_view(study(name)), explanation)
    assert ("`--measure` finds" in text) is is_offered
