"""The page by keyboard: Tab reaches each control in its order, visibly, and gets out again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from autotune.report.page import write_page
from autotune.report.studies import open_study
from tests.report.test_browser import FLAGS, STUDIES

pytestmark = pytest.mark.browser
KEPT_FLAGS = [flag for flag in FLAGS if not flag.startswith(("--virtual", "--dump", "--enable"))]
SHOWN = """(() => [...document.querySelectorAll(
  'a[href],button,input,select,textarea,summary,[tabindex="0"]'
)].filter(e => !e.disabled && e.checkVisibility()))()"""
DRAWN = "document.readyState === 'complete' && !!document.querySelector('#slices .main-svg')"
FOCUSED = f"""(() => {{
  const e = document.activeElement, box = e.getBoundingClientRect();
  return {{at: {SHOWN}.indexOf(e), outline: getComputedStyle(e).outlineStyle,
    seen: box.bottom > 0 && box.top < innerHeight, what: e.outerHTML.slice(0, 80)}}
}})()"""


class Page:
    """A page in Chromium, by the DevTools protocol: JSON with a zero behind it, over two pipes."""

    def __init__(self, to: int, answers: int, url: str) -> None:
        self._to, self._answers, self._id, self._session = to, answers, 0, ""
        self._came = b""
        opened = self.call("Target.createTarget", url=url)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=opened, flatten=True)
        self._session = attached["sessionId"]

    def call(self, method: str, **params: Any) -> Any:
        self._id += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._id, "method": method, "params": params, **session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._came:
                piece = os.read(self._answers, 1 << 16)
                assert piece, "the browser has ended"
                self._came += piece
            answer, _, self._came = self._came.partition(b"\0")
            if (parsed := json.loads(answer)).get("id") == self._id:
                return parsed["result"]

    def value(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"]["value"]

    def tab(self) -> None:
        key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **key)


@contextmanager
def opened(url: str, profile: Path) -> Iterator[Page]:
    browser = shutil.which("chromium")
    assert browser, "chromium is not installed: make setup installs it"
    (commands, to), (answers, come) = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to 4.
    line = f'exec "$@" 3</dev/fd/{commands} 4>/dev/fd/{come}'
    argv = ["sh", "-c", line, "sh", browser, *KEPT_FLAGS, "--remote-debugging-pipe"]
    with subprocess.Popen(
        [*argv, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(commands, come),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(commands)
        os.close(come)
        try:
            yield Page(to, answers, url)
        finally:
            process.terminate()
            os.close(to)
            os.close(answers)


def test_tab_reaches_each_control_in_order_and_gets_out_again(tmp_path: Path) -> None:
    path = write_page(open_study(STUDIES / "improved"), tmp_path / "report.html")
    with opened(f"{path.as_uri()}#all", tmp_path / "profile") as page:
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
