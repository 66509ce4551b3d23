"""Tune a workload with a recipe, as an engineer does who changes one factor at a time.

The recipe is part of the workload. Configurations are measured as precisely as in a study of the same
duration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from autotune.environments.base import Environment
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import MEASURE_PURPOSE, Phase, Trial
from autotune.study.trial import run_trial
from autotune.study.trial_context import TrialContext, begin_study, open_session
from scripts.workloads.catalogue import Factor

# Ratio of capacities above which a step counts as an improvement. Smaller ratios may be noise.
_IMPROVEMENT = 1.05
_EXPECTED_LOG_SD = 0.5  # sd of the next step's log capacity around the best capacity so far
_FIRST_TRIAL_SECONDS = 60.0  # expected seconds of a trial before the first trial is finished


@dataclass(frozen=True)
class Attempt:
    """Changes to the stock settings, and their capacity in requests/s, or 0 if they are not usable."""

    settings: Settings
    capacity: float
    limiting_service: str | None
    trial: int


def choose_factor(remaining: Sequence[Factor], limiting_service: str | None) -> Factor | None:
    """Return the first factor of ``limiting_service``, or else the first remaining factor."""
    for factor in remaining:
        if factor.service == limiting_service:
            return factor
    return remaining[0] if remaining else None


def follow_recipe(
    factors: Sequence[Factor], measure: Callable[[Settings, Attempt | None], Attempt | None]
) -> list[Attempt]:
    """Measure the stock settings, then steps of ``factors`` until ``measure`` returns ``None``.

    If a step improves the capacity, its settings are kept. Otherwise, its factor is finished. Each
    kept step has a diagnosis, which determines the next factor.
    """
    best = measure({}, None)
    attempts = [best] if best else []
    remaining = list(factors)
    while best and (factor := choose_factor(remaining, best.limiting_service)):
        attempt = measure({**best.settings, **factor.steps[0]}, best)
        if attempt is None:
            break
        attempts.append(attempt)
        at = remaining.index(factor)
        helps = attempt.capacity > _IMPROVEMENT * best.capacity
        rest = factor.steps[1:] if helps else ()
        remaining[at : at + 1] = [replace(factor, steps=rest)] if rest else []
        best = attempt if helps else best
    return attempts


def tune_by_recipe(
    environment: Environment,
    factors: Sequence[Factor],
    directory: Path,
    progress: ProgressReporter,
    seconds: float,
) -> list[Attempt]:
    """Follow the recipe for ``seconds``. All readings are stored in ``directory``, as by a study."""
    with open_session(environment, directory, progress) as context:
        begin_study(environment, context, directory, MEASURE_PURPOSE)
        durations: list[float] = []

        def measure(settings: Settings, best: Attempt | None) -> Attempt | None:
            settings = _select_measured_changes(environment.space, settings)
            begun = context.elapsed_seconds
            expected = fmean(durations) if durations else _FIRST_TRIAL_SECONDS
            if best is not None and begun + expected > seconds:
                return None
            trial = _measure_settings(context, settings, best)
            durations.append(context.elapsed_seconds - begun)
            return _describe_attempt(context, settings, trial)

        return follow_recipe(factors, measure)


def _select_measured_changes(space: SearchSpace, settings: Settings) -> Settings:
    """Return the changes that are measured for these settings, after rules have limited them."""
    candidate = space.build_candidate(settings).settings
    return {name: value for name, value in candidate.items() if value != space.baseline[name]}


def _measure_settings(context: TrialContext, settings: Settings, best: Attempt | None) -> Trial:
    phase = Phase.SEARCH if best else Phase.BASELINE
    known = context.store.state.find_trial(best.trial).peak if best else None
    estimate = known.estimate if known and known.is_feasible else None
    expected = replace(estimate, sd=_EXPECTED_LOG_SD) if estimate else None
    trial = run_trial(MeasureStep(phase, settings), context, expected, estimate)
    context.record_time_spent()
    return trial


def _describe_attempt(context: TrialContext, settings: Settings, trial: Trial) -> Attempt:
    bottleneck = context.store.state.bottlenecks.get(trial.number)
    service = f"{bottleneck.tier}.{bottleneck.service}" if bottleneck else None
    usable = trial.peak is not None and trial.peak.met_slo and not trial.peak.is_pruned
    return Attempt(
        settings, trial.peak.peak if usable and trial.peak else 0.0, service, trial.number
    )


def find_best_attempt(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt with the highest capacity, or ``None`` if no settings can be used."""
    usable = [attempt for attempt in attempts if attempt.capacity]
    return max(usable, key=lambda attempt: attempt.capacity) if usable else None
