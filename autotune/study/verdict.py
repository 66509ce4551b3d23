"""What a study may claim."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from autotune.optimize.confirmation import Gain, gain, proven
from autotune.study import ranking
from autotune.study.records import Phase, State


@dataclass(frozen=True)
class Verdict:
    """``gain`` comes from readings taken after the winner was chosen, or is not there at all."""

    verdict: str
    best: int | None
    gain: Gain | None

    def record(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "best": self.best,
            "gain": asdict(self.gain) if self.gain else None,
        }


def conclude(state: State) -> Verdict:
    """The verdict on a study that has nothing left to measure."""
    stock, challenger = ranking.baseline(state), ranking.best(state)
    meets = stock is not None and stock.peak is not None and stock.peak.feasible
    if challenger is None:
        return Verdict("no-improvement" if meets else "unmeetable", None, None)
    if not meets:
        # Nothing to compare with: that it meets the objective at all is the improvement, if a
        # second, fresh measurement found the same.
        again = ranking.estimates(state.finished(Phase.FINALIST))
        twice = any(trial == challenger for trial, _ in again)
        return Verdict("improved" if twice else "unmeetable", challenger, None)
    measured = ranking.confirmations(state, challenger)
    improved = proven(measured)
    return Verdict("improved" if improved else "no-improvement", challenger, gain(measured))
