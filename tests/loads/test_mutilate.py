"""Real output of mutilate, healthy, overloaded and broken."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from autotune.loads.base import LoadSpec
from autotune.loads.mutilate import (
    CACHE_SHAPES,
    MutilateReading,
    build_agent_command,
    build_load_command,
    build_measure_command,
    parse_output,
)
from autotune.services.base import Endpoint

FIXTURES = Path(__file__).parent / "fixtures" / "mutilate"
SERVERS = (Endpoint("198.18.0.5", 11211), Endpoint("198.18.0.6", 11211))
ORDER = LoadSpec(400, 2, latency_limit=0.050, ramp_seconds=0.5)


def format_output(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


def samples(name: str) -> list[float]:
    lines = format_output(name).partition("<autotune samples>")[2].split("\n")
    return [float(line.split()[1]) / 1e6 for line in lines if line]


def read(name: str, spec: LoadSpec = ORDER) -> MutilateReading:
    return parse_output(format_output(name), spec)


@pytest.mark.parametrize("limit", [0.0005, 0.005, 0.05, 0.2])
@pytest.mark.parametrize("name", ["healthy", "facebook", "frozen-half-a-second"])
def test_late_gets_are_counted_one_by_one_and_sets_never_too_few(name: str, limit: float) -> None:
    found = read(name, LoadSpec(400, 2, latency_limit=limit, ramp_seconds=0.5))
    result, known = found.result, samples(name)
    late = sum(latency > limit for latency in known)
    assert found.gets == len(known)
    assert found.operations > found.gets
    sets = found.operations - found.gets
    assert late <= result.count_later_than(limit) <= late + sets
    # Of the sets, at least the share that was late among the gets.
    assert result.count_later_than(limit) >= late + int(sets * late / len(known))
    assert result.right_answers + result.error_count == result.intended
    assert result.sent == found.operations


def test_a_frozen_server_is_seen() -> None:
    result = read("frozen-half-a-second").result
    # Half a second at 350 gets a second: nine tenths of those who came had to wait 50 ms and more.
    assert result.count_later_than(0.05) > 0.9 * 0.45 * 350
    assert result.limited is None


def test_misses_and_traffic() -> None:
    found = read("healthy")
    assert found.misses == 0
    assert found.traffic > found.operations * 100
    assert found.seconds == pytest.approx(2.0, abs=0.1)
    assert read("other-keys").misses > 0.9 * read("other-keys").gets


def test_an_overloaded_server_is_not_the_generators_fault() -> None:
    result = read("overloaded", LoadSpec(2000, 2, latency_limit=0.005, ramp_seconds=0.5)).result
    assert result.errors["not sent"] > 0
    assert result.truncated
    assert result.limited is None


def test_less_load_than_ordered_without_late_answers_is_the_generators() -> None:
    result = read("healthy", LoadSpec(4000, 2, latency_limit=10.0, ramp_seconds=0.5)).result
    assert result.limited is not None
    assert "fell behind" in result.limited
    assert result.right_answers + result.error_count == result.intended == 8000


def test_more_load_than_ordered_is_no_reading() -> None:
    result = read("healthy", LoadSpec(100, 2, latency_limit=10.0, ramp_seconds=0.5)).result
    assert result.limited is not None
    assert "but should have sent 200" in result.limited
    assert result.errors == {"not sent": 200}


def test_the_crash_of_the_default_is_named() -> None:
    result = read("segmentation-fault").result
    assert result.limited is not None
    assert "-i exponential:1" in result.limited
    assert "139" in result.limited


@pytest.mark.parametrize(("text", "said"), [("", "nothing"), (format_output("refused"), "refused")])
def test_no_result_says_nothing_of_the_server(text: str, said: str) -> None:
    result = parse_output(text, ORDER).result
    assert said in (result.limited or "")
    assert result.errors == {"not sent": result.intended}


def test_output_cut_anywhere_before_its_samples_is_no_result() -> None:
    text = format_output("healthy")
    for end in range(0, text.index("Misses"), 31):
        assert parse_output(text[:end], ORDER).result.limited


@pytest.mark.parametrize("shape", CACHE_SHAPES, ids=lambda shape: shape.name)
def test_loading_and_measuring_share_the_shape(shape: object) -> None:
    assert isinstance(shape, type(CACHE_SHAPES[0]))
    load, measure = (
        build_load_command(SERVERS, shape),
        build_measure_command(SERVERS, shape, ORDER, ["198.18.0.9"]),
    )
    for option in ("-K", "-V", "-r"):
        assert load[load.index(option) + 1] == measure[measure.index(option) + 1]
    assert "--noload" in measure
    arrivals = measure[measure.index("-i") + 1]
    assert arrivals == "fb_ia" or arrivals.startswith("exponential:")
    assert int(measure[measure.index("-d") + 1]) >= 100
    assert [w for a, w in pairwise(measure) if a == "-a"] == ["198.18.0.9"]
    assert [w for a, w in pairwise(measure) if a == "-s"] == [
        "198.18.0.5:11211",
        "198.18.0.6:11211",
    ]


def test_agents_stop_by_themselves() -> None:
    assert build_agent_command(12.5)[:3] == ("timeout", "--kill-after=1", "13")


def test_a_host_without_a_resolver_is_told_what_to_do() -> None:
    assert "`nameserver 127.0.0.1`" in (
        parse_output(format_output("no-resolver"), ORDER).result.limited or ""
    )
