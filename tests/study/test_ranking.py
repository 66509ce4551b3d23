"""Which configurations are measured again once the search has ended."""

from __future__ import annotations

import pytest

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.study.ranking import finalists
from autotune.study.records import Phase, State, Trial

Placed = tuple[Phase, float]
STOCK, ADVICE, OTHER = Phase.BASELINE, Phase.RECOMMENDED, Phase.SEARCH


def believed(*peaks: Placed, sd: float = 0.05) -> State:
    """A searched state: where the model stands on each trial, in order."""
    measured = Peak(100.0, 90.0, 110.0, sd, "measured")
    trials = [Trial(n, phase, {}, peak=measured) for n, (phase, _) in enumerate(peaks)]
    posterior = PosteriorPeaks({n: Estimate.of(peak, sd) for n, (_, peak) in enumerate(peaks)}, sd)
    return State(trials=tuple(trials), posterior=posterior)


@pytest.mark.parametrize(
    ("peaks", "chosen"),
    [
        # The baseline is measured for the proof anyway.
        ([(STOCK, 200.0), (OTHER, 120.0), (OTHER, 110.0)], (1, 2)),
        # What guides advise comes before another lucky one, as long as it may be the best …
        ([(STOCK, 90.0), (ADVICE, 112.0), (OTHER, 120.0), (OTHER, 115.0)], (2, 1)),
        ([(STOCK, 90.0), (ADVICE, 120.0), (OTHER, 112.0), (OTHER, 115.0)], (1, 3)),
        # … the better of two of them, and none that is clearly behind.
        ([(STOCK, 90.0), (ADVICE, 110.0), (ADVICE, 112.0), (OTHER, 120.0), (OTHER, 119.0)], (3, 2)),
        ([(STOCK, 90.0), (ADVICE, 80.0), (OTHER, 120.0), (OTHER, 115.0)], (2, 3)),
    ],
)  # fmt: skip
def test_the_leaders_and_the_best_advice(peaks: list[Placed], chosen: tuple[int, ...]) -> None:
    assert finalists(believed(*peaks), most=2, least=2) == chosen


def test_more_of_them_where_they_are_hard_to_tell_apart() -> None:
    peaks = [(STOCK, 90.0), (OTHER, 120.0), (OTHER, 119.0), (OTHER, 118.0), (OTHER, 60.0)]
    assert finalists(believed(*peaks), most=4, least=2) == (1, 2, 3)
