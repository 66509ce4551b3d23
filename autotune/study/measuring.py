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
from autotune.loads.offer import excess
from autotune.optimize import confirmation
from autotune.optimize.confirmation import Gain, Measured, gain
from autotune.services.base import Settings
from autotune.space.dimension import BASELINE, NAMED, PRESETS, is_choice
from autotune.space.space import Space
from autotune.study import trial as trials
from autotune.study.applying import exported_rss, fitting_settings
from autotune.study.context import ProgressReporter, TrialContext, open_study, opened
from autotune.study.loop import KNOWN_SD
from autotune.study.records import MEASURED, Phase, Trial
from autotune.study.schedule import Measure, acting
from autotune.target.units import rate

CONFIGURATION = "the configuration"
ROUNDING = 1e-9  # relative, of a mean of logarithms


@dataclass(frozen=True)
class ReferenceConfiguration:
    """``settings`` over the baseline, with what to call them.

    ``rss`` are the sizes of processes, in bytes by `tier.service`, as measured in the study that the
    settings come from.
    """

    name: str
    settings: Settings
    rss: Mapping[str, int] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """What it is called in a sentence."""
        if self.name == BASELINE:
            return "the baseline"
        return f"the {self.name} settings" if self.name in PRESETS else self.name


def reference_configuration(space: Space, named: str, settings: Settings) -> ReferenceConfiguration:
    """What ``settings`` are to be measured against.

    ``named`` is `baseline`, a preset (`recommended`, `published`) of the software that ``settings``
    choose, or the path of an export; a name wins over a path that is spelt alike. Raises
    AutotuneError where it is none of them.
    """
    if named == BASELINE:
        return ReferenceConfiguration(named, {})
    if named in PRESETS:
        chosen = {**space.baseline, **settings}
        deployment = {name: value for name, value in chosen.items() if is_choice(name)}
        return ReferenceConfiguration(named, space.preset(named, deployment))
    export = Path(named)
    if not export.exists():
        raise AutotuneError(
            f"cannot measure against {named!r}",
            hint=f"--against {', '.join(NAMED)}, or the directory of another export",
        )
    return ReferenceConfiguration(named, fitting_settings(space, export), exported_rss(export))


@dataclass(frozen=True)
class Request:
    """What to measure: ``settings`` over the baseline, alone or ``against`` others, ``repeat`` times.

    ``rss`` are the sizes of processes, in bytes by `tier.service`, as measured in the study that the
    settings come from.
    """

    settings: Settings
    against: ReferenceConfiguration | None
    repeat: int
    rss: Mapping[str, int] = field(default_factory=dict)


def requested(
    environment: Environment, config: Path | None, against: str | None, repeat: int
) -> Request:
    """Raises AutotuneError for an export that cannot be read or does not fit the target, and where
    the stack as it is would be measured against itself."""
    settings = fitting_settings(environment.space, config) if config else {}
    rss = exported_rss(config) if config else {}
    if against is None:
        return Request(settings, None, repeat, rss)
    other = reference_configuration(environment.space, against, settings)
    space = environment.space
    here, there = (space.as_given(s).settings for s in (settings, other.settings))
    if config is None and acting(here, space) == acting(there, space):
        raise AutotuneError(
            f"the baseline is measured, and {against} has the same settings: there is no gain",
            hint="--config EXPORT is what to measure in place of the baseline",
        )
    return Request(settings, other, repeat, {**other.rss, **rss})


def least(environment: Environment, text: str | None, *, ceiling: bool) -> float | None:
    """The capacity asked for, in requests/s. Raises AutotuneError where it is no rate, and for anything
    but the capacity of a stack; UsageError for more than is ever offered."""
    if text is None:
        return None
    if ceiling or environment.file.target.goal is not None:
        raise AutotuneError(
            "--at-least is about the capacity of a stack", hint="leave --at-least out"
        )
    try:
        desired = rate(text)
    except ValueError as error:
        raise AutotuneError(f"--at-least: {error}", hint="such as --at-least 1200/s") from None
    if why := excess(desired, environment.file.target.load.max_rate):
        hint = "raise `load: {max_rate: …}` in the target, or ask for less"
        raise UsageError(f"--at-least can never be reached: {why}", hint=hint)
    return desired


