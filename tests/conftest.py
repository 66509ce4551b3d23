"""What holds for every test."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from autotune.lab import prerequisites
from autotune.lab.lifecycle import down
from tests import soak, stolen
from tests.lab.shared import SharedLab

# The same examples every time, however slow the machine: a failure here is a failure there.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# Started in the background, a shell's children ignore Ctrl-C, and so would every program under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that boot hosts are skipped where none can be made, and nowhere else."""
    marked = [item for item in items if item.get_closest_marker("lab")]
    if marked and (reasons := prerequisites.obstacles(prerequisites.missing_packages())):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="; ".join(reasons)))
    for item in items:
        own = "shared_lab" not in getattr(item, "fixturenames", ())  # every worker has that one
        if item.get_closest_marker("lab") and own:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if item.get_closest_marker("quiet"):
            stolen.watch(item)


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLab]:
    """Four hosts for every test of this worker; each test has them renewed."""
    directory = tmp_path_factory.mktemp("shared") / "lab"
    try:
        yield SharedLab.made(directory)
    finally:
        down(directory)


def pytest_report_header() -> str:
    return f"moments of soak tests: AUTOTUNE_SEED={soak.SEED}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every attempt at a test, the first and any other."""
    stolen.begins(item)
