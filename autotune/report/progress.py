"""Progress of a running study as plain lines of text, and as a report page."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, Self, TextIO, TypeVar

from autotune import terminal
from autotune.deploy.deploy_result import DeployResult
from autotune.errors import AutotuneError
from autotune.measure.reading import WARM_UP_PURPOSE, Reading
from autotune.measure.steal import HIGH_STEAL_SHARE
from autotune.measure.warm_up import WarmUpResult
from autotune.report import format as fmt
from autotune.report.outlook import StudyOutlook, build_outlook
from autotune.report.trial_outcomes import (
    VERDICT_TEXTS,
    format_outcome,
    format_trial_label,
    is_unusable,
)
from autotune.services.base import Action
from autotune.study.progress_reporter import ForwardingReporter, ProgressReporter
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.target.messages import format_count
from autotune.target.model import Budget, Target
from autotune.target.slo import Slo

MAX_TRIALS_WITHOUT_LINE = 8  # maximum number of successive trials without a line
# Users see these phases as one step; only the first trial of each step gets a line.
PHASE_LABELS = {
    Phase.RECOMMENDED: "presets", Phase.ADVISED: "presets", Phase.PUBLISHED: "presets",
    Phase.TRY_FIRST: "presets",
    Phase.FINALIST: "finals", Phase.RUNNER_UP: "finals", Phase.SIMPLIFIED: "finals",
    Phase.EXPLAIN: "finals",
}  # fmt: skip
ALWAYS_SHOWN_PHASES = frozenset({Phase.MEASURE})  # measurements that the user requested
PAGE_INTERVAL_SECONDS = 15.0  # minimum seconds between two versions of the page
# Maximum share of a study's time for writing pages, apart from the last page.
PAGE_TIME_SHARE = 0.02


class ProgressDisplay(ProgressReporter, Protocol):
    """A display that closes at the end of the run, and reports its own failure only once."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def report_error(self, error: Exception) -> None:
        """Report that progress cannot be shown."""
        ...


P = ParamSpec("P")
T = TypeVar("T", bound=ProgressDisplay)


