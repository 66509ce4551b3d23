"""Explain a winner: cost of reverting each change, importance, interactions and range limits."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from optuna.storages import InMemoryStorage

from autotune.environments.base import Environment
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.optimize import importance
from autotune.optimize.ablation import Ablation, PredictedEffect, RevertedChanges
from autotune.optimize.gp.surrogate import SurrogateModel
from autotune.optimize.searcher import Searcher
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study import start
from autotune.study import trial as trials
from autotune.study.ranking import (
    MIN_CONFIGURATIONS,
    estimate_study_drift,
    find_baseline,
    find_best_trial,
    list_measured_trials,
)
from autotune.study.recorded_environment import RecordedEnvironment, read_environment
from autotune.study.schedule import MeasureStep
from autotune.study.study_loop import REPEAT_LOG_SD, catch_up_search
from autotune.study.study_state import Phase, State, Trial, format_reduction
from autotune.study.study_store import load_state
from autotune.study.trial_context import (
    ProgressReporter,
    TrialContext,
    collect_versions,
    open_session,
)
from autotune.target.messages import format_count

NAME_WIDTH = 48  # columns for the name of a parameter
PED_ANOVA_LEGEND = (
    "PED-ANOVA: share in what tells the best trials from the rest (Watanabe et al., 2023)"
)
MAX_MEASUREMENTS = 60  # measurements that a reduction takes by default


def check_not_shared(directory: Path) -> None:
    """Raise AutotuneError for a study in a storage, which one machine alone cannot measure."""
    if load_state(directory).is_shared:
        raise AutotuneError(
            f"study {directory.name} is in a storage; --measure supports studies of one machine only",
            hint="omit --measure, or start a study from its best settings on one machine: `autotune run "
            f"TARGET --from {shlex.quote(directory.name)}`",
        )


def explain_winner(directory: Path) -> dict[str, Any]:
    """Return the explanation from the study's trials as a JSON object. No host is contacted.

    Raises AutotuneError for a study without a winner.
    """
    state = load_state(directory)
    stock, winner = _baseline_and_winner(state)
    tried, environment = list_measured_trials(state), read_environment(directory)
    searcher = _describe_search(environment, directory, state)
    surrogate, anova = (
        searcher.fit_surrogate(estimate_study_drift(state)),
        searcher.compute_importance(),
    )
    point = surrogate.grid.reset_inactive(surrogate.grid.encode_all([winner.effective_settings]))[0]
    effects = importance.compute_effects(surrogate)
    return {
        "schema": 1,
        "study": directory.name,
        "trial": winner.number,
        "configurations": len(tried),
        "importance": [
            {
                "parameter": name,
                "effect": effect,
                "ped_anova": anova.get(name),
                "changed_in": sum(
                    t.effective_settings.get(name) != stock.effective_settings.get(name)
                    for t in tried
                ),
            }
            for name, effect in effects.items()
        ],
        "interactions": [asdict(pair) for pair in importance.find_interacting_pairs(surrogate)],
        "edges": [asdict(edge) for edge in importance.find_range_edges(surrogate, point)],
        "changes": [
            {"parameter": name, "loss": change.loss, "sd": change.sd}
            for name, change in _predict_effects(surrogate, environment.space, state).items()
        ],
        "minimal": dict(state.explanation) if state.explanation else None,
    }


def reduce_changes(
    environment: Environment,
    directory: Path,
    progress: ProgressReporter,
    max_measurements: int = MAX_MEASUREMENTS,
) -> None:
    """Measure which of the winner's changes its gain needs, and record the result.

    Takes at most ``max_measurements`` measurements. Raises AutotuneError for a study without a proven
    gain.
    """
    state = load_state(directory)
    stock, winner = _baseline_and_winner(state)
    gain = _proven_log_gain(state)
    surrogate = _describe_search(environment, directory, state).fit_surrogate(
        estimate_study_drift(state)
    )
    predicted = _predict_effects(surrogate, environment.space, state)
    noise = state.posterior.noise if state.posterior else REPEAT_LOG_SD / 2
    with open_session(environment, directory, progress) as context:
        context.store.record_session_start(collect_versions())
        reverting = _AblationTrials(context, stock.settings, winner)
        result = Ablation(
            predicted, gain, noise, reverting.measure_log_peak, max_measurements
        ).run()
        context.store.record_explanation({
            **asdict(result), "kept": list(result.kept), "dropped": list(result.dropped),
            "changes": len(predicted), "trial": reverting.trials.get(frozenset(result.dropped)),
        })  # fmt: skip


def _describe_search(
    environment: Environment | RecordedEnvironment, directory: Path, state: State
) -> Searcher:
    """Return the study's search, with all outcomes recorded again from the journal.

    The sampler's own storage may be lost or written by others, or it is in a database.
    """
    searcher = start.create_searcher(environment, directory.name, InMemoryStorage())
    searcher.narrow(environment.space.with_clamps(state.clamps))
    catch_up_search(searcher, state)
    return searcher


class _AblationTrials:
    """Measurements of the winner with some changes reverted, and the numbers of their trials."""

    def __init__(self, context: TrialContext, stock: Settings, winner: Trial) -> None:
        self._context, self._stock, self._winner = context, stock, winner
        self.trials: dict[RevertedChanges, int] = {}

    def measure_log_peak(self, reverted: RevertedChanges) -> float | None:
        space, trial = self._context.space, self._winner
        winner = space.replace_impossible(trial.effective_settings, trial.settings)
        settings = {
            name: self._stock[name] if name in reverted else value for name, value in winner.items()
        }
        prior = (
            Estimate.from_value(self._winner.peak.peak, REPEAT_LOG_SD)
            if self._winner.peak
            else None
        )
        of = None if reverted else self._winner.number
        done = trials.run_trial(
            MeasureStep(Phase.EXPLAIN, settings, source_trial=of), self._context, prior, None
        )
        self._context.record_time_spent()
        self.trials[reverted] = done.number
        peak = done.peak
        return log(peak.peak) if peak is not None and peak.is_feasible else None


def _baseline_and_winner(state: State) -> tuple[Trial, Trial]:
    stock = find_baseline(state)
    number = state.verdict["best"] if state.verdict else find_best_trial(state)
    if stock is None or number is None:
        raise AutotuneError(
            "the study has no winner to explain", hint="`autotune status` shows its state"
        )
    return stock, state.find_trial(number)


def _proven_log_gain(state: State) -> float:
    verdict = state.verdict
    if verdict is None or verdict["verdict"] != "improved" or verdict["gain"] is None:
        raise AutotuneError(
            "--measure needs a proven gain over a working baseline",
            hint="omit --measure to see the model's estimates",
        )
    return log(verdict["gain"]["ratio"])


def _predict_effects(
    surrogate: SurrogateModel, space: SearchSpace, state: State
) -> dict[str, PredictedEffect]:
    """Return the predicted loss from reverting each of the winner's changes, largest first."""
    stock, winner = _baseline_and_winner(state)
    searched = {d.name for d in space.tunable_dimensions} & space.active_parameters(
        winner.effective_settings
    )
    values, before = winner.effective_settings, stock.effective_settings
    changed = [n for n in values if n in searched and values[n] != before[n]]
    configurations = [{**values, name: before[name]} for name in changed]
    grid = surrogate.grid
    points = grid.reset_inactive(grid.encode_all([values, *configurations]))
    mean, sd = surrogate.predict(points)
    losses = {
        name: PredictedEffect(float(mean[0] - m), float(s))
        for name, m, s in zip(changed, mean[1:], sd[1:], strict=True)
    }
    return dict(sorted(losses.items(), key=lambda item: -item[1].loss))


