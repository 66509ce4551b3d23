"""Types of the output under ``--json``. `autotune schema` prints their JSON Schemas.

While ``schema`` is 1, keys are only added, and never change their meaning. Rates are in requests/s
(or a command's values), times in seconds, shares are fractions of one, intervals are of 90 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from autotune.deploy.changes import HostChanges
from autotune.optimize.importance import InteractingPair, RangeEdge
from autotune.report.warnings import StudyWarning
from autotune.services.base import Value
from autotune.sweep.results import Mean

JSON_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
Settings = Mapping[str, Value]


class VersionedObject(TypedDict):
    schema: Literal[1]


class Interval(TypedDict):
    low: float | None
    high: float | None


class Capacity(Interval):
    peak: float | None


class Slo(TypedDict):
    """``percentile`` 99 is p99; ``limit`` in seconds, ``errors`` a fraction."""

    percentile: float
    limit: float
    errors: float


class Goal(TypedDict):
    direction: Literal["maximize", "minimize"]
    name: str
    unit: str


class Side(Capacity):
    trial: int


class Configuration(Side):
    parameters: Settings


class Difference(Interval):
    value: float


class Gain(Interval):
    """Best over baseline, from alternating ``pairs``; ``difference`` of a command's values."""

    ratio: float | None
    pairs: int
    difference: NotRequired[Difference]


class Finding(TypedDict):
    """What limits a configuration: ``confidence`` is from 0 to 1.

    ``gain`` is the factor in requests/s that the removal of the cause would give, 0 if unknown.
    ``related`` are other shortages: tier, service and resource.
    """

    trial: NotRequired[int]
    tier: str
    service: str
    host: str
    resource: str
    evidence: str
    confidence: float
    gain: NotRequired[float]
    related: NotRequired[list[list[str]]]


class Findings(TypedDict):
    baseline: Finding | None
    best: Finding | None


class Ratio(Interval):
    ratio: float


class GainShares(TypedDict):
    """``preset``: the best preset over the baseline; ``search``: the best over that preset."""

    preset: Ratio | None
    search: Ratio | None


class ReversalCost(Ratio):
    """The capacity without the change over the best's; ``measured`` by `explain --measure`."""

    distinguishable: bool
    measured: bool


class Change(TypedDict):
    parameter: str
    before: Value | None
    after: Value
    action: Literal["none", "reload", "restart"]
    cost: ReversalCost | None


class NextCommands(TypedDict):
    """Commands by purpose, and a note if a command alone cannot apply the best."""

    resume: Sequence[str]
    apply: Sequence[str]
    undo: Sequence[str]
    note: str


class TrialCounts(TypedDict):
    complete: int
    failed: int
    screened: int


class TimeSpent(TypedDict):
    total: float
    load: float
    deploy: float
    search: float
    other: float


class BedOffsetInterval(Interval):
    ratio: float
    noise: float


class BedSummary(TypedDict):
    """A test bed. ``offset`` is relative to an average bed; ``set_aside`` is why it was removed."""

    trials: int
    seconds: float
    per_hour: float | None
    offset: BedOffsetInterval | None
    gain: Gain | None
    set_aside: str | None


class BedSummaries(TypedDict):
    each: Mapping[str, BedSummary]
    disagree: bool


class StackCeiling(TypedDict):
    concurrency: int
    rate: float
    requests: int
    errors: Mapping[str, int]
    percentiles: Mapping[str, float]
    failed: str | None
    limited: bool
    example: str


class StackCeilings(TypedDict):
    of: str
    generator: str
    closed: bool
    ceilings: Sequence[StackCeiling]


class CacheCeiling(TypedDict):
    objects: str
    how: str
    together: int
    rate: float
    gigabits: float
    hits: float
    failed: str | None


class CacheCeilings(TypedDict):
    of: str
    servers: Sequence[str]
    ceilings: Sequence[CacheCeiling]
    chain: float


class LatencyAnswer(Interval):
    """Latency at a rate. ``bound`` is `at most` or `more than` if the rate is outside the measured
    range.
    """

    latency: float | None
    bound: str | None
    why: str | None


class RateAnswer(TypedDict):
    rate: float
    baseline: LatencyAnswer | None
    best: LatencyAnswer | None


