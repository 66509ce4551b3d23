"""Pages that show whether units are ready, requested with the real script.

Stand-ins for `curl` and `sleep` print the recorded status of each page, and do not wait.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.unit_probes import find_answered_pages
from autotune.deploy.unit_start import UnitStart
from tests.deploy.doubles import Here

SERVED, FAILING = "http://127.0.0.1:8080/page", "http://127.0.0.1:8081/page"
CURL = f"""\
#!/bin/sh
for url; do :; done
case $url in
    {SERVED}) printf 404 ;;  # any status below 500 shows a server that works
    {FAILING}) printf 503 ;;
    *) printf 000; exit 7 ;;
esac
"""


def find_urls(place: Path, urls: dict[str, str], functions: str = "") -> dict[str, str]:
    """Return the URL with which each unit's readiness is checked."""
    host: Any = SimpleNamespace(transport=Here(place))
    starts = {unit: UnitStart(url=url) for unit, url in urls.items()}
    answered = find_answered_pages(host, starts, functions)
    return {unit: start.url for unit, start in answered.items()}


@pytest.fixture(autouse=True)
def curl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "curl").write_text(CURL)
    (tmp_path / "curl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_a_readiness_check_requests_only_a_page_that_is_served_now(tmp_path: Path) -> None:
    urls = {
        "served": SERVED,
        "only on loopback": "http://10.0.0.2:8080/page",
        "failing": FAILING,
        "down": "http://10.0.0.2:8082/page",
        "without a page": "",
    }
    assert find_urls(tmp_path, urls) == {
        "served": SERVED,
        "only on loopback": SERVED,
        "failing": "",
        "down": "",
        "without a page": "",
    }


def test_a_service_manager_requests_pages_in_its_own_way(tmp_path: Path) -> None:
    assert find_urls(tmp_path, {"served": SERVED}, "\nanswers() { false; }\n") == {"served": ""}


@pytest.mark.parametrize(
    ("interval", "pauses"), [(0.2, ["0.2", "1", "1"]), (0.5, ["0.5", "1", "1"]), (20.0, ["20"] * 3)]
)
def test_a_page_is_requested_no_more_often_than_the_interval_allows(
    tmp_path: Path, interval: float, pauses: list[str]
) -> None:
    """The interval keeps these requests below the maximum rate of the load."""
    requests, waits = tmp_path / "requests", tmp_path / "waits"
    (tmp_path / "curl").write_text(
        f'#!/bin/sh\necho >>{requests}\n[ "$(wc -l <{requests})" -gt 3 ] && printf 200 || printf 503\n'
    )
    (tmp_path / "sleep").write_text(f'#!/bin/sh\necho "$1" >>{waits}\n')
    (tmp_path / "sleep").chmod(0o755)
    command = UnitStart(url=FAILING, interval=interval).build_wait_command("x")
    up = "\nup() { true; }\n"  # the unit runs already
    (done,) = run_commands(Here(tmp_path), [Command(command)], functions=up)
    assert done.ok, done.error_text
    assert waits.read_text().split() == pauses
