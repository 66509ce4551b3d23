"""Analyze a winner with the search model, and measure which of its changes the gain depends on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path

from optuna.storages import InMemoryStorage

from autotune.environments.base import Environment
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.optimize.ablation import FAILED, Ablation, PredictedEffect, RevertedChanges
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.model_view import ModelView
from autotune.optimize.reversal_cost import ReversalCost
from autotune.optimize.searcher import Searcher
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study import start
from autotune.study import trial as trials
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.ranking import estimate_measurement_sd, find_baseline, find_best_trial
from autotune.study.recorded_environment import RecordedEnvironment, read_environment
from autotune.study.schedule_steps import MeasureStep
from autotune.study.search_history import catch_up_search
from autotune.study.study_drift import estimate_study_drift
from autotune.study.study_loop import REPEAT_LOG_SD, list_searched_changes, predict_reversal_costs
from autotune.study.study_state import Phase, State, Trial
from autotune.study.study_store import load_state
from autotune.study.trial_context import TrialContext, collect_versions, open_session
from autotune.study.winner_changes import MinimalChanges
from autotune.study_argument import find_studies_option, format_study_argument


def check_measurable(directory: Path) -> None:
    """Raise AutotuneError for a study without a proven gain, and for a study in a shared database, which
    one machine cannot measure alone.
    """
    state = load_state(directory)
    if state.is_shared:
        raise AutotuneError(
            f"study {directory.name} is in a shared database; --measure supports only studies on "
            f"one machine",
            hint="omit --measure, or start a study from its best settings on one machine: `autotune run "
            f"TARGET --from {shlex.quote(directory.name)}{find_studies_option(directory)}`",
        )
    find_baseline_and_winner(state, directory)
    _get_proven_log_gain(state)


@dataclass(frozen=True)
class ModelAnalysis:
    """The model's results for a study: the ``view`` that is also recorded, and the cost of
    reverting each change.
    """

    view: ModelView
    costs: Mapping[str, ReversalCost]


def analyze_study(directory: Path, state: State, winner_number: int) -> ModelAnalysis:
    """Return the recorded analysis, or fit the model again if the study has no verdict.

    No host is contacted. Raises AutotuneError for a study that cannot be read.
    """
    if state.model is not None and (state.verdict is not None or state.reversal_costs):
        return ModelAnalysis(state.model, state.reversal_costs)
    environment, drift = read_environment(directory), estimate_study_drift(state)
    searcher = _rebuild_search(environment, directory, state)
    surrogate = searcher.fit_surrogate(drift)
    costs = predict_reversal_costs(surrogate, environment.space, state, winner_number)
    return ModelAnalysis(searcher.build_model_view(drift), costs)


def reduce_changes(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    max_measurements: int,
) -> None:
    """Measure which of the winner's changes its gain depends on, and record the result.

    Uses at most ``max_measurements`` measurements. Raises AutotuneError for a study without a proven
    gain.
    """
    state = load_state(directory)
    baseline, winner = find_baseline_and_winner(state, directory)
    gain = _get_proven_log_gain(state)
    surrogate = _rebuild_search(environment, directory, state).fit_surrogate(
        estimate_study_drift(state)
    )
    predicted_effects = _predict_effects(
        surrogate, environment.space, baseline.effective_settings, winner.effective_settings
    )
    noise = estimate_measurement_sd(state, winner)
    with open_session(environment, directory, progress) as context:
        context.store.record_session_start(collect_versions())
        ablation_trials = _AblationTrials(context, baseline.settings, winner)
        ablation_result = Ablation(
            predicted_effects, gain, noise, ablation_trials.measure_log_peak, max_measurements
        ).run()
        context.store.record_explanation(
            MinimalChanges(
                **asdict(ablation_result),
                changes=len(predicted_effects),
                trial=ablation_trials.trials.get(frozenset(ablation_result.dropped)),
            )
        )


def _rebuild_search(
    environment: Environment | RecordedEnvironment, directory: Path, state: State
) -> Searcher:
    """Return the study's search, with all outcomes recorded again from the journal.

    The sampler's own storage may be lost, changed by other users, or in a shared database.
    """
    searcher = start.create_searcher(environment, directory.name, InMemoryStorage())
    searcher.narrow_space(state.limit_space(environment.space))
    catch_up_search(searcher, state)
    return searcher


class _AblationTrials:
    """Measurements of the winner with some changes reverted, and the numbers of their trials."""

    def __init__(self, context: TrialContext, baseline: Settings, winner: Trial) -> None:
        self._context, self._baseline, self._winner = context, baseline, winner
        self.trials: dict[RevertedChanges, int] = {}

    def measure_log_peak(self, reverted_changes: RevertedChanges) -> float | None:
        """Return the result of one measurement: see `MeasureReverted`."""
        space, trial = self._context.space, self._winner
        winner_settings = space.replace_impossible_values(trial.effective_settings, trial.settings)
        settings = {
            name: self._baseline[name] if name in reverted_changes else value
            for name, value in winner_settings.items()
        }
        expected_peak = (
            Estimate.from_value(self._winner.peak.peak, REPEAT_LOG_SD)
            if self._winner.peak
            else None
        )
        source_trial = None if reverted_changes else self._winner.number
        finished_trial = trials.run_trial(
            MeasureStep(Phase.EXPLAIN, settings, source_trial=source_trial),
            self._context,
            expected_peak,
            None,
        )
        self._context.record_time_spent()
        if finished_trial.is_unmeasured:
            return None
        peak = finished_trial.peak
        if peak is None or not finished_trial.meets_slo:
            return FAILED
        self.trials[reverted_changes] = finished_trial.number
        return log(peak.peak)


def find_baseline_and_winner(state: State, directory: Path) -> tuple[Trial, Trial]:
    """Return the two trials of the study in ``directory``. Raises AutotuneError if it has no winner."""
    baseline = find_baseline(state)
    winner_number = state.verdict.best if state.verdict else find_best_trial(state)
    if baseline is None or winner_number is None:
        raise AutotuneError(
            f"study {directory.name} has no winner to explain",
            hint=f"`autotune status {format_study_argument(directory)}` shows its state",
        )
    return baseline, state.find_trial(winner_number)


def _get_proven_log_gain(state: State) -> float:
    verdict = state.verdict
    if verdict is None or verdict.verdict != "improved" or verdict.gain is None:
        raise AutotuneError(
            "--measure needs a proven gain over a working baseline",
            hint="omit --measure to see the model's estimates",
        )
    return log(verdict.gain.ratio)


def _predict_effects(
    surrogate: SurrogateModel,
    space: SearchSpace,
    baseline_settings: Settings,
    winner_settings: Settings,
) -> dict[str, PredictedEffect]:
    """Return the predicted loss from reverting each of the winner's changes, largest first."""
    changed_names = list_searched_changes(space, baseline_settings, winner_settings)
    configurations = [{**winner_settings, name: baseline_settings[name]} for name in changed_names]
    grid = surrogate.grid
    grid_points = grid.reset_inactive(grid.encode_all([winner_settings, *configurations]))
    loss_means, sd = surrogate.predict(grid_points)
    predicted_effects = {
        name: PredictedEffect(float(loss_means[0] - mean_loss), float(loss_sd))
        for name, mean_loss, loss_sd in zip(changed_names, loss_means[1:], sd[1:], strict=True)
    }
    return dict(sorted(predicted_effects.items(), key=lambda item: -item[1].loss))
