"""Whole studies of the benchmark, in memory."""

from __future__ import annotations

import pytest

from autotune.study.study_state import Phase
from bench.claims import TRIALS, one_effect, without_effect
from bench.stacks import Stack
from bench.studies import study


@pytest.mark.parametrize("kind", ["random", "gp"])
@pytest.mark.parametrize(
    "stack", [without_effect(), one_effect(0.25)], ids=lambda stack: stack.name
)
def test_studies_end_with_a_verdict(stack: Stack, kind: str) -> None:
    """Some of them estimate the cost of reverting changes, which is a step of its own."""
    studies = [study(stack, kind=kind, trials=TRIALS, seed=seed) for seed in range(12)]
    assert {done.verdict.verdict for done in studies} <= {"improved", "no-improvement"}
    assert all(done.state.list_started_trials(Phase.CONFIRM) for done in studies)
    assert any(done.state.cost_trial is not None for done in studies)
