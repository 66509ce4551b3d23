"""Error pages with status 200, mixed into the answers of a real server under real load."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.environments.answer_check import AnswerCheck
from autotune.environments.load_meter import build_reading
from autotune.errors import AutotuneError
from autotune.loads.base import LoadSpec
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.probes import ProbeAnswer
from autotune.loads.reading_run import take_reading
from autotune.measure.reading import Reading
from autotune.services.base import Endpoint
from autotune.target.slo import Slo
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.loads.pages import ERROR_PAGES, news, shop
from tests.loads.servers import nginx
from tests.ports import free_port
from tests.undisturbed import undisturbed

pytestmark = pytest.mark.stack

VARIANTS = 16  # pages of the site that the server serves in turn
SLO = Slo(limit=2.0)  # seconds: however slow the machine is, only errors decide
APPLICATIONS = ("php-fatal.html", "wordpress-database.html", "django-debug.html", "rails.html",
                "mediawiki.html", "drupal.html")  # fmt: skip
CASES = [
    *((application, 5) for application in APPLICATIONS),
    ("rails.html", 25),
    ("express.html", 100),
]


@contextmanager
def mixed(
    directory: Path, site: Callable[[random.Random], ProbeAnswer], *errors: tuple[str, float]
) -> Iterator[list[Endpoint]]:
    """A server that answers with pages of ``site`` at its first endpoint, and at one for each of
    ``errors`` with so many per cent of an error page, all with status 200."""
    chance = random.Random(1)
    for number in range(VARIANTS):
        (directory / f"page-{number}.html").write_text(site(chance).text)
    for name, text in ERROR_PAGES.items():
        (directory / name).write_text(text)
    ports = [free_port() for _ in range(1 + len(errors))]
    servers = ""
    for place, (port, (name, share)) in enumerate(zip(ports, (("", 0.0), *errors), strict=True)):
        each = int(100 * (100 - share) / VARIANTS) / 100
        wrong = f"{share}% {name};" if 0 < share < 100 else ""
        pages = "".join(f"{each}% page-{n}.html;" for n in range(VARIANTS - 1) if each)
        rest = name if share >= 100 else f"page-{VARIANTS - 1}.html"
        servers += (
            f'split_clients "$request_id" $page{place} {{ {wrong} {pages} * {rest}; }}\n'
            f"server {{ listen 127.0.0.1:{port} backlog=4096; root {directory};\n"
            f"  location / {{ rewrite ^ /$page{place} break; }} }}\n"
        )
    config = (
        "daemon off; master_process off; pid pid; error_log stderr crit;\n"
        "events { worker_connections 1024; }\n"
        "http { access_log off; types { text/html html; } client_body_temp_path body;\n"
        "proxy_temp_path proxy; fastcgi_temp_path fcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"
        f"variables_hash_max_size 2048;\n{servers} }}\n"
    )
    with nginx(directory, config):
        yield [Endpoint("127.0.0.1", port) for port in ports]


def check_of(endpoint: Endpoint) -> AnswerCheck:
    request = Request(endpoint, "/")
    return AnswerCheck.create(
        HttperfGenerator(), request, None, LocalTransport(), errors=SLO.errors, max_rate=1000.0
    )


def read(check: AnswerCheck, endpoint: Endpoint, seconds: float = 2.0) -> Reading:
    """Return a valid reading, because without CPU time the generator cannot send all requests."""
    spec = LoadSpec(400.0, seconds, timeout=5.0, latency_limit=SLO.limit, ramp_seconds=0.0)
    request = Request(endpoint, "/")

    def take() -> Reading:
        result = take_reading(
            HttperfGenerator(),
            request,
            spec,
            LocalTransport(),
            max_rate=400.0,
            validator=check.validator,
        )
        return build_reading(result, spec)

    return undisturbed(take, lambda reading: reading.is_valid)


@pytest.mark.parametrize("site", [shop, news])
def test_error_pages_with_status_200_are_violations(
    tmp_path: Path, site: Callable[[random.Random], ProbeAnswer]
) -> None:
    cases = CASES[::2] if site is shop else CASES[1::2]
    with mixed(tmp_path, site, *cases) as (right, *wrong):
        check = check_of(right)
        check.learn_references()
        good = read(check, right)
        assert good.error_count == 0, good
        assert good.looked_at >= 100, good
        for endpoint, case in zip(wrong, cases, strict=True):
            bad = read(check, endpoint)
            print(
                f"{site.__name__} {case}: {bad.errors}, {bad.wrong} of {bad.looked_at}: {bad.example}"
            )
            assert not SLO.is_met(bad), (case, bad)
            assert bad.errors["wrong answer"] > SLO.errors * bad.intended
            assert bad.example


def test_a_site_that_shows_an_error_page_from_the_start_is_refused(tmp_path: Path) -> None:
    with mixed(tmp_path, shop, ("wordpress-critical.html", 100)) as (_, wrong):
        with pytest.raises(AutotuneError) as refused:
            check_of(wrong).learn_references()
        assert "looks like an error page" in refused.value.message
        assert refused.value.hint is not None
        assert "expect" in refused.value.hint
