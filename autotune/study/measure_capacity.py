"""`autotune measure`: the peak of one configuration, or its gain over another configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import exp, log
from pathlib import Path
from statistics import fmean, stdev

from autotune.environments.base import Environment
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError, UsageError
from autotune.estimate import Estimate
from autotune.loads.load_commands import find_excess_rate
from autotune.optimize import confirmation
from autotune.optimize.confirmation import (
    Gain,
    SideMeasurement,
    compute_gain,
    compute_mean_with_interval,
)
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
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_loop import REPEAT_LOG_SD
from autotune.study.study_state import MEASURE_PURPOSE, Phase, Trial
from autotune.study.trial_context import TrialContext, begin_study, open_session
from autotune.target.quantities import parse_rate

CONFIGURATION_LABEL = "the configuration"
CHECK_HINT = "`autotune check TARGET` checks the target and its hosts"
ROUNDING_TOLERANCE = 1e-9  # relative rounding error of a mean of logarithms


@dataclass(frozen=True)
class ComparisonConfiguration:
    """A configuration to compare with: ``settings`` that override the baseline, and their ``name``.

    ``rss`` maps each `tier.service` to its process size in bytes, measured in the study of the
    settings.
    """

    name: str
    settings: Settings
    rss: Mapping[str, int] = field(default_factory=dict)

    @property
    def name_in_sentence(self) -> str:
        """Return the configuration's name for use in a sentence."""
        if self.name == BASELINE_NAME:
            return "the baseline"
        return f"the {self.name} settings" if self.name in PRESET_NAMES else self.name


def build_comparison_configuration(
    space: SearchSpace, against: str, settings: Settings
) -> ComparisonConfiguration:
    """Return the configuration that ``settings`` are compared with.

    ``against`` is `baseline`, a preset (`recommended`, `published`) for the software that ``settings``
    choose, or the path of an export. Names take precedence over paths. Raises AutotuneError for any
    other text.
    """
    if against == BASELINE_NAME:
        return ComparisonConfiguration(against, {})
    if against in PRESET_NAMES:
        complete_settings = {**space.baseline, **settings}
        deployment_choices = {
            name: value for name, value in complete_settings.items() if is_deployment_choice(name)
        }
        return ComparisonConfiguration(against, space.preset_settings(against, deployment_choices))
    export = Path(against)
    if not export.exists():
        raise UsageError(
            f"cannot measure against {against!r}",
            hint=f"--against {', '.join(NAMED_SETTINGS)}, or the directory of another export"
            " (`autotune export STUDY --trial TRIAL --out DIR` writes one)",
        )
    return ComparisonConfiguration(
        against, read_compatible_settings(space, export), read_exported_rss(export)
    )


@dataclass(frozen=True)
class MeasurementRequest:
    """A request to measure ``settings`` (which override the baseline) ``repeat`` times, alone or
    compared with ``against``.

    ``rss`` maps each `tier.service` to its process size in bytes, measured in the study of the
    settings.
    """

    settings: Settings
    against: ComparisonConfiguration | None
    repeat: int
    rss: Mapping[str, int] = field(default_factory=dict)


def build_measurement_request(
    environment: Environment, config: Path | None, against: str | None, repeat: int
) -> MeasurementRequest:
    """Return the measurement request for these options. Raises AutotuneError if an export cannot be read
    or does not fit the target, or if the baseline is compared with itself.
    """
    if config is not None and str(config) in NAMED_SETTINGS and not config.exists():
        raise UsageError(
            f"--config needs the directory of an export, not {str(config)!r}",
            hint=f"omit --config to measure the baseline, or write --against {config}",
        )
    settings = read_compatible_settings(environment.space, config) if config else {}
    rss = read_exported_rss(config) if config else {}
    if against is None:
        return MeasurementRequest(settings, None, repeat, rss)
    if config is not None and Path(against) == config:
        raise UsageError(
            f"--config and --against both name {against}, so there is nothing to compare",
            hint="name another export, or compare with `--against baseline`",
        )
    comparison = build_comparison_configuration(environment.space, against, settings)
    space = environment.space
    configured_settings, comparison_settings = (
        space.select_active_settings(space.complete_without_repair(side_settings).settings)
        for side_settings in (settings, comparison.settings)
    )
    if config is None and configured_settings == comparison_settings:
        raise UsageError(
            f"the baseline and {against} have the same settings, so there is nothing to compare",
            hint="to compare an export, pass its directory with --config",
        )
    return MeasurementRequest(settings, comparison, repeat, {**comparison.rss, **rss})


