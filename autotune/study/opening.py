"""Plan the measurements of configurations that are known before the search."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.study.ranking import select_feasible_trials
from autotune.study.schedule_steps import MeasureStep, ScheduleStep
from autotune.study.study_state import COUNTED_PHASES, OPENING_PHASES, Phase, State
from autotune.study.time_budget import has_time_to_search
from autotune.target.model import Budget

# Maximum share of the trial budget for configurations that are known before the search, so that enough
# trials remain for the search.
MAX_OPENING_SHARE = 0.5


def plan_opening(
    state: State, space: SearchSpace, budget: Budget, elapsed_seconds: float, bed: str | None
) -> ScheduleStep | None:
    """Return a measurement of the next configuration that is known before the search, so that each
    deployment is tried early.

    Advised and published configurations are tried only if their deployment may be the best. The user's
    configurations follow the presets, and the winners of an earlier study come last. A configuration
    with the same effect as an earlier configuration is skipped.
    """
    if not has_time_to_search(state, budget, elapsed_seconds):
        return None
    # A baseline without a result is measured again if the benchmark failed.
    opening_trials = [
        t
        for phase in OPENING_PHASES
        for t in state.trials_by_phase.get(phase, ())
        if not (t.is_unmeasured and phase is Phase.BASELINE)
    ]
    if not any(t.bed == bed and t.phase is Phase.BASELINE for t in opening_trials):
        return MeasureStep(Phase.BASELINE, space.baseline)
    tried_deployments = [(t.phase, _select_deployment(t.settings, space)) for t in opening_trials]
    max_tried_settings = max(3, int(MAX_OPENING_SHARE * budget.trials))
    tried_settings, clamped_space = list[Settings](), space.with_clamps(state.clamps)
    tried_effects: list[Settings] = []  # effective settings of the configurations tried so far
    for phase, settings in _list_preset_settings(space):
        active_settings, effective_settings = (
            space.select_active_settings(settings),
            space.select_active_settings(clamped_space.get_effective_settings(settings)),
        )
        if active_settings in tried_settings:
            continue
        is_new = (
            phase,
            _select_deployment(settings, space),
        ) not in tried_deployments and effective_settings not in tried_effects
        tried_settings.append(active_settings)
        tried_effects.append(effective_settings)
        is_required = phase in (Phase.BASELINE, Phase.RECOMMENDED)
        if (
            is_new
            and len(tried_settings) <= max_tried_settings
            and (is_required or _may_deployment_be_best(state, space, settings))
        ):
            return MeasureStep(phase, settings)
    return _plan_untried_configuration(state, space, clamped_space, tried_settings)


def _plan_untried_configuration(
    state: State, space: SearchSpace, clamped_space: SearchSpace, tried_settings: Sequence[Settings]
) -> MeasureStep | None:
    """Return a measurement of the next configuration of the user or of an earlier study, or ``None``
    after the last configuration.

    Configurations with the same effect as a measured configuration are left out. ``clamped_space`` is
    the space with the clamps from deployments.
    """
    pending_candidates, seen_settings = list[Settings](), list(tried_settings)
    for changed_settings in (*space.try_first, *state.transferred):
        settings = {**space.baseline, **changed_settings}
        if (active_settings := space.select_active_settings(settings)) not in seen_settings:
            seen_settings.append(active_settings)
            pending_candidates.append(settings)

    def find_effective_settings(settings: Settings) -> Settings:
        return space.select_active_settings(clamped_space.get_effective_settings(settings))

    measured_effects = [
        find_effective_settings(t.settings) for t in state.list_started_trials(*OPENING_PHASES)
    ]
    requested_settings = [
        space.select_active_settings(t.requested or t.settings)
        for t in state.list_started_trials(Phase.TRY_FIRST)
    ]
    return next(
        (
            MeasureStep(Phase.TRY_FIRST, s, requested=s)
            for s in pending_candidates
            if space.select_active_settings(s) not in requested_settings
            and find_effective_settings(s) not in measured_effects
        ),
        None,
    )


def _may_deployment_be_best(state: State, space: SearchSpace, settings: Settings) -> bool:
    """True if the deployment of ``settings`` may be the best, according to measurements so far."""
    deployment = _select_deployment(settings, space)
    usable_trials = select_feasible_trials(state.list_finished_trials(*COUNTED_PHASES))
    bed_factors = {
        bed: exp(-state.get_bed_offset(bed).log) for bed in {t.bed for t in usable_trials}
    }
    lower_bounds = [
        bed_factors[t.bed] * t.peak.low
        for t in usable_trials
        if t.peak and not t.peak.is_incomplete
    ]
    upper_bounds = [
        bed_factors[t.bed] * t.peak.high
        for t in usable_trials
        if t.peak and _select_deployment(t.settings, space) == deployment
    ]
    return not lower_bounds or max(upper_bounds, default=0.0) >= max(lower_bounds)


def _list_preset_settings(space: SearchSpace) -> list[tuple[Phase, Settings]]:
    presets = ((Phase(preset_name), settings) for preset_name, settings in space.iterate_presets())
    return [(Phase.BASELINE, space.baseline), *presets]


def _select_deployment(settings: Settings, space: SearchSpace) -> Settings:
    """Return the settings that choose the software of each tier."""
    return {name: settings[name] for name in space.deployments[0] if name in settings}
