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

from autotune.deploy.deploy_result import DeployResult
from autotune.measure.reading import Reading
from autotune.measure.steal import HIGH_STEAL_SHARE
from autotune.measure.warm_up import WarmUpResult
from autotune.report import format as fmt
from autotune.report.progress import (
    format_deployed_line,
    format_error_line,
    format_reading_line,
    format_warm_up_line,
    ignore_errors,
    select_verdict_mark,
)
from autotune.report.trial_outcomes import WARM_UP_PURPOSE, format_outcome, format_trial_label
from autotune.report.view import StudyOutlook, build_outlook
from autotune.study.study_state import State, Trial
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.terminal import create_console, style_text

MAX_SHOWN_READINGS = 10  # readings shown of the current trial
MAX_SHOWN_TRIALS = 8  # finished trials shown
MARK_STYLES = {"✓": "green", "✗": "red", "?": "yellow"}


class LiveProgress:
    """A panel of trials, the current trial's load steps, the best so far and the time left."""

    def __init__(self, target: Target, state: Callable[[], State], stream: TextIO) -> None:
        self._target, self._state = target, state
        self._console = create_console(stream)
        self._redrawn = Redrawn(console=self._console, auto_refresh=False, redirect_stdout=False)
        self._trial: Trial | None = None
        self._step = "starting"
        self._readings: list[Reading] = []
        self._failed = False
        self._under_steal = 0

    def __enter__(self) -> Self:
        self._start_display()
        return self

    @ignore_errors
    def _start_display(self) -> None:
        self._redrawn.start()
        self._redraw()

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._redrawn.stop()

    @ignore_errors
    def on_trial_start(self, trial: Trial) -> None:
        self._trial, self._readings = trial, []
        self._show_step("deploying")

    @ignore_errors
    def on_deployed(self, trial: Trial, deployed: DeployResult) -> None:
        self._show_step(f"{format_deployed_line(deployed)}; warming up")

    @ignore_errors
    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._show_step(f"{format_warm_up_line(warm_up)}; searching for the capacity")

    @ignore_errors
    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._under_steal += reading.stolen > HIGH_STEAL_SHARE
        if purpose == WARM_UP_PURPOSE:
            self._step = f"warming up at {fmt.format_rate(reading.rate)}/s"
        else:
            self._readings.append(reading)
        self._redraw()

    @ignore_errors
    def on_trial_end(self, trial: Trial) -> None:
        self._trial, self._readings = None, []
        self._show_step("choosing the next configuration")

    @ignore_errors
    def note(self, text: str) -> None:
        self._console.print(style_text(text))
        self._redraw()

    def report_error(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with suppress(Exception):
                self._console.print(style_text(format_error_line(error)))

    def _show_step(self, step: str) -> None:
        self._step = step
        self._redraw()

    def _redraw(self) -> None:
        self._redrawn.update(self._build_panel(), refresh=True)

    def _format_steal(self) -> str:
        count = self._under_steal
        return f"   CPU steal in {format_count(count, 'reading')}" if count else ""

    def _build_panel(self) -> Panel:
        state, budget = self._state(), self._target.budget
        outlook = build_outlook(self._target, state)
        slo = self._target.slo.objective
        trial = format_trial_label(self._trial) + ": " if self._trial else ""
        latest = sorted(self._readings[-MAX_SHOWN_READINGS:], key=lambda reading: reading.rate)
        parts: list[RenderableType] = [
            _build_trial_table(state, outlook),
            style_text(trial + self._step, "bold"),
            *(
                style_text(
                    "  " + format_reading_line(reading, "peak", slo),
                    MARK_STYLES[select_verdict_mark(reading, slo)],
                )
                for reading in latest
            ),
            style_text(f"{outlook}{self._format_steal()}", "cyan"),
        ]
        count_text = f"configuration {outlook.trial_count} of {budget.trials}"
        title = style_text(f"{self._target.name} · {outlook.units.objective} · {count_text}")
        return Panel(Group(*parts), title=title, title_align="left")


def _build_trial_table(state: State, outlook: StudyOutlook) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("trial", "outcome", "90 % interval"):
        table.add_column(heading, justify="left", header_style="dim")
    units, leader = outlook.units, outlook.leader
    for trial in state.list_finished()[-MAX_SHOWN_TRIALS:]:
        style = "green" if leader is not None and trial.number == leader.trial.number else ""
        interval = ""
        if trial.peak is not None and trial.peak.is_feasible:
            interval = units.format_interval(
                units.from_peak(trial.peak.low), units.from_peak(trial.peak.high)
            )
        cells = (format_trial_label(trial), format_outcome(trial, units), interval)
        table.add_row(*(style_text(cell, style) for cell in cells))
    return table