class Study(VersionedObject):
    """A study and its verdict. The best's ``peak`` is from measurements after its selection."""

    study: str
    verdict: Literal["improved", "no-improvement", "unmeetable", "stopped"]
    slo: Slo | None
    goal: NotRequired[Goal]
    baseline: Configuration | None
    best: Configuration | None
    preset: Configuration | None
    gain: Gain | None
    gain_shares: GainShares | None
    changes: Sequence[Change]
    next: NextCommands
    trials: TrialCounts
    seconds: TimeSpent
    bottleneck: Findings | None
    beds: NotRequired[BedSummaries]
    ceilings: NotRequired[Sequence[StackCeilings | CacheCeilings]]
    at: NotRequired[Sequence[RateAnswer]]
    warnings: Sequence[StudyWarning]


class RunningTrial(TypedDict):
    trial: int
    phase: str
    of: int | None
    deployed: bool
    windows: int
    readings: int
    rate: float | None


class BedStatus(BedSummary):
    trial: RunningTrial | None


class TrialProgress(TrialCounts):
    done: int
    budget: int


class ProofProgress(TypedDict):
    finalists: int
    confirmations: int


class StatusSeconds(TypedDict):
    elapsed: float
    left: float | None
    budget: float


class StatusSide(Side):
    """With a ``limit``, ``peak`` is a lower bound of the capacity."""

    limit: str | None


class CheckedAnswers(TypedDict):
    """Complete answers under load: how many were checked, how many were wrong, and one example."""

    looked_at: int
    wrong: int
    example: str | None


class StudyStatus(VersionedObject):
    """The state of a study. ``ratio`` is preliminary until there is a ``verdict``."""

    study: str
    state: Literal["running", "stopped", "finished"]
    holder: str | None
    verdict: str | None
    trial: RunningTrial | None
    trials: TrialProgress
    proof: ProofProgress
    baseline: StatusSide | None
    best: StatusSide | None
    ratio: float | None
    change: str | None
    answers: CheckedAnswers
    beds: NotRequired[Mapping[str, BedStatus]]
    seconds: StatusSeconds


class Status(VersionedObject):
    studies: Sequence[StudyStatus]


class Check(VersionedObject):
    held: Sequence[str]
    left_out: Sequence[str]
    not_checked: Sequence[str]
    headroom: str | None


class Deployment(TypedDict):
    services: Settings
    servers: Sequence[str]
    parameters: int
    bindings: Sequence[str]


class Budget(TypedDict):
    trials: int
    seconds: float
    proof_seconds: float
    finalists: int
    most_pairs: int
    max_rate: NotRequired[float]


class HostMemory(TypedDict):
    """Memory of the recommended settings in bytes. ``of_baseline``: the baseline sets what is
    ``allowed``.
    """

    host: str
    rule: str
    needed: float
    allowed: float
    memory: float
    of_baseline: bool


class Plan(VersionedObject):
    """The plan of a run. ``hosts`` and the keys after it exist only for targets with hosts;
    ``command`` and ``first`` only for a command.
    """

    target: str
    tunable: Sequence[str]
    bindings: Sequence[str]
    diff: str
    budget: Budget
    command: NotRequired[str]
    first: NotRequired[Sequence[Settings]]
    simulated: NotRequired[bool]
    entry: NotRequired[str]
    servers: NotRequired[Sequence[str]]
    host_settings: NotRequired[Sequence[str]]
    installed: NotRequired[bool]
    core: NotRequired[Sequence[str]]
    deployments: NotRequired[Sequence[Deployment]]
    limits: NotRequired[Sequence[str]]
    memory: NotRequired[Sequence[HostMemory]]
    actions: NotRequired[Mapping[str, Sequence[str]]]
    hosts: NotRequired[Mapping[str, HostChanges]]
    may_restart: NotRequired[Mapping[str, Sequence[str]]]
    requests: NotRequired[Mapping[str, str]]
    right_answers: NotRequired[str]


class Importance(TypedDict):
    """The effect over the searched range: an sd of the capacity's logarithm.

    ``parameters`` always changed together. ``changed_in`` counts the measured configurations that differ
    from the baseline in them.
    """

    parameters: Sequence[str]
    effect: float
    half_width: float | None
    changed_in: int


