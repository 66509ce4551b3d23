"""Interface of progress displays, and a base class for displays that forward to other displays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from autotune.deploy.deploy_result import DeployResult
from autotune.measure.reading import Reading
from autotune.measure.warm_up import WarmUpResult
from autotune.study.study_state import Trial


class ProgressReporter(Protocol):
    def on_trial_start(self, trial: Trial) -> None: ...

    def on_deployed(self, trial: Trial, deploy_result: DeployResult) -> None: ...

    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None: ...

    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None: ...

    def on_trial_end(self, trial: Trial) -> None: ...

    def note(self, text: str) -> None: ...


class ForwardingReporter(ABC):
    """A reporter that passes every call to ``forward``."""

    @abstractmethod
    def forward(self, call: Callable[[ProgressReporter], None]) -> None:
        """Repeat the call on each of the other progress reporters."""

    def on_trial_start(self, trial: Trial) -> None:
        self.forward(lambda reporter: reporter.on_trial_start(trial))

    def on_deployed(self, trial: Trial, deploy_result: DeployResult) -> None:
        self.forward(lambda reporter: reporter.on_deployed(trial, deploy_result))

    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self.forward(lambda reporter: reporter.on_warm_up(trial, warm_up))

    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self.forward(lambda reporter: reporter.on_reading(trial, reading, purpose))

    def on_trial_end(self, trial: Trial) -> None:
        self.forward(lambda reporter: reporter.on_trial_end(trial))

    def note(self, text: str) -> None:
        self.forward(lambda reporter: reporter.note(text))
