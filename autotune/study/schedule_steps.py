"""Steps of a study, which its schedule selects one at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.services.base import Settings
from autotune.study.study_state import Phase


@dataclass(frozen=True)
class MeasureStep:
    """Measure these settings; ``suggested`` contains the values from the sampler.

    ``replaced_trial`` is the trial that this measurement repeats. That trial is unfinished on another
    test bed, or showed nothing before the study was resumed.
    ``bindings`` are the changes that rules required when the measurement was first started.
    ``requested`` are the settings before these changes, for configurations of the user or of an earlier
    study.
    """

    phase: Phase
    settings: Settings
    source_trial: int | None = None
    suggestion_number: int | None = None
    suggested: Settings = field(default_factory=dict)
    replaced_trial: int | None = None
    bindings: tuple[str, ...] = ()
    requested: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class WaitStep:
    """Wait until a trial of another test bed is finished."""


@dataclass(frozen=True)
class SuggestStep:
    """Request a configuration from the sampler and measure it."""


@dataclass(frozen=True)
class RankStep:
    """Rank the measured configurations with the model."""


@dataclass(frozen=True)
class ConcludeStep:
    """Conclude the study, because nothing is left to measure."""


@dataclass(frozen=True)
class SimplifyStep:
    """Select the changes of this trial that have no effect according to the model."""

    trial_number: int


@dataclass(frozen=True)
class EstimateCostsStep:
    """Let the model estimate the cost of reverting each change of this trial."""

    trial_number: int


ScheduleStep = (
    MeasureStep
    | SuggestStep
    | RankStep
    | SimplifyStep
    | EstimateCostsStep
    | WaitStep
    | ConcludeStep
)