def format_explanation(explanation: dict[str, Any]) -> str:
    """The explanation for a person."""
    study, trial, effects = (explanation[key] for key in ("study", "trial", "importance"))
    tried, first = explanation["configurations"], f"Study {study}, trial {trial}."
    if tried < MIN_CONFIGURATIONS:
        few = (
            f"{format_count(tried, 'configuration')} measured: too few for a model to tell what "
            "matters."
        )
        return "\n".join([first, "", few, "", *_format_measured_changes(explanation)])
    listed = [e for e in effects if e["effect"] >= 0.005] or effects[:3]
    lines = [first, "", f"What matters, by the model of {tried} measured configurations:"]
    for effect in listed:
        share = effect["ped_anova"]
        extra = f"   PED-ANOVA {share:.0%}" if share is not None else ""
        lines.append(
            f"  {effect['parameter']:{NAME_WIDTH}} ±{100 * effect['effect']:.1f} %   "
            f"changed in {effect['changed_in']}{extra}"
        )
    if any(effect["ped_anova"] is not None for effect in listed):
        lines.append(f"  {PED_ANOVA_LEGEND}")
    if explanation["interactions"]:
        lines += ["", "What depends on each other:"]
        lines += [f"  {p['first']} × {p['second']}: ±{100 * p['effect']:.1f} %"
                  for p in explanation["interactions"]]  # fmt: skip
    for edge in explanation["edges"]:
        where = f"{edge['parameter']} = {edge['value']} is at the {edge['end']} end of its range"
        low, high = edge["try_range"]
        lines += ["", f"{where}: try {{range: [{low}, {high}]}}"]
    if explanation["minimal"] is None:
        lines += ["", "What reverting each change of the winner would cost, by the model:"]
        lines += [f"  {change['parameter']:{NAME_WIDTH}} {100 * (np.exp(-change['loss']) - 1):+.1f} % "
                  f"± {100 * change['sd']:.1f} %" for change in explanation["changes"]]  # fmt: skip
    return "\n".join([*lines, "", *_format_measured_changes(explanation)])


def _format_measured_changes(explanation: dict[str, Any]) -> list[str]:
    reduced = explanation["minimal"]
    if reduced is None:
        return ["`--measure` finds the smallest set of changes that keeps 95 % of the gain."]
    kept = reduced["kept"]
    lines = [f"{format_reduction(reduced)}:", *(f"  {name}" for name in kept)]
    if reduced["trial"] is not None:
        lines.append(
            f"`autotune export {explanation['study']} --minimal --out DIR` writes only those."
        )
    return lines
