"""Capacities in the user's units."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.environments.peak import Peak
from autotune.report.units import Units
from autotune.study.study_state import Trial


@dataclass(frozen=True)
class CapacityFigures:
    """A capacity with its 90 % interval, lower end first, in the user's units; ``None`` if unknown."""

    peak: float | None = None
    low: float | None = None
    high: float | None = None


def build_capacity(peak: Peak | None, units: Units) -> CapacityFigures:
    """Return a peak and its interval in the user's units; no figures if no rate met the SLO in time."""
    if peak is None or peak.is_unmet:
        return CapacityFigures()
    if peak.peak == 0:
        return CapacityFigures(0.0, 0.0, units.round_value(peak.high))
    interval_low, interval_high = sorted((units.from_peak(peak.low), units.from_peak(peak.high)))
    return CapacityFigures(
        *(
            units.round_value(converted_peak)
            for converted_peak in (units.from_peak(peak.peak), interval_low, interval_high)
        )
    )


def build_trial_capacity(trial: Trial, units: Units) -> CapacityFigures:
    """Return the capacity that a trial measured, or its lower bound if the load was limited.

    The figures are ``None`` if the trial met the SLO at no rate.
    """
    return build_capacity(trial.peak if trial.peak and trial.peak.met_slo else None, units)
