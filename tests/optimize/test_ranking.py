from __future__ import annotations

from autotune.optimize.ranking import Scored, pooled_peak, winner


def test_a_lucky_first_reading_loses_to_a_confirmed_one() -> None:
    first = [Scored(1, 1300, 0.03), Scored(2, 1200, 0.03), Scored(3, 1250, 0.03)]
    again = {1: [Scored(1, 1050, 0.03)], 2: [Scored(2, 1210, 0.03)]}
    assert winner(first, again) == 2  # 3 was not measured again: it cannot win


def test_precise_measurements_weigh_more() -> None:
    assert pooled_peak([Scored(1, 1000, 0.02), Scored(1, 2000, 0.2)]) < 1010


def test_nothing_measured_no_winner() -> None:
    assert winner([], {}) is None
