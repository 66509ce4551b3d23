"""The state of a study as immutable values: its trials, and all other facts that decisions need."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from autotune.environments.peak import Peak
from autotune.estimate import Estimate, InstanceCapacity
from autotune.optimize.bed_offset import NO_OFFSET, BedOffset
from autotune.optimize.model_view import ModelView
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.reversal_cost import ReversalCost
from autotune.services.base import Settings, Value
from autotune.services.diagnosis import Resource
from autotune.space.parameter_caps import Clamp
from autotune.study import clamps
from autotune.study.ceiling_records import Ceilings
from autotune.study.journal_records import RecordedBottleneck, RecordedNoise, WarmUp
from autotune.study.verdict import Verdict
from autotune.study.winner_changes import MinimalChanges, Simplification

if TYPE_CHECKING:
    from autotune.space.space import SearchSpace


class Phase(enum.StrEnum):
    """The reason why a configuration was measured."""

    BASELINE = "baseline"
    RECOMMENDED = "recommended"
    ADVISED = "advised"
    PUBLISHED = "published"
    TRY_FIRST = "known"
    SEARCH = "search"
    FINALIST = "finalist"
    CONFIRM = "confirm"
    REFERENCE = "reference"
    RUNNER_UP = "runner-up"
    SIMPLIFIED = "simplified"
    EXPLAIN = "explain"
    MEASURE = "measure"


# Phases whose configurations count towards the budget of trials.
COUNTED_PHASES = frozenset(
    {
        Phase.BASELINE,
        Phase.RECOMMENDED,
        Phase.ADVISED,
        Phase.PUBLISHED,
        Phase.TRY_FIRST,
        Phase.SEARCH,
    }
)

# Phases of configurations that are known before the search.
OPENING_PHASES = COUNTED_PHASES - {Phase.SEARCH}
PRESET_PHASES = frozenset({Phase.RECOMMENDED, Phase.ADVISED, Phase.PUBLISHED})

APPLY_PURPOSE, MEASURE_PURPOSE = "applied", "measured"  # purposes of studies without a search


@dataclass(frozen=True)
class Trial:
    """One measurement of a configuration.

    - ``source_trial``: the trial whose settings this trial measures again (finalists, confirmation).
    - ``suggestion_number``, ``suggested``: the sampler's number and values for the configuration.
    - ``peak``, ``failure``: both ``None`` while the trial runs, or if autotune was killed during the
      trial.
    - ``is_fault``: the benchmark command failed, so nothing is known about the configuration.
    - ``files``: SHA-256 digests of the rendered files, by path.
    - ``bed``: the test bed that measured the trial, in a study on several beds.
    - ``replaced_trial``: the trial that this trial repeats: an unfinished trial of another bed, or a
      trial that showed nothing before the study was resumed.
    - ``requested``: the settings before rules changed them, for configurations of the user or of an
      earlier study.
    - ``capped_parameters``: parameters whose suggested value was beyond a cap; ``settings`` contains
      the value that replaced it.
    - ``started_at``, ``ended_at``: when the trial started, and when its outcome was recorded (ISO
      8601).
    """

    number: int
    phase: Phase
    settings: Settings
    source_trial: int | None = None
    suggestion_number: int | None = None
    suggested: Settings = field(default_factory=dict)
    bindings: tuple[str, ...] = ()
    effective: Mapping[str, Value] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    peak: Peak | None = None
    failure: str | None = None
    is_fault: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    bed: str | None = None
    replaced_trial: int | None = None
    capped_parameters: tuple[str, ...] = ()
    requested: Settings = field(default_factory=dict)
    started_at: str = ""
    ended_at: str = ""

    @property
    def clamped_parameters(self) -> tuple[str, ...]:
        """Return the parameters whose effective value differs from the requested value."""
        differing_names = (line.partition(":")[0] for line in self.differences)
        return tuple(n for n in differing_names if n in self.effective and n in self.settings)

    @cached_property
    def effective_settings(self) -> Settings:
        """Return the settings with their effective values, in the parameters' own types."""
        clamped_values = {
            name: _convert_effective_value(self.settings[name], self.effective[name])
            for name in self.clamped_parameters
        }
        return {**self.settings, **clamped_values}

    @property
    def learned_settings(self) -> Settings:
        """Return the values that the search learns from: the effective values of the suggested
        parameters. Rules may have changed the suggested values.
        """
        suggested_settings = self.suggested or self.settings
        return {
            name: self.effective_settings.get(name, value)
            for name, value in suggested_settings.items()
        }

    @property
    def is_finished(self) -> bool:
        return self.peak is not None or self.failure is not None

    @property
    def is_feasible(self) -> bool:
        """True if the peak can be compared with other peaks."""
        return self.peak is not None and self.peak.is_feasible

    @property
    def meets_slo(self) -> bool:
        """True if a load met the objective, and the peak can be compared with other peaks."""
        return self.peak is not None and self.peak.is_feasible and not self.peak.is_unmet

    @property
    def is_unmeasured(self) -> bool:
        """True if nothing is known about the configuration: the benchmark failed, or the load was too
        low.
        """
        return self.is_fault or (self.peak is not None and self.peak.is_load_limited)


