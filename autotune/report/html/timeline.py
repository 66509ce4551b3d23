"""The study over time: each trial's peak, the best so far, each reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.report.html.study_time import Time
from autotune.report.ladder import of_histogram
from autotune.report.reading_counts import WARM_UP
from autotune.report.trials import label, outcome
from autotune.report.view import StudyView, capacity
from autotune.study.readings import reading_of
from autotune.study.records import COUNTED, Phase, Trial
from autotune.target.slo import Slo

# A reading that broke the objective this far below its trial's interval was disturbed: one-sided
# noise, which the posterior discounts. In log units; 0.1 is about 10 %.
DISTURBED = 0.1


def peaks(view: StudyView, time: Time) -> list[dict[str, Any]]:
    """Every measured trial: when it ended, its peak with its interval, its phase, what it said."""
    ended = {
        r["trial"]: r["at"] for r in view.study.records if r["event"] in ("measured", "failed")
    }
    units = view.units
    return [
        {
            "trial": trial.number,
            "of": trial.of,
            "phase": str(trial.phase),
            "at": time.seconds(ended[trial.number]),
            **capacity(trial.peak if trial.peak and trial.peak.feasible else None, units),
            "says": f"{label(trial)}: {outcome(trial, units)}",
        }
        for trial in view.state.finished()
        if ended.get(trial.number)
    ]


def best_so_far(view: StudyView, time: Time) -> list[dict[str, Any]]:
    """The highest first measurement of any configuration, whenever it rose: steps, not a claim."""
    ended = {r["trial"]: r["at"] for r in view.study.records if r["event"] == "measured"}
    units = view.units
    steps: list[dict[str, Any]] = []
    highest = 0.0
    for trial in view.state.finished(*COUNTED, Phase.MEASURE):
        peak = trial.peak
        if peak is None or not peak.feasible or peak.peak <= highest or not ended[trial.number]:
            continue
        highest = peak.peak
        steps.append(
            {"at": time.seconds(ended[trial.number]), "peak": units.rounded(units.of(highest)),
             "trial": trial.number}
        )  # fmt: skip
    return steps


def readings(view: StudyView, time: Time) -> dict[str, list[Any]]:
    """Every reading as columns: seconds, trial, purpose, rate, latency, violations, state.

    ``state`` is ``met``, ``broken``, ``disturbed`` or ``limited``; ``late`` the latency at the
    objective's percentile in milliseconds, ``None`` beyond anything observed.
    """
    slo = view.target.slo.slo
    trials = {trial.number: trial for trial in view.state.trials}
    columns: dict[str, list[Any]] = {
        name: [] for name in ("at", "trial", "warm", "rate", "late", "bad", "state")
    }
    for reading in view.study.readings:
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
