"""The page by keyboard: Tab reaches each control in its order, visibly, and gets out again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from autotune.report.page import write_page
from autotune.report.studies import open_study
from tests.report.browser import Browser
from tests.report.test_browser import STUDIES

pytestmark = pytest.mark.browser
SHOWN = """(() => [...document.querySelectorAll(
  'a[href],button,input,select,textarea,summary,[tabindex="0"]'
)].filter(e => !e.disabled && e.checkVisibility()))()"""
DRAWN = "document.readyState === 'complete' && !!document.querySelector('#slices .main-svg')"
FOCUSED = f"""(() => {{
  const e = document.activeElement, box = e.getBoundingClientRect();
  return {{at: {SHOWN}.indexOf(e), outline: getComputedStyle(e).outlineStyle,
    seen: box.bottom > 0 && box.top < innerHeight, what: e.outerHTML.slice(0, 80)}}
}})()"""


def test_tab_reaches_each_control_in_order_and_gets_out_again(
    browser: Browser, tmp_path: Path
) -> None:
    path = write_page(open_study(STUDIES / "improved"), tmp_path / "report.html")
    with browser.page() as page:
        page.open(f"{path.as_uri()}#all")
        while not page.value(DRAWN):
            time.sleep(0.05)
        controls = page.value(f"{SHOWN}.length")
        stops = []
        for _ in range(controls):
            page.tab()
            stops.append(page.value(FOCUSED))
        page.tab()
        beyond = page.value("document.activeElement === document.body")
    assert controls > 20
    assert [stop["at"] for stop in stops] == list(range(controls))
    assert [stop["what"] for stop in stops if stop["outline"] == "none" or not stop["seen"]] == []
    assert beyond
