"""The benchmark of spending runs whole studies on modelled stacks."""

from __future__ import annotations

from bench.spending import TENTHS, ours


def test_a_short_study_of_a_modelled_stack_is_judged_at_every_tenth() -> None:
    """The stack makes its workers wait for a store: the presets are too small by factors."""
    course = ours("io-wait", 2000, 300.0, warm=True)
    assert len(course.regrets) == TENTHS
    assert course.tried > 2
    assert course.regrets[-1] < 50.0 < course.regrets[0]
