from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.report.studies import Study, open_study

STUDIES = Path(__file__).parent / "studies"


@pytest.fixture
def study() -> Callable[[str], Study]:
    """A recorded study, by name."""
    return lambda name: open_study(STUDIES / name)


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """The directory of a copy of a recorded study, to write to."""
    return lambda name: Path(shutil.copytree(STUDIES / name, tmp_path / "studies" / name))
