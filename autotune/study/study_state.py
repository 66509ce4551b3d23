"""What a study remembers, as values: the journal's records read back into one state."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from operator import attrgetter
from sys import intern
from typing import Any

from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.optimize.bed_offset import NO_OFFSET, BedOffset
from autotune.optimize.ranking import PosteriorPeaks
from autotune.services.base import Settings, Value
from autotune.space.parameter_caps import Clamp
from autotune.study import clamps
from autotune.study.record_shapes import check_record
from autotune.target.messages import format_count

Record = Mapping[str, Any]


class Phase(enum.StrEnum):
    """Why a configuration was measured."""

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


# Phases whose configurations the budget of trials counts.
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

# Those whose configurations are known before the search.
OPENING_PHASES = COUNTED_PHASES - {Phase.SEARCH}

STACK_CEILING, CACHE_CEILING = "stack", "caches"  # what ceilings on record are ``of``
LEFT_OUT_REASON = "left out of this session"  # why a test bed takes no part
ENVELOPE_KEYS = frozenset({"event", "at"})  # keys of a record that are not its content
APPLY_PURPOSE, MEASURE_PURPOSE = "applied", "measured"  # purposes of studies that search nothing


@dataclass(frozen=True)
class Trial:
    """One configuration being measured once.

    ``of`` is the trial whose settings are measured again (finalists, confirmation); ``asked`` and
    ``suggested`` are the sampler's own number and values, for what it suggested. ``peak`` and
    ``failure`` are both ``None`` while the trial is under way, or when the tuner was killed during it.
    ``fault``: the failure is that of a benchmark command, and says nothing about the configuration.
    ``files`` are SHA-256 digests of its rendered files, by their paths; earlier versions recorded none.
    ``bed`` is the test bed it was measured on, in a study on several; it ``repeats`` a trial that
    another bed did not end. ``capped_parameters`` are parameters whose suggested value would have had
    no effect of its own: ``settings`` has another one in its place.
    """

    number: int
    phase: Phase
    settings: Settings
    of: int | None = None
    asked: int | None = None
    suggested: Settings = field(default_factory=dict)
    bindings: tuple[str, ...] = ()
    effective: Mapping[str, Value] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    peak: Peak | None = None
    failure: str | None = None
    fault: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    bed: str | None = None
    repeats: int | None = None
    capped_parameters: tuple[str, ...] = ()

    @property
    def clamped_parameters(self) -> tuple[str, ...]:
        """The parameters of which another value than the requested one took effect."""
        names = (line.partition(":")[0] for line in self.differences)
        return tuple(n for n in names if n in self.effective and n in self.settings)

    @cached_property
    def effective_settings(self) -> Settings:
        """The settings with the values that took effect, in the parameters' own types."""
        values = {name: _convert_effective_value(self.settings[name], self.effective[name])
                  for name in self.clamped_parameters}  # fmt: skip
        return {**self.settings, **values}

    @property
    def learned_settings(self) -> Settings:
        """The values that the search learns from: those that it suggested, as they took effect."""
        suggested = self.suggested or self.settings
        return {
            **suggested,
            **{n: self.effective_settings[n] for n in self.clamped_parameters if n in suggested},
        }

    @property
    def is_finished(self) -> bool:
        return self.peak is not None or self.failure is not None

    @property
    def meets(self) -> bool:
        """True if it has a capacity: some load met the objective."""
        return self.peak is not None and self.peak.is_feasible

    @property
    def is_unmeasured(self) -> bool:
        """Whether nothing is known of the configuration: no working benchmark, or too little load."""
        return self.fault or (self.peak is not None and self.peak.is_load_limited)


def _convert_effective_value(requested: Value, effective: Value) -> Value:
    """An effective value as a value of the parameter: software may print a whole number as a fraction."""
    if type(requested) is int and isinstance(effective, float) and effective.is_integer():
        return int(effective)
    return effective


