"""Types of the JSON objects that reports, `status`, `explain`, `measure` and `params` print.

`autotune schema` derives the JSON Schemas from these types. While ``schema`` is 1, keys may be added,
but no key changes its meaning. Rates are in requests/s, or in the unit of a command's value. Times are
in seconds, shares are fractions of one, and intervals cover 90 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from autotune.services.base import Value
from autotune.study.plan_documents import Settings, VersionedObject


class Interval(TypedDict):
    low: float | None
    high: float | None


class CapacityObject(Interval):
    peak: float | None


class SloObject(TypedDict):
    """``percentile`` 99 means p99. ``limit`` is in seconds, ``errors`` is a fraction of one."""

    percentile: float
    limit: float
    errors: float


VerdictName = Literal["improved", "no-improvement", "unmeetable", "stopped"]
Direction = Literal["maximize", "minimize"]
ActionLabel = Literal["none", "reload", "restart"]


class Goal(TypedDict):
    direction: Direction
    name: str
    unit: str


class Side(CapacityObject):
    trial: int


class Configuration(Side):
    """``requests`` counts the requests behind ``peak``; their rates are at least ``lowest_rate``. With a
    ``limit``, the load did not reach the capacity.
    """

    limit: str | None
    requests: int
    lowest_rate: float | None
    parameters: Settings


class Difference(Interval):
    value: float


class GainObject(Interval):
    """Gain of the best configuration over the baseline, from alternating ``pairs``. Only a command's
    values have a ``difference``.
    """

    ratio: float | None
    pairs: int
    difference: NotRequired[Difference]


class Finding(TypedDict):
    """The bottleneck of a configuration; ``confidence`` is from 0 to 1.

    ``gain`` is the estimated factor by which requests/s rise if the cause is removed, or 0 if unknown.
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


class GainSharesObject(TypedDict):
    """``preset``: gain of the best preset over the baseline; ``search``: gain of the best configuration
    over that preset.
    """

    preset: Ratio | None
    search: Ratio | None


class ReversalCostObject(Ratio):
    """The capacity without the change, divided by the capacity of the best configuration. ``measured`` is
    true for results of `explain --measure`.
    """

    distinguishable: bool
    measured: bool


class MemoryChange(TypedDict):
    """Memory in bytes that all changes together add on all hosts: ``modelled`` by rules, and ``measured``
    at capacity.
    """

    modelled: int | None
    measured: int | None


class Change(TypedDict):
    parameter: str
    before: Value | None
    after: Value
    action: ActionLabel
    memory: int | None
    cost: ReversalCostObject | None


class NextCommands(TypedDict):
    """Commands by purpose, and a note if a command alone cannot apply the best configuration."""

    resume: Sequence[str]
    apply: Sequence[str]
    undo: Sequence[str]
    note: str
    commands: Sequence[str]


class TrialCounts(TypedDict):
    complete: int
    failed: int
    screened: int


class TimeSpentObject(TypedDict):
    total: float
    load: float
    deploy: float
    search: float
    other: float


class BedOffsetInterval(Interval):
    ratio: float
    noise: float


class BedSummary(TypedDict):
    """A test bed. ``offset`` is relative to an average bed; ``set_aside`` is why this bed was removed."""

    trials: int
    seconds: float
    per_hour: float | None
    offset: BedOffsetInterval | None
    gain: GainObject | None
    set_aside: str | None


class BedSummaries(TypedDict):
    each: Mapping[str, BedSummary]
    disagree: bool


class StackCeilingObject(TypedDict):
    concurrency: int
    rate: float
    requests: int
    errors: Mapping[str, int]
    percentiles: Mapping[str, float]
    failed: str | None
    limited: bool
    example: str


class StackCeilingsObject(TypedDict):
    of: str
    generator: str
    closed: bool
    ceilings: Sequence[StackCeilingObject]


class CacheCeilingObject(TypedDict):
    objects: str
    how: str
    together: int
    rate: float
    gigabits: float
    hits: float
    failed: str | None
    limited: bool


class CacheCeilingsObject(TypedDict):
    of: str
    servers: Sequence[str]
    ceilings: Sequence[CacheCeilingObject]
    chain: float


class StudyWarningObject(TypedDict):
    """``value`` is beyond ``threshold``; ``text`` is the consequence in this study."""

    code: str
    value: float
    threshold: float
    text: str
    remedy: str


class LatencyAnswer(Interval):
    """Latency at a rate. ``bound`` is `at most` or `more than` if the rate is outside the measured
    range. ``measured`` is false for a value from the fitted curve.
    """

    latency: float | None
    bound: str | None
    why: str | None
    measured: bool


class RateAnswer(TypedDict):
    rate: float
    baseline: LatencyAnswer | None
    best: LatencyAnswer | None


class TodayLatencyObject(RateAnswer):
    """Latency at today's request rate. If ``today`` is false, the target does not declare this rate."""

    today: bool


class GoalOfCommand(TypedDict):
    """The goal of a study that tunes a command."""

    goal: NotRequired[Goal]


class OptionalKeys(TypedDict):
    """Keys of a study that exist only with test beds, with ceilings, or for requested rates."""

    beds: NotRequired[BedSummaries]
    ceilings: NotRequired[Sequence[StackCeilingsObject | CacheCeilingsObject]]
    at: NotRequired[Sequence[RateAnswer]]


