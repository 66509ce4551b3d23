"""Records that wait until the next transaction, without a database."""

from __future__ import annotations

from autotune.study.shared_store import _merge_spent_records


def test_times_spent_are_merged_and_other_waiting_records_are_kept() -> None:
    warm_up = {"event": "warm-up", "trial": 0}
    spent = [{"event": "spent", "seconds": seconds} for seconds in ({"load": 1.0}, {"load": 2.0})]
    assert _merge_spent_records([spent[0], warm_up, spent[1]]) == [
        warm_up, {"event": "spent", "seconds": {"load": 3.0}}
    ]  # fmt: skip
    assert _merge_spent_records([warm_up]) == [warm_up]
