from __future__ import annotations

from typing import Any

import pytest

from autotune.target.compare import Difference, differences
from autotune.target.model import Target

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


def changed(**keys: Any) -> tuple[Difference, ...]:
    return differences(Target.model_validate(SHOP), Target.model_validate({**SHOP, **keys}))


def test_the_same_target_differs_in_nothing() -> None:
    # Defaults spelt out and units changed say the same.
    assert changed(slo={"p99": "0.05s", "errors": "0.1%"}, budget={"trials": 40}) == ()


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
    (difference,) = changed(**keys)
    assert str(difference) == said
    assert not difference.breaks


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"slo": {"p99": "80ms"}}, ["slo.p99: 50ms → 80ms"]),
        ({"slo": {"p95": "50ms"}}, ["slo.p95: nothing → 50ms", "slo.p99: 50ms → nothing"]),
        ({"slo": {"p99": "50ms", "errors": "0%"}}, ["slo.errors: 0.1% → 0%"]),
        ({"load": {"max_rate": "7000/s"}}, ["load.max_rate: 8000/s → 7000/s"]),
        ({"load": {"max_rate": "8000/s", "path": "/a"}}, ["load.path: / → /a"]),
        ({"load": {"max_rate": "8000/s", "timeout": "3s"}}, ["load.timeout: 2s → 3s"]),
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
         ["hosts.here: {address: 127.0.0.1, transport: local} → nothing"]),
        ({"parameters": {}},
         ["parameters.web.nginx.worker_connections: {range: [64, 8192]} → nothing"]),
        ({"parameters": {"web.nginx.worker_connections": {"range": [64, 4096]}}},
         ["parameters.web.nginx.worker_connections.range: [64, 8192] → [64, 4096]"]),
        ({"constraints": []},
         ["constraints: [web.nginx.worker_connections <= 4096] → []"]),
    ],
)  # fmt: skip
def test_breaks(keys: dict[str, Any], said: list[str]) -> None:
    found = changed(**keys)
    assert [str(difference) for difference in found] == said
    assert all(difference.breaks for difference in found)


def test_one_is_not_true() -> None:
    old, new = ({"parameters": {"web.nginx.multi_accept": {"fixed": v}}} for v in (True, 1))
    (difference,) = differences(
        Target.model_validate({**SHOP, **old}), Target.model_validate({**SHOP, **new})
    )
    assert str(difference) == "parameters.web.nginx.multi_accept.fixed: true → 1"


def test_each_difference_is_judged_for_itself() -> None:
    found = changed(name="store", slo={"p99": "80ms"})
    assert [(d.path, d.breaks) for d in found] == [("name", False), ("slo.p99", True)]
