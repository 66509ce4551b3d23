"""The events of a running study, and the interface of their receivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from autotune.deploy.deploy_result import DeployResult
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult
from autotune.study.study_state import Trial


@dataclass(frozen=True)
class TrialStarted:
    trial: Trial


@dataclass(frozen=True)
class TrialDeployed:
    trial: Trial
    result: DeployResult


@dataclass(frozen=True)
class TrialWarmedUp:
    trial: Trial
    result: WarmUpResult


@dataclass(frozen=True)
class ReadingTaken:
    trial: Trial
    reading: Reading
    purpose: str


@dataclass(frozen=True)
class TrialEnded:
    trial: Trial


@dataclass(frozen=True)
class NoteAdded:
    """A line of text about progress."""

    text: str


ProgressEvent = TrialStarted | TrialDeployed | TrialWarmedUp | ReadingTaken | TrialEnded | NoteAdded


class ProgressReporter(Protocol):
    """Receiver of the events of a running study."""

    def on_event(self, event: ProgressEvent) -> None: ...

    def note(self, text: str) -> None:
        """Report a line of text."""
        self.on_event(NoteAdded(text))
