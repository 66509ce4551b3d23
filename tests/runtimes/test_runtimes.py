"""Every runtime has a file, and is what targets take it for."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import runtimes
from autotune.runtimes import load_runtime
from autotune.target.runtimes import RUNTIME_NAMES, RUNTIMES


def test_each_file_is_a_runtime() -> None:
    assert runtimes.__file__ is not None
    files = {path.stem for path in Path(runtimes.__file__).parent.glob("*.py")}
    assert files - {"__init__"} == set(RUNTIME_NAMES)


@pytest.mark.parametrize("name", RUNTIME_NAMES)
def test_a_runtime_has_its_traits(name: str) -> None:
    runtime, traits = load_runtime(name), RUNTIMES[name]
    assert (runtime.installed, runtime.layout.isolated) == (traits.installed, traits.isolated)
