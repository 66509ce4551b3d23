from __future__ import annotations

from typing import Any

import pytest

from autotune.target.consistency_checks import find_mistakes
from autotune.target.model import Target


def target(**changes: Any) -> Target:
    shop: dict[str, Any] = {
        "name": "shop",
        "slo": {"p99": "50ms"},
        "hosts": {"a": {"address": "198.18.0.1"}, "b": {"address": "198.18.0.2"}},
        "tiers": {"lb": tier(forwards_to="web"), "web": tier(uses=["store"]), "store": tier()},
    }
    return Target.model_validate({**shop, **changes})


def tier(**changes: Any) -> dict[str, Any]:
    return {"hosts": "a", "service": "nginx", **changes}


@pytest.mark.parametrize(
    "tiers",
    [
        {"lb": tier()},
        {"lb": tier(forwards_to="web"), "web": tier(uses=["c", "s"]), "c": tier(), "s": tier()},
        # Two ways to the same tier are no circle.
        {"lb": tier(forwards_to="web", uses=["c"]), "web": tier(uses=["c"]), "c": tier()},
        {"lb": tier(port=80), "web": tier(port=80, hosts="b")},
        {"lb": tier(port=80), "web": tier(port=81)},
        {"lb": tier(), "web": tier()},
    ],
)
def test_nothing_to_find(tiers: dict[str, Any]) -> None:
    assert list(find_mistakes(target(tiers=tiers))) == []


@pytest.mark.parametrize(
    ("changes", "location", "message"),
    [
        ({"tiers": {"lb": tier(hosts=["a", "c"])}}, "tiers.lb.hosts.1", "unknown host 'c'"),
        ({"tiers": {"lb": tier(hosts=["a", "a"])}}, "tiers.lb.hosts.1", "'a' is listed twice"),
        ({"tiers": {"lb": tier(service=["x", "x"])}}, "tiers.lb.service.1", "'x' is listed twice"),
        ({"tiers": {"lb": tier(forwards_to="x")}}, "tiers.lb.forwards_to", "unknown tier 'x'"),
        ({"tiers": {"lb": tier(uses=["x"])}}, "tiers.lb.uses.0", "unknown tier 'x'"),
        (
            {"tiers": {"lb": tier(uses=["lb"])}},
            "tiers.lb.uses",
            "tier 'lb' cannot depend on itself",
        ),
        (
            {"tiers": {"x": tier(forwards_to="y"), "y": tier(uses=["z"]), "z": tier(uses=["y"])}},
            "tiers.z.uses.0",
            "dependency cycle between tiers: y → z → y",
        ),
        (
            {"tiers": {"x": tier(port=80), "y": tier(port=80, hosts=["b", "a"])}},
            "tiers.y.port",
            "port 80 on host 'a' is already used by tier 'x'",
        ),
        (
            {
                "hosts": {"a": {"transport": "local"}, "b": {"transport": "local"}},
                "tiers": {"x": tier(port=80), "y": tier(port=80, hosts="b")},
            },
            "tiers.y.port",
            "port 80 on host 'b' is already used by tier 'x'",
        ),
        (
            {"hosts": {"a": {"address": "198.18.0.1"}, "b": {"address": "198.18.0.1"}}},
            "hosts.b.address",
            "hosts 'a' and 'b' have the same address 198.18.0.1",
        ),
        ({"load": {"hosts": ["a", "z"]}}, "load.hosts.1", "unknown host 'z'"),
        (
            {"load": {"timeout": "99ms"}},
            "load.timeout",
            "timeout: 99ms is too close to the latency limit 50ms",
        ),
        (
            {"slo": {"p99": "50ms", "errors": "1.1%"}},
            "slo.errors",
            "errors: 1.1% exceeds the 1% of requests that may be late or fail",
        ),
        (
            {"load": {"path": "/in?user%5Bpassword%5D=hush"}},
            "load.path",
            "`path` may contain a secret, and targets and studies are shared",
        ),
        (
            {"load": {"method": "POST", "body": "user%5Bpassword%5D=hush"}},
            "load.body",
            "`body` may contain a secret, and targets and studies are shared",
        ),
    ],
)
def test_finds(changes: dict[str, Any], location: str, message: str) -> None:
    found = next(find_mistakes(target(**changes)))
    assert ".".join(str(step) for step in found.location) == location
    assert found.message == message