@dataclass(frozen=True)
class Measurement:
    """Measurements of the configuration. Where it alternated with an ``other`` one, also those, the
    ``gain`` over it, and which it is (``against``). Every trial here has a peak."""

    study: str
    measured: tuple[Trial, ...]
    other: tuple[Trial, ...] = ()
    gain: Gain | None = None
    against: ReferenceConfiguration | None = None

    @property
    def spread(self) -> float | None:
        """Relative standard deviation between repeats."""
        logs = self._logs
        return stdev(logs) if len(logs) > 1 else None

    @property
    def limit(self) -> str | None:
        """What kept the load from being raised to the capacity: ``peak`` is then a lower bound."""
        return next((t.peak.limit for t in self.measured if t.peak and t.peak.limited), None)

    @property
    def peak(self) -> float:
        """The geometric mean of all repeats that met the objective; a lower bound if there is a
        ``limit``."""
        return exp(fmean(self._logs)) if self._logs else 0.0

    def reaches(self, rate: float) -> bool:
        """Whether the capacity is ``rate`` (requests/s) or higher; a lower bound counts as it is."""
        return self.peak >= rate * (1 - ROUNDING)

    @property
    def _logs(self) -> list[float]:
        peaks = [trial.peak for trial in self.measured]
        return [log(peak.peak) for peak in peaks if peak is not None and peak.met]


def measure(
    environment: Environment, request: Request, directory: Path, progress: ProgressReporter
) -> Measurement:
    """Measure and keep every reading in a directory like a study's."""
    with opened(environment, directory, progress) as context:
        open_study(environment, context, directory, MEASURED)
        knowing = replace(context, space=context.space.knowing(request.rss))
        if request.against is not None:
            return _alternate(knowing, request, request.against, directory)
        repeats: list[Trial] = []
        for _ in range(request.repeat):
            repeats.append(_measured(knowing, request.settings, repeats, CONFIGURATION)[0])
        return Measurement(directory.name, tuple(repeats))


def _alternate(
    context: TrialContext, request: Request, against: ReferenceConfiguration, directory: Path
) -> Measurement:
    """The other and the configuration in turn: A B B A A B …, in at least as many pairs as a proof."""
    sides: dict[bool, list[Trial]] = {False: [], True: []}
    measured: list[Measured] = []
    for index in range(2 * max(confirmation.LEAST_PAIRS, request.repeat)):
        configured = confirmation.side(index)
        settings = request.settings if configured else against.settings
        called = CONFIGURATION if configured else against.called
        trial, peak = _measured(context, settings, sides[configured], called)
        if peak.limited:
            raise AutotuneError(
                f"{called}: the capacity is at least {peak.peak:.0f} requests/s (limited by "
                f"{peak.limit}), so no gain can be measured",
                hint="raise load.max_rate, or add hosts to load.hosts",
            )
        if not peak.feasible:
            raise AutotuneError(f"{called}: the objective is not met at any rate tried")
        sides[configured].append(trial)
        measured.append(Measured(configured, peak.estimate))
    return Measurement(
        directory.name, tuple(sides[True]), tuple(sides[False]), gain(measured), against
    )


def _measured(
    context: TrialContext, settings: Settings, earlier: list[Trial], called: str
) -> tuple[Trial, Peak]:
    peaks = [trial.peak.peak for trial in earlier if trial.peak and trial.peak.feasible]
    prior = Estimate.of(peaks[-1], KNOWN_SD) if peaks else None
    done = trials.run(Measure(Phase.MEASURE, settings), context, prior, None)
    context.spent()
    if done.peak is None:
        raise AutotuneError(f"{called} cannot be used: {done.failure}")
    if not_as_named := [line for line in done.differences if line.partition(":")[0] in settings]:
        raise AutotuneError(
            f"{called} did not take effect as it is: {'; '.join(not_as_named)}",
            hint="its figures would be those of another configuration: `autotune run` finds what fits",
        )
    return done, done.peak
