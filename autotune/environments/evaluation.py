"""One evaluation of a configuration: its request, records and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from autotune.deploy.deploy_result import DeployResult
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.peak import Peak
from autotune.estimate import Estimate, InstanceCapacity
from autotune.measure.benchmark import BenchmarkAnswer
from autotune.measure.noise import Noise
from autotune.measure.warm_up import WarmUpResult
from autotune.services.base import Settings


@dataclass(frozen=True)
class EvaluationRequest:
    """Context and limits of an evaluation.

    - ``incumbent``: the search may stop early if the peak is probably below this peak.
    - ``max_seconds``: the evaluation then stops with its current result. ``usual_seconds``: one
      evaluation's share of the budget. Evaluations of slow pages may use it, and rough peaks of short
      studies need only a part of it.
    - ``is_reference``: other configurations are compared with this configuration.
    - ``is_claim``: a verdict may depend on the evaluation, so the search continues even if its last
      readings added little precision.
    - ``is_exploration``: new trials still raise the best peak severalfold, so a rough peak is enough.
    - ``today_rate``: requests/s at which the latency is measured before the search for the peak.
    """

    trial: int
    expected_peak: Estimate | None = None
    incumbent: Estimate | None = None
    max_seconds: float = inf
    usual_seconds: float = inf
    is_reference: bool = False
    is_claim: bool = False
    is_exploration: bool = False
    today_rate: float | None = None


@dataclass(frozen=True)
class Measurement:
    """The peak of a configuration, from ``reading_count`` readings that took ``load_seconds`` in
    total.

    ``capacities`` contains the capacity of each service instance. ``values`` are the results of a
    benchmark command. ``rss`` is the size of the largest process of each `tier.service` in bytes.
    ``noise`` is the estimated variation between readings.
    """

    peak: Peak
    reading_count: int
    load_seconds: float
    values: tuple[float, ...] = ()
    bottleneck: Bottleneck | None = None
    capacities: Mapping[str, InstanceCapacity] = field(default_factory=dict)
    rss: Mapping[str, int] = field(default_factory=dict)
    noise: Noise | None = None


@dataclass(frozen=True)
class FailedEvaluation:
    """The configuration cannot be used or, if ``is_fault`` is true, the benchmark itself failed."""

    reason: str
    is_fault: bool = False


Evaluation = Measurement | FailedEvaluation


class Recorder(Protocol):
    """Receiver of an evaluation's records. Each call returns once the record is on disk."""

    def on_deployed(self, deployed: DeployResult) -> None: ...

    def on_warm_up(self, warm_up: WarmUpResult) -> None: ...

    def on_reading(self, watched_reading: WatchedReading, purpose: str) -> None: ...

    def on_references(self, references: Sequence[Mapping[str, Any]]) -> None:
        """Record reference responses, one per page."""
        ...

    def on_answer(self, answer: BenchmarkAnswer, seconds: float) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class MeasurementHistory:
    """The records of a study at the start of a session.

    ``elapsed_seconds`` is the study's duration so far, and ``reading_count`` is its number of readings.
    ``answers`` contains settings with the values that a benchmark command returned, oldest first.
    """

    elapsed_seconds: float = 0.0
    reading_count: int = 0
    noise: Noise = field(default_factory=Noise)
    answers: tuple[tuple[Settings, tuple[float, ...]], ...] = ()
