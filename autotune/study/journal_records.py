"""The records of a study's journal, by kind. The fields of a class define the content of a record.

A journal may come from other people, so `record_codec.decode` checks each record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autotune.diagnose.bottleneck import Bottleneck
from autotune.environments.peak import Peak
from autotune.errors import AutotuneError
from autotune.estimate import InstanceCapacity
from autotune.optimize.bed_offset import BedOffset
from autotune.optimize.model_view import ModelView
from autotune.services.base import Settings, Value
from autotune.space.facts import HostFacts
from autotune.study.ceiling_records import CacheCeilings, StackCeilings
from autotune.study.record_codec import define_named_field, define_omittable_field
from autotune.study.verdict import Verdict
from autotune.study.winner_changes import MinimalChanges, Simplification

SCHEMA_VERSION = 1  # version of a study's records
MAX_SECONDS = 1e12  # longer than any study; larger numbers could have an infinite sum


@dataclass(frozen=True)
class RecordedFacts:
    """Facts of a host: its CPUs, its memory in bytes, and its maximum number of open files."""

    cpus: float | None = None
    memory: float | None = None
    nofile: float | None = None

    def to_host_facts(self, kernel_values: Mapping[str, str]) -> HostFacts:
        """Return the facts of a host whose kernel settings have these values.

        Raises AutotuneError for an incomplete record.
        """
        if self.cpus is None or self.memory is None or self.nofile is None:
            raise AutotuneError(
                "the study does not record all facts of its hosts: it is damaged, or another version of "
                "autotune wrote it",
                hint="get a new copy, or start a new study with `autotune run`",
            )
        return HostFacts(
            float(self.cpus), int(self.memory), int(self.nofile), kernel_values=kernel_values
        )


@dataclass(frozen=True)
class RecordedBed:
    """A test bed with the original files of its hosts, as `discovery.host_templates` records them."""

    adopted: Mapping[str, object] | None = None


@dataclass(frozen=True)
class StudyStart:
    """The first record of a study; `study_store.build_first_record` describes its fields."""

    started: str
    schema: int = SCHEMA_VERSION
    name: str | None = None
    autotune: str | None = None
    source: str = ""
    facts: Mapping[str, RecordedFacts] = field(default_factory=dict)
    overrides: tuple[tuple[str, str], ...] = ()
    adopted: Mapping[str, object] | None = None
    asked: Mapping[str, str] = field(default_factory=dict)
    beds: Mapping[str, RecordedBed] = field(default_factory=dict)
    purpose: str = ""
    shared: bool = False
    space: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for records of another version."""
        if self.schema != SCHEMA_VERSION:
            raise ValueError(
                f"unsupported schema {self.schema}; this version reads {SCHEMA_VERSION}"
            )


@dataclass(frozen=True)
class RecordedBudget:
    """The limits of a study in a session: the number of configurations, and the time in seconds."""

    trials: int
    seconds: float


@dataclass(frozen=True)
class SessionStart:
    """The start of a session, with its test beds and the software versions that results depend on.

    ``budget`` is recorded when a study is resumed, because the target's budget may have changed. If
    ``keep`` is true, a proven winner stays on the hosts.
    """

    at: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    beds: tuple[str, ...] = ()
    budget: RecordedBudget | None = None
    keep: bool = False


