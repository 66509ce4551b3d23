"""Who hears of a study's progress: the seam between doing and telling."""

from __future__ import annotations

from typing import Protocol

from autotune.deploy.deployed import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import Warmth
from autotune.study.records import Trial


class ProgressReporter(Protocol):
    def trial_begins(self, trial: Trial) -> None: ...

    def deployed(self, trial: Trial, deployed: Deployed) -> None: ...

    def warm(self, trial: Trial, warmth: Warmth) -> None: ...

    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None: ...

    def trial_ends(self, trial: Trial) -> None: ...

    def note(self, text: str) -> None: ...
