"""Progress of a running study as plain lines, and its report page for a browser."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, Self, TextIO, TypeVar

from autotune import terminal
from autotune.deploy.deployed import Deployed
from autotune.errors import AutotuneError
from autotune.measure.reading import Reading
from autotune.measure.steal import MUCH
from autotune.measure.warmup import WarmUpResult
from autotune.report import format as fmt
from autotune.report.trials import VERDICTS, WARM_UP, label, outcome, unusable
from autotune.report.view import Outlook, outlook
from autotune.services.base import Action
from autotune.study.context import ProgressReporter
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.target.messages import plural
from autotune.target.model import Budget, Target
from autotune.target.slo import Slo

EVERY = 8  # trials without news per line
# Users see these phases as one step; the first trial of each step gets a line.
PHASES = {
    Phase.RECOMMENDED: "presets", Phase.ADVISED: "presets", Phase.PUBLISHED: "presets",
    Phase.KNOWN: "presets",
    Phase.FINALIST: "finals", Phase.RUNNER_UP: "finals", Phase.SIMPLIFIED: "finals",
}  # fmt: skip
ALWAYS = frozenset({Phase.MEASURE})  # measurements that the user requested
PAGE_EVERY = 15.0  # minimum seconds between two pages
PAGE_SHARE = 0.02  # share of a study's time for writing pages, except the last page


class Progress(ProgressReporter, Protocol):
    """A display that closes at the end of the run and reports its own failure once."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def report_error(self, error: Exception) -> None:
        """Report that progress cannot be shown."""
        ...


P = ParamSpec("P")
T = TypeVar("T", bound=Progress)


