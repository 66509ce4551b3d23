"""Each service reads its own values back out of what its programs really print."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.services import memcached, nginx, php_fpm, redis
from autotune.services.base import Endpoint, Role, Settings, Site
from autotune.services.registry import SERVICES

FIXTURES = Path(__file__).parent / "fixtures"


def site(role: Role) -> Site:
    programs = {name: name for service in SERVICES.values() for name in service.programs}
    # The directory that the fixtures were recorded in: it is part of the socket's name.
    return Site(tier="web", host="here", role=role, directory="/tmp/stack/web",
                listen=Endpoint("127.0.0.1", 28302), programs=programs)  # fmt: skip


@pytest.mark.parametrize(
    ("service", "role", "fixtures", "settings"),
    [
        (
            "nginx", Role.PROXY, ("nginx-proxy", "ss-tcp-reuseport"),
            {"worker_processes": 2, "worker_connections": 1500, "multi_accept": True,
             "accept_mutex": False, "use": "epoll", "keepalive_timeout": 65,
             "keepalive_requests": 2000, "backlog": 300},
        ),
        (
            "nginx", Role.WEB, ("nginx-web", "ss-tcp"),
            {"worker_processes": 1, "worker_connections": 1800, "multi_accept": False,
             "accept_mutex": True, "use": "epoll", "keepalive_timeout": 0,
             "keepalive_requests": 1, "fastcgi_keep_conn": True, "backlog": 200},
        ),
        (
            "php-fpm", Role.APP, ("php-fpm-dynamic", "ss-unix"),
            {"pm": "dynamic", "max_children": 12, "start_servers": 3, "min_spare_servers": 2,
             "max_spare_servers": 6, "process_idle_timeout": 10, "max_requests": 500,
             "listen_backlog": 123},  # that of its own socket, not of the other pool's
        ),
        (
            "memcached", Role.CACHE, ("memcached-settings",),
            {"threads": 3, "connections": 2048, "requests_per_event": 40, "memory": 48,
             "backlog": 222, "growth_factor": 1.07},
        ),
        ("redis", Role.STORE, ("redis-config",),
         {"io_threads": 2, "tcp_backlog": 345, "maxclients": 777}),
    ],
    ids=["proxy", "web", "php-fpm", "memcached", "redis"],
)  # fmt: skip
def test_reads_back(
    service: str, role: Role, fixtures: tuple[str, ...], settings: Settings
) -> None:
    found: dict[str, object] = {}
    readbacks = SERVICES[service].effective(site(role))
    for readback, fixture in zip(readbacks, fixtures, strict=True):
        found.update(readback.parse((FIXTURES / f"{fixture}.txt").read_text()))
    assert found == settings


@pytest.mark.parametrize(
    ("service", "table"),
    [("nginx", nginx.IN_EFFECT), ("php-fpm", php_fpm.IN_EFFECT),
     ("memcached", memcached.IN_EFFECT), ("redis", redis.IN_EFFECT)],
)  # fmt: skip
def test_what_is_read_back_is_a_parameter(service: str, table: dict[str, str]) -> None:
    known = {parameter.name for parameter in SERVICES[service].parameters}
    assert set(table.values()) <= known
    assert len(set(table.values())) == len(table)


def test_another_pool_on_the_host_is_not_ours() -> None:
    _, backlog = SERVICES["php-fpm"].effective(site(Role.APP))
    other = [line for line in (FIXTURES / "ss-unix.txt").read_text().splitlines() if " 99 " in line]
    assert backlog.parse("\n".join(other)) == {}
