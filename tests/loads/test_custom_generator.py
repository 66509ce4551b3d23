from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.loads.base import LoadError, LoadResult, LoadSpec, Request
from autotune.loads.custom_generator import CustomGenerator
from autotune.loads.reading_run import take_reading
from autotune.loads.registry import find_generator
from autotune.services.base import Endpoint
from autotune.target.read_target import read_target
from autotune.transports.local import LocalTransport

REQUEST = Request(Endpoint("127.0.0.1", 8080), "/kv.php")
ORDER = LoadSpec(100.0, 10.0, ramp_seconds=0.0)


def parse(printed: str) -> LoadResult:
    load = CustomGenerator(("./mine",))
    (process,) = load.build_processes(REQUEST, ORDER)
    return load.parse_checked(process, printed, REQUEST, ORDER)


def test_a_histogram_is_taken_as_it_is() -> None:
    found = parse(
        'ready\n{"requests": 1000, "errors": {"status": 3, "timeout": 0}, '
        '"latencies": {"0.005": 990, "0.2": 7}}\n'
    )
    assert found.intended == found.right_answers + found.error_count == 1000
    assert found.errors == {"status": 3}
    assert found.histogram == {0.005: 990, 0.2: 7}
    assert found.count_later_than(0.050) == 7
    assert found.limited is None


def test_single_latencies_are_merged_into_bins() -> None:
    """Each bin is a line of the record, so a bin for each response would make records large."""
    latencies = {f"{0.01 + n / 1e7:.7f}": 1 for n in range(999)} | {"0.0500001": 1}
    found = parse(json.dumps({"requests": 1000, "latencies": latencies}))
    assert found.right_answers == 1000
    assert list(found.histogram) == [0.01, 0.0105, 0.0505]
    assert found.count_later_than(0.050) == 1


def test_a_latency_may_be_written_in_two_ways() -> None:
    found = parse('{"requests": 1000, "latencies": {"0.01": 400, "0.010": 600}}')
    assert found.histogram == {0.01: 1000}


def test_messages_with_ports_are_few_kinds_of_errors() -> None:
    errors = {f"dial\x1b[31m 10.0.0.1:{port}: reset": 1 for port in range(500)} | {"timeout": 9}
    found = parse(json.dumps({"requests": 1000, "errors": errors, "late": 0}))
    assert (found.error_count, found.errors["timeout"]) == (509, 9)
    assert len(found.errors) == 21
    assert all(kind.isprintable() and len(kind) <= 80 for kind in found.errors)


def test_a_missing_program_is_not_a_package() -> None:
    load = CustomGenerator(("/nowhere/mine",))
    with pytest.raises(LoadError, match="/nowhere/mine") as caught:
        take_reading(load, REQUEST, ORDER, LocalTransport(), max_rate=20_000.0)
    assert caught.value.hint == (
        "install it there: the program in `load: {command: …}`, and the programs that it runs"
    )


def test_who_keeps_none_says_how_many_were_late() -> None:
    found = parse('{"requests": 1000, "errors": {"refused": 100}, "late": 40}')
    assert found.count_later_than(ORDER.latency_limit) == 40
    assert found.right_answers == 900


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ('{"requests": 700, "late": 0}', "planned only 700 of 1000"),
        ('{"requests": 1900, "late": 0}', "planned 1900 instead of 1000"),
        ('{"requests": 1000, "late": 0, "limited": "one core"}', "one core"),
        ("", "cannot read the generator's output"),
        ("Segmentation fault", "cannot read the generator's output"),
        ("[]", "cannot read the generator's output"),
        ('{"late": 3}', "cannot read the generator's output"),
        ('{"requests": 1000}', "`latencies` or `late` is missing"),
        ('{"requests": 1e3, "late": 0}', "is not a valid count"),
        ('{"requests": true, "late": 0}', "is not a valid count"),
        ('{"requests": 1000, "late": -1}', "is not a valid count"),
        ('{"requests": 1000, "latencies": {"fast": 1000}}', "cannot read the generator's output"),
        ('{"requests": 1000, "latencies": {"0.1": 400}}', "add up to 400, not to 1000"),
        ('{"requests": 1000, "latencies": {"-0.1": 1000}}', "'-0.1' is not a latency"),
        ('{"requests": 1000, "late": 900, "errors": {"x": 200}}', "add up to 1100"),
    ],
)
def test_what_says_nothing_about_the_server(printed: str, why: str) -> None:
    assert why in (parse(printed).limited or "")


MINE = """
import json, sys
told = json.load(sys.stdin)
requests = round(told["rate"] * told["seconds"])
print(json.dumps({"requests": requests, "errors": {told["url"]: 1}, "late": 2}))
"""


def test_it_is_told_its_share_and_run(tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text(MINE)
    load = CustomGenerator((sys.executable, str(program)))
    told = [json.loads(p.input or b"") for p in load.build_processes(REQUEST, ORDER, hosts=4)]
    assert [one["rate"] for one in told] == [25.0] * 4
    found = take_reading(load, REQUEST, ORDER, LocalTransport(), max_rate=20_000.0)
    assert found.intended == 1000
    assert found.errors == {"http://127.0.0.1:8080/kv.php": 1}
    assert found.count_later_than(ORDER.latency_limit) == 2
    assert found.limited is None


TARGET = """
name: shop
slo: {p99: 50ms}
hosts: {lb1: {address: 198.18.0.1}}
tiers: {lb: {hosts: lb1, service: nginx}}
load: {command: [./mine, --fast]}
"""


def test_it_is_looked_for_beside_the_target(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TARGET)
    with pytest.raises(TargetError, match=r"shop.yaml:6:18: './mine' does not exist"):
        find_generator(read_target(path))
    (tmp_path / "mine").write_text("")
    load = find_generator(read_target(path))
    assert isinstance(load, CustomGenerator)
    assert load.argv == (str(tmp_path / "mine"), "--fast")
