"""How much sooner several beds find what one finds, from when each study tried what."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from autotune.study.study_state import State
from autotune.study.verdict import Verdict
from bench.beds import Study, efficiency

VERDICT = Verdict("no-improvement", None, None)


def studies(seed: int, beds: int = 1, trials: int = 60) -> list[Study]:
    """Of a search that is lucky now and then, and less and less so."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(20):
        steps = rng.exponential(0.05, trials) * (rng.random(trials) < 0.15)
        peaks = np.exp(7.0 + np.cumsum(steps / np.arange(1, trials + 1) ** 0.5))
        times = 15.0 * (np.arange(trials) // beds + 1)
        curve = tuple(zip(times.tolist(), peaks.tolist(), strict=True))
        made.append(Study(State(), VERDICT, curve, 0.0))
    return made


@pytest.mark.parametrize("beds", [1, 8])
def test_beds_that_search_as_well_as_one_are_as_efficient(beds: int) -> None:
    found = [efficiency(studies(seed, trials=40), studies(1000 + seed, beds), beds)
             for seed in range(40)]  # fmt: skip
    assert np.median([ratio or 0.0 for ratio in found]) == pytest.approx(1.0, abs=0.2)


def test_beds_that_never_find_it_have_no_efficiency() -> None:
    flat = [Study(State(), VERDICT, ((15.0, exp(7.0)),), 0.0)] * 20
    assert efficiency(studies(1), flat, 8) is None