def report_exceptions(
    method: Callable[Concatenate[T, P], None],
) -> Callable[Concatenate[T, P], None]:
    """Return ``method`` with its exceptions passed to ``report_error``."""

    @wraps(method)
    def call_safely(self: T, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  a display error must not stop the study
            self.report_error(error)

    return call_safely


class PlainProgress:
    """Lines for logs, pipes and simple terminals: notable events, and the number of other trials.

    A line is printed for a new leader, a new cause of failure, and the first trial of a phase. A line
    is also printed after ``MAX_TRIALS_WITHOUT_LINE`` trials without a line. Each line counts the trials
    since the previous line. With ``verbose``, every trial and every reading gets a line.
    """

    def __init__(
        self, target: Target, state: Callable[[], State], stream: TextIO, *, verbose: bool = False
    ) -> None:
        self._target, self._state, self._stream = target, state, stream
        self._verbose, self._error_reported = verbose, False
        self._phase = ""
        self._unreported: list[Trial] = []
        self._reported_causes: set[str] = set()
        self._steal_readings = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release nothing on exit, because the display holds no resources."""

    @report_exceptions
    def on_trial_start(self, trial: Trial) -> None:
        self._print_detail(f"{format_trial_label(trial)}: deploying")

    @report_exceptions
    def on_deployed(self, trial: Trial, deploy_result: DeployResult) -> None:
        self._print_detail(format_deployed_line(deploy_result))

    @report_exceptions
    def on_warm_up(self, trial: Trial, warm_up: WarmUpResult) -> None:
        self._print_detail(format_warm_up_line(warm_up))

    @report_exceptions
    def on_reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        self._steal_readings += reading.stolen > HIGH_STEAL_SHARE
        self._print_detail(
            f"{purpose:8}{format_reading_line(reading, purpose, self._target.slo.objective)}"
        )

    @report_exceptions
    def on_trial_end(self, trial: Trial) -> None:
        outlook, phase = (
            build_outlook(self._target, self._state()),
            PHASE_LABELS.get(trial.phase, trial.phase),
        )
        is_leader = outlook.leader is not None and outlook.leader.trial.number == trial.number
        cause = trial.failure or ("unmeetable" if is_unusable(trial) else "")
        is_new_cause = bool(cause) and cause not in self._reported_causes
        self._reported_causes.add(cause)
        is_news = (
            is_leader or is_new_cause or phase != self._phase or trial.phase in ALWAYS_SHOWN_PHASES
        )
        if (
            not self._verbose
            and not is_news
            and len(self._unreported) < MAX_TRIALS_WITHOUT_LINE - 1
        ):
            self._unreported.append(trial)
            return
        line = format_trial_line(trial, outlook, self._target.budget)
        terminal.write_text(self._stream, "   ".join([line, *self._format_unreported_trials()]))
        self._phase, self._unreported, self._steal_readings = phase, [], 0

    def _format_unreported_trials(self) -> list[str]:
        """Return the outcomes of trials since the last line, and the count of readings with CPU
        steal.
        """
        counts_by_outcome = Counter(_format_trial_outcome(trial) for trial in self._unreported)
        counts_text = ", ".join(
            f"{trial_count} {outcome}" for outcome, trial_count in counts_by_outcome.items()
        )
        steal_text = (
            f"CPU steal in {format_count(self._steal_readings, 'reading')}"
            if self._steal_readings
            else ""
        )
        return [
            fragment
            for fragment in (f"(since last line: {counts_text})" if counts_text else "", steal_text)
            if fragment
        ]

    @report_exceptions
    def note(self, text: str) -> None:
        terminal.write_text(self._stream, text)

    def report_error(self, error: Exception) -> None:
        if not self._error_reported:
            self._error_reported = True
            with suppress(Exception):
                terminal.write_text(self._stream, format_error_line(error))

    def _print_detail(self, text: str) -> None:
        if self._verbose:
            terminal.write_text(self._stream, f"      {text}")


class TeeProgress(ForwardingReporter):
    """A display that forwards every call to several displays, such as a terminal and a log file."""

    def __init__(self, *displays: ProgressDisplay) -> None:
        self._displays = displays

    def __enter__(self) -> Self:
        for display in self._displays:
            display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for display in self._displays:
            display.__exit__(*error)

    def forward(self, call: Callable[[ProgressReporter], None]) -> None:
        for display in self._displays:
            call(display)

    def report_error(self, error: Exception) -> None:
        for display in self._displays:
            display.report_error(error)


class PageWriter(ForwardingReporter):
    """A display that forwards every call to another display, and writes ``report.html`` after some of
    the trials.

    ``publish`` receives the metrics when a trial starts or finishes, and at the end.
    """

    def __init__(
        self, display: ProgressDisplay, directory: Path, *publish: Callable[[str], object]
    ) -> None:
        self._display, self._directory, self._publishers = display, directory, publish
        self._next_write_time = time.monotonic() + PAGE_INTERVAL_SECONDS
        self._reported_reasons: set[str] = set()

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.__exit__(*error)
        self._write_metrics()
        self._write_report_page()

    def forward(self, call: Callable[[ProgressReporter], None]) -> None:
        call(self._display)

    def on_trial_start(self, trial: Trial) -> None:
        super().on_trial_start(trial)
        self._write_metrics()

    def on_trial_end(self, trial: Trial) -> None:
        super().on_trial_end(trial)
        self._write_metrics()
        write_start = time.monotonic()
        if write_start >= self._next_write_time:
            self._write_report_page()
            write_end = time.monotonic()
            self._next_write_time = write_end + max(
                PAGE_INTERVAL_SECONDS, (write_end - write_start) / PAGE_TIME_SHARE
            )

    def report_error(self, error: Exception) -> None:
        """Report each cause of a missing page or missing metrics once; measuring continues."""
        reason = str(error) if isinstance(error, AutotuneError) else repr(error)
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror.lower()
        if reason not in self._reported_reasons:
            self._reported_reasons.add(reason)
            output_names = "report.html or the metrics" if self._publishers else "report.html"
            self._display.note(f"cannot write {output_names}: {reason}. The study continues.")

    @report_exceptions
    def _write_metrics(self) -> None:
        if not self._publishers:
            return
        from autotune.report.csv_and_metrics import format_metrics
        from autotune.report.studies import open_study
        from autotune.report.view import build_study_view

        metrics_text = format_metrics(build_study_view(open_study(self._directory)))
        for publisher in self._publishers:
            publisher(metrics_text)

    @report_exceptions
    def _write_report_page(self) -> None:
        from autotune.report.page import write_page
        from autotune.report.studies import open_study
        from autotune.study.directory import EVENTS_FILE

        if (self._directory / EVENTS_FILE).exists():
            write_page(open_study(self._directory), self._directory / "report.html")


def _format_trial_outcome(trial: Trial) -> str:
    if trial.peak is None or is_unusable(trial):
        return "failed"
    return VERDICT_TEXTS.get(trial.peak.verdict) or "measured"


def format_trial_line(trial: Trial, outlook: StudyOutlook, budget: Budget) -> str:
    """Return a trial's line: number, phase, capacity, p99, best result so far, gain and time left."""
    outcome = f"{format_trial_label(trial):<21} {format_outcome(trial, outlook.units)}"
    if trial.phase is Phase.MEASURE:
        return outcome
    if trial.phase not in COUNTED_PHASES | {Phase.REFERENCE}:
        return f"{outcome}   {outlook}"
    return (
        f"[{outlook.trial_count:>{len(str(budget.trials))}}/{budget.trials}] {outcome}   {outlook}"
    )


def format_error_line(error: Exception) -> str:
    """Return a line that reports a failure of the display."""
    return f"cannot show progress: {error!r}. The study continues."


def format_deployed_line(deploy_result: DeployResult) -> str:
    """Return the reloads and restarts of a deployment, and values other than the requested values."""
    actions = [
        f"{action.name.lower()} {service_name}"
        for service_name, action in deploy_result.actions.items()
        if action is not Action.NONE
    ]
    differences = [str(difference) for difference in deploy_result.mismatches]
    return "deployed: " + "; ".join([", ".join(actions) or "no reload or restart", *differences])


def format_warm_up_line(warm_up: WarmUpResult) -> str:
    """Return the result of a warm-up: settled or not, number of windows, hit rate."""
    hit_rate = "" if warm_up.hit_rate is None else f", hit rate {100 * warm_up.hit_rate:.1f} %"
    state_text = "warm" if warm_up.is_settled else "not settled, continuing"
    return f"{state_text} after {format_count(len(warm_up.windows), 'window')}{hit_rate}"


def format_reading_line(reading: Reading, purpose: str, slo: Slo) -> str:
    """Return a line for one reading: rate, latency, share of late or failed requests, errors."""
    rate = f"{fmt.format_rate(reading.rate):>6}/s"
    if (invalid_reason := reading.limited) is not None:
        return f"{rate}  invalid reading: {invalid_reason}"
    latency = fmt.format_latency(reading.percentile(slo.quantile))
    percent = 100 * reading.violation_fraction  # two significant digits: 0.33, 4.2, 100
    violation_text = f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"
    errors = ", ".join(
        f"{error_kind} {count}" for error_kind, count in reading.errors.items() if count
    )
    suffix = ("  cut short" if reading.truncated else "") + (f"  ({errors})" if errors else "")
    suffix += f"  {reading.example}" if reading.example else ""
    verdict_mark = "·" if purpose == WARM_UP_PURPOSE else select_verdict_mark(reading, slo)
    percentile = fmt.format_percentile(slo)
    return f"{rate} {verdict_mark} {percentile} {latency:>7}  {violation_text} % late or failed{suffix}"


def select_verdict_mark(reading: Reading, slo: Slo) -> str:
    """Return ``✓`` or ``✗`` for the SLO; ``?`` if the reading is not a valid measurement of the
    server.
    """
    if not reading.is_valid:
        return "?"
    return "✓" if slo.is_met(reading) else "✗"
