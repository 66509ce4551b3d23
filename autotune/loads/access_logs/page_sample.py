"""A bounded number of pages that represents all pages of a log.

Priority sampling (Duffield, Lund, Thorup 2007) keeps frequent pages with their counts, and a random
sample of the other pages. Sampled pages have larger weights, so that the expected weight of a group
of pages is the number of its requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

MAX_HELD_PAGES = 100_000
MAX_HELD_BYTES = 32 << 20


@dataclass
class PageSample:
    """Request counts by page. ``represented`` maps each kept page to the number of requests for
    dropped pages that it represents.

    ``was_reduced`` is true if pages were dropped.
    """

    counts: dict[bytes, int] = field(default_factory=dict)
    represented: dict[bytes, float] = field(default_factory=dict)
    held_bytes: int = 0
    was_reduced: bool = False
    _reductions: int = 0

    def add(self, page: bytes, count: int = 1) -> None:
        """Count requests for a page. If the pages need too much memory, some pages are dropped."""
        if page in self.counts:
            self.counts[page] += count
            return
        self.counts[page] = count
        self.held_bytes += len(page)
        if len(self.counts) > MAX_HELD_PAGES or self.held_bytes > MAX_HELD_BYTES:
            self.reduce(len(self.counts) // 4)

    def weigh(self, page: bytes) -> float:
        """Return a page's weight: its own requests plus the requests for dropped pages that it
        represents.
        """
        return self.counts[page] + self.represented.get(page, 0.0)

    def reduce(self, max_pages: int) -> None:
        """Keep at most ``max_pages`` pages, which then represent the dropped pages."""
        if len(self.counts) <= max_pages:
            return
        self._reductions += 1
        self.was_reduced = True
        seed = self._reductions
        priorities = {page: self.weigh(page) / _draw_number(page, seed) for page in self.counts}
        threshold = sorted(priorities.values())[-max_pages - 1]
        chosen_pages = [page for page, priority in priorities.items() if priority > threshold]
        total_count = sum(self.counts.values()) + sum(self.represented.values())
        represented_counts = {
            page: max(self.weigh(page), threshold) - self.counts[page] for page in chosen_pages
        }
        if not any(represented_counts.values()):  # all chosen pages are frequent
            represented_counts = {page: self.weigh(page) for page in chosen_pages}
        self.counts = {page: self.counts[page] for page in chosen_pages}
        # Weights are scaled to the known total, because the sum of the weights is an estimate.
        count_scale = (total_count - sum(self.counts.values())) / sum(represented_counts.values())
        self.represented = {
            page: number * count_scale for page, number in represented_counts.items() if number
        }
        self.held_bytes = sum(map(len, chosen_pages))

    def list_weights(self) -> Iterator[tuple[bytes, int]]:
        """Yield the pages with their weights, the largest first."""
        weights = {page: max(1, round(self.weigh(page))) for page in self.counts}
        yield from sorted(weights.items(), key=lambda item: (-item[1], item[0]))


def _draw_number(page: bytes, seed: int) -> float:
    """Return a pseudo-random number from 0 (excluded) to 1 that depends only on the page and ``seed``."""
    return (crc32(page, seed * 0x9E3779B1 & 0xFFFFFFFF) + 1) / (1 << 32)
