"""What is written reads as the same target, and two targets are told apart setting by setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.target.model import Target
from autotune.target.quantities import format_duration, format_fraction, format_rate, format_size
from autotune.target.read_target import read_target
from autotune.target.write_target import TargetDifference, dump_yaml, list_differences

SHIPPED = sorted((Path(__file__).parents[2] / "targets").glob("*.yaml"))


def some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any part of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


def seconds(least: float, most: float) -> st.SearchStrategy[str]:
    return st.floats(least, most).map(format_duration)


# What a line of YAML may hold, words that look like other things among it.
WORDS = st.sampled_from(
    ["null", "true", "on", "1.0", "0x1", "~", "a: b", "#", "- x", "'", '"', "\\", "é", " a ", "?0",
     "-", "=", "a,b", "[x]", "%", "x" * 300]
)  # fmt: skip
TEXTS = WORDS | st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)
HOSTS = {
    "here": st.just({"transport": "local"}),
    "far": st.fixed_dictionaries(
        {"address": st.sampled_from(["198.18.0.2", "web1.example.org", "fe80::1"])},
        optional={
            "user": st.sampled_from(["root", "deploy.er"]),
            "port": st.integers(1, 65535),
            "cpus": st.floats(0.001, 1e6) | st.integers(1, 512),
            "memory": st.integers(1, 2**50).map(format_size),
            "lab_only": st.booleans(),
        },
    ),
}
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(-1e300, 1e300)
RULES = st.one_of(
    st.tuples(NUMBERS, NUMBERS).filter(lambda p: float(p[0]) < float(p[1]))
    .map(lambda pair: {"range": list(pair)}),
    st.just({"range": ["6MB", "8MB"], "log": True, "default": "7.5MB"}),
    st.lists(TEXTS | st.booleans(), min_size=1, max_size=4, unique=True)
    .map(lambda values: {"choices": values, "default": values[-1]}),
    (TEXTS | NUMBERS | st.booleans()).map(lambda value: {"fixed": value}),
    st.just({"drop": True}), st.just({"log": False}),
)  # fmt: skip
TARGETS = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,62}", fullmatch=True),
        "slo": st.builds(
            lambda key, limit, errors: {key: limit, **errors},
            st.sampled_from(["p50", "p90", "p99", "p99.9", "p75.25"]),
            seconds(1e-6, 1.0),
            some(errors=st.floats(0, 0.001).map(format_fraction)),
        ),
        "hosts": st.fixed_dictionaries(HOSTS),
        "tiers": st.fixed_dictionaries(
            {
                "lb": st.fixed_dictionaries(
                    {"hosts": st.sampled_from(["here", ["far", "here"]]), "service": TEXTS},
                    optional={"forwards_to": st.just("web"), "port": st.integers(1, 999)},
                ),
                "web": st.fixed_dictionaries(
                    {
                        "hosts": st.just(["far"]),
                        "service": st.lists(TEXTS, min_size=1, unique=True),
                    },
                    optional={
                        "app": TEXTS,
                        "runtime": st.sampled_from(["embedded", "systemd"]),
                        "templates": TEXTS,
                        "port": st.integers(1000, 65535),
                    },
                ),
            }
        ),
    },
    optional={
        "parameters": st.dictionaries(TEXTS, RULES, max_size=3),
        "constraints": st.lists(TEXTS, max_size=3),
        "load": some(
            url=st.sampled_from(["https://shop.example/?p=5", "http://shop.example/"]),
            method=st.sampled_from(["GET", "HEAD"]),
            headers=st.just({"Accept": "text/html"}),
            generator=TEXTS,
            hosts=st.sampled_from(["far", ["here", "far"]]),
            max_rate=st.floats(0.001, 1e9).map(format_rate),
            timeout=seconds(2.0, 3600.0),
        ),
        "data": some(pairs=st.integers(1000, 10**10), store_latency=seconds(0, 100)),
        "budget": some(trials=st.integers(3, 10_000), time=seconds(30.0, 1e7)),
        "search": some(sampler=TEXTS, seed=st.integers(0, 2**32 - 1)),
    },
)


@pytest.mark.long
@given(TARGETS)
def test_what_is_written_reads_as_the_same_target(tmp_path: Path, tree: dict[str, Any]) -> None:
    target = Target.model_validate(tree)
    path = tmp_path / "target.yaml"
    path.write_text(dump_yaml(target), encoding="utf-8")
    again = read_target(path).target
    assert again == target
    assert dump_yaml(again) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "load",
    [
        {"command": ["./load.sh"]},
        {"url": "https://shop.example/", "insecure": True, "http": 2, "generator": "oha"},
        {"path": "/a", "host": "shop.example"},
    ],
)
def test_every_kind_of_load_round_trips(tmp_path: Path, load: dict[str, Any]) -> None:
    tree = {"name": "t", "slo": {"p99": "50ms"}, "hosts": {"far": {"address": "198.18.0.2"}},
            "tiers": {"web": {"hosts": "far", "service": "nginx"}}, "load": load}  # fmt: skip
    target = Target.model_validate(tree)
    path = tmp_path / "target.yaml"
    path.write_text(dump_yaml(target), encoding="utf-8")
    assert read_target(path).target == target


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_targets_round_trip(path: Path, tmp_path: Path) -> None:
    target = read_target(path).target
    copy = tmp_path / "target.yaml"
    copy.write_text(dump_yaml(target), encoding="utf-8")
    assert read_target(copy).target == target


def test_written_as_people_write() -> None:
    target = Target.model_validate(
        {
            "name": "shop",
            "slo": {"p99.9": "50ms"},
            "hosts": {"here": {"transport": "local", "memory": "2048MB"}},
            "tiers": {"web": {"hosts": "here", "service": "nginx"}},
            "budget": {"time": "90m"},
        }
    )
    lines = dump_yaml(target).splitlines()
    assert "slo: {p99.9: 50ms, errors: 0.1%}" in lines
    assert "  here: {address: 127.0.0.1, transport: local, memory: 2GB, lab_only: false}" in lines
    assert "budget: {trials: 40, time: 90m}" in lines


SHOP: dict[str, Any] = {
    "name": "shop",
    "slo": {"p99": "50ms"},
    "hosts": {"here": {"transport": "local"}, "far": {"address": "198.18.0.2"}},
    "tiers": {"web": {"hosts": ["far"], "service": "nginx"}},
    "parameters": {"web.nginx.worker_connections": {"range": [64, 8192]}},
    "constraints": ["web.nginx.worker_connections <= 4096"],
    "load": {"max_rate": "8000/s"},
}
WEB = SHOP["tiers"]["web"]


def list_setting_changes(**keys: Any) -> tuple[TargetDifference, ...]:
    return list_differences(Target.model_validate(SHOP), Target.model_validate({**SHOP, **keys}))


def test_the_same_target_differs_in_nothing() -> None:
    # Defaults spelt out and units changed say the same.
    assert list_setting_changes(slo={"p99": "0.05s", "errors": "0.1%"}, budget={"trials": 40}) == ()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"budget": {"trials": 50}}, "budget.trials: 40 → 50"),
        ({"budget": {"time": "1h"}}, "budget.time: 45m → 1h"),
        ({"search": {"seed": 2}}, "search.seed: 1 → 2"),
        ({"search": {"sampler": "tpe"}}, "search.sampler: auto → tpe"),
        ({"name": "store"}, "name: shop → store"),
        ({"load": {"max_rate": "9000/s"}}, "load.max_rate: 8000/s → 9000/s"),
        (
            {"hosts": {**SHOP["hosts"], "far": {"address": "198.18.0.2", "user": "deploy"}}},
            "hosts.far.user: nothing → deploy",
        ),
    ],
)
def test_harmless(keys: dict[str, Any], said: str) -> None:
    (difference,) = list_setting_changes(**keys)
    assert str(difference) == said
    assert not difference.invalidates_readings


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"slo": {"p99": "80ms"}}, ["slo.p99: 50ms → 80ms"]),
        ({"slo": {"p95": "50ms"}}, ["slo.p95: nothing → 50ms", "slo.p99: 50ms → nothing"]),
        ({"slo": {"p99": "50ms", "errors": "0%"}}, ["slo.errors: 0.1% → 0%"]),
        ({"load": {"max_rate": "7000/s"}}, ["load.max_rate: 8000/s → 7000/s"]),
        ({"load": {"max_rate": "8000/s", "path": "/a"}}, ["load.path: / → /a"]),
        ({"load": {"max_rate": "8000/s", "timeout": "3s"}}, ["load.timeout: nothing → 3s"]),
        ({"load": {"max_rate": "8000/s", "generator": "oha"}}, ["load.generator: httperf → oha"]),
        ({"load": {"max_rate": "8000/s", "hosts": "far"}}, ["load.hosts: [] → [far]"]),
        ({"data": {"pairs": 2000}}, ["data.pairs: 100000 → 2000"]),
        ({"tiers": {"web": {**WEB, "service": ["nginx", "apache"]}}},
         ["tiers.web.service: [nginx] → [nginx, apache]"]),
        ({"tiers": {"web": {**WEB, "app": "reference"}}}, ["tiers.web.app: nothing → reference"]),
        ({"tiers": {"web": {**WEB, "hosts": ["far", "here"]}}},
         ["tiers.web.hosts: [far] → [far, here]"]),
        ({"hosts": {**SHOP["hosts"], "far": {"address": "198.18.0.3"}}},
         ["hosts.far.address: 198.18.0.2 → 198.18.0.3"]),
        ({"hosts": {"far": SHOP["hosts"]["far"]}},
         ["hosts.here: {address: 127.0.0.1, transport: local, lab_only: false} → nothing"]),
        ({"parameters": {}},
         ["parameters.web.nginx.worker_connections: {range: [64, 8192]} → nothing"]),
        ({"parameters": {"web.nginx.worker_connections": {"range": [64, 4096]}}},
         ["parameters.web.nginx.worker_connections.range: [64, 8192] → [64, 4096]"]),
        ({"constraints": []},
         ["constraints: [web.nginx.worker_connections <= 4096] → []"]),
    ],
)  # fmt: skip
def test_breaks(keys: dict[str, Any], said: list[str]) -> None:
    found = list_setting_changes(**keys)
    assert [str(difference) for difference in found] == said
    assert all(difference.invalidates_readings for difference in found)


def test_one_is_not_true() -> None:
    old, new = ({"parameters": {"web.nginx.multi_accept": {"fixed": v}}} for v in (True, 1))
    (difference,) = list_differences(
        Target.model_validate({**SHOP, **old}), Target.model_validate({**SHOP, **new})
    )
    assert str(difference) == "parameters.web.nginx.multi_accept.fixed: true → 1"


def test_each_difference_is_judged_for_itself() -> None:
    found = list_setting_changes(name="store", slo={"p99": "80ms"})
    assert [(d.path, d.invalidates_readings) for d in found] == [("name", False), ("slo.p99", True)]
