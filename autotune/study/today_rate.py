"""The rate at which the proof measures the latency of today's load."""

from __future__ import annotations

from autotune.study.ranking import find_baseline
from autotune.study.study_state import Phase, State

# Without `load: {today: …}`, the proof measures latency at this share of the baseline's capacity.
TODAY_CAPACITY_SHARE = 0.4


def select_today_rate(state: State, phase: Phase, today_rate: float | None) -> float | None:
    """Return the rate in requests/s at which a measurement also measures the latency; ``None`` if
    latency is not measured.

    The proof uses the target's rate, or else a share of the baseline's capacity. `measure` has no
    baseline, so the command uses only the target's rate.
    """
    if phase not in (Phase.CONFIRM, Phase.MEASURE) or state.values:
        return None
    baseline = find_baseline(state)
    if today_rate is not None or phase is Phase.MEASURE or baseline is None:
        return today_rate
    if baseline.peak is None or not baseline.meets_slo:
        return None
    return float(f"{TODAY_CAPACITY_SHARE * baseline.peak.peak:.3g}")