def ignore_errors(method: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """Return ``method`` with its exceptions passed to ``report_error``."""

    @wraps(method)
    def wrapped(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  a display error must not stop the study
            self.report_error(error)

    return wrapped


class Plain:
    """Lines for logs, pipes and simple terminals: the news, and counts of the other trials.

    A new leader, a new cause of failure and the first trial of a phase each get a line. So does the
    ``EVERY``th trial without a line. Each line counts the trials since the previous line. With
    ``verbose``, every trial and every reading gets a line.
    """

    def __init__(
        self, target: Target, state: Callable[[], State], stream: TextIO, *, verbose: bool = False
    ) -> None:
        self._target, self._state, self._stream = target, state, stream
        self._verbose, self._failed = verbose, False
        self._phase = ""
        self._unsaid: list[Trial] = []
        self._causes: set[str] = set()
        self._under_steal = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The display holds no resources."""

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
        self._under_steal += reading.stolen > MUCH
        self._detail(f"{purpose:8}{reading_line(reading, purpose, self._target.slo.slo)}")

    @ignore_errors
    def trial_ends(self, trial: Trial) -> None:
        now, phase = outlook(self._target, self._state()), PHASES.get(trial.phase, trial.phase)
        leads = now.leader is not None and now.leader.number == trial.number
        cause = trial.failure or ("unmeetable" if unusable(trial) else "")
        new_cause = bool(cause) and cause not in self._causes
        self._causes.add(cause)
        news = leads or new_cause or phase != self._phase or trial.phase in ALWAYS
        if not self._verbose and not news and len(self._unsaid) < EVERY - 1:
            self._unsaid.append(trial)
            return
        line = trial_line(trial, now, self._target.budget)
        terminal.write(self._stream, "   ".join([line, *self._folded()]))
        self._phase, self._unsaid, self._under_steal = phase, [], 0

    def _folded(self) -> list[str]:
        """Return counts of the trials and of the CPU steal since the last line."""
        kinds = Counter(_kind(trial) for trial in self._unsaid)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        steal = f"CPU steal in {plural(self._under_steal, 'reading')}" if self._under_steal else ""
        return [text for text in (f"(since last line: {counts})" if counts else "", steal) if text]

    @ignore_errors
    def note(self, text: str) -> None:
        terminal.write(self._stream, text)

    def report_error(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            with suppress(Exception):
                terminal.write(self._stream, error_line(error))

    def _detail(self, text: str) -> None:
        if self._verbose:
            terminal.write(self._stream, f"      {text}")


class Several:
    """Forward every call to several displays, such as a terminal and a log file."""

    def __init__(self, *displays: Progress) -> None:
        self._displays = displays

    def __enter__(self) -> Self:
        for display in self._displays:
            display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for display in self._displays:
            display.__exit__(*error)

    def trial_begins(self, trial: Trial) -> None:
        for display in self._displays:
            display.trial_begins(trial)

    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        for display in self._displays:
            display.deployed(trial, deployed)

    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None:
        for display in self._displays:
            display.warm(trial, warm_up)

    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        for display in self._displays:
            display.reading(trial, reading, purpose)

    def trial_ends(self, trial: Trial) -> None:
        for display in self._displays:
            display.trial_ends(trial)

    def note(self, text: str) -> None:
        for display in self._displays:
            display.note(text)

    def report_error(self, error: Exception) -> None:
        for display in self._displays:
            display.report_error(error)


class WithPage:
    """Forward every call to another display, and write ``report.html`` after some of the trials.

    ``publish`` receives the metrics when a trial starts or finishes, and at the end.
    """

    def __init__(
        self, display: Progress, directory: Path, *publish: Callable[[str], object]
    ) -> None:
        self._display, self._directory, self._publish = display, directory, publish
        self._due = time.monotonic() + PAGE_EVERY
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.__exit__(*error)
        self._write_metrics()
        self._page()

    def trial_begins(self, trial: Trial) -> None:
        self._display.trial_begins(trial)
        self._write_metrics()

    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        self._display.deployed(trial, deployed)

    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._display.warm(trial, warm_up)

    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._display.reading(trial, reading, purpose)

    def trial_ends(self, trial: Trial) -> None:
        self._display.trial_ends(trial)
        self._write_metrics()
        begun = time.monotonic()
        if begun >= self._due:
            self._page()
            ended = time.monotonic()
            self._due = ended + max(PAGE_EVERY, (ended - begun) / PAGE_SHARE)

    def note(self, text: str) -> None:
        self._display.note(text)

    def report_error(self, error: Exception) -> None:
        """Note each cause of a missing page or missing metrics once; measuring continues."""
        why = str(error) if isinstance(error, AutotuneError) else repr(error)
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror.lower()
        if why not in self._told:
            self._told.add(why)
            what = "report.html or the metrics" if self._publish else "report.html"
            self._display.note(f"cannot write {what}: {why}. The study continues.")

    @ignore_errors
    def _write_metrics(self) -> None:
        if not self._publish:
            return
        from autotune.report.numbers import metrics
        from autotune.report.studies import open_study
        from autotune.report.view import study_view

        text = metrics(study_view(open_study(self._directory)))
        for publish in self._publish:
            publish(text)

    @ignore_errors
    def _page(self) -> None:
        from autotune.report.page import write_page
        from autotune.report.studies import open_study
        from autotune.study.directory import EVENTS

        if (self._directory / EVENTS).exists():
            write_page(open_study(self._directory), self._directory / "report.html")


def _kind(trial: Trial) -> str:
    """Return the outcome of a trial as a short label."""
    if trial.peak is None or unusable(trial):
        return "failed"
    return VERDICTS.get(trial.peak.verdict) or "measured"


def trial_line(trial: Trial, outlook: Outlook, budget: Budget) -> str:
    """Return a trial's line: number, phase, capacity, p99, best so far, gain, time left."""
    ended = f"{label(trial):<21} {outcome(trial, outlook.units)}"
    if trial.phase is Phase.MEASURE:
        return ended
    if trial.phase not in COUNTED | {Phase.REFERENCE}:
        return f"{ended}   {outlook}"
    return f"[{outlook.counted:>{len(str(budget.trials))}}/{budget.trials}] {ended}   {outlook}"


def error_line(error: Exception) -> str:
    """Return the note that the display failed."""
    return f"cannot show progress: {error!r}. The study continues."


def deployed_line(deployed: Deployed) -> str:
    """Return the reloads and restarts of a deployment, and values that differ from requests."""
    done = [f"{a.name.lower()} {n}" for n, a in deployed.actions.items() if a is not Action.NONE]
    differing = [str(difference) for difference in deployed.differences]
    return "deployed: " + "; ".join([", ".join(done) or "no reload or restart", *differing])


def warm_line(warm_up: WarmUpResult) -> str:
    """Return the result of a warm-up: settled or not, number of windows, hit rate."""
    hits = "" if warm_up.hits is None else f", hit rate {100 * warm_up.hits:.1f} %"
    state = "warm" if warm_up.settled else "not settled, continuing"
    return f"{state} after {plural(len(warm_up.windows), 'window')}{hits}"


def reading_line(reading: Reading, purpose: str, slo: Slo) -> str:
    """Return the line of one load step."""
    rate = f"{fmt.rate(reading.rate):>6}/s"
    if (reason := reading.limited or reading.disturbed) is not None:
        return f"{rate}  invalid sample: {reason}"
    late = fmt.latency(reading.percentile(slo.quantile))
    percent = 100 * reading.fraction  # two significant digits: 0.33, 4.2, 100
    bad = f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"
    errors = ", ".join(f"{kind} {count}" for kind, count in reading.errors.items() if count)
    tail = ("  cut short" if reading.truncated else "") + (f"  ({errors})" if errors else "")
    tail += f"  {reading.example}" if reading.example else ""
    mark = "·" if purpose == WARM_UP else verdict_mark(reading, slo)
    return f"{rate} {mark} {fmt.percentile(slo)} {late:>7}  {bad} % late or failed{tail}"


def verdict_mark(reading: Reading, slo: Slo) -> str:
    """Return ``✓`` or ``✗`` for the SLO; ``?`` if the reading is invalid for the server."""
    if not reading.is_valid:
        return "?"
    return "✓" if slo.met(reading) else "✗"