def check_assigned_parameters(
    space: SearchSpace, request: MeasurementRequest, names: Iterable[str]
) -> None:
    """Raise UsageError if a parameter that `--set` assigns affects none of the configurations."""
    settings_of_sides = [request.settings]
    if request.against is not None:
        settings_of_sides.append(request.against.settings)
    dimension_names = {dimension.name for dimension in space.dimensions}
    for name in names:
        if name in dimension_names:
            space.check_effect(name, f"--set {name}", settings_of_sides)


def parse_required_capacity(environment: Environment, rate_text: str | None) -> float | None:
    """Return the required capacity in requests/s.

    Raises UsageError if the text is not a rate, if the rate exceeds ``load.max_rate``, or if the target
    has no capacity.
    """
    if rate_text is None:
        return None
    if environment.file.target.command_goal is not None:
        raise UsageError(
            "--at-least applies only to the capacity of a stack, and the target is a command",
            hint="omit --at-least",
        )
    try:
        rate = parse_rate(rate_text)
    except ValueError as error:
        raise UsageError(f"--at-least: {error}", hint="such as --at-least 1200/s") from None
    if rate <= 0:
        raise UsageError("--at-least must exceed 0/s", hint="such as --at-least 1200/s")
    if reason := find_excess_rate(rate, environment.file.target.load.max_rate):
        raise UsageError(
            f"no measurement can confirm --at-least: {reason}",
            hint="raise `load: {max_rate: …}` in the target, or require a lower rate",
        )
    return rate


