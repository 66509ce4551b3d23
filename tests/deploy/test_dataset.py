"""What a cache is filled with is what it would hold after a long while under the load."""

from __future__ import annotations

import pytest

from autotune.deploy import dataset
from autotune.target.model import Data

KEYS = 1000


def test_the_most_popular_keys_come_last() -> None:
    keys = dataset.list_cached_keys(Data(pairs=100_000))
    assert len(keys) == len(set(keys)) > 50_000
    ranks = [int(key.removeprefix("k")) for key in keys]
    assert max(ranks) < 100_000
    hottest = set(range(KEYS))
    last, first = (len(hottest.intersection(part)) for part in (ranks[-KEYS:], ranks[:KEYS]))
    assert last > KEYS / 4
    assert first == 0


@pytest.mark.long
def test_of_many_pairs_only_so_many_are_hot() -> None:
    keys = dataset.list_cached_keys(Data(pairs=10**9))
    assert len(keys) == dataset.MAX_CACHED_PAIRS
    assert keys == dataset.list_cached_keys(Data(pairs=10**9))
