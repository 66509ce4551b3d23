from __future__ import annotations

from importlib import import_module

import pytest

from bench.__main__ import BENCHES


@pytest.mark.parametrize("name", BENCHES)
def test_each_benchmark_can_be_started(name: str) -> None:
    assert callable(import_module(f"bench.{name}").main)
