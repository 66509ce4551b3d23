"""`autotune measure`: the peak of one configuration, or of one against another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path
from statistics import fmean, stdev

from autotune.environments.base import Environment
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError, UsageError
from autotune.estimate import Estimate
from autotune.loads.load_commands import find_excess
from autotune.optimize import confirmation
from autotune.optimize.confirmation import Gain, SideMeasurement, compute_gain
from autotune.services.base import Settings
from autotune.space.dimension import (
    BASELINE_NAME,
    NAMED_SETTINGS,
    PRESET_NAMES,
    is_deployment_choice,
)
from autotune.space.space import SearchSpace
from autotune.study import trial as trials
from autotune.study.apply_export import read_compatible_settings, read_exported_rss
from autotune.study.schedule import MeasureStep, select_active_settings
from autotune.study.study_loop import REPEAT_LOG_SD
from autotune.study.study_state import MEASURE_PURPOSE, Phase, Trial
from autotune.study.trial_context import ProgressReporter, TrialContext, begin_study, open_session
from autotune.target.quantities import parse_rate

CONFIGURATION_LABEL = "the configuration"
ROUNDING_TOLERANCE = 1e-9  # relative, of a mean of logarithms


@dataclass(frozen=True)
class ComparisonConfiguration:
    """``settings`` over the baseline, with what to call them.

    ``rss`` are the sizes of processes, in bytes by `tier.service`, as measured in the study that the
    settings come from.
    """

    name: str
    settings: Settings
    rss: Mapping[str, int] = field(default_factory=dict)

    @property
    def phrase(self) -> str:
        """What it is called in a sentence."""
        if self.name == BASELINE_NAME:
            return "the baseline"
        return f"the {self.name} settings" if self.name in PRESET_NAMES else self.name


def build_comparison_configuration(
    space: SearchSpace, against: str, settings: Settings
) -> ComparisonConfiguration:
    """What ``settings`` are to be measured against.

    ``against`` is `baseline`, a preset (`recommended`, `published`) of the software that ``settings``
    choose, or the path of an export; a name wins over a path that is spelt alike. Raises
    AutotuneError where it is none of them.
    """
    if against == BASELINE_NAME:
        return ComparisonConfiguration(against, {})
    if against in PRESET_NAMES:
        chosen = {**space.baseline, **settings}
        deployment = {name: value for name, value in chosen.items() if is_deployment_choice(name)}
        return ComparisonConfiguration(against, space.preset_settings(against, deployment))
    export = Path(against)
    if not export.exists():
        raise AutotuneError(
            f"cannot measure against {against!r}",
            hint=f"--against {', '.join(NAMED_SETTINGS)}, or the directory of another export",
        )
    return ComparisonConfiguration(
        against, read_compatible_settings(space, export), read_exported_rss(export)
    )


@dataclass(frozen=True)
class MeasurementRequest:
    """What to measure: ``settings`` over the baseline, alone or ``against`` others, ``repeat`` times.

    ``rss`` are the sizes of processes, in bytes by `tier.service`, as measured in the study that the
    settings come from.
    """

    settings: Settings
    against: ComparisonConfiguration | None
    repeat: int
    rss: Mapping[str, int] = field(default_factory=dict)


def build_measurement_request(
    environment: Environment, config: Path | None, against: str | None, repeat: int
) -> MeasurementRequest:
    """Raises AutotuneError for an export that cannot be read or does not fit the target, and where
    the stack as it is would be measured against itself."""
    settings = read_compatible_settings(environment.space, config) if config else {}
    rss = read_exported_rss(config) if config else {}
    if against is None:
        return MeasurementRequest(settings, None, repeat, rss)
    other = build_comparison_configuration(environment.space, against, settings)
    space = environment.space
    here, there = (space.complete_unrepaired(s).settings for s in (settings, other.settings))
    if config is None and select_active_settings(here, space) == select_active_settings(
        there, space
    ):
        raise AutotuneError(
            f"the baseline is measured, and {against} has the same settings: there is no gain",
            hint="--config EXPORT is what to measure in place of the baseline",
        )
    return MeasurementRequest(settings, other, repeat, {**other.rss, **rss})


def parse_required_capacity(
    environment: Environment, text: str | None, *, of_ceiling: bool
) -> float | None:
    """The capacity asked for, in requests/s. Raises UsageError if it is not a rate, if it exceeds
    ``load.max_rate``, and for targets without a capacity."""
    if text is None:
        return None
    if of_ceiling or environment.file.target.command_goal is not None:
        raise UsageError("--at-least is about the capacity of a stack", hint="leave --at-least out")
    try:
        desired = parse_rate(text)
    except ValueError as error:
        raise UsageError(f"--at-least: {error}", hint="such as --at-least 1200/s") from None
    if reason := find_excess(desired, environment.file.target.load.max_rate):
        hint = "raise `load: {max_rate: …}` in the target, or ask for less"
        raise UsageError(f"--at-least can never be reached: {reason}", hint=hint)
    return desired


@dataclass(frozen=True)
class Measurement:
    """Measurements of the configuration. Where it alternated with an ``comparison_trials`` one, also
    those, the ``gain`` over it, and which it is (``against``). Every trial here has a peak."""

    study: str
    trials: tuple[Trial, ...]
    comparison_trials: tuple[Trial, ...] = ()
    gain: Gain | None = None
    against: ComparisonConfiguration | None = None

    @property
    def spread(self) -> float | None:
        """Relative standard deviation between repeats."""
        logs = self._log_peaks
        return stdev(logs) if len(logs) > 1 else None

    @property
    def limit(self) -> str | None:
        """What kept the load from being raised to the capacity: ``peak`` is then a lower bound."""
        return next((t.peak.limit for t in self.trials if t.peak and t.peak.is_load_limited), None)

    @property
    def peak(self) -> float:
        """The geometric mean of all repeats that met the objective; a lower bound if there is a
        ``limit``."""
        return exp(fmean(self._log_peaks)) if self._log_peaks else 0.0

    def reaches_rate(self, rate: float) -> bool:
        """Whether the capacity is ``rate`` (requests/s) or higher; a lower bound counts as it is."""
        return self.peak >= rate * (1 - ROUNDING_TOLERANCE)

    @property
    def _log_peaks(self) -> list[float]:
        peaks = [trial.peak for trial in self.trials]
        return [log(peak.peak) for peak in peaks if peak is not None and peak.met_slo]


def measure_configuration(
    environment: Environment,
    request: MeasurementRequest,
    directory: Path,
    progress: ProgressReporter,
) -> Measurement:
    """Measure and keep every reading in a directory like a study's."""
    with open_session(environment, directory, progress) as context:
        begin_study(environment, context, directory, MEASURE_PURPOSE)
        knowing = replace(context, space=context.space.with_measured_memory(request.rss))
        if request.against is not None:
            return _measure_alternately(knowing, request, request.against, directory)
        repeats: list[Trial] = []
        for _ in range(request.repeat):
            repeats.append(
                _measure_once(knowing, request.settings, repeats, CONFIGURATION_LABEL)[0]
            )
        return Measurement(directory.name, tuple(repeats))


