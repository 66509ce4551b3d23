"""Pictures of reports for visual inspection, for each kind of study and both themes.

``python -m scripts.screenshots`` draws the studies recorded under ``tests/report``, and short
studies of a model, into ``build/screenshots``. All sections are unfolded, and a PDF is written as
well. Arguments select kinds, or name directories of other studies and sweeps:

    python -m scripts.screenshots lab beds studies/paper --widths 390 1400 --themes dark

``--picture`` writes ``docs/report.png`` from the study of the lab.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def copy_of(study: Path) -> Callable[[Path], Path]:
    """Return a function that copies a study, so that its page contains no path of this machine."""
    return lambda directory: Path(shutil.copytree(study, directory / study.name))


def recorded(name: str) -> Callable[[Path], Path]:
    """Return a function that copies a recorded study."""
    return copy_of(RECORDED / name)


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


def pictures(page: Path, name: str, widths: Sequence[int], themes: Iterable[str]) -> list[Path]:
    """Write a PNG of one page in each theme, and its PDF."""
    OUT.mkdir(parents=True, exist_ok=True)
    document = browse("--dump-dom", sheet(page, dict.fromkeys(widths, 600)).as_uri())
    heights = [int(height) for height in re.findall(r'data-height="(\d+)"', document)]
    url = sheet(page, dict(zip(widths, heights, strict=True))).as_uri()
    size = f"--window-size={sum(widths) + MARGIN * (len(widths) - 1)},{max(heights)}"
    drawn = [OUT / f"{name}-{theme}.png" for theme in themes]
    for out, theme in zip(drawn, themes, strict=True):
        browse(*THEMES[theme], f"--screenshot={out}", size, url)
    printed = OUT / f"{name}.pdf"
    browse(f"--print-to-pdf={printed}", "--no-pdf-header-footer", page.as_uri())
    return [*drawn, printed]


def write(directory: Path, page: Path) -> None:
    """Write the report of the study or sweep in ``directory`` to ``page``."""
    if is_sweep(directory):
        output.write_page(results.load_results(directory), page)
    else:
        write_page(open_study(directory), page)


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Return the arguments of the command line. Exits for a study that does not exist."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.screenshots",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND|STUDY", help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS, metavar="PIXELS")
    parser.add_argument("--themes", nargs="+", choices=THEMES, default=list(THEMES))
    parser.add_argument("--picture", action="store_true", help="write docs/report.png")
    arguments = parser.parse_args(words)
    for kind in arguments.kinds:
        if kind not in KINDS and not Path(kind).is_dir():
            parser.error(f"{kind} is neither a kind nor the directory of a study")
    return arguments


def main(words: list[str]) -> None:
    arguments = parse_arguments(words)
    for kind in arguments.kinds or (["lab"] if arguments.picture else KINDS):
        create_study = KINDS.get(kind) or copy_of(Path(kind).resolve())
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            page = Path(scratch) / "report.html"
            Path("studies").mkdir()
            study = create_study(Path("studies"))
            write(study, page)
            if arguments.picture:
                out = ROOT / "docs" / "report.png"
                browse(f"--screenshot={out}", "--window-size=1000,1500", page.as_uri())
                continue
            name = kind if kind in KINDS else study.name
            for path in pictures(page, name, arguments.widths, arguments.themes):
                print(path, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
