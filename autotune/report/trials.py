"""What became of trials: counts of their readings, how they ended, why some came to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.measure.steal import MUCH
from autotune.report import format as fmt
from autotune.report.objective import Requests, Units
from autotune.study.records import State, Trial
from autotune.study.shapes import CALL

WARM_UP = "warm-up"

# From here on the errors, not the latency, are what violated the SLO.
MOSTLY_ERRORS = 0.5
# What users read for how a capacity search ended; "" if it ended as it should.
VERDICTS = {"measured": "", "screened": "pruned", "unsettled": "not converged"}


@dataclass(frozen=True)
class ReadingCounts:
    """Readings of one trial. ``errors`` are requests that failed outright, by kind.

    ``warmed`` counts the warm-up's windows, and ``disturbed`` the readings that an earlier
    version discarded for CPU steal; neither is in ``readings``. ``stolen`` counts the readings, windows
    included, that were corrected for CPU steal. ``last`` is the newest reading as it was recorded.
    """

    readings: int = 0
    warmed: int = 0
    disturbed: int = 0
    stolen: int = 0
    limited: int = 0
    intended: int = 0
    violations: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, Any] | None = None

    @property
    def failed(self) -> float:
        """Fraction of the intended requests that failed outright."""
        return sum(self.errors.values()) / self.intended if self.intended else 0.0


@dataclass(frozen=True)
class Failure:
    """Trials that ended the same way. ``example``: the errors of the first of them, if any."""

    cause: str
    trials: tuple[int, ...]
    example: str = ""


def label(trial: Trial) -> str:
    """``#7 search``, ``#21 confirm #7`` where a trial is measured again, ``#21 confirm #7 on a`` where
    there are several test beds."""
    again = "" if trial.of is None else f" #{trial.of}"
    return f"#{trial.number} {trial.phase}{again}" + (f" on {trial.bed}" if trial.bed else "")


def outcome(trial: Trial, units: Units) -> str:
    """How a trial ended."""
    peak = trial.peak
    if peak is None:
        return f"failed: {trial.failure}" if trial.failure else "not measured"
    if peak.verdict == "unmeetable":
        return units.nothing
    text = f"{units.brief(units.of(peak.peak)):>8}"
    if isinstance(units, Requests):
        text = f"{text}  p99 {fmt.latency(peak.p99):>7}"
    verdict = VERDICTS.get(peak.verdict, peak.verdict)
    return f"{text}  {verdict}" if verdict else text


def unusable(trial: Trial) -> bool:
    """Whether a finished trial could not be deployed, or met the SLO at no rate."""
    return trial.over and not (trial.peak is not None and trial.peak.feasible)


def count_by_outcome(state: State) -> dict[str, int]:
    """Finished trials that the budget counts, by how they ended."""
    finished = state.counted()
    failed = sum(map(unusable, finished))
    screened = sum(t.peak is not None and t.peak.verdict == "screened" for t in finished)
    return {"complete": len(finished) - failed - screened, "failed": failed, "screened": screened}


def describe_counts(counts: Mapping[str, int]) -> list[str]:
    """``15 complete``, ``2 failed``, ``3 pruned``, as ``count_by_outcome`` has them."""
    return [f"{count} {VERDICTS.get(kind, kind)}" for kind, count in counts.items()]


def failures(state: State, counts: Mapping[int, ReadingCounts]) -> tuple[Failure, ...]:
    """Causes of all unusable trials, the most frequent first."""
    by_cause: dict[str, list[Trial]] = {}
    for trial in filter(unusable, state.trials):
        by_cause.setdefault(_cause(trial, counts.get(trial.number)), []).append(trial)
    causes = [
        Failure(
            cause,
            tuple(trial.number for trial in trials),
            describe_errors(counts.get(trials[0].number)) if trials[0].peak else "",
        )
        for cause, trials in by_cause.items()
    ]
    return tuple(sorted(causes, key=lambda failure: -len(failure.trials)))


def _cause(trial: Trial, counts: ReadingCounts | None) -> str:
    if trial.failure is not None:
        return (trial.failure.strip().splitlines() or ["no reason given"])[0]
    if trial.peak is not None and trial.peak.limited:
        return "the load generator gave out before the stack did"
    if counts is not None and counts.failed >= MOSTLY_ERRORS:
        return "requests were answered wrongly or not at all"
    return "the SLO was not met at any rate tried"


def describe_finding(finding: Mapping[str, Any]) -> str:
    """``web.php_fpm: workers: …``, as far as its parts are on record."""
    place = ".".join(str(finding[key]) for key in ("tier", "service") if finding.get(key))
    rest = [str(finding[key]) for key in ("resource", "evidence") if finding.get(key)]
    return ": ".join(filter(None, [place, *rest]))


def describe_errors(counts: ReadingCounts | None) -> str:
    """``97 % of 4,210 requests failed: status 4,080, timeout 11``; empty without errors."""
    if counts is None or not counts.errors or not counts.intended:
        return ""
    kinds = sorted(counts.errors.items(), key=lambda item: -item[1])
    errors = ", ".join(f"{kind} {count:,}" for kind, count in kinds)
    return f"{100 * counts.failed:.0f} % of {counts.intended:,} requests failed: {errors}"


def count_readings(readings: Iterable[Mapping[str, Any]]) -> dict[int, ReadingCounts]:
    """Trial number → its counts, from the records of ``readings.jsonl`` (any order)."""
    counts: dict[int, ReadingCounts] = {}
    for reading in readings:
        before = counts.get(reading["trial"], ReadingCounts())
        counts[reading["trial"]] = _counted(before, reading)
    return counts


def _counted(counts: ReadingCounts, reading: Mapping[str, Any]) -> ReadingCounts:
    if reading.get("disturbed"):
        return replace(counts, disturbed=counts.disturbed + 1, last=reading)
    counts = replace(counts, stolen=counts.stolen + (reading.get("stolen", 0.0) > MUCH))
    if reading.get("purpose") == WARM_UP:
        return replace(counts, warmed=counts.warmed + 1, last=reading)
    if reading.get("purpose") == CALL:
        return replace(counts, readings=counts.readings + 1)
    return replace(
        counts,
        readings=counts.readings + 1,
        limited=counts.limited + (reading.get("limited") is not None),
        intended=counts.intended + reading["intended"],
        violations=counts.violations + reading["violations"],
        errors=dict(Counter(counts.errors) + Counter(reading.get("errors") or {})),
        last=reading,
    )
