"""A storm on the machine below the hosts neither costs a reading nor enters a peak."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.diagnose.diagnosis import WatchedReading
from autotune.estimate import Estimate
from autotune.measure.calm import FREE, LONGEST, PAUSE
from autotune.monitor.footprint import Footprint
from autotune.study import retry, trial
from autotune.study.records import Phase, Trial
from autotune.study.schedule import Measure
from autotune.study.store import Store, readings_of
from autotune.study.trial import Bench
from tests.study.simulated import FormulaFleet, bench, flat

CALM, STOLEN = 0.01, 0.4


class Weather:
    """Readings number ``first`` to ``last`` are in a storm: most of the capacity is gone."""

    def __init__(self, first: int, last: int) -> None:
        self.storm, self.taken = range(first, last + 1), 0
        self.pauses: list[float] = []

    def over(self, bench: Bench) -> Bench:
        calm = bench.equipment.take

        def take(rate: float, seconds: float) -> WatchedReading:
            stormy = self.taken in self.storm
            self.taken += 1
            seen = calm(3 * rate if stormy else rate, seconds)
            hosts = {"web1": Footprint(0.5, STOLEN if stormy else CALM, 1, 1, 0.1, 9, 0, 1e6)}
            return replace(seen, reading=replace(seen.reading, rate=rate), hosts=hosts)

        bench.equipment = replace(bench.equipment, take=take)
        return bench


@contextmanager
def measured(
    directory: Path, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Trial, Bench]]:
    """One trial of a stack with a peak of 1,000/s, and where it was measured."""
    clock = SimpleNamespace(sleep=weather.pauses.append, monotonic=lambda: sum(weather.pauses))
    monkeypatch.setattr(retry, "time", clock)
    directory.mkdir()
    with closing(Store(directory)) as store:
        made = weather.over(bench(store, flat, FormulaFleet(), seed=3, pace=0.0))
        baseline = made.space.baseline
        yield (
            trial.run(Measure(Phase.BASELINE, baseline), made, Estimate.of(1000.0, 0.3), None),
            made,
        )


def test_a_storm_changes_no_peak_and_loses_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(4):
        weather = Weather(first, first + 2)
        with measured(tmp_path / str(first), weather, monkeypatch) as (done, _):
            assert done.peak is not None
            assert abs(math.log(done.peak.peak / 1000)) < 0.08, first
        kept = readings_of(tmp_path / str(first))
        assert len(kept) == weather.taken
        disturbed = [r for r in kept if r["disturbed"]]
        assert {r["hosts"]["web1"]["steal"] for r in disturbed} == {STOLEN}
        assert disturbed[0]["disturbed"].startswith("40% of the CPU time of web1")
        assert weather.pauses == [PAUSE, 2 * PAUSE, 4 * PAUSE][: len(disturbed)]


def test_what_never_ends_is_measured_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather = Weather(2, 10_000)
    with measured(tmp_path / "s", weather, monkeypatch) as (done, made):
        assert done.peak is not None
        assert done.peak.peak < 500
        assert not made.calm.patient(0.0) or made.calm.usual == STOLEN
    assert 0 < sum(weather.pauses) < FREE + LONGEST
