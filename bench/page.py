"""The time until a browser has drawn a report, compared with a page that contains only Plotly.

``python -m bench page --trials 500 --runs 5`` needs Chromium and draws the two pages alternately. Times
depend on the machine, so compare only the ratio of the medians.
"""

from __future__ import annotations

import argparse
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from statistics import median

from autotune.report.page import encode_plotly, find_shipped_directory, write_page
from autotune.report.studies import open_study
from tests.report.recorded_lab import grown, lab_study

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
LONGEST = 120.0  # maximum seconds until a page is drawn
TELL = """<script>const asked = setInterval(() => {
  if (document.documentElement.dataset.drawn) {
    clearInterval(asked);
    fetch("/drawn?" + performance.now());
  }
}, 10);</script>"""
ALONE = """<!doctype html><div id="plot"></div>
<script type="application/gzip;base85" id="plotly">{plotly}</script><script>{script}
plotlyLoaded().then(() => Plotly.newPlot("plot", [])).then(() => {{
  document.documentElement.dataset.drawn = "yes";
}});</script>"""


class Pages(HTTPServer):
    """A server of pages. Each page reports the time when it was drawn, in ms after its request."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages, self.drawn = pages, queue.Queue[float]()


class _Handler(BaseHTTPRequestHandler):
    server: Pages

    def do_GET(self) -> None:  # http.server requires this name
        name, _, milliseconds = self.path.strip("/").partition("?")
        content = self.server.pages.get(name, b"")
        if name == "drawn":
            self.server.drawn.put(float(milliseconds))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    log_message: Callable[..., None] = lambda *_: None


def seconds_until_drawn(server: Pages, name: str) -> float:
    """Return the seconds until a page was drawn in a new browser process."""
    browser = shutil.which("chromium") or sys.exit("chromium is not installed: scripts/setup --dev")
    url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # With a debugging port, the browser does not exit until it is killed.
        argv = [browser, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", url]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return server.drawn.get(timeout=LONGEST) / 1000
        finally:
            process.kill()
            process.wait()
            while not server.drawn.empty():
                server.drawn.get()


def pages(trials: int) -> dict[str, bytes]:
    """Return a report of ``trials`` trials, and a page that contains only Plotly."""
    with tempfile.TemporaryDirectory() as scratch:
        study = open_study(grown(lab_study(Path(scratch)), Path(scratch) / "grown", trials))
        report = write_page(study, Path(scratch) / "report.html").read_text()
    script = (find_shipped_directory("templates") / "report" / "plot.js").read_text()
    alone = ALONE.format(plotly=encode_plotly(), script=script)
    report = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report)
    return {"report": (report + TELL).encode(), "alone": (alone + TELL).encode()}


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench page")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    server = Pages(pages(options.trials))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    seconds: dict[str, list[float]] = {"alone": [], "report": []}
    for _ in range(options.runs):
        for name, each in seconds.items():
            each.append(seconds_until_drawn(server, name))
    for name, each in seconds.items():
        print(f"{name:8}{median(each):6.2f} s   {min(each):.2f} to {max(each):.2f}")
    ratio = median(seconds["report"]) / median(seconds["alone"])
    print(f"{options.trials} trials: {ratio:.2f} times Plotly alone")
    server.shutdown()
