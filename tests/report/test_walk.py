"""The walk of a verdict to the page, as docs/architecture.md describes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import autotune
from autotune.report.conclusion import Conclusion
from autotune.report.page import write_page
from autotune.report.page_summary import Card
from autotune.report.studies import Study, open_study
from autotune.report.units import GainFigures
from autotune.report.view import StudyView, build_study_view
from autotune.study import proof
from autotune.study.study_state import State
from autotune.study.study_store import StudyStore
from autotune.study.verdict import Verdict
from tests.report.recorded_lab import lab_study

ROOT = Path(__file__).parents[2]
PACKAGE = f"{Path(autotune.__file__).parent}/"
MAX_HOPS = 12
Found = tuple[str, ...]


def documented_hops() -> Found:
    """The modules of the walk, in the order of the page."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text[text.index("## Walk 3") :]
    section = section[: section.index("\n## ", 1)]
    return tuple(re.findall(r"^\| \d+ \| `autotune/([a-z_/]+)\.py`", section, re.MULTILINE))


class Trace:
    """The modules of autotune that produce the verdict or its gain, in order, while it is open.

    An object counts once: handing it over produces nothing.
    """

    def __init__(self, gain_text: str) -> None:
        self.visits: list[str] = []
        self._gain_text = gain_text
        self._seen: list[object] = []

    def __enter__(self) -> Trace:
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, value: Any) -> None:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or not self._is_visit(frame, event, value):
            return
        self._seen.append(value)
        self.visits.append(path.removeprefix(PACKAGE).removesuffix(".py"))

    def _is_visit(self, frame: FrameType, event: str, value: Any) -> bool:
        if event == "call":  # a verdict that is handed over
            return any(isinstance(argument, Verdict) for argument in frame.f_locals.values())
        return event == "return" and self._carries(value) and not self._is_known(value)

    def _is_known(self, value: object) -> bool:
        return any(value is seen for seen in self._seen)

    def _carries(self, value: Any) -> bool:
        if isinstance(value, State):
            return value.verdict is not None
        if isinstance(value, Study):
            return value.state.verdict is not None
        if isinstance(value, StudyView):
            return self._carries(value.gain)
        if isinstance(value, GainFigures):
            return value.interval_text == self._gain_text
        if isinstance(value, str):
            return self._gain_text in value
        return isinstance(value, Verdict | Conclusion) or (
            isinstance(value, Card) and value.title == "Gain"
        )

    @property
    def hops(self) -> Found:
        return tuple(name for name, _ in groupby(self.visits))


def record_verdict(directory: Path) -> str:
    """Decide and record the verdict of a study anew; return its gain as text."""
    path = directory / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"event":"verdict"' not in line))
    with closing(StudyStore(directory)) as store:
        store.record_verdict(proof.decide_verdict(store.state))
    gain = build_study_view(open_study(directory)).gain
    assert gain is not None
    return gain.interval_text


def walked(directory: Path) -> tuple[Found, Found]:
    """The modules that a verdict passes: first to the disk, then to a page."""
    gain_text = record_verdict(directory)
    with Trace(gain_text) as to_disk:
        record_verdict(directory)
    with Trace(gain_text) as to_page:
        write_page(open_study(directory), directory / "report.html")
    return to_disk.hops, to_page.hops


def test_a_verdict_goes_one_way_to_the_page(copied: Callable[[str], Path], tmp_path: Path) -> None:
    hops = documented_hops()
    assert 8 <= len(hops) <= MAX_HOPS
    for directory in (copied("improved"), lab_study(tmp_path)):
        to_disk, to_page = walked(directory)
        assert to_disk[:2] == hops[:2], directory.name
        assert to_page == hops[2:], directory.name
