"""What a report states of a study, computed once: text, JSON and HTML are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.environments.clock import KINDS
from autotune.environments.peak import Peak
from autotune.report.conclusion import Conclusion, Configuration, conclusion
from autotune.report.objective import Units
from autotune.report.outlook import Outlook, outlook
from autotune.report.parameters import Change, changes, declared
from autotune.report.studies import Study
from autotune.report.trials import count_by_outcome
from autotune.study.records import State
from autotune.target.model import Target


@dataclass(frozen=True)
class StudyView:
    """A study as reports show it. Numbers are in the user's own ``units``.

    - ``baseline``, ``best``: ``peak`` with its 90 % interval ``low`` to ``high``. **The best's peak
      is pooled from measurements made after it was selected**, never the search's own: that
      overstates itself.
    - ``gain``: best over baseline, as ``units.gain`` has it; ``None`` while nothing is confirmed.
    - ``bottlenecks``: the newest finding by ``baseline`` and ``best``.
    - ``trials``: those that the budget counts, by how they ended.
    - ``changes``: what to change in the baseline to get the best, without what has no effect.
    - ``seconds``: where the time went; the parts add up to ``total``.
    """

    study: Study
    conclusion: Conclusion
    outlook: Outlook
    capacities: Mapping[str, Mapping[str, Any]]
    gain: Mapping[str, Any] | None
    bottlenecks: Mapping[str, Mapping[str, Any]]
    trials: Mapping[str, int]
    changes: tuple[Change, ...]
    seconds: Mapping[str, float]

    @property
    def name(self) -> str:
        return self.study.name

    @property
    def target(self) -> Target:
        return self.study.target

    @property
    def state(self) -> State:
        return self.study.state

    @property
    def verdict(self) -> str:
        return self.conclusion.verdict

    @property
    def units(self) -> Units:
        return self.outlook.units

    def readings(self) -> dict[str, list[Mapping[str, Any]]]:
        """The readings of the baseline and of the best, their repeats included. Raises AutotuneError."""
        return {
            label: [reading for reading in self.study.readings if reading["trial"] in side.numbers]
            for label, side in self.conclusion.sides.items()
        }


def study_view(study: Study) -> StudyView:
    """Everything but the readings is looked at here; those are read when something asks for them."""
    now, concluded = outlook(study.target, study.state), conclusion(study.state)
    estimates = {"baseline": concluded.baseline_estimate, "best": concluded.best_estimate}
    findings = {label: _finding(study.state, side) for label, side in concluded.sides.items()}
    return StudyView(
        study=study,
        conclusion=concluded,
        outlook=now,
        capacities={label: capacity(estimate, now.units) for label, estimate in estimates.items()},
        gain=_gain(concluded, now.units),
        bottlenecks={label: finding for label, finding in findings.items() if finding},
        trials=count_by_outcome(study.state),
        changes=_changes(study, concluded),
        seconds=_seconds(study.state),
    )


def capacity(known: Peak | None, units: Units) -> dict[str, float | None]:
    """A peak and the ends of its interval, the lower one first, in the user's own terms."""
    if known is None:
        return {"peak": None, "low": None, "high": None}
    if known.peak == 0:
        return {"peak": 0.0, "low": 0.0, "high": units.rounded(known.high)}
    low, high = sorted((units.of(known.low), units.of(known.high)))
    peak = units.of(known.peak)
    return {"peak": units.rounded(peak), "low": units.rounded(low), "high": units.rounded(high)}


def _gain(concluded: Conclusion, units: Units) -> dict[str, Any] | None:
    if concluded.gain is None or concluded.baseline_estimate is None:
        return None
    return units.gain(concluded.gain, concluded.baseline_estimate.peak)


def _finding(state: State, side: Configuration) -> dict[str, Any] | None:
    """The newest finding about a configuration, whichever of its measurements it came from."""
    findings = [state.bottlenecks[number] for number in side.numbers if number in state.bottlenecks]
    return {k: v for k, v in findings[-1].items() if k != "event"} if findings else None


def _changes(study: Study, concluded: Conclusion) -> tuple[Change, ...]:
    if concluded.best is None or concluded.baseline is None:
        return ()
    before, after = concluded.baseline.trial.settings, concluded.best.trial.settings
    return changes(before, after, declared(study.target))


def _seconds(state: State) -> dict[str, float]:
    seconds = {kind: state.seconds.get(kind, 0.0) for kind in KINDS}
    other = state.elapsed - sum(seconds.values())
    parts = {"total": state.elapsed, **seconds, "other": other}
    return {kind: round(value, 1) for kind, value in parts.items()}