class PredictedLoss(TypedDict):
    """The cost of reverting a change, as a logarithm; ``measured`` by `explain --measure`."""

    parameter: str
    loss: float
    sd: float
    distinguishable: bool
    measured: bool


class MinimalChanges(Interval):
    """A measured reduction: the changes ``kept`` provide ``share`` of the gain."""

    event: str
    at: str
    kept: Sequence[str]
    dropped: Sequence[str]
    share: float
    measurements: int
    losses: Mapping[str, float]
    sds: Mapping[str, float]
    changes: int
    trial: int | None


class Explanation(VersionedObject):
    """``configurations`` is the number of measured ones. Predictions from fewer than ten are
    unreliable.
    """

    study: str
    trial: int
    configurations: int
    importance: Sequence[Importance]
    interactions: Sequence[InteractingPair]
    edges: Sequence[RangeEdge]
    changes: Sequence[PredictedLoss]
    minimal: MinimalChanges | None


# Readings of a rate. A percentile is null if it exceeds all answers.
MeasuredLoadStep = TypedDict(
    "MeasuredLoadStep",
    {
        "rate": float,
        "readings": int,
        "seconds": float,
        "intended": int,
        "violations": int,
        "errors": Mapping[str, int],
        "looked_at": int,
        "wrong": int,
        "example": str | None,
        "goodput": float | None,
        "p50": float | None,
        "p90": float | None,
        "p95": float | None,
        "p99": float | None,
        "p99.9": float | None,
        "met": bool,
        "cut_short": bool,
        "limited": str | None,
    },
)


class MeasuredSide(Side):
    """``sd`` is the sd of the capacity's logarithm. ``bindings`` are changes made to keep a rule."""

    sd: float
    verdict: str
    limit: str | None
    p99: float | None
    bindings: Sequence[str]
    ladder: Sequence[MeasuredLoadStep]
    hosts: Mapping[str, Mapping[str, float]]
    bottleneck: Finding | None


class RequiredCapacity(TypedDict):
    rate: float
    met: bool


class Measurement(VersionedObject):
    """``peaks`` of repeats; or, with ``against``, the peaks of both sides and the ``gain``."""

    study: str
    at_least: NotRequired[RequiredCapacity]
    peaks: NotRequired[Sequence[MeasuredSide]]
    peak: NotRequired[float]
    limit: NotRequired[str | None]
    spread: NotRequired[float | None]
    ladder: NotRequired[Sequence[MeasuredLoadStep]]
    against: NotRequired[str]
    baseline: NotRequired[Sequence[MeasuredSide]]
    other: NotRequired[Sequence[MeasuredSide]]
    configuration: NotRequired[Sequence[MeasuredSide]]
    gain: NotRequired[Gain]


class MeasuredStackCeilings(VersionedObject, StackCeilings):
    """A closed loop of clients: not a capacity within an SLO."""


class MeasuredCacheCeilings(VersionedObject, CacheCeilings):
    """Caches alone. ``chain`` is the rate at which the whole stack reads them, in keys/s."""


class SweepPoint(TypedDict):
    """A point of a sweep at one ``rate``, or its capacity ``peak`` if the rate is null."""

    at: Settings
    hosts: Mapping[str, int]
    rate: float | None
    response: Mean | None
    throughput: Mean | None
    peak: Mean | None
    p50: float | None
    p99: float | None
    violations: float | None
    met: bool
    load: Mapping[str, Mean]
    cpu: Mapping[str, Mean]
    failure: str | None
    limit: str | None


# A class cannot have a field called `with`.
SweepResult = TypedDict(
    "SweepResult",
    {
        "schema": Literal[1],
        "sweep": str,
        "title": str,
        "simulated": bool,
        "axes": Mapping[str, Sequence[Value]],
        "hosts": Mapping[str, Sequence[int]],
        "with": Settings,
        "rates": Sequence[float],
        "repeat": int,
        "left": int,
        "best": SweepPoint | None,
        "points": Sequence[SweepPoint],
    },
)


