from __future__ import annotations

import pytest

from autotune.space.space import SearchSpace
from bench import catalogue
from bench.search import PARTS, SPOILT, Case, Probes
from bench.stacks import Stack, _climb, number


@pytest.mark.parametrize(("name", "parameters"), [("local/even", 45), ("lab/thin-lb", 100)])
def test_it_is_the_whole_space_of_a_shipped_target(name: str, parameters: int) -> None:
    gains = []
    for seed in (1, 2, 3, 4):
        stack = catalogue.stack(name, seed)
        assert len(stack.space.tunable_dimensions) >= parameters
        assert len(stack.active) < len(stack.space.tunable_dimensions)  # the others do nothing
        peaks = [stack.peak(settings) or 0.0 for settings in catalogue.presets(stack.space)]
        assert peaks[0] > 0
        gains.append(max(peaks) / peaks[0])
    assert max(gains) > 1.05  # the effects of presets are random


def test_another_seed_has_other_effects() -> None:
    one, other = (catalogue.problem("local/even", seed).effects for seed in (1, 2))
    assert set(one) != set(other)


@pytest.mark.parametrize("parts", PARTS)
def test_what_trials_tell_can_be_missing_and_wrong(parts: str) -> None:
    case = Case("catalogue", "local/even", 1, parts)
    probes = Probes(case)
    baseline = case.stack.space.baseline
    notes = [probes.notes(baseline, 100.0) for _ in range(20)]
    told = [note.get("capacities", "").count(".cpu") for note in notes]
    assert max(told) == (0 if parts == "none" else 4)
    assert (min(told) < 4) == (parts in ("none", SPOILT))


def test_the_optimum_leaves_what_cannot_be_tuned_as_it_is() -> None:
    space = SearchSpace((number("t.s.a", 1, 100, 5), number("t.s.fixed", 2, 2, 2)), (), {})
    stack = Stack("slope", space, lambda settings: float(settings["t.s.a"]), frozenset({"t.s.a"}))
    assert _climb(stack, space.baseline) == (100.0, {"t.s.a": 100, "t.s.fixed": 2})
