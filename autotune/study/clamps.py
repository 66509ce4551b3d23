"""Values that did not take effect in deployments, and trials with the same effective configuration.

Clamps and groups are derived from the recorded trials, so that all sessions, test beds and workers of a
study agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from autotune.services.base import Settings, Value
from autotune.space.parameter_caps import UNLIMITED_CLAMP, Clamp, infer_clamp


class MeasuredTrial(Protocol):
    """The attributes of a trial that this module reads; `study.study_state.Trial` describes them."""

    @property
    def number(self) -> int: ...
    @property
    def source_trial(self) -> int | None: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def effective(self) -> Mapping[str, Value]: ...
    @property
    def effective_settings(self) -> Settings: ...
    @property
    def clamped_parameters(self) -> tuple[str, ...]: ...
    @property
    def capped_parameters(self) -> tuple[str, ...]: ...
    @property
    def is_feasible(self) -> bool: ...


def find_common_clamps(trials: Iterable[MeasuredTrial]) -> dict[str, Clamp]:
    """Return the limits beyond which values did not take effect in deployments, by parameter.

    A limit that varies between trials depends on other settings, and is dropped. A limit is also
    dropped if a value beyond it took effect in any trial.
    """
    trials = tuple(trials)
    clamps_by_parameter: dict[str, set[Clamp]] = {}
    for trial in trials:
        for name in trial.clamped_parameters:
            clamp = infer_clamp(trial.settings[name], trial.effective[name])
            if clamp != UNLIMITED_CLAMP:
                clamps_by_parameter.setdefault(name, set()).add(clamp)
    common_clamps = {
        name: limit
        for name, clamps in clamps_by_parameter.items()
        if (limit := _find_agreed_clamp(clamps))
    }
    # A value beyond the limit took effect.
    refuted_names = {
        name
        for trial in trials
        for name, value in trial.effective.items()
        if name in common_clamps and not common_clamps[name].allows(value)
    }
    return {name: limit for name, limit in common_clamps.items() if name not in refuted_names}


def _find_agreed_clamp(clamps: Collection[Clamp]) -> Clamp | None:
    """Return the lower and upper limit that all ``clamps`` agree on; ``None`` if they differ."""
    minimums = {clamp.minimum for clamp in clamps} - {UNLIMITED_CLAMP.minimum}
    maximums = {clamp.maximum for clamp in clamps} - {UNLIMITED_CLAMP.maximum}
    if len(minimums) > 1 or len(maximums) > 1:
        return None
    return Clamp(
        max(minimums, default=UNLIMITED_CLAMP.minimum),
        min(maximums, default=UNLIMITED_CLAMP.maximum),
    )


def group_equal_configurations(trials: Iterable[MeasuredTrial]) -> dict[int, int]:
    """Map each trial that repeats an earlier configuration to the trial that represents the
    configuration.

    The representative is the first trial that met the objective, or else the first trial. Two trials
    have the same configuration if the same values took effect. Groups of trials without a clamped value
    are left out.
    """
    configurations = [trial for trial in trials if trial.source_trial is None]
    if not any(trial.clamped_parameters or trial.capped_parameters for trial in configurations):
        return {}
    trials_by_settings: dict[frozenset[tuple[str, Value]], list[MeasuredTrial]] = {}
    for trial in configurations:
        trials_by_settings.setdefault(frozenset(trial.effective_settings.items()), []).append(trial)
    clamped_groups = (
        g
        for g in trials_by_settings.values()
        if any(trial.clamped_parameters or trial.capped_parameters for trial in g)
    )
    return {
        trial.number: representative.number
        for equal_trials in clamped_groups
        for representative in [next((t for t in equal_trials if t.is_feasible), equal_trials[0])]
        for trial in equal_trials
        if trial is not representative
    }
