"""Pictures of reports for visual inspection, for each kind of study and both themes.

``python -m scripts.screenshots`` runs short studies of a model, and draws their reports and the
recorded ones of ``tests/report`` into ``build/screenshots``. Each picture shows the page in three
widths with all sections unfolded. Each page is written as a PDF, too. Arguments are the kinds of
study to draw. ``--picture`` writes ``docs/report.png`` from the recorded study of the lab.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.environments import multi_bed, preparation
from autotune.report.page import write_page
from autotune.report.studies import open_study
from autotune.study import start
from autotune.sweep import output, results, runner
from autotune.sweep.plan import is_sweep
from autotune.sweep.request import build_plan, read_sweep_file
from autotune.target.read_target import read_target
from tests.modelled import noisy
from tests.report.recorded_lab import lab_study, shop_study

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "screenshots"
RECORDED = ROOT / "tests" / "report" / "studies"
WIDTHS = (390, 768, 1400)
THEMES: Mapping[str, tuple[str, ...]] = {
    "light": (),
    "dark": ("--blink-settings=preferredColorScheme=0",),
}
MARGIN = 16  # pixels between the widths
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--allow-file-access-from-files", "--virtual-time-budget=8000",
)  # fmt: skip
BEDS = "".join(
    f"  {bed}: {{simulated: {{seed: {seed}, capacity: {level}, noise: 2%, outliers: 0%}}}}\n"
    for bed, seed, level in (("a", 3, 1.0), ("b", 4, 0.8), ("c", 5, 1.25))
)


class Silent:
    """A progress reporter that shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def several_beds(directory: Path) -> Path:
    """Run a study with a model of three different test beds."""
    target = directory / "modelled.yaml"
    target.write_text(noisy(f"budget: {{trials: 10, time: 30m}}\nbeds:\n{BEDS}"))
    start.start_study(
        multi_bed.prepare(read_target(target), ("a", "b", "c")), directory / "beds", Silent()
    )
    return directory / "beds"


def command(directory: Path) -> Path:
    """Run a study of a benchmark command whose metric is not a rate."""
    for path in (ROOT / "targets").glob("command.*"):
        shutil.copy(path, directory)
    target = directory / "command.yaml"
    text = target.read_text().replace("trials: 20", "trials: 8")
    target.write_text(text)
    start.start_study(preparation.prepare(read_target(target)), directory / "command", Silent())
    return directory / "command"


def sweep(directory: Path) -> Path:
    """Run a sweep that the project contains, on the model."""
    file, request = read_sweep_file(ROOT / "targets" / "sweeps" / "figure-6.yaml")
    assert request is not None
    environment = preparation.prepare(file)
    plan = build_plan(file, request, environment.space)
    runner.run_sweep(file, plan, directory / "sweep", Silent())
    return directory / "sweep"


def recorded(name: str) -> Callable[[Path], Path]:
    """Return a function that copies a recorded study, so that the original does not change."""
    return lambda directory: Path(shutil.copytree(RECORDED / name, directory / name))


KINDS: Mapping[str, Callable[[Path], Path]] = {
    "local": recorded("improved"),
    "lab": lab_study,
    "shop": shop_study,
    "no-improvement": recorded("aa"),
    "stopped": recorded("killed"),
    "unmeetable": recorded("unmeetable"),
    "beds": several_beds,
    "command": command,
    "failures": recorded("infeasible"),
    "sweep": sweep,
}


def browse(*flags: str) -> str:
    """Run Chromium and return its output."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is not installed: scripts/setup --dev")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        argv = [browser, *FLAGS, f"--user-data-dir={profile}", *flags]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300).stdout


def sheet(page: Path, heights: Mapping[int, int]) -> Path:
    """Write a page that shows ``page`` in a frame of each width. The frames report their heights."""
    frames = "".join(
        f'<iframe width="{width}" height="{height}" src="{page.name}#all"></iframe>'
        for width, height in heights.items()
    )
    path = page.with_name("sheet.html")
    path.write_text(f"""<style>body{{margin:0;display:flex;gap:{MARGIN}px;align-items:start;background:#888}}
iframe{{border:0}}</style>{frames}<script>setInterval(() => {{
  for (const frame of document.querySelectorAll("iframe"))
    frame.dataset.height = frame.contentDocument.documentElement.scrollHeight;
}}, 100)</script>""")
    return path


def pictures(page: Path, name: str) -> list[Path]:
    """Write a PNG of ``page`` in each theme, and a PDF."""
    OUT.mkdir(parents=True, exist_ok=True)
    document = browse("--dump-dom", sheet(page, dict.fromkeys(WIDTHS, 600)).as_uri())
    heights = [int(height) for height in re.findall(r'data-height="(\d+)"', document)]
    url = sheet(page, dict(zip(WIDTHS, heights, strict=True))).as_uri()
    size = f"--window-size={sum(WIDTHS) + MARGIN * (len(WIDTHS) - 1)},{max(heights)}"
    drawn = [OUT / f"{name}-{theme}.png" for theme in THEMES]
    for out, flags in zip(drawn, THEMES.values(), strict=True):
        browse(*flags, f"--screenshot={out}", size, url)
    printed = OUT / f"{name}.pdf"
    browse(f"--print-to-pdf={printed}", "--no-pdf-header-footer", page.as_uri())
    return [*drawn, printed]


def write(directory: Path, page: Path) -> None:
    """Write the report of the study or sweep in ``directory`` to ``page``."""
    if is_sweep(directory):
        output.write_page(results.load_results(directory), page)
    else:
        write_page(open_study(directory), page)


def main(words: list[str]) -> None:
    names = [word for word in words if not word.startswith("-")] or list(KINDS)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            page = Path(scratch) / "report.html"
            write(KINDS[name](Path(scratch)), page)
            if "--picture" in words:
                out = ROOT / "docs" / "report.png"
                browse(f"--screenshot={out}", "--window-size=1000,1500", page.as_uri())
                continue
            for path in pictures(page, name):
                print(path, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
