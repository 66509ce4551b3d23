"""Progress on a terminal: finished trials above, the current trial in a panel below.

The panel is redrawn only after an event, because a timer would take CPU time from the stack under test.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self, TextIO

from rich.console import Group, RenderableType
from rich.live import Live as LiveDisplay
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autotune.deploy.deploy_result import DeployResult
from autotune.measure.reading import WARM_UP_PURPOSE, Reading
from autotune.measure.steal import HIGH_STEAL_SHARE
from autotune.measure.warm_up import WarmUpResult
from autotune.report import format as fmt
from autotune.report.outlook import StudyOutlook, build_outlook
from autotune.report.progress import (
    format_deployed_line,
    format_error_line,
    format_reading_line,
    format_warm_up_line,
    report_exceptions,
    select_verdict_mark,
)
from autotune.report.trial_outcomes import format_outcome, format_trial_label
from autotune.study.study_state import State, Trial
from autotune.target.messages import format_count
from autotune.target.model import Target
from autotune.target.slo import Slo
from autotune.terminal import StyledLine, create_console, style_text

MAX_SHOWN_READINGS = 10  # maximum number of readings shown for the current trial
MAX_SHOWN_TRIALS = 8  # maximum number of finished trials shown
# width and height of the border in characters; the height includes a line for the cursor
BORDER_COLUMNS, BORDER_LINES = 4, 3
MAX_STEP_LINES = 3  # maximum number of lines for the current step, and for the best result so far
MIN_TRIAL_LINES = 3  # minimum number of lines for finished trials
CELL_PADDING = 8  # total width in characters of the gaps between and after the cells of a row
MIN_TABLE_COLUMNS = 60  # a narrower terminal shows trials without their intervals
MARK_STYLES = {"✓": "green", "✗": "red", "?": "yellow"}


class LiveProgress:
    """A panel of trials, the current trial's load steps, the best result so far and the time left."""

    def __init__(self, target: Target, state: Callable[[], State], stream: TextIO) -> None:
        self._target, self._state = target, state
        self._console = create_console(stream)
        self._live_display = LiveDisplay(
            console=self._console, auto_refresh=False, redirect_stdout=False
        )
        self._trial: Trial | None = None
        self._step = "starting"
        self._readings: list[Reading] = []
        self._error_reported = False
        self._steal_readings = 0

    def __enter__(self) -> Self:
        self._start_display()
        return self

    @report_exceptions
    def _start_display(self) -> None:
        self._live_display.start()
        self._redraw()

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._live_display.stop()

    @report_exceptions
    def on_trial_start(self, trial: Trial) -> None:
        self._trial, self._readings = trial, []
        self._show_step("deploying")

    @report_exceptions
    def on_deployed(self, trial: Trial, deploy_result: DeployResult) -> None:
        self._show_step(f"{format_deployed_line(deploy_result)}; warming up")

    @report_exceptions
    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._show_step(f"{format_warm_up_line(warm_up)}; searching for the capacity")

    @report_exceptions
    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._steal_readings += reading.stolen > HIGH_STEAL_SHARE
        if purpose == WARM_UP_PURPOSE:
            self._step = f"warming up at {fmt.format_rate(reading.rate)}/s"
        else:
            self._readings.append(reading)
        self._redraw()

    @report_exceptions
    def on_trial_end(self, trial: Trial) -> None:
        self._trial, self._readings = None, []
        self._show_step("choosing the next configuration")

    @report_exceptions
    def note(self, text: str) -> None:
        self._console.print(style_text(text))
        self._redraw()

    def report_error(self, error: Exception) -> None:
        if not self._error_reported:
            self._error_reported = True
            with suppress(Exception):
                self._console.print(style_text(format_error_line(error)))

    def _show_step(self, step_text: str) -> None:
        self._step = step_text
        self._redraw()

    def _redraw(self) -> None:
        self._live_display.update(self._build_panel(), refresh=True)

    def _format_steal(self) -> str:
        steal_count = self._steal_readings
        return f"   CPU steal in {format_count(steal_count, 'reading')}" if steal_count else ""

    def _build_panel(self) -> Panel:
        state, budget, slo = self._state(), self._target.budget, self._target.slo.objective
        outlook = build_outlook(self._target, state)
        trial = format_trial_label(self._trial) + ": " if self._trial else ""
        latest_readings = sorted(
            self._readings[-MAX_SHOWN_READINGS:], key=lambda reading: reading.rate
        )
        panel_space = PanelSpace(*self._console.size)
        step_lines = panel_space.reserve_text(trial + self._step, "bold")
        outlook_lines = panel_space.reserve_outlook(outlook, self._format_steal())
        readings = panel_space.reserve_readings(latest_readings, self._readings[-1:], slo)
        panel_parts: list[RenderableType] = [
            *panel_space.build_trials(state, outlook),
            *step_lines,
            *readings,
            *outlook_lines,
        ]
        progress_text = f"configuration {outlook.trial_count} of {budget.trials}"
        title = panel_space.choose_title(self._target.name, outlook.units.objective, progress_text)
        return Panel(Group(*panel_parts), title=style_text(title), title_align="left")


