"""The smallest part of a winner's changes that keeps nearly all of its gain.

Changes are reverted against the winner: first, as one group, all that the model believes to be
without effect; a group that costs too much is halved; then what is left one by one, least first.
A set may be reverted when the winner loses at most ``1 - KEPT`` of its gain by it, all that was
reverted before included. How often a set is measured follows from how near the line it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from scipy.special import ndtr

KEPT = 0.95
SURE, UNSURE = 0.85, 0.1  # chance of being within the line at which a set is let go, or kept
MOST_EACH = 16  # measurements of one set
GLANCES = 2  # measurements by which single changes are put in order
OPENING = 16  # of the winner, before anything is compared with it

Reverted = frozenset[str]
Measure = Callable[[Reverted], float | None]
"""``measure(reverted)``: log peak of the winner with these changes reverted; ``None``: it fails."""


@dataclass(frozen=True)
class Predicted:
    """The model's log loss of reverting one change, and its sd."""

    loss: float
    sd: float


@dataclass(frozen=True)
class Reduced:
    """``kept`` changes carry ``share`` of the log gain, between ``low`` and ``high`` with 90 %.

    ``losses``: what reverting each kept change costs by itself, as measured (log).
    """

    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    share: float
    low: float
    high: float
    measurements: int
    losses: Mapping[str, float] = field(default_factory=dict)


class OutOfBudget(Exception):
    """No more measurements are allowed; what is known has to do."""


class Reduction:
    """One reduction under way. ``gain`` is the winner's log gain, ``noise`` the sd of a log peak."""

    def __init__(
        self, predicted: Mapping[str, Predicted], gain: float, noise: float, measure: Measure,
        most: int,
    ) -> None:  # fmt: skip
        self._predicted, self._gain, self._noise = predicted, gain, noise
        self._measure, self._most = measure, most
        self._seen: dict[Reverted, list[float]] = {}
        self._failed: set[Reverted] = set()
        self._spent = 0

    def reduce(self) -> Reduced:
        """Measure until the smallest set is found or the measurements are spent."""
        ordered = sorted(self._predicted, key=lambda name: self._predicted[name].loss)
        reverted: Reverted = frozenset()
        try:
            for _ in range(OPENING):
                self._take(frozenset())
            reverted = self._groups(reverted, self._idle(ordered))
            for name in self._ranked(reverted, ordered):
                if self._affordable(reverted | {name}):
                    reverted = reverted | {name}
        except OutOfBudget:
            pass
        return self._result(ordered, reverted)

    def _ranked(self, reverted: Reverted, ordered: Sequence[str]) -> list[str]:
        """What is left to revert, least loss first, by a few measurements of each."""
        left = [name for name in ordered if name not in reverted]
        for name in left:
            for _ in range(GLANCES):
                if reverted | {name} not in self._failed:
                    self._take(reverted | {name})
        works = [name for name in left if reverted | {name} not in self._failed]
        return sorted(works, key=lambda name: self._loss(reverted | {name})[0])

    def _idle(self, ordered: Sequence[str]) -> list[str]:
        """The changes that the model gives up without regret, together within the line."""
        idle, loss = [], 0.0
        for name in ordered:
            loss += max(self._predicted[name].loss, 0.0)
            if loss > self._line:
                break
            idle.append(name)
        return idle

    def _groups(self, reverted: Reverted, group: Sequence[str]) -> Reverted:
        if not group:
            return reverted
        if self._affordable(reverted | set(group)):
            return reverted | set(group)
        if len(group) == 1:
            return reverted
        half = len(group) // 2
        return self._groups(self._groups(reverted, group[:half]), group[half:])

    @property
    def _line(self) -> float:
        return (1.0 - KEPT) * self._gain

    def _affordable(self, reverted: Iterable[str]) -> bool:
        chosen = frozenset(reverted)
        while chosen not in self._failed:
            seen = len(self._seen.get(chosen, ()))
            if seen:
                loss, sd = self._loss(chosen)
                chance = float(ndtr((self._line - loss) / sd))
                if chance > SURE or chance < UNSURE or seen >= MOST_EACH:
                    return loss <= self._line
            if len(self._seen[frozenset()]) < max(OPENING, seen):
                self._take(frozenset())
            self._take(chosen)
        return False

    def _take(self, reverted: Reverted) -> None:
        if self._spent >= self._most:
            raise OutOfBudget
        self._spent += 1
        found = self._measure(reverted)
        if found is None:
            self._failed.add(reverted)
        else:
            self._seen.setdefault(reverted, []).append(found)

    def _loss(self, reverted: Reverted) -> tuple[float, float]:
        """Log loss against the winner and its sd."""
        own, winner = self._seen[reverted], self._seen[frozenset()]
        loss = _middle(winner) - _middle(own)
        return loss, self._noise * sqrt(1 / len(own) + 1 / len(winner))

    def _result(self, ordered: Sequence[str], reverted: Reverted) -> Reduced:
        loss, sd = self._loss(reverted) if reverted and reverted in self._seen else (0.0, 0.0)
        kept = tuple(name for name in reversed(ordered) if name not in reverted)
        alone = {
            name: self._loss(reverted | {name})[0] - loss
            for name in kept
            if reverted | {name} in self._seen
        }
        return Reduced(
            kept, tuple(sorted(reverted)),
            1 - loss / self._gain, 1 - (loss + 1.645 * sd) / self._gain,
            1 - (loss - 1.645 * sd) / self._gain, self._spent, alone,
        )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    """Mean without those far below the median: a disturbed measurement says nothing."""
    ranked = sorted(values)
    median = ranked[len(ranked) // 2]
    sound = [value for value in ranked if value > median - 0.25]
    return sum(sound) / len(sound)
