"""One evaluation of a configuration: its request, what it records, and its result."""

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
    """What is known before an evaluation, and how far it should go.

    ``expected`` is what the peak is expected to be. Where the peak is likely below ``incumbent``, the
    search for it may stop early; without an incumbent it goes on to the end. ``reference``: other
    configurations are compared with this one. After ``seconds`` the evaluation ends with what it knows.
    ``claim``: a verdict may rest on it, so that it goes on even if its last readings told little.
    """

    trial: int
    expected: Estimate | None = None
    incumbent: Estimate | None = None
    seconds: float = inf
    reference: bool = False
    claim: bool = False


@dataclass(frozen=True)
class Measured:
    """The peak of a configuration, from ``readings`` that took ``load_seconds``, and the
    ``capacities`` of the stack's parts.

    ``values`` are the answers of a benchmark command. ``rss`` is the largest process of each
    `tier.service`, in bytes. ``noise`` is the estimate of how much readings scatter.
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
    """The configuration cannot be used, or (``fault``) the benchmark itself failed."""

    why: str
    fault: bool = False


Evaluation = Measured | Failed


class Recorder(Protocol):
    """Where an evaluation puts what it learns; every call returns once that is on disk."""

    @property
    def elapsed(self) -> float:
        """Seconds that the study has taken so far."""
        ...

    def deployed(self, deployed: Deployed) -> None: ...

    def warmed(self, warm_up: WarmUpResult) -> None: ...

    def reading(self, watched: WatchedReading, purpose: str) -> None: ...

    def references(self, references: Sequence[Mapping[str, Any]]) -> None:
        """Reference answers, a record for each page."""
        ...

    def answer(self, answer: Answer, seconds: float) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class History:
    """What a study has on record when a session begins.

    ``elapsed`` are the seconds it has taken, ``readings`` how many it has. ``answers`` are the
    values of a benchmark command with the settings they were measured at, oldest first.
    """

    elapsed: float = 0.0
    readings: int = 0
    noise: Noise = field(default_factory=Noise)
    answers: tuple[tuple[Settings, tuple[float, ...]], ...] = ()