class Parameter(TypedDict):
    """Values may be expressions of host facts, such as `4 * cpus`."""

    name: str
    meaning: str
    unit: str
    stock: Value | None
    recommended: Value | None
    published: Settings
    low: Value | None
    high: Value | None
    log: bool
    choices: Sequence[Value]
    when: Mapping[str, Sequence[Value]]
    roles: Sequence[str] | None
    action: Literal["none", "reload", "restart"]
    effect: str
    direction: str
    deployments: Sequence[str]
    safe: Sequence[Value] | None
    source: str


class ParameterCatalogue(VersionedObject):
    services: Mapping[str, Sequence[Parameter]]


class ApplyResult(VersionedObject):
    """``actions`` map each service to reload, restart or none. ``differences`` are settings not in
    effect.
    """

    study: str
    actions: Mapping[str, str]
    differences: Sequence[str]


class Initialized(VersionedObject):
    """The written target. The other keys describe adopted hosts; examples have none."""

    target: str
    templates: NotRequired[str]
    tiers: NotRequired[Sequence[str]]
    not_tuned: NotRequired[Sequence[str]]
    parameters: NotRequired[int]


class ConfigurationDiff(VersionedObject):
    """A unified diff from ``a`` to ``b``, or changed settings; empty if both are equal."""

    study: str
    a: str
    b: str
    diff: str


class Exported(VersionedObject):
    study: str
    format: str
    files: Sequence[str]


class Restored(VersionedObject):
    """One text for each action; none if there was nothing to restore."""

    restored: Sequence[str]


class LabHost(TypedDict):
    name: str
    address: str
    pid: int | None
    ssh: bool
    running: bool


class Lab(VersionedObject):
    lab: str
    directory: str
    ssh_config: str
    hosts: Sequence[LabHost]
    started: NotRequired[Sequence[str]]
    seconds: NotRequired[float]
    named_by_target: NotRequired[bool]
    site: NotRequired[bool]


class Workload(VersionedObject):
    """``coverage`` is the share of ``requests`` whose page is among ``pages``."""

    requests: int
    pages: int
    coverage: float
    masked: int
    left_out: Mapping[str, int]
    out: str | None


class Mistake(TypedDict):
    message: str
    hint: str | None


class ErrorDetails(Mistake):
    """``code`` is the exit status; ``mistakes`` are all mistakes of a target."""

    code: int
    mistakes: NotRequired[Sequence[Mistake]]


class ErrorOutput(VersionedObject):
    error: ErrorDetails


OUTPUT_OBJECTS: Mapping[str, tuple[Any, str]] = {
    "study": (Study, "run, worker, resume and report"),
    "status": (Status, "status"),
    "check": (Check, "check"),
    "plan": (Plan, "plan"),
    "parameters": (ParameterCatalogue, "params"),
    "explanation": (Explanation, "explain"),
    "measurement": (Measurement, "measure"),
    "ceilings": (MeasuredStackCeilings | MeasuredCacheCeilings, "measure --closed and --tier"),
    "sweep": (SweepResult, "sweep, and report and resume of one"),
    "applied": (ApplyResult, "apply"),
    "initialized": (Initialized, "init"),
    "diff": (ConfigurationDiff, "diff"),
    "exported": (Exported, "export"),
    "restored": (Restored, "restore"),
    "lab": (Lab, "lab up, down and status"),
    "workload": (Workload, "workload from-log"),
    "error": (ErrorOutput, "any command that fails"),
}
"""Names of schemas, each with its type and the commands that print it."""


def build_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of ``OUTPUT_OBJECTS``."""
    generated = TypeAdapter(OUTPUT_OBJECTS[name][0]).json_schema()
    # Docstrings quote names with two backticks. Titles made of names are redundant.
    document = _remove_titles(json.loads(json.dumps(generated).replace("``", "`")))
    comment = f"Output of autotune with --json: {OUTPUT_OBJECTS[name][1]}."
    return {
        "$schema": JSON_SCHEMA_DIALECT,
        "title": f"autotune {name}",
        "$comment": comment,
        **document,
    }


def _remove_titles(document: Any) -> Any:
    if isinstance(document, list):
        return [_remove_titles(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: _remove_titles(value)
        for key, value in document.items()
        if not (key == "title" and isinstance(value, str))
    }
