"""Why trials came to nothing, each cause once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.report.tally import Tally
from autotune.study.records import State, Trial

# From here on the errors, not the latency, are what broke the objective.
MOSTLY_ERRORS = 0.5


@dataclass(frozen=True)
class Failure:
    """Trials that ended the same way. ``example`` is what the first of them showed, if anything."""

    cause: str
    trials: tuple[int, ...]
    example: str = ""


def unusable(trial: Trial) -> bool:
    """Whether a finished trial could not be deployed, or carried no load within the objective."""
    return trial.over and not (trial.peak is not None and trial.peak.feasible)


def failures(state: State, tallies: Mapping[int, Tally]) -> tuple[Failure, ...]:
    """Causes of all unusable trials, the most frequent first."""
    by_cause: dict[str, list[Trial]] = {}
    for trial in filter(unusable, state.trials):
        by_cause.setdefault(_cause(trial, tallies.get(trial.number)), []).append(trial)
    found = [_failure(cause, trials, tallies) for cause, trials in by_cause.items()]
    return tuple(sorted(found, key=lambda failure: -len(failure.trials)))


def _failure(cause: str, trials: Sequence[Trial], tallies: Mapping[int, Tally]) -> Failure:
    example = errors_in_words(tallies.get(trials[0].number)) if trials[0].peak else ""
    return Failure(cause, tuple(trial.number for trial in trials), example)


def _cause(trial: Trial, seen: Tally | None) -> str:
    if trial.failure is not None:
        return (trial.failure.strip().splitlines() or ["no reason given"])[0]
    if trial.peak is not None and trial.peak.verdict == "generator-limited":
        return "the load generator gave out before the stack did"
    if seen is not None and seen.failed >= MOSTLY_ERRORS:
        return "requests were answered wrongly or not at all"
    return "the objective was met at no rate tried"


def errors_in_words(seen: Tally | None) -> str:
    """``97 % of 4,210 requests failed: status 4,080, timeout 11``; empty without errors."""
    if seen is None or not seen.errors or not seen.intended:
        return ""
    kinds = sorted(seen.errors.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{kind} {count:,}" for kind, count in kinds)
    return f"{100 * seen.failed:.0f} % of {seen.intended:,} requests failed: {listed}"
