"""The Optuna study behind a search: suggestions, results, and the model's predictions.

Suggestions and results are in Optuna's storage, so nothing is lost if autotune is killed.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Container, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, check_distribution_compatibility
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.estimate import Estimate
from autotune.optimize.base import (
    NarrowingSampler,
    SamplerTask,
    build_distributions,
    clip_to_dimensions,
    strip_numpy_types,
)
from autotune.optimize.drift import EMPTY_DRIFT, StudyDrift
from autotune.optimize.gp.surrogate import (
    BED_DRIFT_KEY,
    DRIFT_KEY,
    FEASIBLE_KEY,
    NO_TRIAL,
    SurrogateModel,
    collect_observations,
    is_feasible_trial,
    read_shifts,
)
from autotune.optimize.importance import build_model_view
from autotune.optimize.model_view import ModelView
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.samplers import choose_sampler
from autotune.services.base import Settings, Value
from autotune.services.registry import Catalogue
from autotune.space.space import SearchSpace

# Value of an infeasible trial, relative to the worst feasible trial. Samplers ignore trials that are
# reported as failed, so they would suggest the same configuration again.
INFEASIBLE_SHARE = 0.8


def _load_importance() -> None:
    """Import Optuna's importance module without scikit-learn.

    If scikit-learn is installed, Optuna imports it for unused evaluators, which takes more than a
    second.
    """
    is_first_import = "sklearn" not in sys.modules
    if is_first_import:
        sys.modules["sklearn"] = None  # type: ignore[assignment]  # `import` raises ImportError
    try:
        importlib.import_module("optuna.importance")
    finally:
        if is_first_import:
            del sys.modules["sklearn"]


_load_importance()  # runs now, before another thread may import scikit-learn


@dataclass(frozen=True)
class Suggestion:
    """A suggested configuration: Optuna's trial ``number``, and ``values`` of the searched dimensions.

    ``improvement_probability`` is the probability that any configuration is clearly better than the
    best known configuration, if the sampler computes this probability.
    """

    number: int
    values: Mapping[str, Value]
    improvement_probability: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The peak in requests/s (``None`` if infeasible), and notes for readers of the storage.

    ``notes["trial"]`` is the trial's number in the study, so that no trial is recorded twice.
    """

    peak: float | None
    notes: Mapping[str, str | float | int]


def _check_distribution(name: str, recorded: BaseDistribution, current: BaseDistribution) -> None:
    try:
        check_distribution_compatibility(recorded, current)
    except ValueError as error:
        raise ValueError(f"the possible values of {name} have changed") from error


def _count_stored_trials(storage: BaseStorage, study_name: str) -> int:
    try:
        study_id = storage.get_study_id_from_name(study_name)
    except KeyError:
        return 0  # a new study
    return storage.get_n_trials(study_id)


