"""What the study claims, or may come to claim: the verdict and the two configurations behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.report.pooled import Estimate, estimate, fresh, repeats
from autotune.search.confirmation import Gain
from autotune.study import ranking
from autotune.study.records import Peak, State, Trial

STOPPED = "stopped"


@dataclass(frozen=True)
class Side:
    """A configuration of the claim.

    ``fresh`` pools the measurements made after the trial was selected (as a finalist, and in
    confirmation). ``own`` is the measurement it was selected by.
    """

    trial: Trial
    own: Peak | None
    fresh: Estimate | None
    repeats: tuple[Trial, ...]

    @property
    def latest(self) -> Trial:
        """Its newest deployment on record: what was in effect when the claim was measured."""
        deployed = [t for t in (self.trial, *self.repeats) if t.effective or t.differences]
        return deployed[-1] if deployed else self.trial


@dataclass(frozen=True)
class Claim:
    """``verdict``: improved, no-improvement, unmeetable; stopped while there is none."""

    verdict: str
    baseline: Side | None
    best: Side | None
    gain: Gain | None

    @property
    def best_known(self) -> Estimate | None:
        """The best's peak from repeats only: its search result overstates itself."""
        return self.best.fresh if self.best else None

    @property
    def baseline_known(self) -> Estimate | None:
        """The baseline's peak, from repeats if there are any; its own was not selected."""
        if self.baseline is None:
            return None
        own = self.baseline.own
        return self.baseline.fresh or (estimate([own]) if own else None)


def claim(state: State) -> Claim:
    """The claim as it was concluded, or what a study without a verdict has in hand."""
    verdict = state.verdict
    number = verdict["best"] if verdict else ranking.best(state)
    baseline = ranking.baseline(state)
    return Claim(
        verdict["verdict"] if verdict else STOPPED,
        _side(state, baseline.number if baseline else None),
        _side(state, number),
        _gain(verdict["gain"]) if verdict else None,
    )


def _side(state: State, number: int | None) -> Side | None:
    if number is None:
        return None
    trial = state.by_number(number)
    return Side(trial, trial.peak, fresh(state, number), repeats(state, number))


def _gain(record: Mapping[str, Any] | None) -> Gain | None:
    return Gain(**{key: record[key] for key in Gain.__dataclass_fields__}) if record else None
