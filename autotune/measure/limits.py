"""What a peak search may spend and offer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Rates in requests/s, times in seconds.

    ``start``: first rate when nothing is expected. ``max_rate``: no probe goes above it.
    ``min_rate``: an objective that is not met there is unmeetable. ``seconds``: of a reading; it is
    stretched up to ``longest`` where that is too short to see a queue as long as the objective's
    limit or to hold a few violations. ``overhead``: load that a reading costs without counting it
    (warm-up), for the accounting only. ``load_seconds`` and ``readings``: the most a search spends.
    ``screen``: give up below this chance of beating the incumbent.
    """

    start: float = 100.0
    max_rate: float = 1e7
    min_rate: float = 1.0
    seconds: float = 2.0
    longest: float = 10.0
    overhead: float = 1.0
    load_seconds: float = 90.0
    readings: int = 40
    screen: float = 0.02

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless rates and times are positive and in order."""
        if not 0 < self.min_rate <= self.max_rate or self.start <= 0:
            raise ValueError("rates must be positive, with min_rate <= max_rate")
        if self.seconds <= 0 or self.load_seconds <= 0 or self.readings < 1:
            raise ValueError("seconds, load_seconds and readings must be positive")
