"""Trial outcomes: counts of readings, results, and causes of failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from autotune.diagnose.bottleneck import Bottleneck
from autotune.measure.reading import WARM_UP_PURPOSE
from autotune.measure.steal import HIGH_STEAL_SHARE
from autotune.report import format as fmt
from autotune.report.conclusion import MeasuredConfiguration
from autotune.report.units import RequestUnits, Units
from autotune.study.reading_records import RecordedCall, RecordedReading
from autotune.study.study_state import State, Trial

UNMET_TEXT = "no rate met the SLO in time"
# If at least this share of requests failed, errors rather than latency violated the SLO.
MOSTLY_ERRORS_SHARE = 0.5
# Texts for users about the end of a capacity search; empty if the search converged.
VERDICT_TEXTS = {
    "measured": "",
    "rough": "rough",
    "screened": "pruned",
    "unsettled": "not converged",
    "unmet": "not converged",
}


@dataclass(frozen=True)
class ReadingCounts:
    """Counts of the readings of one trial. ``errors`` counts requests that failed outright, by kind.

    ``warmed`` counts the windows of the warm-up, which ``readings`` does not include. ``stolen`` counts
    readings and windows that were corrected for CPU steal. ``last`` is the newest reading
    as recorded. ``checked_count`` counts complete responses that were checked, and ``wrong`` the wrong
    responses; ``example`` describes a wrong response.
    """

    readings: int = 0
    warmed: int = 0
    stolen: int = 0
    limited: int = 0
    intended: int = 0
    violations: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    last: RecordedReading | None = None
    checked_count: int = 0
    wrong: int = 0
    example: str = ""

    @property
    def failed_share(self) -> float:
        """Return the fraction of the intended requests that failed outright."""
        return sum(self.errors.values()) / self.intended if self.intended else 0.0


@dataclass(frozen=True)
class FailureGroup:
    """Unusable trials with the same cause of failure. ``example`` describes the errors of the first
    trial, if any.
    """

    cause: str
    trials: tuple[int, ...]
    example: str = ""


def format_trial_label(trial: Trial) -> str:
    """Return a label such as ``#7 search``; for a repeat ``#21 confirm #7``, or ``#21 confirm #7 on a``
    with test beds.
    """
    source_text = "" if trial.source_trial is None else f" #{trial.source_trial}"
    return f"#{trial.number} {trial.phase}{source_text}" + (f" on {trial.bed}" if trial.bed else "")


def format_outcome(trial: Trial, units: Units) -> str:
    """Return the outcome of a trial as text."""
    peak = trial.peak
    if peak is None:
        return f"failed: {trial.failure}" if trial.failure else "not measured"
    if peak.verdict == "unmeetable":
        return units.no_result_text
    if peak.is_load_limited:
        return f"{units.format_lower_bound(peak.peak)} (limited by {peak.limit})"
    if peak.is_unmet:
        return UNMET_TEXT
    outcome_text = f"{units.format_short(units.from_peak(peak.peak)):>8}"
    if isinstance(units, RequestUnits):
        outcome_text = f"{outcome_text}  p99 {fmt.format_latency(peak.p99):>7}"
    verdict = VERDICT_TEXTS.get(peak.verdict, peak.verdict)
    return f"{outcome_text}  {verdict}" if verdict else outcome_text


def format_no_result(side: MeasuredConfiguration, units: Units) -> str:
    """Return the outcome of a configuration without a capacity or value."""
    if side.is_unmet:
        return UNMET_TEXT
    is_web_stack = isinstance(units, RequestUnits)
    return "could not be measured" if is_web_stack and side.has_failed else units.no_result_text


def is_unusable(trial: Trial) -> bool:
    """True if a finished trial could not be deployed or did not meet the SLO at any rate.

    A trial whose load was limited is usable.
    """
    is_limited = trial.peak is not None and trial.peak.is_load_limited
    return trial.is_finished and not (trial.meets_slo or is_limited)


def count_by_outcome(state: State) -> dict[str, int]:
    """Return the number of finished trials in the budget by outcome."""
    counted_trials = state.list_counted_trials()
    failed_count = sum(map(is_unusable, counted_trials))
    screened_count = sum(
        t.peak is not None and t.peak.verdict == "screened" for t in counted_trials
    )
    return {
        "complete": len(counted_trials) - failed_count - screened_count,
        "failed": failed_count,
        "screened": screened_count,
    }


def format_outcome_counts(counts: Mapping[str, int]) -> list[str]:
    """Return texts such as ``15 complete``, ``2 failed``, ``3 pruned`` from ``count_by_outcome``."""
    return [
        f"{trial_count} {VERDICT_TEXTS.get(outcome, outcome)}"
        for outcome, trial_count in counts.items()
    ]


def group_failures(
    state: State, reading_counts: Mapping[int, ReadingCounts]
) -> tuple[FailureGroup, ...]:
    """Return the causes of all unusable trials, the most frequent first."""
    trials_by_cause: dict[str, list[Trial]] = {}
    for trial in filter(is_unusable, state.trials):
        trials_by_cause.setdefault(
            _describe_cause(trial, reading_counts.get(trial.number)), []
        ).append(trial)
    failure_groups = [
        FailureGroup(
            cause,
            tuple(trial.number for trial in trials),
            describe_errors(reading_counts.get(trials[0].number)) if trials[0].peak else "",
        )
        for cause, trials in trials_by_cause.items()
    ]
    return tuple(sorted(failure_groups, key=lambda failure: -len(failure.trials)))


def _describe_cause(trial: Trial, reading_counts: ReadingCounts | None) -> str:
    if trial.failure is not None:
        return (trial.failure.strip().splitlines() or ["no reason given"])[0]
    if reading_counts is not None and reading_counts.failed_share >= MOSTLY_ERRORS_SHARE:
        return "requests failed or got incorrect responses"
    return "the SLO was not met at any rate tried"


def describe_bottleneck(finding: Bottleneck, *, with_evidence: bool = True) -> str:
    """Return ``web.php_fpm: workers: …``, or without the evidence ``web.php_fpm: workers``."""
    service_name = ".".join(filter(None, (finding.tier, finding.service)))
    evidence = finding.evidence if with_evidence else ""
    return ": ".join(filter(None, (service_name, str(finding.resource), evidence)))


def describe_errors(reading_counts: ReadingCounts | None) -> str:
    """Return text such as ``97 % of 4,210 requests failed: status 4,080, timeout 11``; empty if no
    request failed.
    """
    if reading_counts is None or not reading_counts.errors or not reading_counts.intended:
        return ""
    sorted_errors = sorted(reading_counts.errors.items(), key=lambda item: -item[1])
    errors = ", ".join(f"{error_kind} {error_count:,}" for error_kind, error_count in sorted_errors)
    failed_percent = f"{100 * reading_counts.failed_share:.0f} %"
    failure_text = f"{failed_percent} of {reading_counts.intended:,} requests failed: {errors}"
    return (
        f"{failure_text}, such as {reading_counts.example}"
        if reading_counts.example
        else failure_text
    )


def count_readings(
    readings: Iterable[RecordedReading | RecordedCall],
) -> dict[int, ReadingCounts]:
    """Return the counts by trial number, from the records in ``readings.jsonl`` in any order."""
    counts_by_trial: dict[int, ReadingCounts] = {}
    for reading_record in readings:
        earlier_counts = counts_by_trial.get(reading_record.trial, ReadingCounts())
        counts_by_trial[reading_record.trial] = (
            replace(earlier_counts, readings=earlier_counts.readings + 1)
            if isinstance(reading_record, RecordedCall)
            else _add_reading(earlier_counts, reading_record)
        )
    return counts_by_trial


def _add_reading(reading_counts: ReadingCounts, reading: RecordedReading) -> ReadingCounts:
    reading_counts = replace(
        reading_counts,
        stolen=reading_counts.stolen + (reading.stolen > HIGH_STEAL_SHARE),
        checked_count=reading_counts.checked_count + reading.looked_at,
        wrong=reading_counts.wrong + reading.wrong,
        example=reading_counts.example or reading.example,
    )
    if reading.purpose == WARM_UP_PURPOSE:
        return replace(reading_counts, warmed=reading_counts.warmed + 1, last=reading)
    return replace(
        reading_counts,
        readings=reading_counts.readings + 1,
        limited=reading_counts.limited + (reading.limited is not None),
        intended=reading_counts.intended + reading.intended,
        violations=reading_counts.violations + reading.violations,
        errors=dict(Counter(reading_counts.errors) + Counter(reading.errors)),
        last=reading,
    )
