"""Configurations that a host's software is asked about, by several tuners at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autotune.deploy.host import validate_all
from tests.deploy.doubles import Here


def part(place: Path, script: str) -> Any:
    """A part whose software is a line of shell, which is given the path of its one file."""
    conf = str(place / "conf")
    service = SimpleNamespace(validate=lambda site, files: ("sh", "-c", script, "sh", conf))
    site = SimpleNamespace(directory=str(place / "run" / "web.web1.server"), own=None)
    return SimpleNamespace(name="web.web1.server", service=service, site=site), {conf: b"right\n"}


def test_a_file_on_trial_is_as_secret_as_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("password\n")
    (tmp_path / "conf").chmod(0o640)
    said = validate_all(Here(tmp_path), [part(tmp_path, 'stat -c "bits %a" "$1"; exit 1')])
    assert said == ["bits 640"]
    assert list((tmp_path / "run").iterdir()) == []


def test_two_at_once_do_not_meet(tmp_path: Path) -> None:
    def ask_about(_: int) -> list[str | None]:
        cases = [part(tmp_path, 'sleep 0.02; grep right "$1"') for _ in range(10)]
        return validate_all(Here(tmp_path), cases)

    with ThreadPoolExecutor(4) as pool:
        said = [refusal for refusals in pool.map(ask_about, range(4)) for refusal in refusals]
    assert said == [None] * 40
