"""A study opens in optuna-dashboard, as any Optuna study does."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from autotune.optimize.searcher import Outcome, Searcher
from autotune.optimize.storage import open_sqlite
from autotune.space.space import SearchSpace
from tests.optimize.test_searcher import SPACE
from tests.ports import free_port

pytestmark = pytest.mark.stack


def test_the_storage_opens_in_the_dashboard(tmp_path: Path) -> None:
    with open_sqlite(tmp_path / "study.db") as storage:
        searcher = Searcher(storage, "local", SearchSpace(SPACE, (), {}), "tpe", 1)
        for number, peak in enumerate((1000.0, 1200.0, None)):
            asked = searcher.suggest()
            searcher.record_outcome(asked.number, asked.values, Outcome(peak, {"trial": number}))
    assert studies_in_dashboard(f"sqlite:///{tmp_path}/study.db") == ["local"]


def studies_in_dashboard(url: str) -> list[str]:
    """The names that optuna-dashboard lists for a storage."""
    port = free_port()
    dashboard = subprocess.Popen(
        [str(Path(sys.executable).parent / "optuna-dashboard"), url, "--host", "127.0.0.1",
         "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = _ask(f"http://127.0.0.1:{port}/api/studies", dashboard)
    finally:
        dashboard.terminate()
        dashboard.wait()
    return [study["study_name"] for study in found["study_summaries"]]


def _ask(url: str, dashboard: subprocess.Popen[bytes]) -> dict[str, list[dict[str, str]]]:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and dashboard.poll() is None:
        refused = contextlib.suppress(urllib.error.URLError, ConnectionError)
        with refused, urllib.request.urlopen(url) as answer:
            found: dict[str, list[dict[str, str]]] = json.load(answer)
            return found
        time.sleep(0.1)
    raise AssertionError("the dashboard never answered")