@dataclass(frozen=True)
class State:
    """Everything the order of a study depends on.

    ``transferred`` are changes that won an earlier study and are tried first here.
    ``settled`` says why the search ended before its budget did, ``posterior`` what the model believed
    once it had ended, ``simplified`` which of the winner's changes have no effect by the model, and
    ``explained`` which carry its gain. ``rss`` is the
    largest process of each `tier.service` that any trial had, in bytes. ``capacities`` are those of the
    stack's parts, by trial. ``values`` are what a
    benchmark command answered, by trial, in their order. ``ceilings`` are those measured, of the
    stack or of its caches alone (``study.ceilings``). ``purpose`` is ``APPLY_PURPOSE`` or
    ``MEASURE_PURPOSE`` where nothing is searched.

    ``answers`` are the reference answers of the last session, by page.

    ``beds`` are the test beds of a study on several, ``offsets`` how they differ, ``bed_seconds`` what
    each has spent, and ``set_aside`` says why one no longer takes part in this session. ``shared``: the
    study is in a storage; ``missed`` are the seconds of the study that were over when each bed joined.
    """

    trials: tuple[Trial, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    started: str | None = None
    purpose: str = ""
    noise: Mapping[str, Any] | None = None
    bottlenecks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    capacities: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    posterior: PosteriorPeaks | None = None
    transferred: tuple[Settings, ...] = ()
    settled: str | None = None
    warmups: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    explained: Mapping[str, Any] | None = None
    simplified: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    rss: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    ceilings: tuple[Mapping[str, Any], ...] = ()
    verdict: Mapping[str, Any] | None = None
    answers: tuple[Mapping[str, Any], ...] = ()
    beds: tuple[str, ...] = ()
    offsets: Mapping[str, BedOffset] = field(default_factory=dict)
    bed_seconds: Mapping[str, float] = field(default_factory=dict)
    set_aside: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False
    missed: Mapping[str, float] = field(default_factory=dict)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds spent over all sessions; test beds spend theirs at the same time."""
        return max(
            map(self.bed_elapsed_seconds, self.bed_seconds), default=sum(self.seconds.values())
        )

    def bed_elapsed_seconds(self, bed: str) -> float:
        """Seconds of the study that are over for a test bed, those before it joined included."""
        return self.bed_seconds.get(bed, 0.0) + self.missed.get(bed, 0.0)

    @cached_property
    def repeated_numbers(self) -> frozenset[int]:
        """Trials that another test bed measured instead, or is measuring. In a study of one process
        only finished repeats count: what stopped a bed that is back has stopped the other bed too."""
        return frozenset(t.repeats for t in self.trials
                         if t.repeats is not None and (t.is_finished or self.shared))  # fmt: skip

    @property
    def average_seconds(self) -> Mapping[str, float]:
        """What the time went into, on average over the test beds; it adds up to ``elapsed_seconds``."""
        total = sum(self.seconds.values())
        share = self.elapsed_seconds / total if self.bed_seconds and total else 1.0
        return {kind: share * seconds for kind, seconds in self.seconds.items()}

    @cached_property
    def active_beds(self) -> tuple[str, ...]:
        """The test beds that take part."""
        return tuple(bed for bed in self.beds if bed not in self.set_aside)

    @cached_property
    def last_trial_by_bed(self) -> Mapping[str, Trial]:
        """The last trial of each test bed that has begun one."""
        return {trial.bed: trial for trial in self.trials if trial.bed is not None}

    def list_running(self, *phases: Phase) -> tuple[Trial, ...]:
        """The trials that test beds are measuring right now."""
        active, repeated = frozenset(self.active_beds), self.repeated_numbers
        return tuple(t for bed, t in self.last_trial_by_bed.items()
                     if bed in active and not t.is_finished and t.number not in repeated
                     and (not phases or t.phase in phases))  # fmt: skip

    def list_started(self, *phases: Phase) -> tuple[Trial, ...]:
        """The trials that are over or under way."""
        return (*self.list_finished(*phases), *self.list_running(*phases))

    def bed_offset(self, bed: str | None) -> BedOffset:
        """How a test bed differs from an average one, as far as that is known."""
        return self.offsets.get(bed or "", NO_OFFSET)

    def normalized_peak(self, trial: Trial) -> Estimate:
        """What a trial that met the objective measured, as an average test bed would have."""
        assert trial.peak is not None
        if trial.bed is None:
            return trial.peak.estimate
        return self.bed_offset(trial.bed).remove_from(trial.peak.estimate)

    def list_finished(self, *phases: Phase) -> tuple[Trial, ...]:
        if phases not in self._finished_cache:
            some = chain.from_iterable(self.trials_by_phase.get(phase, ()) for phase in phases)
            among = sorted(some, key=attrgetter("number")) if phases else self.trials
            self._finished_cache[phases] = tuple(trial for trial in among if trial.is_finished)
        return self._finished_cache[phases]

    @cached_property
    def trials_by_phase(self) -> Mapping[Phase, Sequence[Trial]]:
        """All trials by phase: a decision looks at many phases, one of which has nearly all trials."""
        groups: dict[Phase, list[Trial]] = {}
        for trial in self.trials:
            groups.setdefault(trial.phase, []).append(trial)
        return groups

    @cached_property
    def _finished_cache(self) -> dict[tuple[Phase, ...], tuple[Trial, ...]]:
        """A cache: each decision asks many times, and a study of many beds makes thousands of them."""
        return {}

    @cached_property
    def clamps(self) -> Mapping[str, Clamp]:
        """By parameter, the values that take effect as far as deployments showed."""
        return clamps.find_clamps(self.trials)

    @cached_property
    def _first_equal_trial(self) -> Mapping[int, int]:
        return clamps.group_equal_configurations(self.trials)

    def configuration_number(self, trial: Trial) -> int:
        """The first trial that measured the same configuration: the same values in effect."""
        number = trial.number if trial.of is None else trial.of
        return self._first_equal_trial.get(number, number)

    @cached_property
    def measured_count(self) -> int:
        """How many trials have a peak."""
        return sum(trial.peak is not None for trial in self.trials)

    def list_counted(self, *, include_running: bool = False) -> tuple[Trial, ...]:
        """The finished trials that the budget counts, or all that were begun. The baseline counts once,
        on however many test beds it is measured."""
        trials = (
            self.list_started(*COUNTED_PHASES)
            if include_running
            else self.list_finished(*COUNTED_PHASES)
        )
        baselines = [t.number for t in trials if t.phase is Phase.BASELINE and t.bed]
        others = frozenset(baselines[1:])
        return tuple(trial for trial in trials if trial.number not in others)

    def find_trial(self, number: int) -> Trial:
        return self.trials[_find_index(self.trials, number)]


def _find_index(trials: Sequence[Trial], number: int) -> int:
    """The index of the trial with this number: the same number, in a study that nobody has shortened.
    Raises KeyError if there is none."""
    if 0 <= number < len(trials) and trials[number].number == number:
        return number
    for location, trial in enumerate(trials):
        if trial.number == number:
            return location
    raise KeyError(number)


def format_reduction(explanation: Record) -> str:
    """In words, the share of the gain that the changes kept by an ablation carry."""
    share, low, high = (f"{explanation[key]:.0%}" for key in ("share", "low", "high"))
    kept, changes = len(explanation["kept"]), format_count(explanation["changes"], "change")
    measured = format_count(explanation["measurements"], "measurement")
    return f"{kept} of {changes} carry {share} of the gain [{low}, {high}], {measured}"


def replay_records(records: Iterable[Record], state: State | None = None) -> State:
    """The state after these records, in the order they were written; from ``state`` on, if given.

    Raises AutotuneError for a record without the content that its kind must have.
    """
    state = state or State()
    for record in records:
        try:
            check_record(record)
            state = apply_record(state, record)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise AutotuneError(
                f"a record of kind {record.get('event')!r} makes no sense ({error}): the study is "
                "damaged, or of another version of autotune",
                hint="put its events.jsonl back from a copy, or move its directory away",
            ) from error
    return state


def apply_record(state: State, record: Record) -> State:
    """The state one record later. Unknown records are skipped: older readers can read newer studies."""
    event = record["event"]
    if event in _TRIAL_EVENTS:
        changes, trials = _TRIAL_EVENTS[event](record), list(state.trials)
        with suppress(LookupError):
            location = _find_index(trials, record["trial"])
            trials[location] = replace(trials[location], **changes)
        return replace(state, trials=tuple(trials))
    return (
        replace(state, **_STUDY_EVENTS[event](state, record)) if event in _STUDY_EVENTS else state
    )


def _parse_trial(record: Record) -> Trial:
    same = {key: record[key] for key in ("of", "asked")}
    same |= {key: record[key] for key in ("bed", "repeats") if key in record}
    same["capped_parameters"] = tuple(record.get("capped") or ())
    same |= {key: _intern_names(record[key]) for key in ("settings", "suggested")}
    bindings = tuple(record["bindings"])
    return Trial(record["trial"], Phase(record["phase"]), bindings=bindings, **same)


def _intern_names(values: Record) -> Settings:
    """Interned names, shared by all trials: else they are most of what thousands keep in memory."""
    return {intern(name): value for name, value in values.items()}


def _parse_posterior(record: Record) -> PosteriorPeaks:
    peaks = {
        int(number): Estimate.from_value(peak, sd) for number, (peak, sd) in record["peaks"].items()
    }
    return PosteriorPeaks(peaks, record["noise"])


def add_seconds(seconds: Mapping[str, float], more: Mapping[str, float]) -> Mapping[str, float]:
    """Seconds by what they went into, added up."""
    return {**seconds, **{kind: seconds.get(kind, 0.0) + value for kind, value in more.items()}}


def _apply_session(state: State, record: Record) -> dict[str, Any]:
    """Every bed is tried again, but those that the session was told to leave out."""
    beds = tuple(dict.fromkeys((*state.beds, *record.get("beds", ()))))
    left_out = {bed: LEFT_OUT_REASON for bed in beds if bed not in record.get("beds", ())}
    return {"beds": beds, "set_aside": left_out}


def _apply_joined(state: State, record: Record) -> dict[str, Any]:
    """A test bed takes part from now on, or again."""
    bed = record["bed"]
    missed = max(0.0, state.elapsed_seconds - state.bed_seconds.get(bed, 0.0))
    return {
        "beds": tuple(dict.fromkeys((*state.beds, bed))),
        "set_aside": {name: reason for name, reason in state.set_aside.items() if name != bed},
        "missed": {**state.missed, bed: missed},
    }


def _apply_spent(state: State, record: Record) -> dict[str, Any]:
    changes: dict[str, Any] = {"seconds": add_seconds(state.seconds, record["seconds"])}
    if "bed" in record:
        spent = {record["bed"]: sum(record["seconds"].values())}
        changes["bed_seconds"] = add_seconds(state.bed_seconds, spent)
    return changes


def _merge_max_rss(rss: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {**rss, **{name: max(size, rss.get(name, 0)) for name, size in other.items()}}


def _parse_peak(record: Mapping[str, Any]) -> Peak:
    """The peak of a trial; only a limited one has a ``limit`` on record."""
    fields = (key for key in Peak.__dataclass_fields__ if key != "limit")
    return Peak(**{key: record[key] for key in fields}, limit=record.get("limit"))


# What each event changes: in the trial that it names, or in the study.
_TRIAL_EVENTS: Mapping[str, Callable[[Record], dict[str, Any]]] = {
    "deployed": lambda r: {
        "effective": _intern_names(r["effective"]),
        "differences": tuple(r["differences"]),
        "files": dict(r.get("files") or {}),
    },
    "measured": lambda r: {"peak": _parse_peak(r)},
    "failed": lambda r: {"failure": r["why"], "fault": r.get("fault", False)},
}
_STUDY_EVENTS: Mapping[str, Callable[[State, Record], dict[str, Any]]] = {
    "study": lambda _, r: {
        "started": r["started"],
        "shared": r.get("shared", False),
        "purpose": str(r.get("purpose", "")),
    },
    "joined": _apply_joined,
    "trial": lambda state, r: {"trials": (*state.trials, _parse_trial(r))},
    "answered": lambda state, r: {"values": {**state.values, r["trial"]: tuple(r["values"])}},
    "spent": _apply_spent,
    "session": _apply_session,
    "bed": lambda state, r: {"set_aside": {**state.set_aside, r["bed"]: r["set_aside"]}},
    "beds": lambda _, r: {"offsets": {b: BedOffset(**o) for b, o in r["offsets"].items()}},
    "noise": lambda _, r: {"noise": r},
    "bottleneck": lambda state, r: {"bottlenecks": {**state.bottlenecks, r["trial"]: r}},
    "capacities": lambda state, r: {"capacities": {**state.capacities, r["trial"]: r["parts"]}},
    "memory": lambda state, r: {"rss": _merge_max_rss(state.rss, r["rss"])},
    "standings": lambda _, r: {"posterior": _parse_posterior(r)},
    "model": lambda _, r: {"model": r["view"]},
    "settled": lambda _, r: {"settled": r["why"]},
    "answers": lambda _, r: {"answers": tuple(dict(page) for page in r["pages"])},
    "transferred": lambda _, r: {"transferred": tuple(r["configurations"])},
    "warm-up": lambda state, r: {"warmups": {**state.warmups, r["trial"]: r}},
    "ceilings": lambda state, r: {
        "ceilings": (*state.ceilings, {k: v for k, v in r.items() if k not in ENVELOPE_KEYS})
    },
    "explained": lambda _, r: {"explained": r},
    "simplified": lambda _, r: {"simplified": r},
    "verdict": lambda _, r: {"verdict": r},
}
