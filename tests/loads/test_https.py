"""TLS, headers and bodies: the probe and each generator against a real site on loopback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.loads.base import LoadSpec
from autotune.loads.reading_run import take_reading
from autotune.loads.registry import LOAD_GENERATORS
from autotune.target.requests_file import WeightedVisit
from autotune.transports import curl
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request, TlsOptions
from tests.loads.tls import BODY, NAME, Site, each, serving

pytestmark = pytest.mark.stack
# However slow the machine is, nothing is given up or late. Whether the load was made in its time is not
# asked: a generator that was stopped at its end says that it fell behind.
PATIENT = LoadSpec(40, 1.5, timeout=20.0, latency_limit=20.0, ramp_seconds=0.0)
HERE = LocalTransport()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("tls")) as site:
        yield site


def request_status(request: Request) -> int | str:
    answer = curl.send_request(HERE, request, timeout=20.0)
    return answer if isinstance(answer, str) else answer.status


@pytest.fixture(params=each(LOAD_GENERATORS))
def generator(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_the_probe_trusts_the_target_s_authority_alone(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    request = site.request()
    assert request_status(request) == 200
    assert "certificate" in str(request_status(replace(request, tls=TlsOptions())))
    assert request_status(replace(request, tls=TlsOptions(insecure=True))) == 200
    assert "subject name" in str(request_status(replace(request, host="other.example")))
    assert not list(tmp_path.iterdir())


def test_the_probe_says_where_a_redirect_leads(site: Site) -> None:
    request = site.request(host="elsewhere.example", tls=TlsOptions(insecure=True))
    answer = curl.send_request(HERE, request, timeout=20.0)
    assert isinstance(answer, curl.CurlAnswer)
    assert (answer.status, answer.location) == (301, "https://shop.example/")


@pytest.mark.parametrize(
    ("generator", "http2"),
    # One that speaks HTTP/1.1 alone is refused when a target is read.
    [
        *each(LOAD_GENERATORS, False),
        *each([name for name, load in LOAD_GENERATORS.items() if load.http2], True),
    ],
)
def test_a_generator_over_tls(site: Site, generator: str, http2: bool) -> None:
    load = LOAD_GENERATORS[generator]
    headers = (("X-Visit", f"{generator} \\ {http2}"),)
    request = site.request("/a?b=1", expected_body=BODY, headers=headers, http2=http2)
    result = take_reading(load, request, PATIENT, HERE, max_rate=20_000.0)
    assert (result.errors, result.right_answers, result.intended) == ({}, 60, 60)
    written = f'HTTP/{"2.0" if http2 else "1.1"} /a?b=1 "{generator} \\x5C {http2}" "-"'
    assert site.count_asked(written, at_least=60) >= 60
    asked = [line for line in site.asked() if line.endswith(written)]
    assert all(line.startswith(f"GET https {NAME}") for line in asked)


@pytest.mark.parametrize("size", [15_000, 60_000])
def test_a_generator_reads_a_long_answer_to_its_end(site: Site, generator: str, size: int) -> None:
    """Records of TLS are up to 16 KB, which need not be as much as a generator reads at a time."""
    (site.directory / "long").mkdir(exist_ok=True)
    (site.directory / "long" / str(size)).write_bytes(b"x" * size)
    result = take_reading(
        LOAD_GENERATORS[generator],
        site.request(f"/long/{size}", expected_body=None),
        PATIENT,
        HERE,
        max_rate=20_000.0,
    )
    assert (result.errors, result.right_answers) == ({}, 60)


def test_a_generator_sends_a_body(site: Site, generator: str) -> None:
    text = 'a=1&note="two\nlines\\"'
    request = site.request("/post", method="POST", body=text, headers=(("X-Visit", generator),))
    result = take_reading(LOAD_GENERATORS[generator], request, PATIENT, HERE, max_rate=20_000.0)
    assert (result.errors, result.right_answers) == ({}, 60)
    assert site.count_asked(f'/post "{generator}"', at_least=60) >= 60


def test_a_list_of_requests_is_asked_for_by_weight(site: Site, generator: str) -> None:
    visits = tuple(
        WeightedVisit(path=f"/{generator}/{page}?weight={weight}", weight=weight)
        for page, weight in (("a", 3), ("b", 2), ("c", 1))
    )
    request = site.request(expected_body=None)
    result = take_reading(
        LOAD_GENERATORS[generator].with_visits(visits), request, PATIENT, HERE, max_rate=20_000.0
    )
    assert (result.errors, result.right_answers) == ({}, 60)
    assert site.count_asked(f"/{generator}/", at_least=60) >= 60
    asked = Counter(line.split()[4] for line in site.asked() if f"/{generator}/" in line)
    assert set(asked) == {visit.path for visit in visits}
    if generator == "httperf":  # in turn; others pick at random
        assert [asked[visit.path or ""] for visit in visits] == [30, 20, 10]


def test_httperf_asks_for_posts(site: Site) -> None:
    posts = (
        WeightedVisit(path="/w1"),
        WeightedVisit(path="/w2", method="POST", body='{"a": "b c\\n"}'),
    )
    result = take_reading(
        LOAD_GENERATORS["httperf"].with_visits(posts),
        site.request(),
        PATIENT,
        HERE,
        max_rate=20_000.0,
    )
    assert (result.errors, result.right_answers) == ({}, 60)
    assert site.count_asked("/w", 60) == 60
    lines = [line for line in site.asked() if "/w" in line]
    assert Counter(line.split()[0] for line in lines) == {"GET": 30, "POST": 30}


def test_a_certificate_of_nobody_known_is_no_throughput(site: Site, generator: str) -> None:
    """httperf looks at no certificate, so the probe before every trial does; others refuse it."""
    result = take_reading(
        LOAD_GENERATORS[generator], site.request(tls=TlsOptions()), PATIENT, HERE, max_rate=20_000.0
    )
    assert result.right_answers == (60 if generator == "httperf" else 0)
    assert result.right_answers + result.error_count == result.intended


def test_two_entries_share_the_load(tmp_path: Path, generator: str) -> None:
    """By their own counters: each has half of what was sent."""
    with ExitStack() as stack:
        sites = []
        for name in ("lb1", "lb2"):
            (tmp_path / name).mkdir()
            sites.append(stack.enter_context(serving(tmp_path / name)))
        first, second = sites
        request = replace(
            first.request(
                tls=TlsOptions(insecure=True), expected_body=BODY, headers=(("X-Visit", "both"),)
            ),
            other_endpoints=(second.endpoint,),
        )
        result = take_reading(LOAD_GENERATORS[generator], request, PATIENT, HERE, max_rate=20_000.0)
        assert (result.errors, result.right_answers) == ({}, 60)
        shares = [site.count_asked(" / ", at_least=30) for site in sites]
    # Beside the look at whole answers, two at each.
    assert all(30 <= share <= 34 for share in shares), shares
