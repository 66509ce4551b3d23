"""The facts that a report states about a study, computed once for text, JSON and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any

from autotune.environments.clock import ACTIVITIES
from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.confirmation import MIN_PAIRS, Gain, find_outlier_threshold
from autotune.optimize.reversal_cost import ReversalCost
from autotune.report import format as fmt
from autotune.report.gain_shares import (
    NO_SHARES,
    GainShares,
    PeakMeasurement,
    compute_gain_shares,
)
from autotune.report.parameters import SettingChange, find_declared_parameters, list_changes
from autotune.report.reversal_costs import select_reversal_costs
from autotune.report.studies import Study
from autotune.report.trial_outcomes import count_by_outcome
from autotune.report.units import RequestUnits, Units, select_units
from autotune.study import ranking, schedule
from autotune.study.study_state import Phase, State, Trial
from autotune.target.model import Budget, Target

STOPPED_VERDICT = "stopped"


@dataclass(frozen=True)
class MeasuredConfiguration:
    """The baseline, a preset or the best, with the trials that measured it again after selection."""

    trial: Trial
    repeats: tuple[Trial, ...]

    @property
    def selection_peak(self) -> Peak | None:
        """The peak that decided the selection: as the best of many, it overstates the capacity."""
        return self.trial.peak

    @property
    def repeated_peak(self) -> Peak | None:
        """The capacity from repeats alone; ``None`` if no repeat met the SLO."""
        return pool_peaks(self._feasible_repeats)

    @property
    def best_estimate(self) -> Peak | None:
        """``repeated_peak`` if there is one, else ``selection_peak``, which alone proves nothing."""
        return self.repeated_peak or self.selection_peak

    @property
    def repeat_count(self) -> int:
        """The number of measurements that ``repeated_peak`` pools."""
        return len(self._feasible_repeats)

    @property
    def _feasible_repeats(self) -> list[Peak]:
        return [trial.peak for trial in self.repeats if trial.peak and trial.peak.is_feasible]

    @property
    def trial_numbers(self) -> tuple[int, ...]:
        """The numbers of the trials that measured it: the first, then its repeats."""
        return (self.trial.number, *(trial.number for trial in self.repeats))

    @property
    def latest_trial(self) -> Trial:
        """The newest recorded deployment; its settings were effective when the gain was measured."""
        deployed = [t for t in (self.trial, *self.repeats) if t.effective or t.differences]
        return deployed[-1] if deployed else self.trial


@dataclass(frozen=True)
class Conclusion:
    """``verdict``: improved, no-improvement or unmeetable; stopped without a verdict.

    ``preset`` is the best preset that autotune ships, if one was measured to the end.
    """

    verdict: str
    baseline: MeasuredConfiguration | None
    best: MeasuredConfiguration | None
    gain: Gain | None
    preset: MeasuredConfiguration | None = None

    @property
    def preset_won(self) -> bool:
        """True if the best configuration is the preset, or the preset without some of its changes."""
        if self.preset is None or self.best is None:
            return False
        preset, best = self.preset.trial.number, self.best.trial
        return best.number == preset or (
            best.phase is Phase.SIMPLIFIED and best.source_trial == preset
        )

    @property
    def shows_preset(self) -> bool:
        """True if a gain is proven and the preset differs from the best configuration."""
        return (
            self.verdict == "improved"
            and self.preset is not None
            and (self.best is None or self.best.trial.number != self.preset.trial.number)
        )

    @property
    def sides(self) -> Mapping[str, MeasuredConfiguration]:
        """``baseline`` and ``best``, if they exist."""
        sides = {"baseline": self.baseline, "best": self.best}
        return {label: side for label, side in sides.items() if side is not None}


def find_conclusion(state: State) -> Conclusion:
    """Return the study's conclusion, or the interim result before the verdict."""
    verdict = state.verdict or {
        "verdict": STOPPED_VERDICT,
        "best": ranking.find_best_trial(state),
        "gain": None,
    }
    baseline, gain = ranking.find_baseline(state), verdict["gain"]
    best = _build_configuration(state, verdict["best"])
    return Conclusion(
        verdict["verdict"],
        _build_configuration(state, baseline.number if baseline else None),
        best,
        Gain(**{key: gain[key] for key in Gain.__dataclass_fields__}) if gain else None,
        _find_preset(state, best),
    )


