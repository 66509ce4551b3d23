"""What a study concludes, or would if it ended now: a verdict and the two configurations compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.optimize.confirmation import Gain
from autotune.report.pooled import feasible, fresh, pooled, repeats
from autotune.study import ranking
from autotune.study.records import Peak, State, Trial

STOPPED = "stopped"


@dataclass(frozen=True)
class Configuration:
    """One of the two that are compared.

    ``fresh`` pools the measurements made after the trial was selected (as a finalist, and in
    confirmation). ``own`` is the measurement it was selected by.
    """

    trial: Trial
    own: Peak | None
    fresh: Peak | None
    repeats: tuple[Trial, ...]

    @property
    def measured_again(self) -> int:
        """How many measurements ``fresh`` pools."""
        return len(feasible(self.repeats))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The trials that measured it: the first, then its repeats."""
        return (self.trial.number, *(trial.number for trial in self.repeats))

    @property
    def latest(self) -> Trial:
        """Its newest deployment on record: what was in effect when the gain was measured."""
        deployed = [t for t in (self.trial, *self.repeats) if t.effective or t.differences]
        return deployed[-1] if deployed else self.trial


@dataclass(frozen=True)
class Conclusion:
    """``verdict``: improved, no-improvement, unmeetable; stopped while there is none."""

    verdict: str
    baseline: Configuration | None
    best: Configuration | None
    gain: Gain | None

    @property
    def sides(self) -> Mapping[str, Configuration]:
        """``baseline`` and ``best``, as far as there are any."""
        sides = {"baseline": self.baseline, "best": self.best}
        return {label: side for label, side in sides.items() if side is not None}

    @property
    def best_estimate(self) -> Peak | None:
        """The best's capacity from repeats only: its search result overstates itself."""
        return self.best.fresh if self.best else None

    @property
    def baseline_estimate(self) -> Peak | None:
        """The baseline's capacity, from repeats if there are any; its own was not selected."""
        if self.baseline is None:
            return None
        own = self.baseline.own
        return self.baseline.fresh or (pooled([own]) if own else None)


def conclusion(state: State) -> Conclusion:
    """The study's conclusion, or what a study without a verdict has so far."""
    verdict = state.verdict
    number = verdict["best"] if verdict else ranking.best(state)
    baseline = ranking.baseline(state)
    return Conclusion(
        verdict["verdict"] if verdict else STOPPED,
        _configuration(state, baseline.number if baseline else None),
        _configuration(state, number),
        _gain(verdict["gain"]) if verdict else None,
    )


def _configuration(state: State, number: int | None) -> Configuration | None:
    if number is None:
        return None
    trial = state.by_number(number)
    return Configuration(trial, trial.peak, fresh(state, number), repeats(state, number))


def _gain(record: Mapping[str, Any] | None) -> Gain | None:
    return Gain(**{key: record[key] for key in Gain.__dataclass_fields__}) if record else None
