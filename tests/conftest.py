"""What holds for every test."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

from autotune.lab import prerequisites
from tests import stolen

# The same examples every time, however slow the machine: a failure here is a failure there.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# Started in the background, a shell's children ignore Ctrl-C, and so would every program under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that boot hosts are skipped where none can be made, and nowhere else."""
    marked = [item for item in items if item.get_closest_marker("lab")]
    if marked and (reasons := prerequisites.obstacles(prerequisites.missing_packages())):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="; ".join(reasons)))
    for item in items:
        if any(item.get_closest_marker(name) for name in ("stack", "lab")):
            stolen.watch(item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every attempt at a test, the first and any other."""
    stolen.begins(item)
