"""What a study concludes, or would if it ended now: a verdict and the two configurations compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.confirmation import Gain
from autotune.study import ranking
from autotune.study.records import Phase, State, Trial

STOPPED = "stopped"


@dataclass(frozen=True)
class Configuration:
    """One of the two that are compared; ``repeats`` measured it after it was selected."""

    trial: Trial
    repeats: tuple[Trial, ...]

    @property
    def own(self) -> Peak | None:
        """The measurement that it was selected by: the best of many, which overstates itself."""
        return self.trial.peak

    @property
    def fresh(self) -> Peak | None:
        """Its capacity from repeats alone; ``None`` when none of them met the SLO."""
        return pooled(self._again)

    @property
    def measured_again(self) -> int:
        """How many measurements ``fresh`` pools."""
        return len(self._again)

    @property
    def _again(self) -> list[Peak]:
        return [trial.peak for trial in self.repeats if trial.peak and trial.peak.feasible]

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
        return self.baseline.fresh or self.baseline.own


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


def repeats(state: State, number: int) -> tuple[Trial, ...]:
    """Finished measurements of a trial's settings after it was selected: finals, confirmation."""
    again = state.finished(Phase.FINALIST, Phase.CONFIRM)
    return tuple(trial for trial in again if trial.of == number)


def pooled(peaks: Sequence[Peak]) -> Peak | None:
    """One peak for several (`Estimate.pool`); a single one keeps its own interval, none is ``None``."""
    if len(peaks) < 2:
        return peaks[0] if peaks else None
    return Peak.of(Estimate.pool([peak.estimate for peak in peaks]))


def _configuration(state: State, number: int | None) -> Configuration | None:
    if number is None:
        return None
    return Configuration(state.by_number(number), repeats(state, number))


def _gain(record: Mapping[str, Any] | None) -> Gain | None:
    return Gain(**{key: record[key] for key in Gain.__dataclass_fields__}) if record else None
