"""The capacity of one TLS site by each generator: the site's own, not that of the generator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from autotune.environments.load_meter import build_reading
from autotune.loads.base import LoadSpec
from autotune.loads.reading_run import take_reading
from autotune.loads.registry import LOAD_GENERATORS
from autotune.measure import Capacity, Noise, Reading, SearchLimits, Slo, search_peak
from autotune.measure.warm_up import wait_until_drained
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from tests.loads.servers import php_pool
from tests.loads.tls import Site, serving

pytestmark = [pytest.mark.stack, pytest.mark.built, pytest.mark.quiet, pytest.mark.timeout(1200)]
SLO = Slo(quantile=0.99, limit=0.4, errors=0.001)
HERE = LocalTransport()
# 32 children with 130 ms a page make some 240 pages/s: no generator lacks the CPU for that. With so
# many, httperf's Poisson arrivals wait hardly longer than the even ones of the others.
PAGE = '<?php usleep(130000); echo "found 0100 of 0100\\n";'
SERVER = """user root; daemon off; pid pid; error_log error.log; worker_processes 1;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  ssl_certificate site.pem; ssl_certificate_key site.key;
  server {{
    listen 127.0.0.1:{port} ssl http2 backlog=4096;
    location / {{
      fastcgi_pass unix:fpm.sock;
      fastcgi_param REQUEST_METHOD GET;
      fastcgi_param SCRIPT_FILENAME $document_root/page.php;
      root .;
    }}
  }}
}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    config = SERVER.replace("unix:", f"unix:{tmp_path}/").replace("root .", f"root {tmp_path}")
    with php_pool(tmp_path, PAGE, 32, 1200), serving(tmp_path, config) as site:
        yield site


def capacity(generator: str, site: Site) -> Capacity:
    request = site.request(expect=b"found 0100 of 0100\n")

    def latency() -> float | None:
        answer = curl.send_request(HERE, request)
        return None if isinstance(answer, str) or not answer.ok else answer.seconds

    def probe(rate: float, seconds: float) -> Reading:
        spec = LoadSpec(rate, seconds, timeout=5.0, latency_limit=SLO.limit)
        measured = build_reading(
            take_reading(LOAD_GENERATORS[generator], request, spec, HERE, max_rate=20_000.0), spec
        )
        if not SLO.is_met(measured):
            wait_until_drained(latency, SLO.limit)
        return measured

    return search_peak(probe, SLO, limits=SearchLimits(max_rate=2000.0), noise=Noise())


def test_generators_agree_about_a_site(site: Site) -> None:
    """A generator that is limited itself measures less."""
    measured: list[Capacity] = []
    for name in ("httperf", "k6", "oha"):
        found = capacity(name, site)
        limited = sorted({reading.limited for reading in found.readings if reading.limited})
        print(
            f"{name}: {found.peak:.1f}/s [{found.low:.1f}, {found.high:.1f}]",
            found.verdict,
            *limited,
        )
        assert found.verdict in ("measured", "unsettled")
        measured.append(found)
    for first, second in combinations(measured, 2):
        assert max(first.low, second.low) <= min(first.high, second.high)