class PanelSpace:
    """The lines of a panel that are still free on a terminal of this size.

    The step, the best result so far and the newest reading come first. Other readings and finished
    trials get the lines that are left. Lines break between words.
    """

    def __init__(self, width: int, height: int) -> None:
        self._width, self._free_lines = max(width - BORDER_COLUMNS, 1), height - BORDER_LINES

    def reserve_text(self, text: str, style: str) -> list[Text]:
        """Return the lines of a text, and count them as used."""
        return self._reserve_lines(
            [(line, style) for line in self._wrap_text(text)[:MAX_STEP_LINES]]
        )

    def reserve_outlook(self, outlook: StudyOutlook, steal_text: str) -> list[Text]:
        """Return the lines with the best result so far and the time left; a single line if both fit."""
        if len(line := f"{outlook}{steal_text}") <= self._width:
            return self.reserve_text(line, "cyan")
        outlook_texts = (outlook.best_text, outlook.time_left_text, steal_text.strip())
        return [
            line
            for outlook_text in outlook_texts
            if outlook_text
            for line in self.reserve_text(outlook_text, "cyan")
        ]

    def reserve_readings(
        self, readings: Sequence[Reading], newest_readings: Sequence[Reading], slo: Slo
    ) -> list[Text]:
        """Return the lines of the readings that fit, in order; the newest reading always fits."""
        shown_readings = list(newest_readings)
        line_by_reading = {
            id(r): self._wrap_text("  " + format_reading_line(r, "peak", slo)) for r in readings
        }
        used_lines = sum(len(line_by_reading[id(reading)]) for reading in shown_readings)
        for reading in reversed([r for r in readings if r not in newest_readings]):
            used_lines += len(line_by_reading[id(reading)])
            if used_lines > self._free_lines - MIN_TRIAL_LINES:
                break
            shown_readings.append(reading)
        return self._reserve_lines(
            [
                (line, MARK_STYLES[select_verdict_mark(reading, slo)])
                for reading in readings
                if reading in shown_readings
                for line in line_by_reading[id(reading)]
            ]
        )

    def build_trials(self, state: State, outlook: StudyOutlook) -> list[RenderableType]:
        """Return the newest finished trials, as a table if the terminal is wide enough."""
        trials = state.list_finished_trials()[-MAX_SHOWN_TRIALS:]
        if self._width >= MIN_TABLE_COLUMNS:
            row_count = self._free_lines - 1  # one line is the heading
            return [self._build_table(trials[-row_count:], outlook)] if row_count > 0 else []
        trial_rows = [
            (self._fit_to_line(_format_trial_row(t, outlook)), _select_style(t, outlook))
            for t in trials
        ]
        return [
            style_text(line, style)
            for line, style in trial_rows[max(0, len(trial_rows) - self._free_lines) :]
        ]

    def choose_title(self, target_name: str, objective: str, progress_text: str) -> str:
        """Return the title. On a narrow terminal, the title omits the objective or the name."""
        titles = (
            f"{target_name} · {objective} · {progress_text}",
            f"{target_name} · {progress_text}",
            progress_text,
        )
        return next((title for title in titles if len(title) <= self._width - 2), "")

    def _build_table(self, trials: Sequence[Trial], outlook: StudyOutlook) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("trial", "outcome", "90 % interval"):
            table.add_column(heading, justify="left", header_style="dim", no_wrap=True)
        label_width = max((len(format_trial_label(trial)) for trial in trials), default=0)
        interval_widths = [len(_format_interval(trial, outlook)) for trial in trials]
        outcome_width = (
            self._width - label_width - max([len("90 % interval"), *interval_widths]) - CELL_PADDING
        )
        for trial in trials:
            outcome = format_outcome(trial, outlook.units)
            if len(outcome) > outcome_width:
                outcome = textwrap.shorten(outcome, outcome_width, placeholder=" …")
            cell_texts = (format_trial_label(trial), outcome, _format_interval(trial, outlook))
            style = _select_style(trial, outlook)
            table.add_row(*(style_text(cell_text, style) for cell_text in cell_texts))
        return table

    def _reserve_lines(self, lines: Sequence[StyledLine]) -> list[Text]:
        self._free_lines -= len(lines)
        return [style_text(line, style) for line, style in lines]

    def _wrap_text(self, text: str) -> list[str]:
        indent = " " * (len(text) - len(text.lstrip()))
        return textwrap.wrap(
            text.replace("\n", " "), self._width, subsequent_indent=indent, break_on_hyphens=False
        )

    def _fit_to_line(self, text: str) -> str:
        return textwrap.shorten(text, self._width, placeholder=" …")


def _format_interval(trial: Trial, outlook: StudyOutlook) -> str:
    if trial.peak is None or not trial.meets_slo:
        return ""
    interval_low, interval_high = map(outlook.units.from_peak, (trial.peak.low, trial.peak.high))
    return outlook.units.format_interval(interval_low, interval_high)


def _format_trial_row(trial: Trial, outlook: StudyOutlook) -> str:
    return f"{format_trial_label(trial)} {format_outcome(trial, outlook.units).strip()}"


def _select_style(trial: Trial, outlook: StudyOutlook) -> str:
    leading_side = outlook.leader
    return "green" if leading_side is not None and trial.number == leading_side.trial.number else ""
