"""Each service reads its own values back out of what its programs really print."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.services.base import AdoptedConfig, ConfigFile, Endpoint, Placement, Role, Settings
from autotune.services.memcached import service as memcached
from autotune.services.nginx import service as nginx
from autotune.services.php_fpm import service as php_fpm
from autotune.services.redis import service as redis
from autotune.services.registry import SHIPPED

FIXTURES = Path(__file__).parent / "fixtures"


def site(role: Role) -> Placement:
    programs = {name: name for service in SHIPPED.deployable.values() for name in service.programs}
    # The directory that the fixtures were recorded in: it is part of the socket's name.
    return Placement(tier="web", host="here", role=role, directory="/tmp/stack/web",
                listen=Endpoint("127.0.0.1", 28302), programs=programs)  # fmt: skip


@pytest.mark.parametrize(
    ("service", "role", "fixtures", "settings"),
    [
        (
            "nginx", Role.PROXY, ("nginx", "ss-tcp-reuseport"),
            {"worker_processes": 2, "worker_connections": 1500, "multi_accept": True,
             "accept_mutex": False, "use": "epoll", "keepalive_timeout": 65,
             "keepalive_requests": 2000, "gzip": True, "backlog": 300},
        ),
        (
            "nginx", Role.WEB, ("nginx-web", "ss-tcp"),
            {"worker_processes": 1, "worker_connections": 1800, "multi_accept": False,
             "accept_mutex": True, "use": "epoll", "keepalive_timeout": 0,
             "keepalive_requests": 1, "fastcgi_keep_conn": True, "gzip": True, "backlog": 200},
        ),
        (
            "php-fpm", Role.APP, ("php-fpm", "ss-unix"),
            {"pm": "dynamic", "max_children": 12, "start_servers": 3, "min_spare_servers": 2,
             "max_spare_servers": 6, "process_idle_timeout": 10, "max_requests": 500,
             "listen_backlog": 123},  # that of its own socket, not of the other pool's
        ),
        (
            "apache", Role.PROXY, ("apache", "ss-tcp"),
            {"ServerLimit": 8, "ThreadsPerChild": 15, "MaxRequestWorkers": 120, "ThreadLimit": 64,
             "AsyncRequestWorkerFactor": 4, "StartServers": 3, "MinSpareThreads": 25,
             "MaxSpareThreads": 75, "MaxConnectionsPerChild": 0, "KeepAlive": False,
             "KeepAliveTimeout": 5, "MaxKeepAliveRequests": 100, "BufferedLogs": True,
             "lbmethod": "bybusyness", "proxy_disablereuse": False, "proxy_max": 12,
             "proxy_smax": 6, "proxy_min": 2, "proxy_ttl": 4, "proxy_keepalive": True,
             "proxy_retry": 1, "ListenBacklog": 200},
        ),
        (
            "apache-mod-php", Role.WEB, ("apache-mod-php", "ss-tcp"),
            {"MaxRequestWorkers": 40, "ServerLimit": 256, "StartServers": 7, "MinSpareServers": 3,
             "MaxSpareServers": 12, "MaxConnectionsPerChild": 1000, "KeepAlive": True,
             "KeepAliveTimeout": 2, "MaxKeepAliveRequests": 500, "BufferedLogs": False,
             "ListenBacklog": 200},
        ),
        (
            "memcached", Role.CACHE, ("memcached-tool", "ss-tcp"),
            {"threads": 3, "connections": 2048, "requests_per_event": 40, "memory": 48,
             "backlog": 200, "growth_factor": 1.07, "chunk_size": 48, "udp": False,
             "ext_item_size": 512, "ext_wbuf_size": 4, "ext_recache_rate": 2000},
        ),
        ("redis", Role.STORE, ("redis-cli", "ss-tcp"),
         {"io_threads": 2, "tcp_backlog": 200, "maxclients": 777, "io_threads_do_reads": False,
          "hz": 10, "activerehashing": True, "tcp_keepalive": 300, "jemalloc_bg_thread": True}),
    ],
    ids=["proxy", "web", "php-fpm", "apache", "apache-mod-php", "memcached", "redis"],
)  # fmt: skip
def test_reads_back(
    service: str, role: Role, fixtures: tuple[str, ...], settings: Settings
) -> None:
    found: dict[str, object] = {}
    readbacks = SHIPPED.deployable[service].list_readbacks(site(role))
    for readback, fixture in zip(readbacks, fixtures, strict=True):
        found.update(readback.parse((FIXTURES / f"{fixture}.txt").read_text()))
    assert found == settings


@pytest.mark.parametrize(
    ("service", "table"),
    [
        ("nginx", {name: name for name in nginx.DIRECTIVE_NOTATIONS}),
        ("php-fpm", php_fpm.PARAMETERS_BY_DIRECTIVE),
        ("memcached", memcached.PARAMETERS_BY_SETTING),
        ("redis", redis.PARAMETERS_BY_OPTION),
    ],
)
def test_what_is_read_back_is_a_parameter(service: str, table: dict[str, str]) -> None:
    known = {parameter.name for parameter in SHIPPED.deployable[service].parameters}
    assert set(table.values()) <= known
    assert len(set(table.values())) == len(table)


def test_another_pool_on_the_host_is_not_ours() -> None:
    _, backlog = SHIPPED.deployable["php-fpm"].list_readbacks(site(Role.APP))
    other = [line for line in (FIXTURES / "ss-unix.txt").read_text().splitlines() if " 99 " in line]
    assert backlog.parse("\n".join(other)) == {}


def test_the_queue_of_a_pool_on_a_port_is_read_from_its_port() -> None:
    pool = replace(site(Role.APP), installed=True, adopted=AdoptedConfig(listen="9000"))
    _, backlog = SHIPPED.deployable["php-fpm"].list_readbacks(pool)
    assert backlog.argv == ("ss", "-ltnH", "sport = :9000")
    assert backlog.parse("LISTEN 0 128 127.0.0.1:9000 0.0.0.0:*\n") == {"listen_backlog": 128}


@pytest.mark.parametrize(
    ("service", "role", "fixture", "asked", "effective"),
    [
        # Reloaded with ServerLimit 8: a reload cannot raise it.
        ("apache", Role.PROXY, "apache-proxy-not-raised",
         {"ServerLimit": 8, "ThreadsPerChild": 10, "MaxRequestWorkers": 80},
         {"ServerLimit": 4, "ThreadsPerChild": 10, "MaxRequestWorkers": 40}),
        # Started with MaxRequestWorkers 400 above ServerLimit 100.
        ("apache-mod-php", Role.WEB, "apache-web-lowered",
         {"ServerLimit": 100, "MaxRequestWorkers": 400},
         {"ServerLimit": 100, "MaxRequestWorkers": 100}),
    ],
    ids=["by what was there before", "by its own limit"],
)  # fmt: skip
def test_what_apache_lowers_is_read_back_as_it_is(
    service: str, role: Role, fixture: str, asked: Settings, effective: Settings
) -> None:
    text = (FIXTURES / f"{fixture}.txt").read_text()
    for name, value in asked.items():
        assert f"{name} <i>{value}</i>" in text
    found = SHIPPED.deployable[service].list_readbacks(site(role))[0].parse(text)
    assert {name: found[name] for name in effective} == effective


@pytest.mark.parametrize("beyond", ["", "GGG", "..GG.G", "__W.G"])
def test_slots_above_a_lowered_limit_are_not_workers(beyond: str) -> None:
    """As Apache 2.4 shows them after a reload from 150 processes to 40, at first and for good."""
    text = (FIXTURES / "apache-mod-php.txt").read_text()
    board = "_W_____" + 33 * "."
    page = SHIPPED.deployable["apache-mod-php"].list_readbacks(site(Role.WEB))[0]
    found = page.parse(text.replace(f"Scoreboard: {board}\n", f"Scoreboard: {board}{beyond}\n"))
    assert found["MaxRequestWorkers"] == 40


def test_a_lowered_limit_that_apache_does_not_list_is_read_from_the_slots() -> None:
    """As on a host with Debian's own files, whose status pages listed no such directive."""
    text = (FIXTURES / "apache-mod-php.txt").read_text().replace("MaxRequestWorkers", "Other")
    board = "__W__......."
    page = SHIPPED.deployable["apache-mod-php"].list_readbacks(site(Role.WEB))[0]
    found = page.parse(text.replace(f"Scoreboard: _W_____{33 * '.'}", f"Scoreboard: {board}GGGG"))
    assert found["MaxRequestWorkers"] == len(board)


def test_the_number_of_processes_is_read_back_even_below_their_limit() -> None:
    text = (FIXTURES / "apache.txt").read_text()
    assert "ServerLimit <i>8</i>" in text
    raised = text.replace("ServerLimit <i>8</i>", "ServerLimit <i>16</i>")
    own_files = (ConfigFile("/etc/apache2/apache2.conf", ""),)
    adopted = replace(site(Role.PROXY), adopted=AdoptedConfig(own_files))
    page = SHIPPED.deployable["apache"].list_readbacks(adopted)[0]
    assert page.parse(raised)["ServerLimit"] == 8
    assert page.parse(raised)["MaxRequestWorkers"] == 120
    written = SHIPPED.deployable["apache"].list_readbacks(site(Role.PROXY))[0]
    assert written.parse(raised)["ServerLimit"] == 16  # as autotune wrote it


def test_half_of_what_apache_says_says_nothing() -> None:
    status, info = (FIXTURES / "apache.txt").read_text().split("<!DOCTYPE", 1)
    page = SHIPPED.deployable["apache"].list_readbacks(site(Role.PROXY))[0]
    assert page.parse(status) == page.parse(info) == {}
