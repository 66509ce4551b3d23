"""Headless Chromium, controlled by the DevTools protocol: JSON messages that end with NUL, over two
pipes.

All tests of a worker share one browser, because its start takes longer than a test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",
)  # fmt: skip
VIRTUAL_MS = 8000  # virtual time of the page, which is enough for all its timers
SAID = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
VIEW = {"width": 800, "height": 600, "deviceScaleFactor": 1, "mobile": False}


class Drawn(NamedTuple):
    """The document after its script was run, and the output of the console."""

    document: str
    console: list[str]


class Browser:
    """A running browser: its commands, and the events of each page by session."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers, self._id, self._unread = to, answers, 0, b""
        self.events: dict[str, list[dict[str, Any]]] = {}

    def call(self, method: str, session: str = "", **params: Any) -> Any:
        self._id += 1
        of_page = {"sessionId": session} if session else {}
        message = {"id": self._id, "method": method, "params": params, **of_page}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self.next()).get("id") != self._id:
            pass
        assert "result" in answer, answer
        return answer["result"]

    def next(self) -> dict[str, Any]:
        """Wait for the next message and return it. Events of pages are stored."""
        while b"\0" not in self._unread:
            piece = os.read(self._answers, 1 << 16)
            assert piece, "the browser has ended"
            self._unread += piece
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message and (session := message.get("sessionId")) in self.events:
            self.events[session].append(message)
        return message

    @contextmanager
    def page(self) -> Iterator[Page]:
        """Yield an empty page that shares no state with other pages."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = attached["sessionId"]
        self.events[session] = []
        try:
            yield Page(self, session)
        finally:
            del self.events[session]
            self.call("Target.disposeBrowserContext", browserContextId=context)

    def drawn(self, page: Path, fragment: str = "all") -> Drawn:
        """Return a page after ``VIRTUAL_MS`` of virtual time, which does not depend on the real
        time.
        """
        with self.page() as opened:
            opened.open(f"{page.as_uri()}#{fragment}")
            opened.pass_time()
            document = opened.value("document.documentElement.outerHTML")
            events = self.events[opened.session]
            said = [json.dumps(event["params"]) for event in events if event["method"] in SAID]
            return Drawn(document, said)


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", **VIEW)

    def _call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self.session, **params)

    def open(self, url: str) -> None:
        answer = self._call("Page.navigate", url=url)
        assert "errorText" not in answer, answer

    def pass_time(self) -> None:
        """Advance the virtual time: timers fire as fast as possible, and the page waits for the
        network.
        """
        policy = "pauseIfNetworkFetchesPending"
        self._call("Emulation.setVirtualTimePolicy", policy=policy, budget=VIRTUAL_MS)
        expired = "Emulation.virtualTimeBudgetExpired"
        events = self._browser.events[self.session]
        while not any(event["method"] == expired for event in events):
            self._browser.next()

    def value(self, script: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def tab(self) -> None:
        key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, **key)


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "chromium is not installed: make setup installs it"
    (commands, to), (answers, come) = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to 4.
    line = f'exec "$@" 3</dev/fd/{commands} 4>/dev/fd/{come}'
    with subprocess.Popen(
        ["sh", "-c", line, "sh", program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(commands, come),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Chromium leaves a socket among the temporary files if it is terminated.
        env={**os.environ, "TMPDIR": str(profile)},
    ) as process:
        os.close(commands)
        os.close(come)
        try:
            yield Browser(to, answers)
        finally:
            process.terminate()
            os.close(to)
            os.close(answers)