def _find_preset(state: State, best: MeasuredConfiguration | None) -> MeasuredConfiguration | None:
    preset = ranking.find_best_preset(state)
    if preset is None:
        return None
    number = state.configuration_number(preset)
    if best is not None and best.trial.number in (preset.number, number):
        return best
    repeats = ranking.list_final_trials(state, number)
    trials = [_remove_bed_offset(state, trial) for trial in (preset, *repeats)]
    return MeasuredConfiguration(trials[0], tuple(trials[1:]))


def _build_configuration(state: State, number: int | None) -> MeasuredConfiguration | None:
    if number is None:
        return None
    trials = (state.find_trial(number), *list_repeats(state, number))
    trial, *repeats = (_remove_bed_offset(state, trial) for trial in trials)
    return MeasuredConfiguration(trial, tuple(repeats))


def _remove_bed_offset(state: State, trial: Trial) -> Trial:
    """Return the trial as an average test bed would have measured it."""
    if trial.bed is None or trial.peak is None:
        return trial
    level, peak = exp(-state.bed_offset(trial.bed).log), trial.peak
    scaled = {key: level * getattr(peak, key) for key in ("peak", "low", "high")}
    return replace(trial, peak=replace(peak, **scaled))


def list_repeats(state: State, number: int) -> tuple[Trial, ...]:
    """Return the finished measurements of a trial's settings after its selection.

    They come from the confirmation, or from the finals without a confirmation.
    """
    # A verdict lists the phases of its peaks. Without a list, finals count too.
    phases = (state.verdict or {}).get("peaks_from", (Phase.FINALIST, Phase.CONFIRM))
    repeats = [t for t in state.list_finished(*map(Phase, phases)) if t.source_trial == number]
    return tuple(
        repeats or (t for t in state.list_finished(Phase.FINALIST) if t.source_trial == number)
    )


def pool_peaks(peaks: Sequence[Peak]) -> Peak | None:
    """Return several peaks pooled into one (`Estimate.pool`), without the disturbed ones.

    A single peak keeps its own interval. No peaks give ``None``.
    """
    if len(peaks) < 2:
        return peaks[0] if peaks else None
    estimates = [peak.estimate for peak in peaks]
    lowest = find_outlier_threshold(estimates)
    return Peak.from_estimate(Estimate.pool([peak for peak in estimates if peak.value >= lowest]))


@dataclass(frozen=True)
class StudyOutlook:
    """The state of a running study. ``leader`` sustains the highest rate so far; this is not proven.

    The leader may be the baseline. Figures pool all later measurements of a configuration, as in the
    report. ``trial_count`` is the number of finished configurations in the budget. ``seconds_left`` is
    estimated from the trials so far and never exceeds the time left in the budget. ``is_virtual``: the
    stack is a model, and its time is not wall-clock time.
    """

    units: Units
    baseline: MeasuredConfiguration | None
    leader: MeasuredConfiguration | None
    trial_count: int
    seconds_left: float
    is_virtual: bool = False

    @property
    def time_left_text(self) -> str:
        """The time left as text, marked as virtual for a model; empty without any."""
        seconds = round(self.seconds_left)
        unit = " of virtual time" if self.is_virtual else ""
        return f"{fmt.format_duration(seconds)}{unit} left" if seconds else ""

    @property
    def is_baseline_leading(self) -> bool:
        return self.leader is self.baseline

    @property
    def lead_text(self) -> str:
        """The leader's gain over the baseline so far; empty while the baseline leads."""
        before, best = _select_feasible_peak(self.baseline), _select_feasible_peak(self.leader)
        if not before or not best or self.is_baseline_leading:
            return ""
        return self.units.format_change(best / before, before)

    def __str__(self) -> str:
        """Return the best so far, its gain over the baseline, and the time left."""
        requests = isinstance(self.units, RequestUnits) and self.baseline is not None
        best = "nothing meets the SLO yet" if requests else "nothing measured yet"
        peak = _select_feasible_peak(self.leader)
        if self.leader is not None and peak:
            lead = f", {self.lead_text}" if self.lead_text else ""
            count = self.leader.repeat_count
            repeats = f", re-measured {count}×" if self.leader.repeated_peak else ""
            amount = self.units.format_short(self.units.from_peak(peak))
            best = f"best {amount} (#{self.leader.trial.number}{lead}{repeats})"
        return f"{best}   {self.time_left_text}".rstrip()


