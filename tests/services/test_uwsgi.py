"""What uWSGI says of itself in its stats."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autotune.services.diagnosis import BUSY_WORKERS
from autotune.services.uwsgi.service import _VALIDATION_SCRIPT, parse_counters, parse_effective

STATS = (Path(__file__).parent / "fixtures" / "uwsgi.txt").read_text()


def test_its_stats_show_processes_and_threads_and_requests_in_hand() -> None:
    assert parse_effective(STATS) == {"processes": 3, "threads": 2}
    assert parse_counters(STATS) == {BUSY_WORKERS: 2.0, "harakiri": 0.0}


def test_what_is_no_stats_says_nothing() -> None:
    odd = ('{"a":' * 9999, '{"workers": [{"cores": 3}]}', '{"workers": ["busy"]}')
    for text in ("", "HTTP/1.1 404", '{"workers": 3}', "[]", STATS[: len(STATS) // 2], *odd):
        assert (parse_effective(text), parse_counters(text)) == ({}, {})


@pytest.mark.parametrize("name", ["shop", "x|ge;#", r"a&b\\c", "x|w written;#"])
def test_the_name_of_a_file_is_text_in_its_check(name: str, tmp_path: Path) -> None:
    """The account of the application may name the file."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text("#!/bin/sh\necho uwsgi\n")
    (programs / "systemctl").chmod(0o755)
    place = tmp_path / "a&b|c"
    place.mkdir()
    (place / f"{name}.ini").write_text("a = %n\nb = %d\n")
    run = subprocess.run(
        [
            "sh",
            "-c",
            _VALIDATION_SCRIPT,
            "sh",
            str(place / f"{name}.ini"),
            name,
            "cat; exit 1",
            "unit",
        ],
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.splitlines() == [f"a = {name}", f"b = {place}/"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a&b|c", "bin"]
