from __future__ import annotations

import socket

import pytest

from autotune.loads import headroom
from autotune.loads.base import LoadError, LoadResult, LoadSpec
from autotune.loads.headroom import Headroom, find_shortfall, measure_host_headroom
from autotune.loads.registry import LOAD_GENERATORS
from autotune.transports.local import LocalTransport
from tests.ports import free_port


@pytest.mark.parametrize(
    ("headroom", "rate", "enough"),
    [
        (Headroom(4000, "late"), 3200, True),
        (Headroom(4000, "late"), 3300, False),
        (Headroom(16_000), 30_000, True),  # never seen to fail
        (Headroom(0, "refused"), 1, False),
    ],
)
def test_a_rate_is_held_against_the_headroom(headroom: Headroom, rate: float, enough: bool) -> None:
    assert (headroom.find_shortage(rate) is None) == enough


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (LoadResult(1000, histogram={0.001: 995, 0.2: 5}), None),
        (LoadResult(1000, histogram={0.001: 900, 0.2: 100}), "100 of 1000 requests late at 500/s"),
        (LoadResult(1000, errors={"timeout": 90, "reset": 5}, histogram={0.001: 905}), "timeout"),
        (LoadResult(1000, limited="no ports"), "no ports"),
    ],
)
def test_what_kept_the_generator_from_more(result: LoadResult, words: str | None) -> None:
    said = find_shortfall(result, LoadSpec(500, 2.0))
    assert said is None if words is None else words in (said or "")


@pytest.mark.stack
def test_the_generator_is_calibrated_and_leaves_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = free_port()
    monkeypatch.setattr(headroom, "TRIED_RATES", (20.0,))
    found = measure_host_headroom(
        LOAD_GENERATORS["httperf"], LocalTransport(), port=port, max_rate=20_000.0
    )
    assert found.rate == 20 or found.stop_reason
    assert list(tmp_path.iterdir()) == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.stack
@pytest.mark.quiet
def test_the_generator_makes_what_any_reading_needs() -> None:
    assert (
        measure_host_headroom(
            LOAD_GENERATORS["httperf"], LocalTransport(), port=free_port(), max_rate=20_000.0
        ).rate
        >= 500
    )


@pytest.mark.stack
def test_a_server_that_cannot_start_is_said(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(LoadError, match="no-such-nginx"):
        measure_host_headroom(
            LOAD_GENERATORS["httperf"],
            LocalTransport(),
            server="no-such-nginx",
            port=free_port(),
            max_rate=20_000.0,
        )
    assert list(tmp_path.iterdir()) == []