def build_outlook(target: Target, state: State) -> StudyOutlook:
    """Return the outlook; its leader is the best candidate if it beats the baseline."""
    conclusion = find_conclusion(state)
    baseline, best = conclusion.baseline, conclusion.best
    return StudyOutlook(
        units=select_units(target, state),
        baseline=baseline,
        leader=best if _select_feasible_peak(best) > _select_feasible_peak(baseline) else baseline,
        trial_count=len(state.list_counted()),
        seconds_left=_estimate_seconds_left(state, target.budget),
        is_virtual=target.simulated is not None,
    )


def _select_feasible_peak(side: MeasuredConfiguration | None) -> float:
    peak = side.best_estimate if side else None
    return peak.peak if peak and peak.is_feasible else 0.0


def _estimate_seconds_left(state: State, budget: Budget) -> float:
    remaining = max(0.0, budget.time - state.elapsed_seconds)
    trial_seconds = schedule.average_trial_seconds(state)
    if not trial_seconds:
        return remaining
    finalists, confirmed = state.list_finished(Phase.FINALIST), state.list_finished(Phase.CONFIRM)
    finals = max(0, schedule.MIN_FINALISTS - len(finalists))
    proof = max(0, 2 * MIN_PAIRS - len(confirmed))
    is_search_over = finalists or confirmed or state.stop_reason or state.posterior
    searched = budget.trials if is_search_over else len(state.list_counted())
    beds = max(1, len(state.active_beds))
    return min(
        remaining, trial_seconds * (max(0, budget.trials - searched) + finals + proof) / beds
    )


@dataclass(frozen=True)
class StudyView:
    """A study as reports show it. Numbers are in the user's own ``units``.

    - ``capacities``: ``peak`` with its 90 % interval ``low`` to ``high``, by ``baseline``, ``preset`` and
      ``best``.
      **The best's peak pools measurements made after its selection.** The search's own peak would
      overstate the capacity.
    - ``gain``: best over baseline from ``units.gain``; ``None`` until it is confirmed.
    - ``gain_shares``: the parts of a proven gain from the best preset and from the search.
    - ``reversal_costs``: the cost of reverting each change of the best, largest first.
    - ``bottlenecks``: the newest finding by ``baseline`` and ``best``.
    - ``trial_counts``: the number of trials in the budget, by outcome.
    - ``changes``: the settings that turn the baseline into the best and have an effect.
    - ``seconds_by_activity``: the time by use; the parts add up to ``total``.
    """

    study: Study
    conclusion: Conclusion
    outlook: StudyOutlook
    capacities: Mapping[str, Mapping[str, Any]]
    gain: Mapping[str, Any] | None
    bottlenecks: Mapping[str, Mapping[str, Any]]
    trial_counts: Mapping[str, int]
    changes: tuple[SettingChange, ...]
    seconds_by_activity: Mapping[str, float]
    gain_shares: GainShares = NO_SHARES
    reversal_costs: Mapping[str, ReversalCost] = field(default_factory=dict)

    @property
    def best_peak(self) -> float:
        """The peak of the best configuration; 0 without one."""
        return _select_feasible_peak(self.conclusion.best)

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

    def readings_by_side(self) -> dict[str, list[Mapping[str, Any]]]:
        """Return the readings of baseline and best, with their repeats. Raises AutotuneError."""
        return {
            label: [
                reading for reading in self.study.readings if reading["trial"] in side.trial_numbers
            ]
            for label, side in self.conclusion.sides.items()
        }


