from __future__ import annotations

from autotune.estimate import Estimate
from autotune.optimize.ranking import winner


def peak(value: float) -> Estimate:
    return Estimate.of(value, 0.03)


def test_a_lucky_first_reading_loses_to_a_confirmed_one() -> None:
    first = {1: peak(1300), 2: peak(1200), 3: peak(1250)}
    again = {1: [peak(1050)], 2: [peak(1210)]}
    assert winner(first, again) == 2  # 3 was not measured again: it cannot win


def test_nothing_measured_no_winner() -> None:
    assert winner({}, {}) is None
