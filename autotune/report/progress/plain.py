"""Progress in plain lines: a line per trial, more of them on request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Self, TextIO

from autotune import terminal
from autotune.deploy.deployed import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import Warmth
from autotune.report.outlook import outlook
from autotune.report.progress import lines
from autotune.report.progress.ignore_errors import ignore_errors
from autotune.report.trials import label
from autotune.study.records import State, Trial
from autotune.target.model import Target


class Plain:
    """For logs, pipes and terminals that are not to be redrawn."""

    def __init__(
        self, target: Target, state: Callable[[], State], stream: TextIO, *, verbose: bool = False
    ) -> None:
        self._target, self._state, self._stream = target, state, stream
        self._verbose, self._failed = verbose, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    @ignore_errors
    def trial_begins(self, trial: Trial) -> None:
        self._detail(f"{label(trial)}: deploying")

    @ignore_errors
    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        self._detail(lines.deployed_line(deployed))

    @ignore_errors
    def warm(self, trial: Trial, warmth: Warmth) -> None:
        self._detail(lines.warm_line(warmth))

    @ignore_errors
    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._detail(f"{purpose:8}{lines.reading_line(reading, purpose, self._target.slo.slo)}")

    @ignore_errors
    def trial_ends(self, trial: Trial) -> None:
        now = outlook(self._target, self._state())
        terminal.write(self._stream, lines.trial_line(trial, now, self._target.budget))

    @ignore_errors
    def note(self, text: str) -> None:
        terminal.write(self._stream, text)

    def report_error(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with suppress(Exception):
                terminal.write(self._stream, lines.not_shown(error))

    def _detail(self, text: str) -> None:
        if self._verbose:
            terminal.write(self._stream, f"      {text}")
