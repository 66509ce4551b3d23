"""The page kept up to date while a study runs, so that a browser can follow it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from autotune.deploy.deployed import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import WarmUpResult
from autotune.report.progress.base import Progress, ignore_errors
from autotune.study.records import Trial

EVERY = 15.0  # seconds at least between two pages
SHARE = 0.02  # of a study's time that its pages may take, those written at its end aside


class WithPage:
    """Passes everything to another display, and writes ``report.html`` after a trial now and then."""

    def __init__(self, display: Progress, directory: Path) -> None:
        self._display, self._directory = display, directory
        self._due = time.monotonic() + EVERY

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.__exit__(*error)
        self._page()

    def trial_begins(self, trial: Trial) -> None:
        self._display.trial_begins(trial)

    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        self._display.deployed(trial, deployed)

    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._display.warm(trial, warm_up)

    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._display.reading(trial, reading, purpose)

    def trial_ends(self, trial: Trial) -> None:
        self._display.trial_ends(trial)
        begun = time.monotonic()
        if begun >= self._due:
            self._page()
            ended = time.monotonic()
            self._due = ended + max(EVERY, (ended - begun) / SHARE)

    def note(self, text: str) -> None:
        self._display.note(text)

    def report_error(self, error: Exception) -> None:
        """A page that cannot be written is no reason to stop measuring."""
        self._display.note(f"(report.html cannot be written: {error!r}; the study goes on)")

    @ignore_errors
    def _page(self) -> None:
        from autotune.report.html.page import write_page
        from autotune.report.studies import open_study
        from autotune.study.directory import EVENTS

        if (self._directory / EVENTS).exists():
            write_page(open_study(self._directory), self._directory / "report.html")
