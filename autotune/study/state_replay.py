"""Replay the records in a study's journal into its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import singledispatch
from sys import intern
from typing import Any, TypeVar

from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.optimize.ranking import PosteriorPeaks
from autotune.optimize.reversal_cost import ReversalCost
from autotune.services.base import Settings
from autotune.study import journal_records as records
from autotune.study.ceiling_records import CacheCeilings, Ceilings, StackCeilings
from autotune.study.journal import JournalLine
from autotune.study.journal_records import RecordedNoise, find_record_type
from autotune.study.record_codec import decode
from autotune.study.study_state import (
    Phase,
    State,
    StudyPause,
    Trial,
    find_longest_seconds,
    find_trial_index,
    index_trials,
)
from autotune.study.verdict import Verdict
from autotune.study.winner_changes import MinimalChanges, Simplification

T = TypeVar("T")
# A pair of measurements is not completed after a longer pause, because the stack may have drifted.
MAX_PAIR_PAUSE_SECONDS = 900.0
MAX_NAMES = 1000  # maximum number of test beds, and of activities with a recorded time
LEFT_OUT_REASON = "left out of this session"  # why a test bed is inactive


def _list_keys(names: Iterable[str]) -> dict[str, None]:
    return dict.fromkeys(names, None)


class _StateDraft:
    """A state that records are applied to. A collection is copied only once, before its first change,
    so the time to replay a journal is proportional to its length.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._changes: dict[str, Any] = {}
        self._trial_indices: dict[int, int] | None = None

    def set(self, **fields: object) -> None:
        """Set fields of the state."""
        self._changes.update(fields)

    def read(self, name: str) -> Any:
        """Return the current value of a field. The caller does not change it."""
        return self._changes[name] if name in self._changes else getattr(self._state, name)

    def own_mapping(self, name: str) -> dict[Any, Any]:
        """Return a mapping of the state that the caller may change."""
        return self._own(name, dict[Any, Any])

    def own_list(self, name: str) -> list[Any]:
        """Return a sequence of the state that the caller may change."""
        return self._own(name, list[Any])

    def own_beds(self) -> dict[str, None]:
        """Return the names of the test beds, in order, as keys that the caller may change."""
        return self._own("beds", _list_keys)

    def _own(self, name: str, copy_collection: Callable[[Any], T]) -> T:
        if name not in self._changes:
            self._changes[name] = copy_collection(getattr(self._state, name))
        collection: T = self._changes[name]
        return collection

    def add_trial(self, trial: Trial) -> None:
        trials = self.own_list("trials")
        trials.append(trial)
        if self._trial_indices is not None:
            self._trial_indices.setdefault(trial.number, len(trials) - 1)

    def replace_trial(self, number: int, **changes: Any) -> None:
        """Change fields of a trial. A number without a trial has no effect."""
        trials = self.own_list("trials")
        with suppress(LookupError):
            index = find_trial_index(trials, number, self._index_trials)
            trials[index] = replace(trials[index], **changes)

    def _index_trials(self) -> Mapping[int, int]:
        if self._trial_indices is None:
            self._trial_indices = index_trials(self.own_list("trials"))
        return self._trial_indices

    def build(self) -> State:
        """Return the state after all changes. The draft must not be changed afterwards."""
        state_fields: dict[str, Any] = {
            name: tuple(value) if isinstance(getattr(self._state, name), tuple) else value
            for name, value in self._changes.items()
        }
        return replace(self._state, **state_fields)


def replay_records(event_records: Iterable[JournalLine], state: State | None = None) -> State:
    """Return the state after these records in order, starting from ``state`` if given.

    Raises AutotuneError if a record lacks required content.
    """
    draft = _StateDraft(state or State())
    for record in event_records:
        with _convert_errors(record):
            _apply_to_draft(record, draft)
    return draft.build()


def decode_valid_record(record_type: type[T], record: JournalLine) -> T:
    """Return a record as an instance of ``record_type``. Raises AutotuneError if required content is
    missing.
    """
    with _convert_errors(record):
        return decode(record_type, record)


@contextmanager
def _convert_errors(record: JournalLine) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise AutotuneError(
            f"invalid record of kind {record.get('event')!r} ({error}): the study is damaged, or "
            "another version of autotune wrote it",
            hint="restore its events.jsonl from a copy, or move its directory away",
        ) from error


def apply_record(state: State, record: JournalLine) -> State:
    """Return the state after one more record. Unknown records are skipped.

    Raises ValueError for a record without the required content of its kind.
    """
    draft = _StateDraft(state)
    _apply_to_draft(record, draft)
    return draft.build()


def _apply_to_draft(record: JournalLine, draft: _StateDraft) -> None:
    record_type = find_record_type(record)
    if record_type:
        _apply(decode(record_type, record), draft)


