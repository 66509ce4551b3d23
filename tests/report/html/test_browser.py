"""The page in a real browser: every plot drawn, nothing to complain of, nothing fetched."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autotune.report.html.page import write_page
from autotune.report.studies import open_study

pytestmark = pytest.mark.browser
STUDIES = Path(__file__).parents[1] / "studies"
# The virtual time is less than a page of a running study takes to renew itself.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--virtual-time-budget=8000", "--dump-dom",
)  # fmt: skip


def drawn(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The document after its script ran, and what the console said."""
    browser = shutil.which("chromium")
    assert browser, "chromium is not installed: make setup installs it"
    done = subprocess.run(
        [browser, *FLAGS, f"--user-data-dir={profile}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("name", sorted(path.name for path in STUDIES.iterdir()))
def test_every_plot_is_drawn(name: str, tmp_path: Path) -> None:
    page = write_page(open_study(STUDIES / name), tmp_path / "report.html")
    document, console = drawn(page, tmp_path / "profile")
    assert console == []
    assert 'data-drawn="yes"' in document
    sections = re.findall(
        r'<section class="chart" id="(\w+)"( hidden="")?>(.*?)</section>', document, re.S
    )
    assert len(sections) == 7
    for section, hidden, content in sections:
        assert hidden or "main-svg" in content, section
    shown = {section for section, hidden, _ in sections if not hidden}
    assert shown >= {"progress", "readings"}
    if name == "improved":
        assert shown >= {"latency", "slices", "coordinates"}
        assert document.count('class="trial"') == len(open_study(STUDIES / name).state.trials)
