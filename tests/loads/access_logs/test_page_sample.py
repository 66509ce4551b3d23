"""A sample of pages keeps frequent pages, its size, and the share of each group."""

from __future__ import annotations

import pytest

from autotune.loads.access_logs import page_sample
from autotune.loads.access_logs.page_sample import PageSample


def test_few_pages_are_exact() -> None:
    sample = PageSample()
    for page in (b"a", b"b", b"a"):
        sample.add(page)
    sample.reduce(2)
    assert [*sample.list_weights()] == [(b"a", 2), (b"b", 1)]
    assert not sample.was_reduced


def test_frequent_pages_keep_their_count_and_groups_their_share() -> None:
    sample = PageSample()
    sample.add(b"frequent", 100_000)
    for n in range(3000):
        sample.add(b"search %d" % n, 3)
        sample.add(b"item %d" % n, 1)
    sample.reduce(600)
    weights = dict(sample.list_weights())
    assert len(weights) == 600
    assert weights[b"frequent"] == 100_000
    for group, expected in ((b"search", 9000), (b"item", 3000)):
        share = sum(weight for page, weight in weights.items() if page.startswith(group))
        assert share == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("limit", ["MAX_HELD_PAGES", "MAX_HELD_BYTES"])
def test_memory_is_bounded_and_the_total_kept(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sample, limit, 1000 if limit == "MAX_HELD_PAGES" else 20_000)
    sample = PageSample()
    for n in range(20_000):
        sample.add(b"/page/%06d" % n)
        sample.add(b"/")
        assert len(sample.counts) <= 1700
    weights = dict(sample.list_weights())
    assert weights.pop(b"/") == 20_000
    assert sum(weights.values()) == pytest.approx(20_000, rel=0.2)


def test_the_same_log_gives_the_same_sample() -> None:
    samples = [PageSample(), PageSample()]
    for sample in samples:
        for n in range(500):
            sample.add(b"%d" % n)
        sample.reduce(50)
    assert [*samples[0].list_weights()] == [*samples[1].list_weights()]


def test_rare_pages_next_to_frequent_ones_are_represented() -> None:
    sample = PageSample()
    for number in range(10):
        sample.add(b"GET /%d" % number, 1000)
    sample.add(b"GET /rare", 1)
    sample.reduce(10)
    assert len(sample.counts) == 10
    assert sum(map(sample.weigh, sample.counts)) == pytest.approx(10_001)
