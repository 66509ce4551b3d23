"""Progress on a terminal: finished trials above, what is going on now in a panel below them.

Redrawn only when something has happened: a display that wakes up by itself would take CPU from
the stack being measured.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live as Redrawn
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from autotune.deploy.fleet import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import Warmth
from autotune.report import figures, lines
from autotune.report.harmless import harmless
from autotune.report.standing import counted, standing
from autotune.report.tally import WARM_UP
from autotune.report.yardstick import Yardstick, yardstick
from autotune.study.records import State, Trial
from autotune.target.model import Target

RUNGS = 10  # readings of the ladder that are shown
ROWS = 8  # finished trials that are shown


class Live:
    """A panel: trials, the ladder of the current one, the best so far and the time left."""

    def __init__(
        self, target: Target, state: Callable[[], State], stream: TextIO, *, colour: bool = True
    ) -> None:
        self._target, self._state = target, state
        self._console = Console(file=stream, no_color=not colour)
        self._redrawn = Redrawn(console=self._console, auto_refresh=False, redirect_stdout=False)
        self._trial: Trial | None = None
        self._step = "starting"
        self._ladder: list[Reading] = []
        self._complained = False

    @harmless
    def _start(self) -> None:
        self._redrawn.start()
        self._redraw()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._redrawn.stop()

    @harmless
    def trial_begins(self, trial: Trial) -> None:
        self._trial, self._ladder = trial, []
        self._now("deploying")

    @harmless
    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        self._now(f"{lines.deployed_line(deployed)}; warming up")

    @harmless
    def warm(self, trial: Trial, warmth: Warmth) -> None:
        self._now(f"{lines.warm_line(warmth)}; looking for the peak")

    @harmless
    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        if purpose == WARM_UP:
            self._step = f"warming up at {figures.rate(reading.rate)}/s"
        else:
            self._ladder.append(reading)
        self._redraw()

    @harmless
    def trial_ends(self, trial: Trial) -> None:
        self._trial, self._ladder = None, []
        self._now("choosing what to measure next")

    @harmless
    def note(self, text: str) -> None:
        self._console.print(Text(text))
        self._redraw()

    def trouble(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            with suppress(Exception):
                self._console.print(f"(progress cannot be shown: {error!r}; the study goes on)")

    def _now(self, step: str) -> None:
        self._step = step
        self._redraw()

    def _redraw(self) -> None:
        self._redrawn.update(self._panel(), refresh=True)

    def _panel(self) -> Panel:
        state, budget = self._state(), self._target.budget
        by = yardstick(self._target, state)
        parts: list[RenderableType] = [_table(state, by)]
        what = lines.trial_in_words(self._trial) + ": " if self._trial else ""
        parts.append(Text(what + self._step, style="bold"))
        parts.extend(self._rungs())
        parts.append(Text(lines.outlook(state, self._target), style="cyan"))
        title = f"{self._target.name} · {by.objective} · trial {counted(state)} of {budget.trials}"
        return Panel(Group(*parts), title=title, title_align="left")

    def _rungs(self) -> list[Text]:
        """The latest readings by rate: the ladder, from the lowest rung to the highest."""
        slo = self._target.slo.slo
        styles = {"✓": "green", "✗": "red", "?": "yellow"}
        return [
            Text(
                "  " + lines.reading_line(r, "peak", slo), style=styles[lines.verdict_mark(r, slo)]
            )
            for r in sorted(self._ladder[-RUNGS:], key=lambda reading: reading.rate)
        ]


def _table(state: State, by: Yardstick) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("trial", "outcome", "90 % interval"):
        table.add_column(heading, justify="left", header_style="dim")
    leader = standing(state).leader
    for trial in state.finished()[-ROWS:]:
        style = "green" if leader is not None and trial.number == leader.number else ""
        interval = ""
        if trial.peak is not None and trial.peak.feasible:
            interval = by.interval(by.of(trial.peak.low), by.of(trial.peak.high))
        # Text, not markup: an error message may hold square brackets.
        cells = (lines.trial_in_words(trial), lines.outcome(trial, by), interval)
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table