@pytest.mark.parametrize(
    "slo", [{"p99": "1s", "errors": "1%"}, {"p99.9": "1s", "errors": "0.1%"}, {"p99.99": "1s"}]
)
def test_as_many_may_fail_as_may_be_late(slo: dict[str, str]) -> None:
    assert list(find_mistakes(target(slo=slo))) == []


@pytest.mark.parametrize(("limit", "seconds"), [("50ms", 2.0), ("1s", 2.0), ("5s", 10.0)])
def test_the_usual_timeout_follows_the_limit(limit: str, seconds: float) -> None:
    patient = target(slo={"p90": limit})
    assert patient.request_timeout == seconds
    assert list(find_mistakes(patient)) == []


def test_a_timeout_of_twice_the_limit_is_enough() -> None:
    assert list(find_mistakes(target(load={"timeout": "100ms"}))) == []


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        (["./bench", "--password", "hush"], True),
        (["sh", "-c", "PGPASSWORD=hush psql -f bench.sql"], True),
        (["sh", "-c", 'PGPASSWORD="$BENCH_PASSWORD" psql -f bench.sql'], False),
        (["./bench", "--token-file", "/etc/bench.token", "--max-tokens", "512"], False),
        (["podman", "run", f"registry.example/bench@sha256:{32 * '9f'}"], False),
    ],
)
def test_a_command_contains_no_secret(command: list[str], is_refused: bool) -> None:
    toy = {"name": "toy", "maximize": "rows", "parameters": {"x": {"range": [1, 9]}}}
    mistakes = list(find_mistakes(Target.model_validate({**toy, "command": command})))
    assert [mistake.location for mistake in mistakes] == ([("command",)] if is_refused else [])


DECLARED = {
    "role": "cache", "port": 6379, "unit": "shop.service", "files": {"/etc/shop.conf": {}},
    "parameters": {"hz": {"meaning": "ticks", "default": 10, "range": [1, 99], "directive": "hz {}"}},
}  # fmt: skip
WITH_PASSWORD = {"command": ["redis-cli", "-a", "hush", "INFO"], "values": {"hz": "^hz:([0-9]+)"}}


@pytest.mark.parametrize(
    ("keys", "location"),
    [
        ({"check": ["shop", "--password", "hush"]}, ("check",)),
        ({"read": [WITH_PASSWORD]}, ("read", 0, "command")),
        ({"counters": WITH_PASSWORD}, ("counters", "command")),
    ],
)
def test_a_command_of_a_declared_service_contains_no_secret(
    keys: dict[str, Any], location: tuple[str | int, ...]
) -> None:
    mistakes = list(find_mistakes(target(services={"shop": {**DECLARED, **keys}})))
    assert [mistake.location for mistake in mistakes] == [("services", "shop", *location)]
    assert "hush" not in f"{mistakes[0].message} {mistakes[0].hint}"


@pytest.mark.parametrize(
    "script",
    [
        "REDISCLI_AUTH=$(cat /etc/redis/pw) redis-cli INFO",
        'PGPASSWORD="$(cat /etc/pw)" psql -c "SHOW ALL"',
        "PGPASSWORD=`cat /etc/pw` psql -l",
        'redis-cli -a "$(cat /etc/redis/pw)" --no-auth-warning INFO',
        "psql --no-password shop",
    ],
)
def test_a_command_may_read_a_secret_from_a_file(script: str) -> None:
    read = [{"command": ["sh", "-c", script], "values": {"hz": "^hz:([0-9]+)"}}]
    assert list(find_mistakes(target(services={"shop": {**DECLARED, "read": read}}))) == []
