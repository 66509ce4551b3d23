"""Whether a reading met the SLO is one question: every place that asks it gets the same answer."""

from __future__ import annotations

import ast
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autotune
from autotune.deploy.stack import Stack
from autotune.diagnose.context import ReadingContext
from autotune.diagnose.diagnosis import WatchedReading
from autotune.environments import load_meter as gauges
from autotune.environments.evaluation import MeasurementHistory
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession, find_p99_at_peak
from autotune.errors import AutotuneError
from autotune.loads.base import LoadResult, Request
from autotune.loads.httperf import HttperfGenerator
from autotune.measure import Noise, Reading, SearchLimits, Slo
from autotune.measure.capacity import PeakSearch
from autotune.monitor.activity import HostUsage
from autotune.monitor.host_watch import Observations
from autotune.report import measurement_report
from autotune.report.load_curve import average_host_usage
from autotune.report.progress import select_verdict_mark
from autotune.report.timeline import classify_reading
from autotune.services.base import Endpoint
from autotune.simulate.chain import build_chain, diagnose_search, find_bottleneck
from autotune.simulate.topology import ChainTopology
from autotune.study import trial
from autotune.study.reading_records import RecordedReading, load_readings, record_reading
from autotune.study.schedule_steps import MeasureStep
from autotune.study.study_state import Phase, Trial
from autotune.study.study_store import StudyStore
from autotune.study.trial_context import TrialContext
from autotune.sweep import figures, results, runner
from autotune.sweep.plan import AxisValue, PointMeasurement, SweepAxis, SweepPlan
from autotune.transports.local import LocalTransport
from tests.sources import nodes
from tests.study.simulated import FormulaFleet, context, flat

SLO = Slo(quantile=0.99, limit=0.050, errors=0.001)
CALM, STOLEN = 0.0, 0.4
SECONDS = 2.0


def reading(late: int = 0, status_500: int = 0, intended: int = 2000, **how: Any) -> Reading:
    """2000 requests at 1000/s, unless something else is said."""
    right = intended - late - status_500
    histogram = {edge: n for edge, n in ((0.01, right), (0.2, late)) if n}
    errors = {"status 500": status_500} if status_500 else {}
    return Reading(1000.0, SECONDS, intended, late + status_500, errors, histogram, **how)


# name → a reading, and whether it met p99 < 50 ms with 0.1 % errors.
READINGS: dict[str, tuple[Reading, bool]] = {
    "all right": (reading(), True),
    "1 % late": (reading(late=20), True),
    "2 % late": (reading(late=40), False),
    "0.1 % HTTP 500": (reading(status_500=2), True),
    "0.5 % HTTP 500": (reading(status_500=10), False),
    "0.9 % late, 0.1 % HTTP 500": (reading(late=18, status_500=2), True),
    "cut short": (reading(truncated=True), False),
    "limited by the generator": (reading(limited="no descriptors left"), False),
    "nothing intended": (reading(intended=0), False),
}
each = pytest.mark.parametrize(("taken", "met"), READINGS.values(), ids=READINGS)


def read_report(taken: Reading) -> RecordedReading:
    usage = HostUsage(0.5, 0.0, 1.0, 1.0, 0.1, 9, 3, 1000.0)
    return record_reading(0, "", "peak", taken, {"web1": usage})


def study_of(taken: Reading) -> Any:
    """As much of a study as a list of readings needs."""
    target = SimpleNamespace(slo=SimpleNamespace(objective=SLO), tiers={})
    return SimpleNamespace(readings=[read_report(taken)], target=target)


@each
def test_the_slo(taken: Reading, met: bool) -> None:
    assert SLO.is_met(taken) is met


@each
def test_the_search(taken: Reading, met: bool) -> None:
    state = PeakSearch.start(
        SLO, SearchLimits(), 0.03, prior=None, incumbent=None, noise=Noise()
    ).with_reading(taken)
    assert state.passed_rates == ([1000.0] if met else [])
    assert state.failed_rates == ([1000.0] if taken.is_valid and not met else [])


@each
def test_a_line_on_the_terminal(taken: Reading, met: bool) -> None:
    assert (select_verdict_mark(taken, SLO) == "✓") is met


@each
def test_the_ladder(taken: Reading, met: bool) -> None:
    trials: Any = [SimpleNamespace(number=0)]
    assert (
        any(
            step["met"]
            for step in measurement_report._build_load_curve_json(trials, study_of(taken))
        )
        is met
    )


@each
def test_the_diagnosis(taken: Reading, met: bool) -> None:
    assert ReadingContext(taken, SLO, {}, {}, ()).met_slo is met


@each
def test_the_timeline_of_the_page(taken: Reading, met: bool) -> None:
    assert (classify_reading(taken, None, SLO) == "met") is met


@each
def test_the_hosts_at_peak(taken: Reading, met: bool) -> None:
    usage = average_host_usage([read_report(taken)], SLO)
    assert {host: figures["cpu"] for host, figures in usage.items()} == (
        {"web1": 0.5} if met else {}
    )


@each
def test_the_p99_at_peak(taken: Reading, met: bool) -> None:
    capacity: Any = SimpleNamespace(readings=(taken,), peak=1000.0)
    assert (find_p99_at_peak(capacity, SLO) is not None) is met