@dataclass(frozen=True)
class StudyPause:
    """A pause longer than `state_replay.MAX_PAIR_PAUSE_SECONDS` before a session, after trial
    ``after_trial``.

    ``bed`` is the test bed that paused, or ``None`` if the whole study paused.
    """

    after_trial: int
    bed: str | None = None


def _convert_effective_value(requested_value: Value, effective_value: Value) -> Value:
    """Return an effective value in the parameter's type: software may print 5 as 5.0."""
    if (
        type(requested_value) is int
        and isinstance(effective_value, float)
        and effective_value.is_integer()
    ):
        return int(effective_value)
    return effective_value


@dataclass(frozen=True)
class State:
    """All recorded facts that the decisions of a study depend on.

    - ``transferred``: winning changes from an earlier study, which are tried first.
    - ``stop_reason``: the reason why the search stopped before its budget was used up.
    - ``posterior``: the model's estimates of the peaks, after the search.
    - ``simplification``: the winner's changes without an effect according to the model.
    - ``reversal_costs``: the modelled cost of reverting each change of ``cost_trial``, the largest cost
      first.
    - ``minimal_changes``: the winner's changes that its gain depends on.
    - ``rss``: the largest process of each `tier.service` in any trial, in bytes.
    - ``capacities``: the capacities of the service instances, by trial.
    - ``values``: the values that a benchmark command returned in each trial, in call order.
    - ``ceilings``: measured ceilings of the stack or of its caches (``study.ceiling_records``).
    - ``purpose``: ``APPLY_PURPOSE`` or ``MEASURE_PURPOSE`` for a study without a search.
    - ``reference_count``: the number of pages with reference responses in the last session.
    - ``pages_without_reference``: pages without a reference response in some session, and the reason.
    - ``beds``: the test beds, if there are several; ``offsets``: their estimated differences.
    - ``bed_seconds``: the seconds that each bed has spent.
    - ``exclusion_reasons``: the reason for each bed that is inactive in this session.
    - ``is_shared``: the study is in a shared database.
    - ``missed_seconds``: the seconds of study time that each bed missed before it joined or resumed.
    - ``pauses``: the long pauses between sessions.
    - ``keeps_winner``: a proven winner stays on the hosts, according to the last session;
      ``kept_trial``: the number of the winner that this session has left there.
    - ``session_trial``: the number of the first trial since the study was started or resumed.
    - ``sweep_size``: the number of measurements in a sweep; ``None`` for a study.
    - ``swept_trials``: the numbers of the trials that are finished measurements of a sweep.
    """

    trials: tuple[Trial, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    started: str | None = None
    purpose: str = ""
    noise: RecordedNoise | None = None
    bottlenecks: Mapping[int, RecordedBottleneck] = field(default_factory=dict)
    capacities: Mapping[int, Mapping[str, InstanceCapacity]] = field(default_factory=dict)
    posterior: PosteriorPeaks | None = None
    transferred: tuple[Settings, ...] = ()
    stop_reason: str | None = None
    warmups: Mapping[int, WarmUp] = field(default_factory=dict)
    minimal_changes: MinimalChanges | None = None
    simplification: Simplification | None = None
    model: ModelView | None = None
    reversal_costs: Mapping[str, ReversalCost] = field(default_factory=dict)
    cost_trial: int | None = None
    rss: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    ceilings: tuple[Ceilings, ...] = ()
    verdict: Verdict | None = None
    reference_count: int = 0
    pages_without_reference: Mapping[str, str] = field(default_factory=dict)
    beds: tuple[str, ...] = ()
    offsets: Mapping[str, BedOffset] = field(default_factory=dict)
    bed_seconds: Mapping[str, float] = field(default_factory=dict)
    exclusion_reasons: Mapping[str, str] = field(default_factory=dict)
    is_shared: bool = False
    missed_seconds: Mapping[str, float] = field(default_factory=dict)
    pauses: tuple[StudyPause, ...] = ()
    keeps_winner: bool = False
    kept_trial: int | None = None
    session_trial: int = 0
    sweep_size: int | None = None
    swept_trials: tuple[int, ...] = ()

    @property
    def elapsed_seconds(self) -> float:
        """Return the seconds spent over all sessions. Test beds work concurrently, so the bed with the
        longest time counts.
        """
        return find_longest_seconds(self.seconds, self.bed_seconds, self.missed_seconds)

    def compute_bed_elapsed_seconds(self, bed: str | None) -> float:
        """Return the elapsed seconds of the study for one of `stacks`, including the time that the bed
        missed.
        """
        if bed is None:
            return sum(self.seconds.values())
        return self.bed_seconds.get(bed, 0.0) + self.missed_seconds.get(bed, 0.0)

    @cached_property
    def repeated_trial_numbers(self) -> frozenset[int]:
        """Return the numbers of trials that another test bed has repeated or is repeating.

        In a study with one process, only finished repeats count, because its beds stop together.
        """
        repeats = [trial for trial in self.trials if trial.is_finished or self.is_shared]
        return frozenset(t.replaced_trial for t in repeats if t.replaced_trial is not None)

    @property
    def average_seconds(self) -> Mapping[str, float]:
        """Return the seconds by activity, averaged over the test beds; their sum is
        ``elapsed_seconds``.
        """
        total_seconds = sum(self.seconds.values())
        share = self.elapsed_seconds / total_seconds if self.bed_seconds and total_seconds else 1.0
        return {activity: share * seconds for activity, seconds in self.seconds.items()}

    @cached_property
    def active_beds(self) -> tuple[str, ...]:
        """Return the test beds that take part in this session."""
        return tuple(bed for bed in self.beds if bed not in self.exclusion_reasons)

    @property
    def is_over(self) -> bool:
        """True if the study ended with a verdict, if `measure` measured something, or if a sweep is
        complete.
        """
        if self.sweep_size is not None:
            return len(self.swept_trials) >= self.sweep_size
        return self.verdict is not None or bool(self.list_finished_trials(Phase.MEASURE))

    @property
    def stacks(self) -> tuple[str | None, ...]:
        """Return the test beds, or ``None`` for the only stack of a study without beds."""
        return self.beds or (None,)

    @property
    def active_stacks(self) -> tuple[str | None, ...]:
        """Return the stacks that take part in this session."""
        return self.active_beds if self.beds else (None,)

    @cached_property
    def last_trial_by_bed(self) -> Mapping[str, Trial]:
        """Return the last trial that each test bed started."""
        return {trial.bed: trial for trial in self.trials if trial.bed is not None}

    def list_running_trials(self, *phases: Phase) -> tuple[Trial, ...]:
        """Return the trials that test beds are measuring now."""
        active_beds, repeated_trial_numbers = (
            frozenset(self.active_beds),
            self.repeated_trial_numbers,
        )
        return tuple(
            t
            for bed, t in self.last_trial_by_bed.items()
            if bed in active_beds
            and not t.is_finished
            and t.number not in repeated_trial_numbers
            and (not phases or t.phase in phases)
        )

    def list_started_trials(self, *phases: Phase) -> tuple[Trial, ...]:
        """Return the finished and the running trials."""
        return (*self.list_finished_trials(*phases), *self.list_running_trials(*phases))

    def get_bed_offset(self, bed: str | None) -> BedOffset:
        """Return the estimated difference between a test bed and an average test bed."""
        return self.offsets.get(bed or "", NO_OFFSET)

    def normalize_peak(self, trial: Trial) -> Estimate:
        """Return the peak of a trial that met the objective, as an average test bed would have measured
        it.
        """
        assert trial.peak is not None
        return self.get_bed_offset(trial.bed).remove_from_peak(trial.peak.estimate)

    def list_finished_trials(self, *phases: Phase) -> tuple[Trial, ...]:
        if phases not in self._finished_cache:
            grouped_trials = chain.from_iterable(
                self.trials_by_phase.get(phase, ()) for phase in phases
            )
            trials = sorted(grouped_trials, key=attrgetter("number")) if phases else self.trials
            self._finished_cache[phases] = tuple(trial for trial in trials if trial.is_finished)
        return self._finished_cache[phases]

    @cached_property
    def trials_by_phase(self) -> Mapping[Phase, Sequence[Trial]]:
        """Return all trials by phase, cached because decisions read many phases."""
        trials_by_phase: dict[Phase, list[Trial]] = {}
        for trial in self.trials:
            trials_by_phase.setdefault(trial.phase, []).append(trial)
        return trials_by_phase

    @cached_property
    def _finished_cache(self) -> dict[tuple[Phase, ...], tuple[Trial, ...]]:
        """Return a cache for `list_finished_trials`, because a study on many beds makes thousands of
        decisions.
        """
        return {}

    @cached_property
    def clamps(self) -> Mapping[str, Clamp]:
        """Return the limits of effective values that were seen in deployments, by parameter."""
        return clamps.find_common_clamps(self.trials)

    def limit_space(self, space: SearchSpace) -> SearchSpace:
        """Return ``space``, limited by measured process sizes and by the values that hosts clamped."""
        return space.with_measured_memory(self.rss).with_clamps(self.clamps)

    @property
    def has_failed_baseline(self) -> bool:
        """True if the stack failed with the baseline, for example because it did not recover from an
        overload.
        """
        return any(
            trial.failure and not trial.is_fault
            for trial in self.list_finished_trials(Phase.BASELINE)
        )

    @cached_property
    def exhausted_hosts(self) -> frozenset[str]:
        """Return the hosts whose memory was exhausted with the baseline."""
        baseline_numbers = {trial.number for trial in self.list_finished_trials(Phase.BASELINE)}
        return frozenset(
            bottleneck.host
            for number, bottleneck in self.bottlenecks.items()
            if number in baseline_numbers and bottleneck.resource is Resource.MEMORY
        )

    @cached_property
    def _first_equal_trial(self) -> Mapping[int, int]:
        return clamps.group_equal_configurations(self.trials)

    def find_configuration_number(self, trial: Trial) -> int:
        """Return the number of the first trial with the same effective values."""
        source_number = trial.number if trial.source_trial is None else trial.source_trial
        return self._first_equal_trial.get(source_number, source_number)

    @cached_property
    def measured_count(self) -> int:
        """Return the number of trials with a peak."""
        return sum(trial.peak is not None for trial in self.trials)

    def is_outdated_fault(self, trial: Trial) -> bool:
        """True if a trial showed nothing before the study was resumed. The cause may have been fixed
        since then.
        """
        return trial.is_unmeasured and trial.number < self.session_trial

    def exclude_outdated_faults(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the trials that are not outdated faults."""
        return [trial for trial in trials if not self.is_outdated_fault(trial)]

    def list_counted_trials(self, *, include_running: bool = False) -> tuple[Trial, ...]:
        """Return the finished trials that count towards the budget, optionally including the running
        trials.

        The baseline counts once, even if several test beds measure it, or if a test bed repeats the
        measurement. Outdated faults do not count.
        """
        started_trials = (
            self.list_started_trials(*COUNTED_PHASES)
            if include_running
            else self.list_finished_trials(*COUNTED_PHASES)
        )
        trials = self.exclude_outdated_faults(started_trials)
        first_bed = next((trial.bed for trial in trials if trial.phase is Phase.BASELINE), None)
        return tuple(
            trial
            for trial in trials
            if trial.phase is not Phase.BASELINE
            or (trial.bed == first_bed and trial.source_trial is None)
        )

    def find_trial(self, number: int) -> Trial:
        """Return the trial with this number. Raises KeyError if there is none."""
        return self.trials[find_trial_index(self.trials, number, lambda: self._trial_indices)]

    @cached_property
    def _trial_indices(self) -> Mapping[int, int]:
        return index_trials(self.trials)


def find_trial_index(
    trials: Sequence[Trial], number: int, read_indices: Callable[[], Mapping[int, int]]
) -> int:
    """Return the index of the trial with this number. Raises KeyError if there is none.

    The index equals the number unless someone has removed records from the study.
    """
    if 0 <= number < len(trials) and trials[number].number == number:
        return number
    return read_indices()[number]


def index_trials(trials: Sequence[Trial]) -> dict[int, int]:
    """Return the index of the first trial with each number."""
    return {trials[index].number: index for index in reversed(range(len(trials)))}


def find_longest_seconds(
    seconds_by_activity: Mapping[str, float],
    bed_seconds: Mapping[str, float],
    missed_seconds: Mapping[str, float],
) -> float:
    """Return the seconds of the test bed with the longest time, or of a study without beds."""
    return max(
        (value + missed_seconds.get(bed, 0.0) for bed, value in bed_seconds.items()),
        default=sum(seconds_by_activity.values()),
    )