@singledispatch
def _apply(_: object, draft: _StateDraft) -> None:
    """Apply a record to the draft of a state. This function is for records that affect no decision."""


@_apply.register
def _apply_study_start(record: records.StudyStart, draft: _StateDraft) -> None:
    draft.set(started=record.started, is_shared=record.shared, purpose=record.purpose)


@_apply.register
def _apply_session(record: records.SessionStart, draft: _StateDraft) -> None:
    """Start a new session, which retries every bed except those left out.

    A session without test beds, such as that of `explain`, leaves no bed out.
    """
    active_beds = _list_keys(record.beds)
    beds = draft.own_beds()
    beds.update(active_beds)
    _check_name_count(beds, "test beds")
    _add_long_pause(draft, record.at, None)
    _start_session(draft)
    _set_missed_seconds(draft, active_beds)
    draft.set(keeps_winner=record.keep, kept_trial=None)
    if active_beds:
        inactive_beds = [bed for bed in beds if bed not in active_beds]
        draft.set(exclusion_reasons=dict.fromkeys(inactive_beds, LEFT_OUT_REASON))


@_apply.register
def _apply_bed_join(record: records.BedJoined, draft: _StateDraft) -> None:
    """Add a test bed, or let it join again."""
    bed = record.bed
    _add_long_pause(draft, record.at, bed)
    beds = draft.own_beds()
    if bed in beds:  # the first join of a test bed resumes nothing
        _start_session(draft)
    _set_missed_seconds(draft, (bed,))
    draft.own_mapping("exclusion_reasons").pop(bed, None)
    beds[bed] = None
    _check_name_count(beds, "test beds")


def _start_session(draft: _StateDraft) -> None:
    """Record the first trial of a session, unless only `explain` measures after the verdict."""
    trials = draft.read("trials")
    if trials and draft.read("verdict") is None:
        draft.set(session_trial=trials[-1].number + 1)


def _add_long_pause(draft: _StateDraft, session_start: str | None, bed: str | None) -> None:
    """Add a pause of a test bed, or of the whole study, if a session starts long after the last trial."""
    trials = [trial for trial in draft.read("trials") if bed in (None, trial.bed)]
    latest_time = max((trial.ended_at or trial.started_at for trial in trials), default="")
    if _compute_seconds_between(latest_time, session_start or "") > MAX_PAIR_PAUSE_SECONDS:
        draft.own_list("pauses").append(StudyPause(trials[-1].number, bed))


def _compute_seconds_between(earlier_time: str, later_time: str) -> float:
    """Return the seconds between two recorded times; 0 if one of the times is not recorded."""
    with suppress(ValueError, TypeError):
        elapsed_time = datetime.fromisoformat(later_time) - datetime.fromisoformat(earlier_time)
        return elapsed_time.total_seconds()
    return 0.0


def _set_missed_seconds(draft: _StateDraft, beds: Iterable[str]) -> None:
    """Set the seconds that each of ``beds`` missed, so that no bed has more time left than the study."""
    bed_seconds, missed_seconds = draft.read("bed_seconds"), draft.own_mapping("missed_seconds")
    elapsed_seconds = find_longest_seconds(draft.read("seconds"), bed_seconds, missed_seconds)
    for bed in beds:
        missed_seconds[bed] = max(0.0, elapsed_seconds - bed_seconds.get(bed, 0.0))


@_apply.register
def _apply_exclusion(record: records.BedExclusion, draft: _StateDraft) -> None:
    draft.own_mapping("exclusion_reasons")[record.bed] = record.set_aside


@_apply.register
def _apply_offsets(record: records.BedOffsets, draft: _StateDraft) -> None:
    draft.set(offsets=record.offsets)


@_apply.register
def _apply_trial_start(record: records.TrialStart, draft: _StateDraft) -> None:
    trial = Trial(
        record.trial,
        Phase(record.phase),
        _intern_parameter_names(record.settings),
        source_trial=record.source_trial,
        suggestion_number=record.suggestion_number,
        suggested=_intern_parameter_names(record.suggested),
        bindings=record.bindings,
        bed=record.bed,
        replaced_trial=record.replaced_trial,
        capped_parameters=record.capped_parameters,
        requested=_intern_parameter_names(record.requested or {}),
        started_at=record.at,
    )
    draft.add_trial(trial)


def _intern_parameter_names(parameter_values: Settings) -> Settings:
    """Return the values with interned names: separate copies would use most of the memory in long
    studies.
    """
    return {intern(name): value for name, value in parameter_values.items()}


@_apply.register
def _apply_deployment(record: records.DeployedTrial, draft: _StateDraft) -> None:
    draft.replace_trial(
        record.trial,
        effective=_intern_parameter_names(record.effective),
        differences=record.differences,
        files=record.files,
    )


