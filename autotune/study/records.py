"""What a study remembers, as values: the journal's records read back into one state."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.environments.peak import Peak as Peak  # noqa: PLC0414  # part of a record
from autotune.errors import AutotuneError
from autotune.estimate import Estimate
from autotune.optimize.ranking import Standings
from autotune.services.base import Settings, Value

Record = Mapping[str, Any]


class Phase(enum.StrEnum):
    """Why a configuration was measured."""

    BASELINE = "baseline"
    RECOMMENDED = "recommended"
    PUBLISHED = "published"
    KNOWN = "known"
    SEARCH = "search"
    FINALIST = "finalist"
    CONFIRM = "confirm"
    REFERENCE = "reference"
    RUNNER_UP = "runner-up"
    EXPLAIN = "explain"
    MEASURE = "measure"


# Phases whose configurations the budget of trials counts.
COUNTED = frozenset({Phase.BASELINE, Phase.RECOMMENDED, Phase.PUBLISHED, Phase.KNOWN, Phase.SEARCH})

# Those whose configurations are known before the search.
OPENING = COUNTED - {Phase.SEARCH}

STACK, CACHES = "stack", "caches"  # what ceilings on record are ``of``
ENVELOPE = frozenset({"event", "at"})  # of a record: what it says is the rest


@dataclass(frozen=True)
class Trial:
    """One configuration being measured once.

    ``of`` is the trial whose settings are measured again (finalists, confirmation); ``asked`` the
    sampler's own number and values, for what it suggested. ``peak`` and ``failure`` are both
    ``None`` while the trial is under way, or when the tuner was killed during it. ``fault``: the
    failure is that of a benchmark command, and says nothing about the configuration.
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

    @property
    def over(self) -> bool:
        return self.peak is not None or self.failure is not None


@dataclass(frozen=True)
class State:
    """Everything the order of a study depends on.

    ``transferred`` are changes that won an earlier study and are tried first here.
    ``settled`` says why the search ended before its budget did, ``standings`` what the model believed
    once it had ended, ``explained`` which of the winner's changes carry its gain. ``rss`` is the
    largest process of each `tier.service` that any trial has shown, in bytes. ``values`` are what a
    benchmark command answered, by trial, in their order. ``ceilings`` are those measured, of the
    stack or of its caches alone (``study.ceilings``).
    """

    trials: tuple[Trial, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    started: str | None = None
    noise: Mapping[str, Any] | None = None
    bottlenecks: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    standings: Standings | None = None
    transferred: tuple[Settings, ...] = ()
    settled: str | None = None
    warmups: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    explained: Mapping[str, Any] | None = None
    model: Mapping[str, Any] | None = None
    rss: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    ceilings: tuple[Mapping[str, Any], ...] = ()
    verdict: Mapping[str, Any] | None = None

    @property
    def elapsed(self) -> float:
        """Seconds spent over all sessions."""
        return sum(self.seconds.values())

    def finished(self, *phases: Phase) -> tuple[Trial, ...]:
        return tuple(t for t in self.trials if t.over and (not phases or t.phase in phases))

    def by_number(self, number: int) -> Trial:
        return next(trial for trial in self.trials if trial.number == number)


def replay(records: Iterable[Record]) -> State:
    """The state after these records, in the order they were written.

    Raises AutotuneError for one that does not say what its kind has to.
    """
    state = State()
    for record in records:
        try:
            state = after(state, record)
        except (KeyError, TypeError) as error:
            raise AutotuneError(
                f"a record of kind {record.get('event')!r} makes no sense ({error}): the study is "
                "damaged, or of another version of autotune",
                hint="put its events.jsonl back from a copy, or move its directory away",
            ) from error
    return state


def after(state: State, record: Record) -> State:
    """The state one record later. Unknown records are left out: older readers, newer studies."""
    change = _CHANGES.get(record["event"])
    return change(state, record) if change else state


def _deployed(state: State, record: Record) -> State:
    differences = tuple(record["differences"])
    return _changed(state, record, effective=record["effective"], differences=differences)


def _measured(state: State, record: Record) -> State:
    peak = Peak(**{key: record[key] for key in Peak.__dataclass_fields__})
    return _changed(state, record, peak=peak)


def _failed(state: State, record: Record) -> State:
    return _changed(state, record, failure=record["why"], fault=record.get("fault", False))


def _answered(state: State, record: Record) -> State:
    return replace(state, values={**state.values, record["trial"]: tuple(record["values"])})


def _spent(state: State, record: Record) -> State:
    seconds = dict(state.seconds)
    for kind, value in record["seconds"].items():
        seconds[kind] = seconds.get(kind, 0.0) + value
    return replace(state, seconds=seconds)


def _memory(state: State, record: Record) -> State:
    larger = {name: max(size, state.rss.get(name, 0)) for name, size in record["rss"].items()}
    return replace(state, rss={**state.rss, **larger})


_CHANGES: Mapping[str, Callable[[State, Record], State]] = {
    "study": lambda state, record: replace(state, started=record["started"]),
    "trial": lambda state, record: replace(state, trials=(*state.trials, _trial(record))),
    "deployed": _deployed,
    "measured": _measured,
    "answered": _answered,
    "failed": _failed,
    "spent": _spent,
    "noise": lambda state, record: replace(state, noise=record),
    "bottleneck": lambda state, record: replace(
        state, bottlenecks={**state.bottlenecks, record["trial"]: record}
    ),
    "memory": _memory,
    "standings": lambda state, record: replace(state, standings=_standings(record)),
    "model": lambda state, record: replace(state, model=record["view"]),
    "settled": lambda state, record: replace(state, settled=record["why"]),
    "transferred": lambda state, record: replace(
        state, transferred=tuple(record["configurations"])
    ),
    "warm-up": lambda state, record: replace(
        state, warmups={**state.warmups, record["trial"]: record}
    ),
    "ceilings": lambda state, record: replace(
        state, ceilings=(*state.ceilings, {k: v for k, v in record.items() if k not in ENVELOPE})
    ),
    "explained": lambda state, record: replace(state, explained=record),
    "verdict": lambda state, record: replace(state, verdict=record),
}


def _standings(record: Record) -> Standings:
    return Standings(
        {int(number): Estimate.of(peak, sd) for number, (peak, sd) in record["peaks"].items()},
        record["noise"],
    )


def _trial(record: Mapping[str, Any]) -> Trial:
    return Trial(
        number=record["trial"],
        phase=Phase(record["phase"]),
        settings=record["settings"],
        of=record["of"],
        asked=record["asked"],
        suggested=record["suggested"],
        bindings=tuple(record["bindings"]),
    )


def _changed(state: State, record: Record, **changes: Any) -> State:
    number = record["trial"]
    return replace(
        state,
        trials=tuple(replace(t, **changes) if t.number == number else t for t in state.trials),
    )
