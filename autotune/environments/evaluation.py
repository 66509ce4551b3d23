"""One evaluation of a configuration: request, records and result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from autotune.deploy.deployed import Deployed
from autotune.diagnose.context import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments.peak import Peak
from autotune.estimate import Estimate, PartCapacity
from autotune.measure.benchmark import Answer
from autotune.measure.noise import Noise
from autotune.measure.warmup import WarmUpResult
from autotune.services.base import Settings


@dataclass(frozen=True)
class EvaluationRequest:
    """Context and limits of an evaluation.

    ``expected`` is the expected peak. If the peak is likely below ``incumbent``, the search may
    stop early; without an incumbent it never does. ``reference`` is true if other configurations
    are compared with this one. After ``seconds`` the evaluation stops with its current result.
    ``claim`` is true if a verdict may depend on it. The search then continues even if its last
    readings added little.
    """

    trial: int
    expected: Estimate | None = None
    incumbent: Estimate | None = None
    seconds: float = inf
    reference: bool = False
    claim: bool = False


@dataclass(frozen=True)
class Measured:
    """The peak of a configuration from ``readings`` that took ``load_seconds``.

    ``capacities`` contains the capacity of each part of the stack. ``values`` are results of a
    benchmark command. ``rss`` is the largest process of each `tier.service` in bytes. ``noise``
    estimates the scatter of readings.
    """

    peak: Peak
    readings: int
    load_seconds: float
    values: tuple[float, ...] = ()
    bottleneck: Bottleneck | None = None
    capacities: Mapping[str, PartCapacity] = field(default_factory=dict)
    rss: Mapping[str, int] = field(default_factory=dict)
    noise: Noise | None = None


@dataclass(frozen=True)
class Failed:
    """The configuration cannot be used or, with ``fault``, the benchmark itself failed."""

    why: str
    fault: bool = False


Evaluation = Measured | Failed


class Recorder(Protocol):
    """Receiver of evaluation records. Each call returns after the record is on disk."""

    @property
    def elapsed(self) -> float:
        """Return the study's duration so far in seconds."""
        ...

    def deployed(self, deployed: Deployed) -> None: ...

    def warmed(self, warm_up: WarmUpResult) -> None: ...

    def reading(self, watched: WatchedReading, purpose: str) -> None: ...

    def references(self, references: Sequence[Mapping[str, Any]]) -> None:
        """Record reference responses, one per page."""
        ...

    def answer(self, answer: Answer, seconds: float) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class History:
    """A study's records at the start of a session.

    ``elapsed`` is the study's duration in seconds, and ``readings`` the number of its readings.
    ``answers`` are values of a benchmark command with their settings, oldest first.
    """

    elapsed: float = 0.0
    readings: int = 0
    noise: Noise = field(default_factory=Noise)
    answers: tuple[tuple[Settings, tuple[float, ...]], ...] = ()
