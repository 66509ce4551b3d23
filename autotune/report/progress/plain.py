"""Progress in plain lines: a line per trial, more of them on request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Self, TextIO

from autotune import terminal
from autotune.deploy.deployed import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import WarmUpResult
from autotune.report import format as fmt
from autotune.report.outlook import Outlook, outlook
from autotune.report.progress.base import ignore_errors
from autotune.report.trials import WARM_UP, label, outcome
from autotune.services.base import Action
from autotune.study.records import Phase, State, Trial
from autotune.target.model import Budget, Target
from autotune.target.slo import Slo


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
        self._detail(deployed_line(deployed))

    @ignore_errors
    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._detail(warm_line(warm_up))

    @ignore_errors
    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._detail(f"{purpose:8}{reading_line(reading, purpose, self._target.slo.slo)}")

    @ignore_errors
    def trial_ends(self, trial: Trial) -> None:
        now = outlook(self._target, self._state())
        terminal.write(self._stream, trial_line(trial, now, self._target.budget))

    @ignore_errors
    def note(self, text: str) -> None:
        terminal.write(self._stream, text)

    def report_error(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with suppress(Exception):
                terminal.write(self._stream, not_shown(error))

    def _detail(self, text: str) -> None:
        if self._verbose:
            terminal.write(self._stream, f"      {text}")


def trial_line(trial: Trial, outlook: Outlook, budget: Budget) -> str:
    """Number, phase, capacity, p99 there, best so far, change against the baseline, time left."""
    ended = f"{label(trial):<21} {outcome(trial, outlook.units)}"
    if trial.phase is Phase.MEASURE:
        return ended
    return f"[{outlook.counted:>{len(str(budget.trials))}}/{budget.trials}] {ended}   {outlook}"


def not_shown(error: Exception) -> str:
    """That the display itself failed."""
    return f"(progress cannot be shown: {error!r}; the study goes on)"


def deployed_line(deployed: Deployed) -> str:
    """What had to be reloaded or restarted, and what took effect otherwise than asked."""
    done = [f"{a.name.lower()} {n}" for n, a in deployed.actions.items() if a is not Action.NONE]
    differing = [str(difference) for difference in deployed.differences]
    return "deployed: " + "; ".join([", ".join(done) or "nothing to do", *differing])


def warm_line(warm_up: WarmUpResult) -> str:
    """Whether the warm-up settled, after how many windows, at which hit rate."""
    hits = "" if warm_up.hits is None else f", {100 * warm_up.hits:.1f} % of gets hit"
    how = "warm" if warm_up.settled else "not settled, going on all the same"
    return f"{how} after {fmt.plural(len(warm_up.windows), 'window')}{hits}"


def reading_line(reading: Reading, purpose: str, slo: Slo) -> str:
    """One load step."""
    rate = f"{fmt.rate(reading.rate):>6}/s"
    if (why := reading.limited or reading.disturbed) is not None:
        return f"{rate}  invalid sample: {why}"
    late = fmt.latency(reading.percentile(slo.quantile))
    bad = f"{_percent(reading.fraction)} % late or failed"
    errors = ", ".join(f"{kind} {count}" for kind, count in reading.errors.items() if count)
    tail = ("  cut short" if reading.truncated else "") + (f"  ({errors})" if errors else "")
    mark = "·" if purpose == WARM_UP else verdict_mark(reading, slo)
    return f"{rate} {mark} {fmt.percentile(slo)} {late:>7}  {bad}{tail}"


def verdict_mark(reading: Reading, slo: Slo) -> str:
    """Whether a reading met the SLO; ``?`` where it says nothing of the server."""
    if not reading.is_valid:
        return "?"
    return "✓" if slo.met(reading) else "✗"


def _percent(fraction: float) -> str:
    """Two digits that mean something: ``0.33``, ``4.2``, ``100``."""
    percent = 100 * fraction
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"