class Searcher:
    """One Optuna study over the flat space.

    No other process may write this study to ``storage``, and the caller closes ``storage``. ``chosen``
    names the sampler. ``has_several_beds`` is true if several configurations are measured concurrently.
    With ``is_condensed``, a configuration that the sampler did not suggest is stored with only the core
    parameters and the changes from the baseline. These values suffice to inspect a study, but not to
    continue the search. Raises AutotuneError for an unknown ``sampler_name``.
    """

    def __init__(
        self,
        storage: BaseStorage,
        study_name: str,
        space: SearchSpace,
        sampler_name: str,
        seed: int,
        trial_budget: int = 40,
        *,
        has_several_beds: bool = False,
        is_condensed: bool = False,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._condensed = is_condensed
        stored_trials = _count_stored_trials(storage, study_name)
        self._use_sampler(SamplerTask(space, trial_budget, seed, has_several_beds, stored_trials))
        self.chosen = choose_sampler(sampler_name, self._task)
        # Maps a trial's number in the study to Optuna's trial number, for suggestions from other
        # processes.
        self._numbers_elsewhere: dict[int, int] = {}
        self._study = optuna.create_study(
            storage=storage,
            study_name=study_name,
            direction="maximize",
            sampler=self.chosen.sampler,
            load_if_exists=True,
        )
        # Only complete trials are used: autotune may have been killed after it wrote a trial's notes but
        # before it wrote the value.
        completed_trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        self._recorded = {trial.user_attrs.get("trial", -1) for trial in completed_trials}
        self._lowest_peak = min(
            (t.value for t in completed_trials if t.value is not None and is_feasible_trial(t)),
            default=inf,
        )

    def check_trials(self) -> None:
        """Read the recorded trials as samplers do. Raises the same errors for invalid trials.

        Raises ValueError if the choices or the scale of a parameter have changed. Optuna would then
        refuse the next suggestion.
        """
        trials = self._study.get_trials(deepcopy=False)
        for trial in trials:
            for name in trial.distributions.keys() & self._distributions.keys():
                _check_distribution(name, trial.distributions[name], self._distributions[name])
        if trials:
            collect_observations(self._task.grid, trials, NO_TRIAL, read_shifts(self._study))

    def _use_sampler(self, task: SamplerTask) -> None:
        self._task, self._dimensions = task, task.space.tunable_dimensions
        self._distributions = build_distributions(self._dimensions)
        self._omitted_baselines = {
            d.name: d.baseline for d in self._dimensions if self._condensed and not d.is_core
        }

    @property
    def catalogue(self) -> Catalogue:
        """Return the services of the target."""
        return self._task.space.catalogue

    def narrow_space(self, space: SearchSpace) -> None:
        """Search ``space`` from now on: the same parameters, with the limits found in the study so far.

        These limits exclude values that do not take effect, and configurations that need too much
        memory.
        """
        if space == self._task.space:
            return
        self._use_sampler(self._task.with_space(space))
        if isinstance(self.chosen.sampler, NarrowingSampler):
            self.chosen.sampler.narrow_space(self._task)

    def suggest(self, drift: StudyDrift = EMPTY_DRIFT) -> Suggestion:
        """Return the next configuration to try, with effective values. Peaks are corrected for
        ``drift``.
        """
        self._store_drift(drift)
        # Optuna warns about values outside a narrowed range, but these values are clipped.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = self._study.ask(self._distributions)
        probability = getattr(self.chosen.sampler, "improvement_probability", None)
        suggested_values = strip_numpy_types(trial.params)
        effective_values = self._task.space.get_effective_settings(suggested_values)
        suggestion_number = (
            trial.number
            if effective_values == suggested_values
            else self._replace_suggestion(trial.number, effective_values)
        )
        return Suggestion(suggestion_number, effective_values, probability)

    def _replace_suggestion(self, suggestion_number: int, values: Settings) -> int:
        """Replace a suggestion by a pending suggestion with these values. Return Optuna's number of the
        new suggestion.
        """
        self.discard_trial(suggestion_number)
        return self._add_pending_suggestion(values)

    def _add_pending_suggestion(self, values: Settings) -> int:
        pending_number = len(self._study.get_trials(deepcopy=False))
        self._study.add_trial(self._build_trial(values, state=TrialState.RUNNING))
        return pending_number

    def compute_posterior_peaks(self, drift: StudyDrift = EMPTY_DRIFT) -> PosteriorPeaks:
        """Return the model's peak estimate for each measured configuration, and the model's noise."""
        surrogate = self.fit_surrogate(drift)
        best_log_peak = surrogate.observations.log_peaks.max()
        trial_numbers = surrogate.observations.trial_numbers
        peaks = {
            trial_number: Estimate(float(best_log_peak + mean_log_peak), float(log_peak_sd))
            for trial_number, mean_log_peak, log_peak_sd in zip(
                trial_numbers, *surrogate.estimate_measured(), strict=True
            )
        }
        return PosteriorPeaks(peaks, float(np.sqrt(surrogate.log_peak_model.noise_variance)))

    def build_model_view(self, drift: StudyDrift = EMPTY_DRIFT) -> ModelView:
        """Return the model's estimates of the parameters' effects, for reports (see
        `importance.build_model_view`).
        """
        return build_model_view(self.fit_surrogate(drift))

    def fit_surrogate(self, drift: StudyDrift = EMPTY_DRIFT) -> SurrogateModel:
        """Return the model of the space, fitted to all recorded trials; at least one configuration must
        have worked.
        """
        self._store_drift(drift)
        trials = self._study.get_trials(deepcopy=False)
        observations = collect_observations(
            self._task.grid, trials, NO_TRIAL, read_shifts(self._study)
        )
        return SurrogateModel.fit(self._task.grid, observations)

    def _store_drift(self, drift: StudyDrift) -> None:
        """Store ``drift`` for the samplers of all processes, but only if the drift changed."""
        shifts_by_trial = {
            str(trial_number): [shift.log_mean, shift.sd]
            for trial_number, shift in drift.shifts.items()
        }
        for attribute_name, attribute_value in (
            (DRIFT_KEY, shifts_by_trial),
            (BED_DRIFT_KEY, dict(drift.bed_sds)),
        ):
            if attribute_value != self._study.user_attrs.get(attribute_name, {}):
                self._study.set_user_attr(attribute_name, attribute_value)

    def record_outcome(
        self, suggestion_number: int | None, values: Settings, outcome: Outcome
    ) -> None:
        """Record the outcome of a configuration. ``suggestion_number`` is ``None`` if the sampler did
        not suggest the configuration.

        A repeated call does nothing. A configuration without a pending suggestion is added as a
        finished trial, and the sampler also learns from that trial.
        """
        if outcome.notes["trial"] in self._recorded:
            return
        worst_value = INFEASIBLE_SHARE * self._lowest_peak if self._lowest_peak < inf else 0.0
        value, constraint_violation = (
            (worst_value, 1.0) if outcome.peak is None else (outcome.peak, -1.0)
        )
        pending_trial = (
            None if suggestion_number is None else self._find_pending_suggestion(suggestion_number)
        )
        if pending_trial and strip_numpy_types(pending_trial.params) != clip_to_dimensions(
            values, self._dimensions
        ):
            # The effective values differ from the suggested values.
            self.discard_trial(suggestion_number)
            pending_trial = None
        if pending_trial is None:
            finished_trial = self._build_trial(values, value=value, user_attrs=dict(outcome.notes))
            finished_trial.set_constraint(FEASIBLE_KEY, constraint_violation)
            self._study.add_trial(finished_trial)
        else:
            self._tell_outcome(pending_trial, value, constraint_violation, outcome.notes)
        self._recorded.add(outcome.notes["trial"])
        if outcome.peak is not None:
            self._lowest_peak = min(self._lowest_peak, outcome.peak)

    def _find_pending_suggestion(self, suggestion_number: int) -> FrozenTrial | None:
        """Return the suggestion with this number, if it has no outcome yet."""
        trials = self._study.get_trials(deepcopy=False)
        return (
            trials[suggestion_number]
            if suggestion_number < len(trials) and not trials[suggestion_number].state.is_finished()
            else None
        )

    def _tell_outcome(
        self,
        suggested_trial: FrozenTrial,
        value: float,
        constraint_violation: float,
        notes: Mapping[str, Any],
    ) -> None:
        trial = optuna.trial.Trial(self._study, suggested_trial._trial_id)  # noqa: SLF001  # by number
        for note_name, note in notes.items():
            trial.set_user_attr(note_name, note)
        # The constraint cannot be set twice. A kill may have happened after the constraint was set, but
        # before the value was written.
        if FEASIBLE_KEY not in suggested_trial.constraints:
            trial.set_constraint(FEASIBLE_KEY, constraint_violation)
        self._study.tell(trial, value)

    def list_recorded_trials(self) -> frozenset[int]:
        """Return the study's own numbers, not Optuna's, of all trials with recorded outcomes."""
        return frozenset(self._recorded)

    def add_pending_suggestions(self, pending_settings: Mapping[int, Settings]) -> None:
        """Add the suggestions that other processes are measuring now; the keys are trial numbers.

        The model uses its predictions as the results of these suggestions.
        """
        for trial_number in self._numbers_elsewhere.keys() - pending_settings.keys():
            self.discard_trial(self._numbers_elsewhere.pop(trial_number))
        for trial_number in sorted(pending_settings.keys() - self._numbers_elsewhere.keys()):
            self._numbers_elsewhere[trial_number] = self._add_pending_suggestion(
                pending_settings[trial_number]
            )

    def _build_trial(self, values: Settings, **trial_fields: Any) -> FrozenTrial:
        """Return an Optuna trial for values that the sampler did not suggest."""
        clipped_values = clip_to_dimensions(values, self._dimensions)
        params = {
            name: value
            for name, value in clipped_values.items()
            if name not in self._omitted_baselines or value != self._omitted_baselines[name]
        }
        distributions = {name: self._distributions[name] for name in params}
        return optuna.trial.create_trial(params=params, distributions=distributions, **trial_fields)

    def discard_trial(self, suggestion_number: int | None) -> None:
        """Discard the suggestion with this number, because it will not be measured or its measurement
        failed.
        """
        if suggestion_number is not None and suggestion_number < len(
            self._study.get_trials(deepcopy=False)
        ):
            self._study.tell(suggestion_number, state=TrialState.FAIL, skip_if_finished=True)

    def discard_pending_suggestions(self, kept_numbers: Container[int | None] = ()) -> None:
        """Discard the pending suggestions of killed processes, except those in ``kept_numbers``."""
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.number not in kept_numbers:
                self._study.tell(trial.number, state=TrialState.FAIL)

    def reseed_sampler(self) -> None:
        """Use random numbers that differ from the random numbers of other processes."""
        self.chosen.sampler.reseed_rng()
