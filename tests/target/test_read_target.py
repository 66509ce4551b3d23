from __future__ import annotations

import math
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from autotune.errors import TargetError
from autotune.target.consistency_checks import REQUIRED_KEY_EXAMPLES
from autotune.target.key_hints import list_keys_at
from autotune.target.model import Target
from autotune.target.read_target import (
    ERROR_TYPE_TEXTS,
    MISSING_KEY_EXAMPLES,
    SECRET_KEY_PATTERN,
    read_target,
    read_user_services,
)
from autotune.target.value_hints import ERROR_TYPE_HINTS

SHIPPED = sorted((Path(__file__).parents[2] / "targets").glob("*.yaml"))
WHOLE: dict[str, Any] = {
    "name": "shop",
    "slo": {"p99": "50ms", "errors": "0.1%"},
    "hosts": {"a": {"address": "198.18.0.1", "cpus": 0.5, "memory": "2GB"}},
    "tiers": {
        "lb": {"hosts": ["a"], "service": ["nginx", "apache"], "forwards_to": "web"},
        "web": {"hosts": "a", "service": "nginx+php-fpm", "app": "reference", "port": 8080},
    },
    "parameters": {
        "lb.nginx.worker_connections": {"range": [64, 8192], "log": True, "default": 768},
        "web.php_fpm.pm": {"choices": ["static", "dynamic"]},
    },
    "constraints": ["web.php_fpm.max_children * 30 MB <= 70% of web.memory"],
    "load": {"generator": "httperf", "hosts": ["a"], "path": "/kv.php", "max_rate": "8000/s"},
    "data": {"pairs": 100_000, "skew": 0.9, "store_latency": "3ms"},
    "budget": {"trials": 18, "time": "11m"},
    "search": {"sampler": "auto", "seed": 1},
}
JARGON = re.compile(
    r"(?i)pydantic|input should|validation|extra inputs|traceback|type=|does not fit"
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_targets_read(path: Path) -> None:
    assert read_target(path).path == path


def test_reads_all_there_is_to_say(tmp_path: Path) -> None:
    target = read_target(_write(tmp_path, WHOLE)).target
    assert target.slo.objective.limit == 0.05
    assert target.hosts["a"].memory == 2**31
    assert target.tiers["lb"].service == ("nginx", "apache")
    assert target.parameters["lb.nginx.worker_connections"].range == (64, 8192)
    assert target.load.max_rate == 8000.0
    assert target.data.store_latency == 0.003
    assert target.budget.time == 660.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # A misspelt name is told before what is missing because of it, wherever it stands.
        ("slo: {p99: 1ms}\nhosts: {}\nneme: x\n", "2:1: hosts: must not be empty"),
        ("slo: {p99: 1ms}\nneme: x\n", "2:1: unknown key 'neme'"),
        # Of several, the first in the file.
        ("name: 1\nslo: 2\n", "1:1: name: 1 is not text"),
        ("slo: 2\nname: 1\n", "1:1: slo: name one percentile"),
    ],
)
def test_of_several_mistakes_the_one_to_mend_first(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(TargetError) as caught:
        read_target(path)
    assert caught.value.message.startswith(f"{path}:{message}")


def _locations(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    steps = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for step in steps:
        yield from _locations(node[step], (*at, step))


def _change(node: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[at[0]] = _change(copy[at[0]], at[1:], value)
    return copy


def _write(directory: Path, tree: Any) -> Path:
    text = StringIO()
    YAML(typ="safe", pure=True).dump(tree, text)
    path = directory / "t.yaml"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(),
    st.sampled_from(["50ms", "64MB", "1%", "8/s", "", "a", "lb", "/x", "a b", "9" * 400 + "s"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8),
)  # fmt: skip
KEYS = st.sampled_from(["p99", "errors", "hosts", "service", "range", "password", "x", "1"])
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


@pytest.mark.long
@given(st.sampled_from(list(_locations(WHOLE))), TREES)
@settings(max_examples=150)
def test_anything_anywhere_reads_or_is_refused_in_plain_words(
    tmp_path: Path, at: tuple[Any, ...], value: Any
) -> None:
    path = _write(tmp_path, _change(WHOLE, at, value))
    try:
        target = read_target(path).target
    except TargetError as error:
        place, said = re.match(r"(\d+:\d+): (.+)", error.message.removeprefix(f"{path}:")).groups()  # type: ignore[union-attr]  # no match is a failure
        line, column = (int(number) for number in place.split(":"))
        lines = path.read_text(encoding="utf-8").split("\n")
        assert line <= len(lines)
        assert column <= len(lines[line - 1]) + 1
        assert not JARGON.search(said)
        assert "\n" not in said
    else:
        assert all(math.isfinite(tier.port or 1) for tier in target.tiers.values())


@pytest.mark.parametrize(
    ("location", "some"),
    [
        ((), "tiers"),
        (("slo",), "p99"),
        (("slo",), "errors"),
        (("hosts", "web1"), "address"),
        (("tiers", "web"), "forwards_to"),
        (("parameters", "web.nginx.use"), "range"),
        (("load",), "max_rate"),
        (("budget",), "trials"),
    ],
)
def test_keys_at(location: tuple[str, ...], some: str) -> None:
    assert some in list_keys_at(location)


def test_the_objective_hides_how_it_is_kept() -> None:
    assert {"quantile", "limit"}.isdisjoint(list_keys_at(("slo",)))


def _list_required_keys(node: object) -> set[str]:
    found: set[str] = set()
    if isinstance(node, dict):
        found |= {key for key in node.get("required", []) if isinstance(key, str)}
        for item in node.values():
            found |= _list_required_keys(item)
    if isinstance(node, list):
        for item in node:
            found |= _list_required_keys(item)
    return found


def test_whatever_is_needed_has_an_example() -> None:
    # A host's address is asked for in words of its own (model.Host), a transport has a default.
    needed = _list_required_keys(Target.model_json_schema()) - {
        "address",
        "transport",
        "range",
        "command",
    }
    assert needed <= set(MISSING_KEY_EXAMPLES) | set(REQUIRED_KEY_EXAMPLES)


def test_every_hint_belongs_to_a_finding() -> None:
    assert set(ERROR_TYPE_HINTS) <= set(ERROR_TYPE_TEXTS)


@pytest.mark.parametrize(
    "key",
    ["password", "ssh_password", "passwd", "passphrase", "secret", "client_secret", "token",
     "api_token", "credentials", "key", "ssh_key", "private_key", "key_file", "identity_file"],
)  # fmt: skip
def test_secrets(key: str) -> None:
    assert SECRET_KEY_PATTERN.search(key)


@pytest.mark.parametrize("key", ["adress", "keys_per_reqest", "pasword_free", "monkey", "kei"])
def test_misspelt_keys_are_no_secrets(key: str) -> None:
    assert not SECRET_KEY_PATTERN.search(key)


def test_an_account_without_a_home_directory_declares_no_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: int) -> None:
        raise KeyError

    for variable in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", fail)
    assert read_user_services() == {}