@dataclass(frozen=True)
class Measurement:
    """Measurements of a configuration. Every trial contains a peak.

    In a comparison, ``comparison_trials`` are trials of the ``against`` configuration, and ``gain`` is
    the gain over that configuration.
    """

    study: str
    trials: tuple[Trial, ...]
    comparison_trials: tuple[Trial, ...] = ()
    gain: Gain | None = None
    against: ComparisonConfiguration | None = None

    @property
    def spread(self) -> float | None:
        """Return the relative standard deviation of the repeats."""
        log_peaks = self._log_peaks
        return stdev(log_peaks) if len(log_peaks) > 1 else None

    @property
    def limit(self) -> str | None:
        """Return the limit that kept the load below the capacity, so that ``peak`` is only a lower
        bound.
        """
        return next((t.peak.limit for t in self.trials if t.peak and t.peak.is_load_limited), None)

    @property
    def peak(self) -> float:
        """Return the geometric mean of all repeats that met the objective; with a ``limit``, the mean
        is a lower bound.
        """
        return exp(fmean(self._log_peaks)) if self._log_peaks else 0.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 90 % interval of ``peak``; ``None`` unless several repeats all found a capacity."""
        peaks = [trial.peak for trial in self.trials if trial.peak and trial.meets_slo]
        if len(peaks) < max(2, len(self.trials)):
            return None
        _, interval_low, high = compute_mean_with_interval([peak.estimate for peak in peaks])
        return interval_low, high

    def reaches_rate(self, rate: float) -> bool:
        """True if the capacity is at least ``rate`` (requests/s), and every repeat met the objective.

        If the capacity is only a lower bound, that bound is compared with ``rate``.
        """
        met_slo = all(trial.peak is not None and trial.peak.met_slo for trial in self.trials)
        return met_slo and self.peak >= rate * (1 - ROUNDING_TOLERANCE)

    def is_rate_unknown(self, rate: float) -> bool:
        """True if the capacity may reach ``rate`` (requests/s), because a limit kept the load below both.

        A repeat that met the objective at no rate shows that the capacity is lower.
        """
        peaks = [trial.peak for trial in self.trials if trial.peak is not None]
        is_bound = all(peak.met_slo or peak.is_load_limited for peak in peaks)
        return self.limit is not None and is_bound and not self.reaches_rate(rate)

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
    """Measure a configuration, and record every reading in a directory like that of a study."""
    with open_session(environment, directory, progress) as context:
        begin_study(environment, context, directory, MEASURE_PURPOSE)
        sized_context = replace(context, space=context.space.with_measured_memory(request.rss))
        if request.against is not None:
            return _measure_alternately(sized_context, request, request.against, directory)
        repeats: list[Trial] = []
        for _ in range(request.repeat):
            repeats.append(
                _measure_once(sized_context, request.settings, repeats, CONFIGURATION_LABEL)[0]
            )
        return Measurement(directory.name, tuple(repeats))


def _measure_alternately(
    context: TrialContext,
    request: MeasurementRequest,
    against: ComparisonConfiguration,
    directory: Path,
) -> Measurement:
    """Measure both sides alternately (A B B A A B …), with at least the minimum number of pairs."""
    trials_by_side: dict[bool, list[Trial]] = {False: [], True: []}
    measurements: list[SideMeasurement] = []
    for index in range(2 * max(confirmation.MIN_PAIRS, request.repeat)):
        is_configuration = confirmation.is_winner_turn(index)
        settings = request.settings if is_configuration else against.settings
        side_label = CONFIGURATION_LABEL if is_configuration else against.name_in_sentence
        trial, peak = _measure_once(context, settings, trials_by_side[is_configuration], side_label)
        if peak.is_load_limited:
            raise AutotuneError(
                f"{side_label}: the capacity is at least {peak.peak:.0f} requests/s (limited by "
                f"{peak.limit}), so no gain can be measured",
                hint="raise load.max_rate, or add hosts to load.hosts",
            )
        if not peak.met_slo:
            raise AutotuneError(
                f"{side_label}: the SLO is not met at any rate tried",
                hint="loosen `slo:` in the target, or compare other configurations",
            )
        trials_by_side[is_configuration].append(trial)
        measurements.append(SideMeasurement(is_configuration, peak.estimate))
    return Measurement(
        directory.name,
        tuple(trials_by_side[True]),
        tuple(trials_by_side[False]),
        compute_gain(measurements),
        against,
    )


def _measure_once(
    context: TrialContext, settings: Settings, earlier_trials: list[Trial], side_label: str
) -> tuple[Trial, Peak]:
    peaks = [trial.peak.peak for trial in earlier_trials if trial.peak and trial.peak.is_feasible]
    expected_peak = Estimate.from_value(peaks[-1], REPEAT_LOG_SD) if peaks else None
    # A repeat uses the settings of the first trial, even if the memory rules now allow other settings.
    step = (
        MeasureStep(
            Phase.MEASURE, earlier_trials[0].settings, source_trial=earlier_trials[0].number
        )
        if earlier_trials
        else MeasureStep(Phase.MEASURE, settings)
    )
    trial = trials.run_trial(step, context, expected_peak, None)
    context.record_time_spent()
    if trial.peak is None:
        raise AutotuneError(f"{side_label} cannot be used: {trial.failure}", hint=CHECK_HINT)
    if not earlier_trials:
        _check_unrepaired(context.space, trial, settings, side_label)
    check_effective_settings(context.space, trial, settings, side_label)
    return trial, trial.peak


def _check_unrepaired(
    space: SearchSpace, trial: Trial, settings: Settings, side_label: str
) -> None:
    """Raise AutotuneError if a rule changed values after the other side showed the memory per process."""
    expected_settings = space.build_candidate(settings).settings
    changed_names = [
        name
        for name, value in trial.settings.items()
        if value != expected_settings[name] and name not in trial.capped_parameters
    ]
    if changed_names:
        raise AutotuneError(
            f"{side_label} does not satisfy the rules: {'; '.join(trial.bindings) or changed_names[0]}",
            hint="the rules use the memory of processes as measured just now; compare smaller values",
        )


def check_effective_settings(
    space: SearchSpace, trial: Trial, settings: Settings, side_label: str = CONFIGURATION_LABEL
) -> None:
    """Raise AutotuneError if a value in ``settings`` did not take effect.

    Values that the target fixes are not checked, because the software may compute such a value itself.
    """
    fixed_values = {d.name: d.baseline for d in space.dimensions if d.is_fixed}
    chosen_settings = {
        name: value
        for name, value in settings.items()
        if name not in fixed_values or value != fixed_values[name]
    }
    if unapplied_lines := find_unapplied_settings(trial, chosen_settings):
        raise AutotuneError(
            f"{side_label} took effect with different values: {'; '.join(unapplied_lines)}",
            hint="start a study with `autotune run` to find settings that take effect here",
        )


def find_unapplied_settings(trial: Trial, settings: Settings) -> list[str]:
    """Return the recorded differences of parameters whose value in ``settings`` did not take effect.

    An export contains effective values. Such a value counts as applied even if the trial requested
    another value that was clamped to the effective value.
    """
    unapplied_names = {
        name
        for name in trial.clamped_parameters
        if name in settings and trial.effective_settings[name] != settings[name]
    }
    return [line for line in trial.differences if line.partition(":")[0] in unapplied_names]
