"""The capacity of sites whose pages take seconds: long enough readings, and intervals that hold."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from autotune.deploy.stack import Stack
from autotune.environments import load_session
from autotune.environments.evaluation import EvaluationRequest, Measurement, MeasurementHistory
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession, StackMeter, build_search_limits
from autotune.estimate import Estimate
from autotune.loads.registry import LOAD_GENERATORS
from autotune.measure import Capacity, search_peak
from autotune.services.base import Endpoint
from autotune.target.slo import Slo
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.environments.queues import QueueMeter, find_true_capacity
from tests.loads.servers import nginx, php_pool
from tests.ports import free_port
from tests.study.simulated import FormulaFleet, Silent

WORKERS = 2
SECONDS = 7200  # after which a real site ends by itself
# A page of one second and one of five, each late after twice as long; and a patient objective.
PAGES = [(1.0, 2.0), (5.0, 10.0), (1.0, 5.0)]


def build_slo(limit: float) -> Slo:
    return Slo(quantile=0.9, limit=limit, errors=0.01)


def measure(
    meter: StackMeter,
    slo: Slo,
    usual_seconds: float = inf,
    expected_peak: Estimate | None = None,
    **purpose: Any,
) -> Measurement:
    limits = build_search_limits(100.0)
    session = LoadSession(FormulaFleet(), meter, slo, limits, MeasurementHistory())
    silent: Any = Silent()
    request = EvaluationRequest(1, expected_peak, usual_seconds=usual_seconds, **purpose)
    measured = session.evaluate({}, request, silent)
    assert isinstance(measured, Measurement)
    return measured


@pytest.mark.parametrize(("page", "limit"), PAGES)
def test_readings_are_long_enough(page: float, limit: float) -> None:
    meter = QueueMeter(page, WORKERS, build_slo(limit), seed=1)
    measured = measure(meter, meter.slo)
    counted = meter.readings[-measured.reading_count :]
    for reading in counted:
        # The queue settles, or enough requests arrive to show violations.
        assert reading.seconds >= 19.0 * limit or reading.rate * reading.seconds >= 75
    assert measured.reading_count >= 4


def test_a_short_budget_shortens_the_readings_of_slow_pages() -> None:
    def load_seconds(usual_seconds: float) -> float:
        meter = QueueMeter(1.0, WORKERS, build_slo(2.0), seed=1)
        return measure(meter, meter.slo, usual_seconds).load_seconds

    assert load_seconds(75.0) < load_seconds(225.0) / 2


def test_a_rough_peak_is_enough_for_the_search_of_a_short_study() -> None:
    def search(usual_seconds: float, **purpose: Any) -> Measurement:
        meter = QueueMeter(0.02, 1, Slo(quantile=0.99, limit=0.5, errors=0.001), seed=1)
        return measure(meter, meter.slo, usual_seconds, **purpose)

    short = search(60.0)
    assert short.peak.is_rough
    assert short.load_seconds < search(inf).load_seconds
    # In a longer study, a rough measurement would not be much shorter.
    assert search(80.0).load_seconds == search(inf).load_seconds
    exploration = search(60.0, is_exploration=True)
    assert exploration.peak.is_rough
    assert exploration.load_seconds < short.load_seconds
    claim = search(60.0, is_claim=True)
    assert claim.load_seconds == search(inf, is_claim=True).load_seconds


def test_readings_are_short_if_the_measurement_must_end_soon() -> None:
    def longest_reading(max_seconds: float) -> float:
        meter = QueueMeter(1.0, WORKERS, build_slo(2.0), seed=1)
        measure(meter, meter.slo, is_claim=True, max_seconds=max_seconds)
        return max(reading.seconds for reading in meter.readings)

    assert longest_reading(100.0) < longest_reading(inf)


def test_a_resumed_study_measures_slow_pages_as_before() -> None:
    """The capacity is 0.3 requests/s, and only the first session measures the latency of a page."""
    slo = build_slo(10.0)
    first, resumed = QueueMeter(5.0, WORKERS, slo, seed=1), QueueMeter(5.0, WORKERS, slo, seed=2)
    peak = measure(first, slo).peak
    again = measure(resumed, slo, expected_peak=peak.estimate).peak
    assert again.met_slo
    assert again.peak == pytest.approx(peak.peak, rel=0.25)


def test_the_search_knows_how_long_a_page_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    base_latencies = list[float]()

    def search(*arguments: Any, base_latency: float, **options: Any) -> Capacity:
        base_latencies.append(base_latency)
        return search_peak(*arguments, base_latency=base_latency, **options)

    monkeypatch.setattr(load_session, "search_peak", search)
    slo = build_slo(2.0)
    measure(QueueMeter(1.0, WORKERS, slo, seed=1), slo)
    assert base_latencies == [1.0]


def test_quick_pages_are_read_as_before() -> None:
    meter = QueueMeter(0.005, 8, Slo(quantile=0.99, limit=0.05, errors=0.001), seed=1)
    measured = measure(meter, meter.slo)
    assert max(r.seconds for r in meter.readings[-measured.reading_count :]) <= 10.0


@pytest.mark.long
@pytest.mark.parametrize(("page", "limit"), PAGES)
def test_the_interval_holds_the_true_capacity(page: float, limit: float) -> None:
    slo = build_slo(limit)
    truth = find_true_capacity(page, WORKERS, slo)
    peaks = [measure(QueueMeter(page, WORKERS, slo, seed), slo).peak for seed in range(20)]
    assert sum(peak.low <= truth <= peak.high for peak in peaks) >= 16
    assert median(peak.peak for peak in peaks) == pytest.approx(truth, rel=0.25)


PAGE = '<?php usleep(MICROSECONDS); echo "right\\n";'
SERVER = """user root; daemon off; pid pid; error_log error.log; worker_processes 1;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      fastcgi_pass unix:{directory}/fpm.sock;
      fastcgi_read_timeout 600;
      fastcgi_param REQUEST_METHOD GET;
      fastcgi_param SCRIPT_FILENAME {directory}/page.php;
    }}
  }}
}}
"""


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Request, float, float]]:
    page, limit = request.param
    text = PAGE.replace("MICROSECONDS", str(int(page * 1e6)))
    endpoint = Endpoint("127.0.0.1", free_port())
    server = SERVER.format(port=endpoint.port, directory=tmp_path)
    with php_pool(tmp_path, text, WORKERS, SECONDS), nginx(tmp_path, server, SECONDS):
        yield Request(endpoint, "/", b"right\n", timeout=60.0), page, limit


def measure_closed(request: Request, clients: int, seconds: float) -> float:
    """Pages per second of clients that ask again as soon as they are answered."""
    end, answered = time.monotonic() + seconds, list[float]()

    def ask() -> None:
        while time.monotonic() < end:
            answer = curl.send_request(LocalTransport(), request)
            assert not isinstance(answer, str), answer
            answered.append(answer.seconds)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(answered) / (time.monotonic() - began)


@pytest.mark.stack
@pytest.mark.soak
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("site", PAGES[:2], indirect=True)
def test_a_real_site_with_slow_pages(site: tuple[Request, float, float]) -> None:
    """Two workers, long closed loops, and the capacity that follows from them."""
    request, page, limit = site
    ceiling = measure_closed(request, WORKERS, 60 * page)
    slo = build_slo(limit)
    truth = find_true_capacity(WORKERS / ceiling, WORKERS, slo)
    meter = LoadMeter(
        LOAD_GENERATORS["httperf"],
        request,
        slo,
        (LocalTransport(),),
        Stack((), request.endpoint),
        (),
        timeout=6 * limit,
        max_rate=100.0,
    )
    measured = measure(meter, slo)
    peak = measured.peak
    print(f"closed {ceiling:.3f}/s, true {truth:.3f}/s, measured {peak.peak:.3f} "
          f"[{peak.low:.3f}, {peak.high:.3f}] {peak.verdict}, {measured.reading_count} readings, "
          f"{measured.load_seconds:.0f} s")  # fmt: skip
    assert peak.low <= truth <= peak.high
    assert truth <= ceiling
