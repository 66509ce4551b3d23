from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.deploy import run_directories
from autotune.environments.preparation import prepare
from autotune.study import trial_context
from autotune.study.trial_context import TrialContext
from autotune.target.read_target import read_target
from tests.deploy.lab import Ground, renewed
from tests.lab.shared import SharedLab

# Little data is enough for one or two pages. Tests can request the whole data set in an opened
# target.
SOME, ALL = "pairs: 2000", "pairs: 100000"
LOCAL = (Path(__file__).parents[2] / "targets" / "local.yaml").read_text().replace(ALL, SOME)
Opened = Callable[..., AbstractContextManager[TrialContext]]


class Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def processes_below(directory: Path) -> list[psutil.Process]:
    """Return the processes whose working directory is below a directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(directory.resolve()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    """Yield the session's lab in its original state for one test."""
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Yield a function that opens the local stack with a changed target. Check that nothing remains
    afterwards.
    """
    runs: list[Path] = []

    @contextmanager
    def open_bench(*changes: tuple[str, str], name: str = "study") -> Iterator[TrialContext]:
        path = tmp_path / "target.yaml"
        path.write_text(reduce(lambda text, change: text.replace(*change), changes, LOCAL))
        progress: Any = Silent()
        with trial_context.open_session(
            prepare(read_target(path)), tmp_path / name, progress
        ) as bench:
            directory = run_directories.find_run_directory(tmp_path / name)
            assert directory is not None
            runs.append(directory.path)
            yield bench

    yield open_bench
    for run in runs:
        assert not processes_below(run)
        assert not run.exists()
