from __future__ import annotations

from spaces import SPACE

from autotune.estimate import Estimate
from autotune.optimize.ranking import find_winner, transfer_settings
from autotune.services.base import Value


def peak(value: float) -> Estimate:
    return Estimate.from_value(value, 0.03)


def test_a_lucky_first_reading_loses_to_a_confirmed_one() -> None:
    first = {1: peak(1300), 2: peak(1200), 3: peak(1250)}
    again = {1: [peak(1050)], 2: [peak(1210)]}
    assert find_winner(first, again) == 2  # 3 was not measured again: it cannot win


def test_nothing_measured_no_winner() -> None:
    assert find_winner({}, {}) is None


STOCK = {"web.x.children": 5, "web.x.threads": 1, "db.x.pool": 10}


def test_changes_that_exist_here_come_over_best_first_and_within_bounds() -> None:
    ranked = [{**STOCK, "web.x.children": 900}, {**STOCK, "web.x.threads": 2}]
    assert transfer_settings(ranked, STOCK, SPACE) == (
        {"web.x.children": 256},
        {"web.x.threads": 2},
    )


def test_the_same_here_is_tried_once_and_what_hardly_applies_not_at_all() -> None:
    same = {**STOCK, "web.x.children": 900}
    other = {**STOCK, "web.x.children": 901}
    foreign = {**STOCK, "db.x.pool": 20, "db.x.size": 4, "web.x.threads": 3}
    assert transfer_settings([same, other, foreign], STOCK, SPACE) == ({"web.x.children": 256},)


def test_no_more_than_a_few() -> None:
    ranked = [{**STOCK, "web.x.children": n} for n in range(10, 20)]
    assert len(transfer_settings(ranked, STOCK, SPACE)) == 3


def test_a_word_is_not_transferred_to_a_parameter_that_is_now_a_number() -> None:
    stock: dict[str, Value] = {**STOCK, "web.x.children": "few"}
    ranked: list[dict[str, Value]] = [
        {**stock, "web.x.children": "many"},
        {**stock, "web.x.threads": 2},
    ]
    assert transfer_settings(ranked, stock, SPACE) == ({"web.x.threads": 2},)
