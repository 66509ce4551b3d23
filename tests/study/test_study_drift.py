from __future__ import annotations

from autotune.environments.peak import Peak
from autotune.study.study_drift import list_bed_readings
from autotune.study.study_state import Phase, State, Trial


def test_a_peak_of_a_bed_without_drift_is_read_as_it_was_measured() -> None:
    measured = Peak(100.0, 90.0, 110.0, 0.05, "measured")
    trials = tuple(
        Trial(n, Phase.BASELINE, {}, peak=measured, bed=bed) for n, bed in enumerate("ab")
    )
    readings = list_bed_readings(State(trials=trials, beds=("a", "b")))
    assert [(reading.bed, reading.peak) for reading in readings] == [
        ("a", measured.estimate), ("b", measured.estimate)
    ]  # fmt: skip
