"""The conclusion of a study: its verdict, the gain, and the compared configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from autotune.environments.peak import Peak
from autotune.estimate import Estimate
from autotune.optimize.confirmation import Gain
from autotune.optimize.outliers import find_outlier_threshold
from autotune.study import ranking
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import FINALS_AND_PROOF, Verdict

STOPPED_VERDICT = "stopped"


@dataclass(frozen=True)
class MeasuredConfiguration:
    """The baseline, a preset or the best configuration, with the trials that measured it again
    after its selection.
    """

    trial: Trial
    repeats: tuple[Trial, ...]

    @property
    def selection_peak(self) -> Peak | None:
        """Return the peak that decided the selection. The best of many peaks overstates the
        capacity.
        """
        return self.trial.peak

    @property
    def repeated_peak(self) -> Peak | None:
        """The capacity from repeats alone; ``None`` if no repeat met the SLO."""
        return pool_peaks([trial.peak for trial in self._feasible_repeats if trial.peak])

    @property
    def best_estimate(self) -> Peak | None:
        """Return ``repeated_peak`` if there is one, else ``selection_peak``, which proves nothing.

        The result is ``None`` if no rate met the SLO in time, because the search's peak is then a guess.
        """
        return self.repeated_peak or (None if self.is_unmet else self.selection_peak)

    @property
    def is_unmet(self) -> bool:
        """True if the first search ran out of time before any rate met the SLO."""
        return self.trial.peak is not None and self.trial.peak.is_unmet

    @property
    def has_failed(self) -> bool:
        """True if no trial of the configuration was measured, for example because the configuration
        does not start.
        """
        return all(trial.peak is None for trial in (self.trial, *self.repeats))

    @property
    def repeat_count(self) -> int:
        """Return the number of measurements that ``repeated_peak`` pools."""
        return len(self._feasible_repeats)

    @property
    def deciding_trials(self) -> tuple[int, ...]:
        """The numbers of the trials whose readings determine ``best_estimate``."""
        repeats = {t.number: t.peak for t in self._feasible_repeats if t.peak}
        plausible_peaks = select_plausible_peaks(list(repeats.values()))
        return tuple(n for n, peak in repeats.items() if peak in plausible_peaks) or (
            self.trial.number,
        )

    @property
    def _feasible_repeats(self) -> list[Trial]:
        return [trial for trial in self.repeats if trial.meets_slo]

    @property
    def trial_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the trials that measured the configuration: the first trial, then its
        repeats.
        """
        return (self.trial.number, *(trial.number for trial in self.repeats))

    @property
    def latest_trial(self) -> Trial:
        """Return the latest trial with a recorded deployment; its settings were effective when the
        gain was measured.
        """
        deployed_trials = [t for t in (self.trial, *self.repeats) if t.effective or t.differences]
        return deployed_trials[-1] if deployed_trials else self.trial


@dataclass(frozen=True)
class Conclusion:
    """The conclusion of a study: ``verdict`` is improved, no-improvement or unmeetable, or stopped
    before a verdict.

    ``preset`` is the best of the presets that autotune ships, if any was fully measured.
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
        preset_number, best_trial = self.preset.trial.number, self.best.trial
        return best_trial.number == preset_number or (
            best_trial.phase is Phase.SIMPLIFIED and best_trial.source_trial == preset_number
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
        """The sides ``baseline`` and ``best``, if they exist."""
        return {
            side_name: conclusion_side
            for side_name, conclusion_side in self.configurations.items()
            if side_name != "preset"
        }

    @property
    def configurations(self) -> Mapping[str, MeasuredConfiguration]:
        """The configurations ``baseline``, ``preset`` and ``best``, if they exist."""
        side_by_name = {"baseline": self.baseline, "preset": self.preset, "best": self.best}
        return {side_name: side for side_name, side in side_by_name.items() if side is not None}


def find_conclusion(state: State) -> Conclusion:
    """Return the study's conclusion, or the interim result before the verdict."""
    verdict = state.verdict or Verdict(STOPPED_VERDICT, ranking.find_best_trial(state))
    baseline_trial, best = ranking.find_baseline(state), _build_configuration(state, verdict.best)
    return Conclusion(
        verdict.verdict,
        _build_configuration(state, baseline_trial.number if baseline_trial else None),
        best,
        verdict.gain,
        _find_preset(state, best),
    )


def _find_preset(state: State, best: MeasuredConfiguration | None) -> MeasuredConfiguration | None:
    preset_trial = ranking.find_best_preset(state)
    if preset_trial is None:
        return None
    preset_number = state.find_configuration_number(preset_trial)
    if best is not None and best.trial.number in (preset_trial.number, preset_number):
        return best
    repeats = ranking.list_final_trials(state, preset_number)
    trials = [_remove_bed_offset(state, trial) for trial in (preset_trial, *repeats)]
    return MeasuredConfiguration(trials[0], tuple(trials[1:]))


def _build_configuration(state: State, trial_number: int | None) -> MeasuredConfiguration | None:
    if trial_number is None:
        return None
    trials = (state.find_trial(trial_number), *list_repeats(state, trial_number))
    trial, *repeats = (_remove_bed_offset(state, trial) for trial in trials)
    return MeasuredConfiguration(trial, tuple(repeats))


def _remove_bed_offset(state: State, trial: Trial) -> Trial:
    """Return the trial as an average test bed would have measured it."""
    if trial.bed is None or trial.peak is None:
        return trial
    bed_scale, peak = exp(-state.get_bed_offset(trial.bed).log), trial.peak
    scaled_values = {key: bed_scale * getattr(peak, key) for key in ("peak", "low", "high")}
    return replace(trial, peak=replace(peak, **scaled_values))


def list_repeats(state: State, trial_number: int) -> tuple[Trial, ...]:
    """Return the finished measurements of a trial's settings that started after the trial was selected.

    The measurements come from the confirmation, or from the finals if no confirmation took place.
    """
    # A verdict lists the phases whose peaks it uses. Before the verdict, the peaks of the finals are
    # used, too.
    phases = state.verdict.peaks_from if state.verdict else FINALS_AND_PROOF
    repeats = [
        t for t in state.list_finished_trials(*map(Phase, phases)) if t.source_trial == trial_number
    ]
    return tuple(
        repeats
        or (t for t in state.list_finished_trials(Phase.FINALIST) if t.source_trial == trial_number)
    )


def pool_peaks(peaks: Sequence[Peak]) -> Peak | None:
    """Pool several peaks into one (`Estimate.pool`), and leave out peaks that a disturbance lowered.

    A single peak keeps its own interval. The result is ``None`` if ``peaks`` is empty.
    """
    if len(peaks) < 2:
        return peaks[0] if peaks else None
    return Peak.from_estimate(
        Estimate.pool([peak.estimate for peak in select_plausible_peaks(peaks)])
    )


def select_plausible_peaks(peaks: Sequence[Peak]) -> list[Peak]:
    """Return the peaks without low outliers, which a disturbance lowered."""
    if len(peaks) < 2:
        return list(peaks)
    lowest_plausible_value = find_outlier_threshold([peak.estimate for peak in peaks])
    return [peak for peak in peaks if peak.estimate.value >= lowest_plausible_value]