def build_study_view(study: Study) -> StudyView:
    """Return the view of a study. Readings are loaded only when something needs them."""
    state, outlook, conclusion = (
        study.state,
        build_outlook(study.target, study.state),
        find_conclusion(study.state),
    )
    baseline, best, gain = conclusion.baseline, conclusion.best, conclusion.gain
    preset = conclusion.preset
    estimates = {
        "baseline": baseline.best_estimate if baseline else None,
        "preset": preset.best_estimate if preset else None,
        "best": best.repeated_peak if best else None,
    }
    baseline_peak = estimates["baseline"]
    findings = {
        label: _find_newest_bottleneck(state, side) for label, side in conclusion.sides.items()
    }
    declared = find_declared_parameters(study.target)
    return StudyView(
        study=study,
        conclusion=conclusion,
        outlook=outlook,
        capacities={
            label: build_capacity(estimate, outlook.units) for label, estimate in estimates.items()
        },
        gain=outlook.units.build_gain(gain, baseline_peak.peak) if gain and baseline_peak else None,
        bottlenecks={label: finding for label, finding in findings.items() if finding},
        trial_counts=count_by_outcome(state),
        changes=list_changes(
            baseline.trial.effective_settings, best.trial.effective_settings, declared
        )
        if baseline and best
        else (),
        seconds_by_activity=_sum_seconds(state),
        gain_shares=_split_gain(state, conclusion),
        reversal_costs=select_reversal_costs(state),
    )


def _split_gain(state: State, conclusion: Conclusion) -> GainShares:
    if conclusion.verdict != "improved":
        return NO_SHARES
    sides = (conclusion.baseline, conclusion.preset, conclusion.best)
    baseline, preset, best = (
        PeakMeasurement(side.best_estimate, max(1, side.repeat_count))
        if side and side.best_estimate and side.best_estimate.is_feasible
        else None
        for side in sides
    )
    return compute_gain_shares(state, baseline, preset, best, preset_won=conclusion.preset_won)


def build_capacity(peak: Peak | None, units: Units) -> dict[str, float | None]:
    """Return a peak and its interval, lower end first, in the user's own terms."""
    if peak is None:
        return {"peak": None, "low": None, "high": None}
    if peak.peak == 0:
        return {"peak": 0.0, "low": 0.0, "high": units.round_value(peak.high)}
    low, high = sorted((units.from_peak(peak.low), units.from_peak(peak.high)))
    numbers = {"peak": units.from_peak(peak.peak), "low": low, "high": high}
    return {key: units.round_value(number) for key, number in numbers.items()}


def build_trial_capacity(trial: Trial, units: Units) -> dict[str, float | None]:
    """Return the capacity that a trial measured, or its lower bound if the load was limited.

    The values are ``None`` if the trial met the SLO at no rate.
    """
    return build_capacity(trial.peak if trial.peak and trial.peak.met_slo else None, units)


def _find_newest_bottleneck(state: State, side: MeasuredConfiguration) -> dict[str, Any] | None:
    """Return the newest finding about a configuration, from any of its measurements."""
    findings = [
        state.bottlenecks[number] for number in side.trial_numbers if number in state.bottlenecks
    ]
    return {k: v for k, v in findings[-1].items() if k != "event"} if findings else None


def _sum_seconds(state: State) -> dict[str, float]:
    seconds = {kind: state.average_seconds.get(kind, 0.0) for kind in ACTIVITIES}
    other = state.elapsed_seconds - sum(seconds.values())
    parts = {"total": state.elapsed_seconds, **seconds, "other": other}
    return {kind: round(value, 1) for kind, value in parts.items()}
