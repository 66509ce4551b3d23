from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from autotune.target import model
from autotune.target.model import Host, Load, Target, Tier
from autotune.target.slo import Slo

SHOP: dict[str, Any] = {
    "name": "shop",
    "slo": {"p99": "50ms"},
    "hosts": {"here": {"transport": "local"}},
    "tiers": {"web": {"hosts": "here", "service": "nginx"}},
}
MODELS = [getattr(model, name) for name in model.__all__ if isinstance(getattr(model, name), type)]


def test_the_least_a_target_says() -> None:
    target = Target.model_validate(SHOP)
    assert target.tiers["web"] == Tier(hosts=("here",), service=("nginx",))
    assert target.hosts["here"].address == "127.0.0.1"
    assert target.budget.trials == 40
    assert target.budget.time == 45 * 60
    assert target.load == Load()


@pytest.mark.parametrize(
    ("written", "names"),
    [("web1", ("web1",)), (["web1"], ("web1",)), (["web1", "web2"], ("web1", "web2"))],
)
def test_one_host_needs_no_list(written: object, names: tuple[str, ...]) -> None:
    tier = Tier.model_validate({"hosts": written, "service": "nginx", "uses": written})
    assert tier.hosts == tier.uses == names


@pytest.mark.parametrize(
    ("part", "written"),
    [
        (Host, {"address": "web1.example.org", "cpus": 0.5, "memory": "2GB", "user": "deploy"}),
        (Host, {"address": "fe80::1", "port": 22}),
        (Host, {"address": "::1", "cpus": 2}),
        (Load, {"path": "/kv.php?a=b&c=%20", "max_rate": "600/min", "timeout": "10s"}),
    ],
)
def test_reads(part: type[BaseModel], written: dict[str, Any]) -> None:
    part.model_validate(written)


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("name", "../elsewhere"),
        ("name", "-rf"),
        ("name", "x" * 64),
        ("budget", {"trials": True}),
        ("budget", {"trials": 40.0}),
        ("budget", {"trials": "40"}),
        ("budget", {"time": "29s"}),
        ("search", {"seed": -1}),
        ("search", {"sampler": None}),
        ("data", {"pairs": 999}),
        ("data", {"skew": 1}),
        ("data", {"skew": float("nan")}),
        ("load", {"max_rate": "0/s"}),
        ("load", {"timeout": "0s"}),
        ("load", {"timeout": "61m"}),
        ("load", {"path": "kv.php"}),
        ("load", {"path": "/a b"}),
        ("load", {"path": "//ok\n"}),
        ("hosts", {"web1": {}}),
        ("hosts", {"web1": {"user": "deploy", "transport": "ssh"}}),
        ("hosts", {"web 1": {"transport": "local"}}),
        ("hosts", {"here": {"address": "a b"}}),
        ("hosts", {"here": {"transport": "local", "cpus": 0}}),
        ("hosts", {"here": {"transport": "local", "memory": "0MB"}}),
        ("hosts", {"here": {"transport": "local", "user": "; rm -rf /"}}),
        ("tiers", {"web": {"hosts": [], "service": "nginx"}}),
        ("tiers", {"web": {"hosts": "here", "service": ""}}),
        ("tiers", {"web.1": {"hosts": "here", "service": "nginx"}}),
        ("tiers", {"web": {"hosts": "here", "service": "nginx", "port": 0}}),
        ("constraints", ["a\nb"]),
        ("constraints", [1]),
    ],
)
def test_refused(key: str, part: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Target.model_validate({**SHOP, key: part})
    assert caught.value.errors()[0]["loc"][0] == key


def test_nothing_can_be_changed_after_reading() -> None:
    target = Target.model_validate(SHOP)
    with pytest.raises(ValidationError, match="frozen"):
        target.name = "other"


@pytest.mark.parametrize("part", MODELS, ids=lambda part: part.__name__)
def test_every_key_is_documented(part: type[BaseModel]) -> None:
    assert part.__doc__
    hidden = {"quantile", "limit"}  # written as `p99: 50ms`, documented in the schema
    sections = {"ssh", "load", "data", "budget", "search"}  # documented by their own docstrings
    undocumented = {k for k, field in part.model_fields.items() if not field.description}
    assert undocumented - hidden - sections == set()


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a\\b", ""])
def test_a_name_leads_nowhere_else(name: str) -> None:
    """A study's directory is named by it."""
    with pytest.raises(ValidationError):
        Target.model_validate({**SHOP, "name": name})


def test_allowed_violations() -> None:
    assert Slo(quantile=0.99).allowed_violations == pytest.approx(0.01)
