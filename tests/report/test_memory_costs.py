"""The memory that a winner's changes need."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.monitor.activity import HostUsage
from autotune.report.memory_costs import MemoryCosts, format_memory_change
from autotune.report.page_summary import build_cards
from autotune.report.studies import open_study
from autotune.report.summary import build_summary
from autotune.report.text_report import format_report_lines
from autotune.report.view import StudyView, build_study_view
from autotune.study.record_codec import encode
from tests.report.recorded_lab import shop_study

GIB = 2**30


@pytest.fixture
def improved(copied: Callable[[str], Path]) -> Path:
    """A study with complete facts of its host."""
    directory = copied("improved")
    lines = (directory / "events.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["facts"] = {
        host: {"cpus": 2, "memory": 8 * GIB, "nofile": 65_536} for host in first["facts"]
    }
    (directory / "events.jsonl").write_text("\n".join([json.dumps(first), *lines[1:], ""]))
    return directory


def watch_hosts(directory: Path, in_use: dict[bool, float]) -> None:
    """Record the memory in use (a fraction) for the baseline (False) and for other trials (True)."""
    study = open_study(directory)
    (host,) = study.first_record.facts
    baselines = build_study_view(study).conclusion.sides["baseline"].trial_numbers
    lines = []
    for reading in study.readings:
        usage = HostUsage(0.5, 0.0, 1.0, 1.0, in_use[reading.trial not in baselines], 9, 3, 1000.0)
        lines.append(json.dumps(encode(replace(reading, hosts={host: usage}))))
    (directory / "readings.jsonl").write_text("\n".join([*lines, ""]))


def rendered(view: StudyView) -> tuple[str, str, dict[str, int | None]]:
    text = "\n".join(line for line, _ in format_report_lines(view))
    cards = " ".join(f"{card.title} {card.figure} {card.note}" for card in build_cards(view))
    memory = build_summary(view)["memory"]
    return text, cards, {"modelled": memory["modelled"], "measured": memory["measured"]}


def test_modelled_memory_is_that_of_the_rules(improved: Path) -> None:
    view = build_study_view(open_study(improved))
    costs, changes = view.memory_costs, {change.name: change for change in view.changes}
    assert costs.measured is None
    children = changes["web.php_fpm.max_children"]
    assert isinstance(children.before, int)
    assert isinstance(children.after, int)
    # Each process of the pool counts with the same size.
    size = costs.by_change[children.name] / (children.after - children.before)
    assert 1e6 < size < 1e9
    assert costs.modelled is not None
    text, cards, numbers = rendered(view)
    shown = format_memory_change(costs.modelled)
    assert f"memory   about {shown} (modelled)" in text
    assert f"Memory {shown} modelled maximum" in cards
    children_text = format_memory_change(costs.by_change[children.name])
    (row,) = [line for line in text.splitlines() if line.startswith(f"  {children.name}")]
    assert f"  {children_text}  " in row
    assert numbers == {"modelled": round(costs.modelled), "measured": None}


def test_measured_memory_is_that_in_use_on_the_hosts(improved: Path) -> None:
    watch_hosts(improved, {False: 0.25, True: 0.5})
    view = build_study_view(open_study(improved))
    assert view.memory_costs.measured == pytest.approx(2 * GIB)
    text, cards, numbers = rendered(view)
    assert "about +2 GB (measured at capacity)" in text
    assert "+2 GB measured at capacity" in cards
    assert numbers["measured"] == 2 * GIB


def test_unknown_sizes_are_not_shown(copied: Callable[[str], Path]) -> None:
    view = build_study_view(open_study(copied("improved")))  # the facts of its host are incomplete
    assert view.memory_costs == MemoryCosts()
    text, cards, numbers = rendered(view)
    assert "memory" not in text
    assert "Memory" not in cards
    assert numbers == {"modelled": None, "measured": None}


def test_without_an_improvement_nothing_is_shown(tmp_path: Path) -> None:
    view = build_study_view(open_study(shop_study(tmp_path)))
    assert view.verdict == "no-improvement"
    text, cards, _ = rendered(view)
    assert "(modelled)" not in text
    assert "Memory" not in cards


@pytest.mark.parametrize(
    ("change", "text"),
    [(1.9 * GIB, "+1.9 GB"), (-3e8, "-286 MB"), (5e5, "±0 MB"), (0.0, "±0 MB"), (None, "–")],
)
def test_a_change_has_its_sign(change: float | None, text: str) -> None:
    assert format_memory_change(change) == text
