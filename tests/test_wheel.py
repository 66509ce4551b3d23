"""What a user gets who installs the wheel and has no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as an installer does."""
    built = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True)
    place = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    return place


def autotune(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    argv = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_an_empty_directory_gets_a_target_that_can_be_read(installed: Path, tmp_path: Path) -> None:
    done = autotune(installed, tmp_path, "init")
    assert done.returncode == 0, done.stderr
    written = tmp_path / "targets" / "local.yaml"
    assert written.read_text() == (ROOT / "targets" / "local.yaml").read_text()
    again = autotune(installed, tmp_path, "init")
    assert again.returncode == 1
    assert "exists already" in again.stderr
    assert (installed / "autotune" / "py.typed").exists()


@pytest.mark.stack
def test_it_finds_its_templates_there(installed: Path, tmp_path: Path) -> None:
    assert autotune(installed, tmp_path, "init").returncode == 0
    done = autotune(installed, tmp_path, "check", "targets/local.yaml")
    assert done.returncode == 0, done.stderr
    code = "from autotune.target.shipped import shipped; print(shipped('templates'))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(installed)
