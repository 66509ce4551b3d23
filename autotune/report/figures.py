"""The figures of a study, from which the headline, the warnings and the next steps follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from autotune.environments.clock import ACTIVITIES
from autotune.optimize.reversal_cost import ReversalCost
from autotune.report.capacity import CapacityFigures, build_capacity
from autotune.report.conclusion import Conclusion, MeasuredConfiguration, find_conclusion
from autotune.report.deciding_readings import DecidingReadings, sum_deciding_readings
from autotune.report.gain_shares import (
    NO_SHARES,
    GainShares,
    PeakMeasurement,
    compute_gain_shares,
)
from autotune.report.memory_costs import MemoryCosts, compute_memory_costs
from autotune.report.outlook import StudyOutlook, build_outlook, select_feasible_peak
from autotune.report.parameters import SettingChange, find_declared_parameters, list_setting_changes
from autotune.report.reversal_costs import select_reversal_costs
from autotune.report.studies import Study
from autotune.report.trial_outcomes import count_by_outcome
from autotune.report.units import GainFigures, Units
from autotune.study.journal_records import RecordedBottleneck
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import State
from autotune.target.model import Target


@dataclass(frozen=True)
class StudyFigures:
    """The figures of a study. Numbers are in the user's own ``units``.

    - ``capacities``: ``peak`` with its 90 % interval ``low`` to ``high``, for ``baseline``, ``preset``
      and ``best``. **The peak of the best configuration pools measurements made after its selection.**
      The search's own peak would overstate the capacity.
    - ``gain``: gain of the best configuration over the baseline (`units.build_gain`); ``None`` until the
      gain is confirmed.
    - ``gain_shares``: the parts of a proven gain from the best preset and from the search.
    - ``reversal_costs``: the cost of reverting each change of the best configuration, the largest cost
      first.
    - ``bottlenecks``: the newest finding on ``baseline`` and on ``best``.
    - ``trial_counts``: the number of trials in the budget, by outcome.
    - ``changes``: the settings with an effect that turn the baseline into the best configuration.
    - ``seconds_by_activity``: seconds spent on each activity; they add up to ``total``.
    """

    study: Study
    conclusion: Conclusion
    outlook: StudyOutlook
    capacities: Mapping[str, CapacityFigures]
    gain: GainFigures | None
    bottlenecks: Mapping[str, RecordedBottleneck]
    trial_counts: Mapping[str, int]
    changes: tuple[SettingChange, ...]
    seconds_by_activity: Mapping[str, float]
    gain_shares: GainShares
    reversal_costs: Mapping[str, ReversalCost]

    @property
    def best_peak(self) -> float:
        """Return the peak of the best configuration; 0 if it is unknown."""
        return select_feasible_peak(self.conclusion.best)

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

    @cached_property
    def memory_costs(self) -> MemoryCosts:
        """The memory that the changes need. Raises AutotuneError for damaged readings."""
        readings = self.readings_by_side()
        return compute_memory_costs(self.study, self.conclusion, self.changes, readings)

    @cached_property
    def deciding_readings(self) -> Mapping[str, DecidingReadings]:
        """The readings that determine each of ``capacities``. Raises AutotuneError for damaged
        readings.
        """
        return {
            side_name: sum_deciding_readings(self.study.readings, conclusion_side.deciding_trials)
            for side_name, conclusion_side in self.conclusion.configurations.items()
        }

    @cached_property
    def all_readings(self) -> DecidingReadings:
        """The readings of all trials. Raises AutotuneError for damaged readings."""
        return sum_deciding_readings(self.study.readings)

    def readings_by_side(self) -> dict[str, list[RecordedReading]]:
        """Return the readings of baseline and best, including their repeats.

        Raises AutotuneError for damaged readings.
        """
        return {
            side_name: [
                reading for reading in self.study.readings if reading.trial in side.trial_numbers
            ]
            for side_name, side in self.conclusion.sides.items()
        }


def build_study_figures(study: Study) -> StudyFigures:
    """Return the figures of a study. Readings are loaded only when they are needed."""
    state, outlook, conclusion = (
        study.state,
        build_outlook(study.target, study.state),
        find_conclusion(study.state),
    )
    baseline, best, gain = conclusion.baseline, conclusion.best, conclusion.gain
    preset_side = conclusion.preset
    estimates = {
        "baseline": baseline.best_estimate if baseline else None,
        "preset": preset_side.best_estimate if preset_side else None,
        "best": best.repeated_peak if best else None,
    }
    baseline_peak = estimates["baseline"]
    findings = {
        side_name: _find_newest_bottleneck(state, conclusion_side)
        for side_name, conclusion_side in conclusion.sides.items()
    }
    declared_parameters = find_declared_parameters(study.target)
    return StudyFigures(
        study=study,
        conclusion=conclusion,
        outlook=outlook,
        capacities={
            side_name: build_capacity(estimate, outlook.units)
            for side_name, estimate in estimates.items()
        },
        gain=outlook.units.build_gain(gain, baseline_peak.peak) if gain and baseline_peak else None,
        bottlenecks={side_name: finding for side_name, finding in findings.items() if finding},
        trial_counts=count_by_outcome(state),
        changes=list_setting_changes(
            baseline.trial.effective_settings, best.trial.effective_settings, declared_parameters
        )
        if baseline and best
        else (),
        seconds_by_activity=_sum_seconds_by_activity(state),
        gain_shares=_split_gain_into_shares(state, conclusion),
        reversal_costs=select_reversal_costs(state),
    )


def _split_gain_into_shares(state: State, conclusion: Conclusion) -> GainShares:
    if conclusion.verdict != "improved":
        return NO_SHARES
    conclusion_sides = (conclusion.baseline, conclusion.preset, conclusion.best)
    baseline, preset, best = (
        PeakMeasurement(side.best_estimate, max(1, side.repeat_count))
        if side and side.best_estimate and side.best_estimate.is_feasible
        else None
        for side in conclusion_sides
    )
    return compute_gain_shares(state, baseline, preset, best, preset_won=conclusion.preset_won)


def _find_newest_bottleneck(state: State, side: MeasuredConfiguration) -> RecordedBottleneck | None:
    """Return the newest finding about a configuration, from any of its measurements."""
    findings = [
        state.bottlenecks[trial_number]
        for trial_number in side.trial_numbers
        if trial_number in state.bottlenecks
    ]
    return findings[-1] if findings else None


def _sum_seconds_by_activity(state: State) -> dict[str, float]:
    seconds = {activity: state.average_seconds.get(activity, 0.0) for activity in ACTIVITIES}
    other_seconds = state.elapsed_seconds - sum(seconds.values())
    seconds_by_activity = {"total": state.elapsed_seconds, **seconds, "other": other_seconds}
    return {activity: round(value, 1) for activity, value in seconds_by_activity.items()}