@dataclass(frozen=True)
class BedJoined(RecordedBed):
    """A test bed that joins a study in a shared database."""

    bed: str = ""
    at: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError if the name of the bed is missing."""
        if not self.bed:
            raise ValueError("bed is missing")


@dataclass(frozen=True)
class BedExclusion:
    """A test bed that was removed from the session, and the reason."""

    bed: str
    set_aside: str


@dataclass(frozen=True)
class BedOffsets:
    """The estimated differences in capacity between the test beds."""

    offsets: Mapping[str, BedOffset]


@dataclass(frozen=True)
class TrialStart:
    """The start of a trial, recorded before any host changes; `study_state.Trial` describes the
    fields.
    """

    trial: int
    phase: str
    source_trial: int | None = define_named_field("of", None)
    suggestion_number: int | None = define_named_field("asked", None)
    at: str = ""
    settings: Mapping[str, Value] = field(kw_only=True)
    suggested: Mapping[str, Value] = field(kw_only=True)
    bindings: tuple[str, ...] = field(kw_only=True)
    bed: str | None = define_omittable_field()
    replaced_trial: int | None = define_omittable_field(None, "repeats")
    capped_parameters: tuple[str, ...] = define_omittable_field((), "capped")
    requested: Mapping[str, Value] | None = define_omittable_field()


@dataclass(frozen=True)
class DeployedHost:
    """A host in the record of a deployment. Exports use the fields."""

    units: Mapping[str, object]
    sysctls: Mapping[str, object]
    files: Mapping[str, object]
    original: Mapping[str, object]


@dataclass(frozen=True)
class DeployedTrial:
    """A deployment: effective values, differences from the requested values, and digests of the
    rendered files.
    """

    trial: int
    effective: Mapping[str, Value]
    differences: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    actions: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, DeployedHost] = field(default_factory=dict)


@dataclass(frozen=True)
class WarmUp:
    """A warm-up; ``carried`` is the last rate in requests/s that the stack sustained."""

    trial: int
    settled: bool
    windows: int
    hits: float | None = None
    carried: bool | float | None = None


@dataclass(frozen=True, kw_only=True)
class MeasuredPeak(Peak):
    """The capacity measured in a trial, with the number of ``readings`` and their total
    ``load_seconds``.
    """

    trial: int
    readings: int = 0
    load_seconds: float = 0.0
    at: str = ""


@dataclass(frozen=True)
class FailedTrial:
    """A trial that failed; ``fault`` is true if the benchmark or the load caused the failure."""

    trial: int
    why: str
    at: str = ""
    fault: bool = False


@dataclass(frozen=True)
class CommandValues:
    """The values from a benchmark command, in call order."""

    trial: int
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RecordedBottleneck(Bottleneck):
    """The resource that limited the capacity of a trial."""

    trial: int


@dataclass(frozen=True)
class RecordedNoise:
    """The scatter of readings, as `measure.noise.Noise` describes it."""

    weights: tuple[float, ...]
    readings: int
    effects: tuple[float, ...] = ()


@dataclass(frozen=True)
class Capacities:
    """The capacities of service instances, as measured in a trial."""

    trial: int
    parts: Mapping[str, InstanceCapacity]


@dataclass(frozen=True)
class ProcessSizes:
    """The largest process of each ``tier.service`` in a trial, in bytes."""

    trial: int
    rss: Mapping[str, int]


@dataclass(frozen=True)
class TimeSpent:
    """Wall-clock seconds by activity, for one test bed if there are several."""

    seconds: Mapping[str, float]
    bed: str | None = define_omittable_field()

    def __post_init__(self) -> None:
        """Raise ValueError for a number of seconds that no study can last."""
        if any(abs(seconds) > MAX_SECONDS for seconds in self.seconds.values()):
            raise ValueError(f"seconds: expected numbers up to {MAX_SECONDS:g}")


@dataclass(frozen=True)
class Standings:
    """The model's peak estimates (with sds) for the measured configurations, and the noise of a single
    peak.
    """

    peaks: Mapping[int, tuple[float, float]]
    noise: float


@dataclass(frozen=True)
class TransferredConfigurations:
    """Configurations of an earlier study, as changes to the baseline."""

    of: str
    configurations: tuple[Settings, ...]


@dataclass(frozen=True)
class RecordedModel:
    """The model's estimates of the parameters' effects, recorded after the search."""

    view: ModelView


@dataclass(frozen=True)
class RecordedCost:
    """The modelled cost of reverting one change: a log loss and its sd."""

    parameter: str
    loss: float
    sd: float


@dataclass(frozen=True)
class ReversalCosts:
    """The modelled costs of reverting each change of the winner ``trial``, the largest cost first."""

    trial: int
    costs: tuple[RecordedCost, ...]


@dataclass(frozen=True)
class SearchStopped:
    """The reason why the search stopped before its budget was used up."""

    why: str


@dataclass(frozen=True)
class WinnerKept:
    """The winner ``trial`` was deployed once more after the verdict, and stays on the hosts."""

    trial: int


@dataclass(frozen=True)
class ReferenceAnswers:
    """The reference responses of a session, one for each page.

    A page without a reference has the key ``problem``: the error in its response before the first trial.
    """

    pages: tuple[Mapping[str, object], ...]


@dataclass(frozen=True)
class SweptValue:
    """One value on an axis of a sweep."""

    label: Value
    settings: Mapping[str, Value]


@dataclass(frozen=True)
class SweptAxis:
    """One axis of a sweep, with the values to measure."""

    name: str
    choices: tuple[SweptValue, ...]


@dataclass(frozen=True)
class RecordedSweepPlan:
    """The plan of a sweep, as `sweep.plan` reads it."""

    title: str
    axes: tuple[SweptAxis, ...]
    hosts: Mapping[str, tuple[int, ...]]
    settings: Mapping[str, Value]
    rates: tuple[float, ...]
    repeat: int
    seconds: float
    seed: int
    keys: int

    @property
    def measurement_count(self) -> int:
        """Return the number of measurements: every point of the grid is measured ``repeat`` times."""
        axis_lengths = [len(axis.choices) for axis in self.axes]
        axis_lengths += [len(host_counts) for host_counts in self.hosts.values()]
        return self.repeat * prod(axis_lengths)


@dataclass(frozen=True)
class SweepStart:
    """The first record of a sweep."""

    plan: RecordedSweepPlan


@dataclass(frozen=True)
class SweepMeasurement:
    """A trial that was the ``turn``-th measurement of one point of a sweep."""

    trial: int
    point: int
    turn: int


RECORD_KINDS: Mapping[str, type] = {
    "study": StudyStart, "session": SessionStart, "joined": BedJoined, "bed": BedExclusion,
    "beds": BedOffsets, "trial": TrialStart, "deployed": DeployedTrial, "warm-up": WarmUp,
    "measured": MeasuredPeak, "answered": CommandValues, "failed": FailedTrial, "sweep": SweepStart,
    "swept": SweepMeasurement, "noise": RecordedNoise, "bottleneck": RecordedBottleneck,
    "capacities": Capacities, "memory": ProcessSizes, "spent": TimeSpent, "standings": Standings,
    "transferred": TransferredConfigurations,
    "model": RecordedModel, "reversal-costs": ReversalCosts, "settled": SearchStopped,
    "kept": WinnerKept,
    "answers": ReferenceAnswers, "simplified": Simplification, "explained": MinimalChanges,
    "verdict": Verdict,
}  # fmt: skip
CEILING_KINDS: Mapping[str, type] = {kind.of: kind for kind in (StackCeilings, CacheCeilings)}


def find_record_type(record: Mapping[str, Any]) -> type | None:
    """Return the type of a record's content; ``None`` for an unknown kind.

    Raises ValueError for a kind that is not text.
    """
    event = record["event"]
    if not isinstance(event, str):
        raise ValueError("event: expected text")  # noqa: TRY004 every invalid record raises ValueError
    if event == "ceilings":
        return CEILING_KINDS.get(str(record.get("of")), CacheCeilings)
    return RECORD_KINDS.get(event)
