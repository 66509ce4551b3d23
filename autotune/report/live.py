"""Progress on a terminal: finished trials above, the current trial in a panel below.

The panel is redrawn only after an event. A timer would take CPU from the stack under test.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Self, TextIO

from rich.console import Group, RenderableType
from rich.live import Live as Redrawn
from rich.panel import Panel
from rich.table import Table

from autotune.deploy.deployed import Deployed
from autotune.measure.reading import Reading
from autotune.measure.steal import MUCH
from autotune.measure.warmup import WarmUpResult
from autotune.report import format as fmt
from autotune.report.progress import (
    deployed_line,
    error_line,
    ignore_errors,
    reading_line,
    verdict_mark,
    warm_line,
)
from autotune.report.trials import WARM_UP, label, outcome
from autotune.report.view import Outlook, outlook
from autotune.study.records import State, Trial
from autotune.target.messages import plural
from autotune.target.model import Target
from autotune.terminal import console, styled

STEPS = 10  # readings shown of the current trial
ROWS = 8  # finished trials shown
STYLES = {"✓": "green", "✗": "red", "?": "yellow"}


class Live:
    """A panel of trials, the current trial's load steps, the best so far and the time left."""

    def __init__(self, target: Target, state: Callable[[], State], stream: TextIO) -> None:
        self._target, self._state = target, state
        self._console = console(stream)
        self._redrawn = Redrawn(console=self._console, auto_refresh=False, redirect_stdout=False)
        self._trial: Trial | None = None
        self._step = "starting"
        self._readings: list[Reading] = []
        self._failed = False
        self._under_steal = 0

    def __enter__(self) -> Self:
        self._start()
        return self

    @ignore_errors
    def _start(self) -> None:
        self._redrawn.start()
        self._redraw()

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._redrawn.stop()

    @ignore_errors
    def trial_begins(self, trial: Trial) -> None:
        self._trial, self._readings = trial, []
        self._now("deploying")

    @ignore_errors
    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        self._now(f"{deployed_line(deployed)}; warming up")

    @ignore_errors
    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._now(f"{warm_line(warm_up)}; searching for the capacity")

    @ignore_errors
    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._under_steal += reading.stolen > MUCH
        if purpose == WARM_UP:
            self._step = f"warming up at {fmt.rate(reading.rate)}/s"
        else:
            self._readings.append(reading)
        self._redraw()

    @ignore_errors
    def trial_ends(self, trial: Trial) -> None:
        self._trial, self._readings = None, []
        self._now("choosing the next configuration")

    @ignore_errors
    def note(self, text: str) -> None:
        self._console.print(styled(text))
        self._redraw()

    def report_error(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with suppress(Exception):
                self._console.print(styled(error_line(error)))

    def _now(self, step: str) -> None:
        self._step = step
        self._redraw()

    def _redraw(self) -> None:
        self._redrawn.update(self._panel(), refresh=True)

    def _steal(self) -> str:
        count = self._under_steal
        return f"   CPU steal in {plural(count, 'reading')}" if count else ""

    def _panel(self) -> Panel:
        state, budget = self._state(), self._target.budget
        now = outlook(self._target, state)
        slo = self._target.slo.slo
        trial = label(self._trial) + ": " if self._trial else ""
        latest = sorted(self._readings[-STEPS:], key=lambda reading: reading.rate)
        parts: list[RenderableType] = [
            _table(state, now),
            styled(trial + self._step, "bold"),
            *(styled("  " + reading_line(reading, "peak", slo), STYLES[verdict_mark(reading, slo)])
              for reading in latest),
            styled(f"{now}{self._steal()}", "cyan"),
        ]  # fmt: skip
        counted = f"trial {now.counted} of {budget.trials}"
        title = styled(f"{self._target.name} · {now.units.objective} · {counted}")
        return Panel(Group(*parts), title=title, title_align="left")


def _table(state: State, now: Outlook) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("trial", "outcome", "90 % interval"):
        table.add_column(heading, justify="left", header_style="dim")
    units, leader = now.units, now.leader
    for trial in state.finished()[-ROWS:]:
        style = "green" if leader is not None and trial.number == leader.number else ""
        interval = ""
        if trial.peak is not None and trial.peak.feasible:
            interval = units.interval(units.of(trial.peak.low), units.of(trial.peak.high))
        cells = (label(trial), outcome(trial, units), interval)
        table.add_row(*(styled(cell, style) for cell in cells))
    return table