@each
def test_what_the_model_says_of_the_rate_that_failed(taken: Reading, met: bool) -> None:
    above = replace(reading(), rate=1500.0)
    failed = taken.is_valid and not met
    at = 1000.0 if failed else 1500.0
    expected = find_bottleneck(ChainTopology(), build_chain(ChainTopology(), {}), at, SLO)
    assert diagnose_search(ChainTopology(), {}, [taken, above], SLO) == expected


@each
def test_the_best_point_of_a_sweep(taken: Reading, met: bool) -> None:
    plan = swept()
    (point,) = plan.points
    result = results._summarize_rate(
        point,
        1000.0,
        [Trial(0, Phase.MEASURE, {})],
        {(0, 1000.0): [read_report(taken)]},
        study_of(taken).target,
    )
    found = results.SweepResults("sweep", plan, study_of(taken).target, (result,), 0)
    assert (figures.find_best_result(found) is not None) is met


@each
def test_a_trial_drains_what_a_failure_left_behind(
    taken: Reading, met: bool, tmp_path: Path
) -> None:
    drained: list[str] = []
    run_trial(tmp_path, taken, drained, CALM)
    assert bool(drained[1:]) is not met  # the first one is after the warm-up


@each
def test_under_cpu_steal_a_trial_takes_no_reading_again_whatever_it_says(
    taken: Reading, met: bool, tmp_path: Path
) -> None:
    calm, stormy = (
        run_trial(tmp_path / name, taken, [], stolen)
        for name, stolen in (("calm", CALM), ("stormy", STOLEN))
    )
    assert {reading.stolen for reading in stormy if reading.purpose == "peak"} == {STOLEN}
    assert stormy[0].rate == calm[0].rate


@each
def test_a_sweep_drains_what_a_failure_left_behind(
    taken: Reading, met: bool, tmp_path: Path
) -> None:
    drained: list[str] = []
    with closing(StudyStore(tmp_path)) as store:
        made = open_loaded_stack(store, taken, drained, CALM)
        begun = store.begin_trial(Phase.MEASURE, made.space.build_candidate({}))
        runner._offer_load_at_rates(made, swept(), begun, PointMeasurement(0, 0))
    assert bool(drained[1:]) is not met


@each
def test_a_load_host_is_suspected_where_the_slo_was_not_met(
    taken: Reading, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = LoadResult(
        intended=taken.intended,
        errors=taken.errors,
        histogram=taken.histogram,
        truncated=taken.truncated,
        limited=taken.limited,
    )
    monkeypatch.setattr(gauges, "take_reading", lambda *_, **__: result)
    monkeypatch.setattr(LoadMeter, "_find_throttled_host", lambda *_: "a quota")
    entry = Endpoint("127.0.0.1", 80)
    way = LocalTransport("load1")
    gauge = LoadMeter(
        HttperfGenerator(),
        Request(entry, "/"),
        SLO,
        (way,),
        Stack((), entry),
        (),
        timeout=2.0,
        max_rate=20_000.0,
    )
    assert (gauge.take_reading(1000.0, 0.0).reading.limited == "a quota") is not met


def test_nobody_else_compares_a_reading_with_the_slo() -> None:
    """Comparisons with what an SLO allows, outside of the SLO itself."""
    root = Path(autotune.__file__).parent
    comparing = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in nodes(path)
        if isinstance(node, ast.Compare) and _names(node) & {"allowed_violations", "errors"}
        if "slo" in ast.unparse(node).lower()
    }
    assert comparing == {
        # an allowance for errors that is larger than the one for lateness
        "target/consistency_checks.py",
        # an SLO without an allowance for errors
        "environments/size_warnings.py",
        "simulate/chain.py",  # what fails of the model's requests in the long run: no reading
    }


def _names(node: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def swept() -> SweepPlan:
    axes = (SweepAxis("service", (AxisValue("nginx", {}),)),)
    return SweepPlan("sweep", axes, rates=(1000.0,), repeat=1, seconds=SECONDS)


def open_loaded_stack(
    store: StudyStore, taken: Reading, drained: list[str], stolen: float
) -> TrialContext:
    """A stack that answers every load as ``taken`` does, and warms up without fault."""
    made = context(store, flat, FormulaFleet(), seed=1, pace=0.0)

    def take(rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        warm = not drained and seconds == 1.0
        seen = replace(reading() if warm else taken, rate=rate)
        hosts = {"web1": HostUsage(0.5, CALM if warm else stolen, 1, 1, 0.1, 9, 0, 1e6)}
        return WatchedReading(seen, Observations(), hosts)

    meter: Any = SimpleNamespace(
        take_reading=take,
        wait_until_drained=lambda: drained.append("drained"),
        count_cache_lookups=lambda: None,
        probe_latency=lambda: None,
        find_bottleneck=lambda *_: None,
        estimate_capacities=lambda *_: {},
        begin_measurement=lambda **_: (),
        end_warm_up=lambda _: None,
    )
    limits = SearchLimits(max_readings=3, max_rate=8000.0)
    session = LoadSession(made.session.fleet, meter, SLO, limits, MeasurementHistory())
    return replace(made, session=session)


def run_trial(
    directory: Path, taken: Reading, drained: list[str], stolen: float
) -> list[RecordedReading]:
    """One trial; its readings as recorded. Where the load was never made, it has no value."""
    unmade = pytest.raises(AutotuneError, match="could not be measured") if taken.limited else None
    with closing(StudyStore(directory)) as store, unmade or nullcontext():
        made = open_loaded_stack(store, taken, drained, stolen)
        trial.run_trial(MeasureStep(Phase.BASELINE, made.space.baseline), made, None, None)
    return load_readings(directory)