def _measure_alternately(
    context: TrialContext,
    request: MeasurementRequest,
    against: ComparisonConfiguration,
    directory: Path,
) -> Measurement:
    """The other and the configuration in turn: A B B A A B …, in at least as many pairs as a proof."""
    sides: dict[bool, list[Trial]] = {False: [], True: []}
    measured: list[SideMeasurement] = []
    for index in range(2 * max(confirmation.MIN_PAIRS, request.repeat)):
        configured = confirmation.is_winner_turn(index)
        settings = request.settings if configured else against.settings
        called = CONFIGURATION_LABEL if configured else against.phrase
        trial, peak = _measure_once(context, settings, sides[configured], called)
        if peak.is_load_limited:
            raise AutotuneError(
                f"{called}: the capacity is at least {peak.peak:.0f} requests/s (limited by "
                f"{peak.limit}), so no gain can be measured",
                hint="raise load.max_rate, or add hosts to load.hosts",
            )
        if not peak.is_feasible:
            raise AutotuneError(f"{called}: the objective is not met at any rate tried")
        sides[configured].append(trial)
        measured.append(SideMeasurement(configured, peak.estimate))
    return Measurement(
        directory.name, tuple(sides[True]), tuple(sides[False]), compute_gain(measured), against
    )


def _measure_once(
    context: TrialContext, settings: Settings, earlier: list[Trial], label: str
) -> tuple[Trial, Peak]:
    peaks = [trial.peak.peak for trial in earlier if trial.peak and trial.peak.is_feasible]
    prior = Estimate.from_value(peaks[-1], REPEAT_LOG_SD) if peaks else None
    done = trials.run_trial(MeasureStep(Phase.MEASURE, settings), context, prior, None)
    context.record_time_spent()
    if done.peak is None:
        raise AutotuneError(f"{label} cannot be used: {done.failure}")
    if not_as_named := [line for line in done.differences if line.partition(":")[0] in settings]:
        raise AutotuneError(
            f"{label} did not take effect as it is: {'; '.join(not_as_named)}",
            hint="its figures would be those of another configuration: `autotune run` finds what fits",
        )
    return done, done.peak
