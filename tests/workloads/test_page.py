"""Records of workloads as rows of a page."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.workloads import catalogue, page
from scripts.workloads.record import find_best_preset

BOTTLENECK = {"tier": "web", "service": "php_fpm", "host": "web1", "resource": "workers",
              "evidence": "all children are busy"}  # fmt: skip
GAIN = {"ratio": 2.5, "low": 2.25, "high": 2.75, "pairs": 4}
RECORD: dict[str, Any] = {
    "date": "2026-01-02",
    "minutes": 20.0,
    "versions": {"kernel": "6.1.0"},
    "presets": {
        "baseline": {
            "settings": {},
            "capacity": 38.61,
            "repeats": [37.21, 40.01],
            "bottleneck": BOTTLENECK,
        },
        "recommended": {"settings": {"a": 1}, "capacity": 129.2, "bottleneck": None},
        "published": {"settings": {"a": 2}, "failure": "not | usable"},
    },
    "engineer": {
        "settings": {"web.php_fpm.max_children": 80, "web.nginx.access_log_buffer": 64},
        "capacity": 500.4,
        "bottleneck": BOTTLENECK,
        "attempts": [{}, {}],
        "seconds": 190.0,
    },
    "autotune": {
        "settings": {},
        "capacity": 827.0,
        "gain": GAIN,
        "bottleneck": None,
        "seconds": 1190.0,
        "trials": [{"phase": phase} for phase in ("baseline", "search", "search")],
    },
    "against_preset": {"against": "recommended", "gain": GAIN},
    "against_engineer": {"against": "engineer", "failure": "limited by max_rate"},
}


def test_a_workload_without_a_record_is_shown_as_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "read_record", lambda _: None)
    text = page.format_page()
    for name in catalogue.list_names():
        assert f"| [{name}](#{name}) | not recorded yet |" in text
        assert f"## {name}\n" in text
    assert text.count("Results: not recorded yet.") == len(catalogue.list_names())
    assert "\n\n## Record a workload\n" in text  # a table would include the heading otherwise


def test_a_record_is_shown_with_capacities_gains_and_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page, "read_record", lambda name: RECORD if name == "php-waits" else None)
    text = page.format_page()
    gain = "×2.50 [2.25, 2.75]"
    row = f"| 38.6 | 129 (recommended) | 500 | 827 | {gain} | {gain} | not comparable |"
    assert row in text
    assert "SLO: p99 ≤ 300 ms, errors ≤ 0.1 %." in text
    assert "The engineer measured 2 configurations in 3 minutes." in text
    assert "The study measured 3 times in 20 minutes, 2 of them in its search." in text
    assert "| stock | 38.6 (37.2 and 40) | web.php_fpm: workers |  |" in text
    assert "| published | failed | not \\| usable |  |" in text
    assert (
        "| engineer | 500 | web.php_fpm: workers | `web.php_fpm.max_children=80`, "
        "`web.nginx.access_log_buffer=64 KB` |" in text
    )
    assert "| autotune | 827 | unknown | no change |" in text
    assert "No pairs with engineer: limited by max_rate" in text


def test_stock_settings_that_failed_have_no_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {**RECORD, "presets": {"baseline": {"settings": {}, "failure": "no response"}}}
    monkeypatch.setattr(page, "read_record", lambda name: failed if name == "php-waits" else None)
    text = page.format_page()
    assert "| [php-waits](#php-waits) | failed | none can be used | 500 |" in text
    assert "Here, the stock settings failed." in text


def test_the_best_preset_is_the_one_with_the_highest_capacity() -> None:
    assert find_best_preset(RECORD["presets"]) == "recommended"
    assert find_best_preset({"baseline": {"capacity": 38.6}}) is None


def test_equal_settings_have_no_ratio() -> None:
    assert page.format_ratio({"against": "recommended", "same": True}) == "same settings"


def test_the_readme_lists_the_recorded_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "read_record", lambda name: RECORD if name == "php-waits" else None)
    readme = f"before\n{page.README_BEGIN}\nold\n{page.README_END}\nafter\n"
    text = page.format_readme(readme)
    title = catalogue.read_workload("php-waits").title
    gain = "×2.50 [2.25, 2.75]"
    row = f"| [{title}](docs/workloads.md#php-waits) | 38.6 | 129 (recommended) | 827 | {gain} | {gain} |"
    assert [line for line in text.splitlines() if line.startswith("| [")] == [row]
    assert text.startswith("before\n")
    assert text.endswith(f"{page.README_END}\nafter\n")
    assert page.format_readme(text) == text
