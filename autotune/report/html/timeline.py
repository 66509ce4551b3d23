"""The study over time: each trial's peak, the best so far, each reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.report.claim import claim
from autotune.report.html.study_time import Time
from autotune.report.ladder import of_histogram
from autotune.report.lines import outcome, trial_in_words
from autotune.report.studies import Study
from autotune.report.summary import numbers
from autotune.report.tally import WARM_UP
from autotune.report.yardstick import yardstick
from autotune.study.readings import reading_of
from autotune.study.records import COUNTED, Phase, Trial
from autotune.target.slo import Slo

# A reading that broke the objective this far below its trial's interval was disturbed: one-sided
# noise, which the posterior discounts. In log units; 0.1 is about 10 %.
DISTURBED = 0.1


def peaks(study: Study, time: Time) -> list[dict[str, Any]]:
    """Every measured trial: when it ended, its peak with its interval, its phase, what it said."""
    ended = {r["trial"]: r["at"] for r in study.records if r["event"] in ("measured", "failed")}
    by = yardstick(study.target, study.state)
    return [
        {
            "trial": trial.number,
            "of": trial.of,
            "phase": str(trial.phase),
            "at": time.seconds(ended[trial.number]),
            **numbers(trial.peak if trial.peak and trial.peak.feasible else None, by),
            "says": f"{trial_in_words(trial)}: {outcome(trial, by)}",
        }
        for trial in study.state.finished()
        if ended.get(trial.number)
    ]


def best_so_far(study: Study, time: Time) -> list[dict[str, Any]]:
    """The highest first measurement of any configuration, whenever it rose: steps, not a claim."""
    ended = {r["trial"]: r["at"] for r in study.records if r["event"] == "measured"}
    by = yardstick(study.target, study.state)
    steps: list[dict[str, Any]] = []
    highest = 0.0
    for trial in study.state.finished(*COUNTED, Phase.MEASURE):
        peak = trial.peak
        if peak is None or not peak.feasible or peak.peak <= highest or not ended[trial.number]:
            continue
        highest = peak.peak
        steps.append(
            {"at": time.seconds(ended[trial.number]), "peak": by.rounded(by.of(highest)),
             "trial": trial.number}
        )  # fmt: skip
    return steps


def readings(study: Study, time: Time) -> dict[str, list[Any]]:
    """Every reading as columns: seconds, trial, purpose, rate, latency, violations, state.

    ``state`` is ``met``, ``broken``, ``disturbed`` or ``limited``; ``late`` the latency at the
    objective's percentile in milliseconds, ``None`` beyond anything observed.
    """
    slo = study.target.slo.slo
    trials = {trial.number: trial for trial in study.state.trials}
    columns: dict[str, list[Any]] = {
        name: [] for name in ("at", "trial", "warm", "rate", "late", "bad", "state")
    }
    for reading in study.readings:
        columns["at"].append(time.seconds(reading["at"]))
        columns["trial"].append(reading["trial"])
        columns["warm"].append(reading.get("purpose") == WARM_UP)
        columns["rate"].append(round(reading["rate"], 1))
        columns["late"].append(percentile(reading, slo.quantile))
        columns["bad"].append(round(100 * reading_of(reading).fraction, 3))
        columns["state"].append(state_of(reading, trials.get(reading["trial"]), slo))
    return columns


def state_of(reading: Mapping[str, Any], trial: Trial | None, slo: Slo) -> str:
    """Whether a reading met the SLO, and if not, whether that was the server."""
    if reading.get("limited"):
        return "limited"
    if reading.get("disturbed"):
        return "disturbed"
    if slo.met(reading_of(reading)):
        return "met"
    peak = trial.peak if trial else None
    below = peak is not None and peak.feasible and reading["rate"] < peak.low * (1 - DISTURBED)
    return "disturbed" if below else "broken"


def percentile(reading: Mapping[str, Any], q: float) -> float | None:
    """Latency in ms within which the fraction ``q`` of intended requests was answered right."""
    return of_histogram(
        {float(edge): count for edge, count in (reading.get("histogram") or {}).items()},
        reading["intended"],
        q,
    )


def numbers_of(study: Study) -> dict[str, tuple[int, ...]]:
    """``baseline`` and ``best``: the trials that measured each, its repeats included."""
    found = claim(study.state)
    sides = {"baseline": found.baseline, "best": found.best}
    return {
        label: (side.trial.number, *(trial.number for trial in side.repeats))
        for label, side in sides.items()
        if side is not None
    }
