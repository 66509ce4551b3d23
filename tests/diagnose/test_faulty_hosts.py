"""Hosts asked by themselves, and those that never answer right named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.deploy.stack import ServiceInstance
from autotune.diagnose.faulty_hosts import (
    TRY_INTERVAL_SECONDS,
    find_answer_error,
    find_faulty_instances,
    is_host_suspected,
)
from autotune.measure.reading import Reading
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.nginx.service import Nginx
from autotune.services.php_fpm.service import PhpFpm
from autotune.target.expected_answer import Expect
from autotune.transports.base import CommandResult, HostUnreachable, Transport
from autotune.transports.curl import CurlAnswer
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request, TlsOptions

RIGHT = b"found 100 of 100\n"
SITE = Placement(
    tier="web", host="web1", role=Role.WEB, directory="/x", listen=Endpoint("10.0.0.1", 80)
)


REQUEST = Request(Endpoint("10.0.0.9", 443), "/kv.php", RIGHT, host="shop", tls=TlsOptions())


class Curl(LocalTransport):
    """A host on which curl prints these answers, one after the other, the last one for ever."""

    def __init__(self, name: str, *answers: str) -> None:
        super().__init__(name)
        self.asked: list[str] = []
        self._answers = list(answers)

    def run(self, argv, **options):  # type: ignore[no-untyped-def]
        self.asked.append(argv[-1])
        said = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if said == "unreachable":
            raise HostUnreachable("web: no route")
        return CommandResult(tuple(argv), 0, said, "")


def parts() -> list[ServiceInstance]:
    sites = [SITE, replace(SITE, host="web2", listen=Endpoint("10.0.0.2", 80))]
    return [ServiceInstance(Nginx(), site) for site in sites] + [
        ServiceInstance(PhpFpm(), replace(site, role=Role.APP)) for site in sites
    ]


@pytest.mark.parametrize(("size", "error"), [(3_000_000, None), (9, "9 bytes, fewer than 2MB")])
def test_the_size_of_a_body_is_that_of_the_whole_body(size: int, error: str | None) -> None:
    request = replace(
        REQUEST, expected_body=None, expectations=Expect.model_validate({"min_bytes": "2MB"})
    )
    answer = CurlAnswer(200, b"the start", 0.1, size)
    assert find_answer_error(answer, request) == error


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["found 100 of 100\n\n200 0.002 17"], None),
        (["Bad Gateway\n\n502 0.001 17"], "status 502"),
        (
            ["found 099 of 100\n\n200 0.002 17"],
            "status 200 with a wrong body, 'found 099 of 100\\n'",
        ),
        (["Bad Gateway\n\n502 0.001 17"] * 3 + ["found 100 of 100\n\n200 0.002 17"], None),
        (["unreachable"], None),
    ],
    ids=["right", "502", "wrong body", "after an overload", "unreachable"],
)
def test_a_host_that_never_answers_right(answers: list[str], found: str | None) -> None:
    pauses: list[float] = []
    transports: dict[str, Transport] = {
        "web1": Curl("web1", "found 100 of 100\n\n200 0.002 17"),
        "web2": (second := Curl("web2", *answers)),
    }
    entry = Curl("load1", "Bad Gateway\n\n502 0.001 17")
    named = find_faulty_instances(parts(), transports, REQUEST, entry, pauses.append)
    assert named == ({"web.web2.nginx": found} if found else {})
    assert set(second.asked) == {"http://shop:80/kv.php"}
    assert pauses == [TRY_INTERVAL_SECONDS] * (len(second.asked) - 1)


REDIRECT = "\n\n301 0.001 17"


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("found 100 of 100\n\n200 0.002 17", {}),
        ("found 099 of 100\n\n200 0.002 17", dict.fromkeys(("web1", "web2"), "status 301")),
        ("Bad Gateway\n\n502 0.001 17", dict.fromkeys(("web1", "web2"), "status 301")),
        ("unreachable", dict.fromkeys(("web1", "web2"), "status 301")),
    ],
    ids=["right", "wrong body", "502", "unreachable"],
)
def test_hosts_that_answer_only_their_load_balancer_are_not_faulty(
    entry: str, found: dict[str, str]
) -> None:
    """WordPress and others redirect plain HTTP, unless the load balancer says that TLS ends there."""
    transports: dict[str, Transport] = {name: Curl(name, REDIRECT) for name in ("web1", "web2")}
    load_host = Curl("load1", entry)
    named = find_faulty_instances(parts(), transports, REQUEST, load_host, lambda _: None)
    assert named == {f"web.{host}.nginx": fault for host, fault in found.items()}
    assert load_host.asked == ["https://shop:443/kv.php"]
    transports["web2"] = Curl("web2", "unreachable")
    named = find_faulty_instances(parts(), transports, REQUEST, load_host, lambda _: None)
    assert named == ({"web.web1.nginx": "status 301"} if found else {})


SHOP, MOVED = "found 100 of 100\n\n200 0.002 17", "Not Found\n\n404 0.001 17"


@pytest.mark.parametrize(
    ("api", "entry", "found"),
    [
        ([MOVED, MOVED], SHOP, {}),  # the page belongs to the tier `web`, which uses the tier `api`
        ([MOVED, SHOP], SHOP, {"api.api1.nginx": "status 404"}),
        (
            [MOVED, MOVED],
            MOVED,
            {"api.api1.nginx": "status 404", "api.api2.nginx": "status 404"},
        ),
    ],
)
def test_a_tier_that_does_not_serve_the_page_of_the_load_is_not_faulty(
    api: list[str], entry: str, found: dict[str, str]
) -> None:
    hosts = {"api1": "10.0.0.3", "api2": "10.0.0.4"}
    instances = parts() + [
        ServiceInstance(Nginx(), replace(SITE, tier="api", host=name, listen=Endpoint(address, 80)))
        for name, address in hosts.items()
    ]
    transports: dict[str, Transport] = {name: Curl(name, SHOP) for name in ("web1", "web2")}
    transports |= {name: Curl(name, said) for name, said in zip(hosts, api, strict=True)}
    load_host = Curl("load1", entry)
    assert find_faulty_instances(instances, transports, REQUEST, load_host, lambda _: None) == found


def test_each_web_server_of_a_host_is_asked() -> None:
    second = replace(SITE, tier="api", listen=Endpoint("10.0.0.1", 8080))
    instances = [ServiceInstance(Nginx(), site) for site in (SITE, second)]
    asked = Curl("web1", "Bad Gateway\n\n502 0.001 17")
    load_host = Curl("load1", "Bad Gateway\n\n502 0.001 17")
    found = find_faulty_instances(instances, {"web1": asked}, REQUEST, load_host, lambda _: None)
    assert found == dict.fromkeys(("web.web1.nginx", "api.web1.nginx"), "status 502")


def test_a_web_server_on_the_host_of_the_entry_is_asked_itself() -> None:
    server = Endpoint("10.0.0.9", 8080)
    proxy = replace(
        SITE, tier="lb", role=Role.PROXY, listen=Endpoint("10.0.0.9", 80), forwards_to=(server,)
    )
    instances = [ServiceInstance(Nginx(), site) for site in (replace(SITE, listen=server), proxy)]
    asked, load_host = (Curl(name, "Bad Gateway\n\n502 0.001 17") for name in ("web1", "load1"))
    find_faulty_instances(instances, {"web1": asked}, REQUEST, load_host, lambda _: None)
    assert set(asked.asked) == {"http://shop:8080/kv.php"}
    asked.asked.clear()
    find_faulty_instances(instances[:1], {"web1": asked}, REQUEST, load_host, lambda _: None)
    assert set(asked.asked) == {"https://shop:443/kv.php"}  # it is the entry


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({}, False),
        ({"5xx": 1}, False),
        ({"5xx": 50}, True),
        ({"wrong body": 30}, True),
        ({"timeout": 90, "fd-unavailable": 10}, False),
    ],
)
def test_only_wrong_answers_are_suspicious(errors: dict[str, int], expected: bool) -> None:
    reading = Reading(rate=10, seconds=10, intended=100, violations=100, errors=errors)
    assert is_host_suspected(reading) == expected
