"""Types of the data that the script of the report page reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from autotune.report import documents
from autotune.services.base import Value

ChartColumns = Mapping[str, Sequence[float | None]]


class ChartSlo(TypedDict):
    """The SLO: ``limit`` in milliseconds, ``allowed`` violations in per cent, and ``text`` for
    display.
    """

    percentile: str
    limit: float
    allowed: float
    text: str


class ChartUnit(TypedDict):
    """The unit of the capacity axis; ``from_zero`` is true if the axis starts at zero."""

    name: str
    suffix: str
    from_zero: bool


class PeakPoint(documents.CapacityObject):
    """A measured trial: its capacity, phase, outcome as text, and end time (``at``, in seconds)."""

    trial: int
    of: int | None
    phase: str
    at: float
    outcome: str


class BestStep(TypedDict):
    """An increase in the highest capacity so far."""

    at: float
    peak: float
    trial: int


class ReadingColumns(TypedDict):
    """Readings as columns: `timeline.build_reading_columns` describes them."""

    at: list[float]
    trial: list[int]
    warm: list[bool]
    rate: list[float]
    late: list[float | None]
    bad: list[float]
    state: list[str]


class Today(TypedDict):
    """Today's request rate, and the latencies of baseline and best at that rate, as text."""

    rate: float
    answers: Mapping[str, str]


class FittedCurve(TypedDict):
    """A fitted curve: rates, latencies in milliseconds with their 90 % band, and the capacity with its
    interval.
    """

    rate: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    capacity: list[float] | None


class ParameterColumn(TypedDict):
    """A setting that varied, with its value in each trial; ``None`` for trials in which it had no
    effect.
    """

    name: str
    unit: str
    log: bool
    values: Sequence[Value | None]
    choices: list[str] | None


class ParameterColumns(TypedDict):
    """Trials in the budget with their capacities, and every setting that varied."""

    trials: list[int]
    peaks: list[float | None]
    lows: list[float | None]
    highs: list[float | None]
    parameters: list[ParameterColumn]


class TrialRow(documents.CapacityObject):
    """A row of the table of trials; ``values`` contains one value for each column."""

    trial: int
    phase: str
    of: int | None
    bed: str | None
    outcome: str
    verdict: str
    bottleneck: str
    limit: str
    values: list[Value | None]
    rules: list[str]
    differences: list[str]
    changes: NotRequired[list[list[str]]]
    diff: NotRequired[str]


class EffectRow(TypedDict):
    """The effect of settings in per cent; ``half`` is half the width of its 90 % interval."""

    names: list[str]
    effect: float
    half: float | None


class Importance(TypedDict):
    """The interactions, the ranges to widen, and each parameter's effect over its searched range."""

    rows: list[EffectRow]
    pairs: list[documents.InteractingPairObject]
    edges: list[str]


class SliceBand(TypedDict):
    """Capacities over the values ``x`` of one setting: the mean and its 90 % band."""

    x: Sequence[Value]
    mean: list[float]
    low: list[float]
    high: list[float]


class ChartData(TypedDict):
    """The data of all charts and of the table of trials."""

    slo: ChartSlo
    baseline: int | None
    best: int | None
    proven: bool
    time: str
    unit: ChartUnit
    quantity: str
    counted: list[str]
    peaks: list[PeakPoint]
    steps: list[BestStep]
    readings: ReadingColumns
    latency: Mapping[str, ChartColumns]
    fitted: Mapping[str, FittedCurve]
    today: Today | None
    columns: list[str]
    hosts: Mapping[str, Mapping[str, Mapping[str, float]]]
    parameters: ParameterColumns
    trials: list[TrialRow]
    ceilings: list[documents.StackCeilingsObject | documents.CacheCeilingsObject]
    importance: NotRequired[Importance]
    slices: NotRequired[Mapping[str, SliceBand]]