class StudyObject(VersionedObject):
    """A study and its verdict. The ``peak`` of the best configuration is from measurements after its
    selection.
    """

    study: str
    verdict: VerdictName
    headline: str
    slo: SloObject | None
    goal: NotRequired[Goal]
    baseline: Configuration | None
    best: Configuration | None
    preset: Configuration | None
    gain: GainObject | None
    gain_shares: GainSharesObject | None
    latency: TodayLatencyObject | None
    memory: MemoryChange
    changes: Sequence[Change]
    next: NextCommands
    trials: TrialCounts
    seconds: TimeSpentObject
    bottleneck: Findings | None
    beds: NotRequired[BedSummaries]
    ceilings: NotRequired[Sequence[StackCeilingsObject | CacheCeilingsObject]]
    at: NotRequired[Sequence[RateAnswer]]
    warnings: Sequence[StudyWarningObject]


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
    """The baseline or the best configuration in a status. With a ``limit``, ``peak`` is a lower bound of
    the capacity.
    """

    limit: str | None


class CheckedAnswers(TypedDict):
    """Complete responses under load: the numbers of checked and of wrong responses, and an example."""

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
    latency: TodayLatencyObject | None
    answers: CheckedAnswers
    beds: NotRequired[Mapping[str, BedStatus]]
    seconds: StatusSeconds


class Status(VersionedObject):
    studies: Sequence[StudyStatus]


class InteractingPairObject(TypedDict):
    """Two parameters whose joint effect is not the sum of their effects; ``effect`` is a log ratio."""

    first: str
    second: str
    effect: float


class RangeEdgeObject(TypedDict):
    """A parameter that is best at the ``low`` or ``high`` end of its range, and the range to try."""

    parameter: str
    value: Value
    end: str
    try_range: tuple[Value, Value]


class ImportanceObject(TypedDict):
    """The effect of parameters over their searched range, as the sd of the capacity's logarithm.

    Several parameters form one row if they always changed together. ``changed_in`` counts the measured
    configurations in which these parameters differ from the baseline.
    """

    parameters: Sequence[str]
    effect: float
    half_width: float | None
    changed_in: int


class PredictedLoss(TypedDict):
    """The cost of reverting a change, as a log ratio. ``measured`` is true after `explain
    --measure`.
    """

    parameter: str
    loss: float
    sd: float
    distinguishable: bool
    measured: bool


class MinimalChangesObject(Interval):
    """The smallest set of changes, as measured: the changes in ``kept`` provide ``share`` of the gain."""

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


class ExplanationObject(VersionedObject):
    """``configurations`` is the number of measured configurations. Predictions from fewer than ten
    configurations are unreliable.
    """

    study: str
    trial: int
    configurations: int
    importance: Sequence[ImportanceObject]
    interactions: Sequence[InteractingPairObject]
    edges: Sequence[RangeEdgeObject]
    changes: Sequence[PredictedLoss]
    minimal: MinimalChangesObject | None


# Readings at one rate. A percentile is null if too few requests got a correct response.
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
    """``sd`` is the sd of the capacity's logarithm. ``bindings`` lists the settings that were changed
    to satisfy a rule.

    ``requests`` is the number of requests in the readings that determine ``peak``.
    """

    sd: float
    requests: int
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


class MeasuredLatency(TypedDict):
    """Latency at today's request rate. ``comparison`` is the latency of the other side."""

    rate: float
    configuration: LatencyAnswer | None
    comparison: LatencyAnswer | None


class MeasurementObject(VersionedObject):
    """The result of `measure`: the ``peaks`` of repeats or, with ``against``, both configurations'
    peaks and the ``gain``.
    """

    study: str
    at_least: NotRequired[RequiredCapacity]
    peaks: NotRequired[Sequence[MeasuredSide]]
    peak: NotRequired[float]
    low: NotRequired[float | None]
    high: NotRequired[float | None]
    limit: NotRequired[str | None]
    spread: NotRequired[float | None]
    ladder: NotRequired[Sequence[MeasuredLoadStep]]
    against: NotRequired[str]
    baseline: NotRequired[Sequence[MeasuredSide]]
    other: NotRequired[Sequence[MeasuredSide]]
    configuration: NotRequired[Sequence[MeasuredSide]]
    gain: NotRequired[GainObject]
    latency: NotRequired[MeasuredLatency]


class MeasuredStackCeilings(VersionedObject, StackCeilingsObject):
    """Throughput with a closed loop of clients, which is not a capacity within an SLO."""


class MeasuredCacheCeilings(VersionedObject, CacheCeilingsObject):
    """The ceilings of the caches alone. ``chain`` is the rate in keys/s at which the whole stack reads
    the caches. It is 0 if the capacity of the stack is unknown, for example because of ``load.max_rate``.
    """


class ParameterObject(TypedDict):
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
    action: ActionLabel
    effect: str
    direction: str
    deployments: Sequence[str]
    safe: Sequence[Value] | None
    source: str


class ParameterCatalogue(VersionedObject):
    services: Mapping[str, Sequence[ParameterObject]]