@_apply.register
def _apply_peak(record: records.MeasuredPeak, draft: _StateDraft) -> None:
    peak = Peak(**{name: getattr(record, name) for name in Peak.__dataclass_fields__})
    draft.replace_trial(record.trial, peak=peak, ended_at=record.at)


@_apply.register
def _apply_failure(record: records.FailedTrial, draft: _StateDraft) -> None:
    draft.replace_trial(record.trial, failure=record.why, is_fault=record.fault, ended_at=record.at)


@_apply.register
def _apply_command_values(record: records.CommandValues, draft: _StateDraft) -> None:
    draft.own_mapping("values")[record.trial] = record.values


@_apply.register
def _apply_time_spent(record: records.TimeSpent, draft: _StateDraft) -> None:
    seconds_by_activity = draft.own_mapping("seconds")
    for activity, added_seconds in record.seconds.items():
        seconds_by_activity[activity] = seconds_by_activity.get(activity, 0.0) + added_seconds
    _check_name_count(seconds_by_activity, "activities")
    if record.bed is not None:
        bed_seconds = draft.own_mapping("bed_seconds")
        bed_seconds[record.bed] = bed_seconds.get(record.bed, 0.0) + sum(record.seconds.values())
        _check_name_count(bed_seconds, "test beds")


def _check_name_count(names: Sized, description: str) -> None:
    if len(names) > MAX_NAMES:
        raise ValueError(f"more than {MAX_NAMES:,} {description}")


@_apply.register
def _apply_noise(record: RecordedNoise, draft: _StateDraft) -> None:
    draft.set(noise=record)


@_apply.register
def _apply_bottleneck(record: records.RecordedBottleneck, draft: _StateDraft) -> None:
    draft.own_mapping("bottlenecks")[record.trial] = record


@_apply.register
def _apply_capacities(record: records.Capacities, draft: _StateDraft) -> None:
    draft.own_mapping("capacities")[record.trial] = record.parts


@_apply.register
def _apply_process_sizes(record: records.ProcessSizes, draft: _StateDraft) -> None:
    rss = draft.own_mapping("rss")
    rss.update({name: max(size, rss.get(name, 0)) for name, size in record.rss.items()})


@_apply.register
def _apply_standings(record: records.Standings, draft: _StateDraft) -> None:
    peak_by_trial = {number: Estimate.from_value(*peak) for number, peak in record.peaks.items()}
    draft.set(posterior=PosteriorPeaks(peak_by_trial, record.noise))


@_apply.register
def _apply_transferred_configurations(
    record: records.TransferredConfigurations, draft: _StateDraft
) -> None:
    draft.set(transferred=record.configurations)


@_apply.register
def _apply_model(record: records.RecordedModel, draft: _StateDraft) -> None:
    draft.set(model=record.view)


@_apply.register
def _apply_reversal_costs(record: records.ReversalCosts, draft: _StateDraft) -> None:
    cost_by_parameter = {cost.parameter: ReversalCost(cost.loss, cost.sd) for cost in record.costs}
    draft.set(reversal_costs=cost_by_parameter, cost_trial=record.trial)


@_apply.register
def _apply_stop_reason(record: records.SearchStopped, draft: _StateDraft) -> None:
    draft.set(stop_reason=record.why)


@_apply.register
def _apply_kept_winner(record: records.WinnerKept, draft: _StateDraft) -> None:
    draft.set(kept_trial=record.trial)


@_apply.register
def _apply_reference_answers(record: records.ReferenceAnswers, draft: _StateDraft) -> None:
    problem_by_page = {
        str(page.get("page")): str(page["problem"]) for page in record.pages if "problem" in page
    }
    draft.own_mapping("pages_without_reference").update(problem_by_page)
    draft.set(reference_count=sum("problem" not in page for page in record.pages))


@_apply.register
def _apply_warm_up(record: records.WarmUp, draft: _StateDraft) -> None:
    draft.own_mapping("warmups")[record.trial] = record


@_apply.register(StackCeilings)
@_apply.register(CacheCeilings)
def _apply_ceilings(record: Ceilings, draft: _StateDraft) -> None:
    draft.own_list("ceilings").append(record)


@_apply.register
def _apply_explanation(record: MinimalChanges, draft: _StateDraft) -> None:
    draft.set(minimal_changes=record)


@_apply.register
def _apply_simplification(record: Simplification, draft: _StateDraft) -> None:
    draft.set(simplification=record)


@_apply.register
def _apply_sweep_start(record: records.SweepStart, draft: _StateDraft) -> None:
    draft.set(sweep_size=record.plan.measurement_count)


@_apply.register
def _apply_sweep_measurement(record: records.SweepMeasurement, draft: _StateDraft) -> None:
    draft.own_list("swept_trials").append(record.trial)


@_apply.register
def _apply_verdict(record: Verdict, draft: _StateDraft) -> None:
    draft.set(verdict=record)
