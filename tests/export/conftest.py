from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.report.studies import Study, open_study
from tests.report.conftest import copied, study

__all__ = ["copied", "study"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Return a short study of targets/paper.yaml, whose files equal those of real hosts."""
    directory = tmp_path_factory.mktemp("exports")
    text = (ROOT / "targets" / "paper.yaml").read_text()
    target = directory / "short.yaml"
    target.write_text(re.sub(r"budget: .*", "budget: {trials: 3, time: 20m}", text))
    argv = [sys.executable, "-m", "autotune", "run", str(target), "--yes", "--json"]
    subprocess.run(argv, cwd=directory, check=True, capture_output=True, timeout=200)
    return open_study(directory / "studies" / "paper")
