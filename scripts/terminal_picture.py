"""The terminal during a study, as an SVG picture of its panel.

``python -m scripts.terminal_picture STUDY`` writes ``docs/terminal.svg`` from the records of a study. The
panel is shown while the best configuration of the search is measured. The README's picture is from a
study of ``targets/paper.yaml``.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from autotune.measure.warm_up import WarmUpResult, WarmUpWindow
from autotune.report.live_progress import LiveProgress
from autotune.report.studies import Study, open_study
from autotune.study.state_replay import replay_records
from autotune.study.study_state import Phase, Trial

FILE = Path(__file__).parents[1] / "docs" / "terminal.svg"
COLUMNS, LINES = 84, 40


class _Terminal(io.StringIO):
    """A stream in memory that passes for a terminal."""

    def isatty(self) -> bool:
        return True


def main(study: Path) -> None:
    """Write the picture. Raises AutotuneError if the directory ``study`` contains no study."""
    os.environ |= {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    opened = open_study(study)
    picture = Console(record=True, width=COLUMNS, file=io.StringIO())
    picture.print(Text.from_ansi(panel(opened, best_of_search(opened))))
    svg = picture.export_svg(
        title=f"autotune run targets/{opened.target_path.name}", unique_id="terminal"
    )
    FILE.write_text(without_fonts(svg), encoding="utf-8")


def best_of_search(study: Study) -> Trial:
    """Return the configuration of the search with the highest capacity."""
    found = study.state.list_finished_trials(Phase.SEARCH)
    return max(found, key=lambda trial: trial.peak.peak if trial.peak else 0.0)


def panel(study: Study, trial: Trial) -> str:
    """Return the terminal's content while ``trial`` is measured, with escape sequences."""
    starts = [record["event"] == "trial" and record["trial"] == trial.number
              for record in study.records].index(True)  # fmt: skip
    state, stream = replay_records(study.records[:starts]), _Terminal()
    taken = [(r.reading, r.purpose) for r in study.readings if r.trial == trial.number]
    with LiveProgress(study.target, lambda: state, stream) as live:
        live.on_trial_start(trial)
        for reading, purpose in taken:
            live.on_reading(trial, reading, purpose)
        drawn = stream.tell()
        live.on_warm_up(trial, warm_up_of(study, trial))
        return stream.getvalue()[drawn:]


def warm_up_of(study: Study, trial: Trial) -> WarmUpResult:
    """Return the recorded warm-up of a configuration."""
    record = study.state.warmups[trial.number]
    window = WarmUpWindow(rate=0.0, is_overloaded=False, median_latency=None, hit_rate=record.hits)
    return WarmUpResult(record.settled, (window,) * record.windows)


def without_fonts(svg: str) -> str:
    """Return the picture without web fonts, which viewers would have to download."""
    first, last = svg.index("@font-face"), svg.rindex("@font-face")
    return svg[:first] + svg[svg.index("}", last) + 1 :]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
