"""Pictures of reports, to be looked at: three widths, two themes, each kind of study.

``python -m scripts.screenshots`` draws what is recorded under ``tests/report`` and what a model
answers in a minute into ``build/screenshots``; names of kinds draw those alone. ``--picture`` makes
``docs/report.png`` of the lab's.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.environments import base, beds
from autotune.report.page import write_page
from autotune.report.studies import open_study
from autotune.study import start
from autotune.target.read import read
from tests.modelled import noisy
from tests.report.recorded_lab import lab_study

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "screenshots"
RECORDED = ROOT / "tests" / "report" / "studies"
WIDTHS = (390, 768, 1400)
THEMES: Mapping[str, tuple[str, ...]] = {
    "light": (),
    "dark": ("--blink-settings=preferredColorScheme=0",),
}
HEIGHT = 4200
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--virtual-time-budget=8000",
)  # fmt: skip
BEDS = "".join(
    f"  {bed}: {{simulated: {{seed: {seed}, capacity: {level}, noise: 2%, outliers: 0%}}}}\n"
    for bed, seed, level in (("a", 3, 1.0), ("b", 4, 0.8), ("c", 5, 1.25))
)


class Silent:
    """Shows no progress."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def several_beds(directory: Path) -> Path:
    """A study on three modelled test beds that are not alike."""
    target = directory / "modelled.yaml"
    target.write_text(noisy(f"budget: {{trials: 10, time: 30m}}\nbeds:\n{BEDS}"))
    start.start(beds.prepare(read(target), ("a", "b", "c")), directory / "beds", Silent())
    return directory / "beds"


def command(directory: Path) -> Path:
    """A benchmark command's, whose value is no rate."""
    for path in (ROOT / "targets").glob("command.*"):
        shutil.copy(path, directory)
    target = directory / "command.yaml"
    text = target.read_text().replace("trials: 20", "trials: 8")
    target.write_text(text)
    start.start(base.prepare(read(target)), directory / "command", Silent())
    return directory / "command"


def recorded(name: str) -> Callable[[Path], Path]:
    """A copy, for a page may be written beside it."""
    return lambda directory: Path(shutil.copytree(RECORDED / name, directory / name))


KINDS: Mapping[str, Callable[[Path], Path]] = {
    "local": recorded("improved"),
    "lab": lab_study,
    "no-improvement": recorded("aa"),
    "stopped": recorded("killed"),
    "unmeetable": recorded("unmeetable"),
    "beds": several_beds,
    "command": command,
}


def picture(page: Path, out: Path, width: int, height: int, *flags: str) -> Path:
    """A page of ``width`` pixels as PNG, with everything that can be unfolded as it is at first."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is not installed: scripts/setup --dev")
    out.parent.mkdir(parents=True, exist_ok=True)
    # A window is at least 500 pixels wide; a frame of the width in question is drawn as on a phone.
    frame = page.with_name(f"{page.stem}-{width}.html")
    style = f"border:0;width:{width}px;height:{height}px"
    frame.write_text(f'<body style="margin:0"><iframe src="{page.name}" style="{style}"></iframe>')
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, *FLAGS, *flags, f"--user-data-dir={profile}", f"--screenshot={out}",
             f"--window-size={max(width, 500)},{height}", frame.as_uri()],
            check=True, capture_output=True, timeout=180,
        )  # fmt: skip
    return out


def main(words: list[str]) -> None:
    names = [word for word in words if not word.startswith("-")] or list(KINDS)
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            page = Path(scratch) / "report.html"
            write_page(open_study(KINDS[name](Path(scratch))), page)
            if "--picture" in words:
                print(picture(page, ROOT / "docs" / "report.png", 1000, 1500))
                continue
            for theme, flags in THEMES.items():
                for width in WIDTHS:
                    out = OUT / f"{name}-{width}-{theme}.png"
                    print(picture(page, out, width, HEIGHT, *flags))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
