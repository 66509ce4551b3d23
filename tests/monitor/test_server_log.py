"""Complaints in error logs, only those made since the reading began."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.stack import Part
from autotune.monitor import server_log
from autotune.monitor.server_log import complaints, log_of, position, since
from autotune.services.apache.service import Apache
from autotune.services.base import Endpoint, Role, Service, Site
from autotune.services.memcached.service import Memcached
from autotune.services.nginx.service import Nginx
from autotune.services.php_fpm.service import PhpFpm

AT = "2026/11/21 04:50:12 [alert] 812#812: "
APACHE = "[Sat Nov 21 07:18:04.461156 2026] [{0}:error] [pid 812:tid 812] {1}"


def site_of(role: Role, installed: bool) -> Site:
    return Site(
        tier="lb", host="a", role=role, directory="/srv/lb", listen=Endpoint("127.0.0.1", 1),
        installed=installed, programs={"php-fpm": "/usr/sbin/php-fpm8.2"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "about"),
    [
        (AT + "*9 64 worker_connections are not enough while connecting to upstream",
         "worker_connections"),
        (AT + "64 worker_connections are not enough, reusing connections", "worker_connections"),
        (AT + "accept4() failed (24: Too many open files)", "open_files"),
        (AT + "*1 socket() failed (24: Too many open files) while connecting to upstream",
         "open_files"),
        (AT + "*7 connect() to unix:web.here.php-fpm.sock failed (11: Resource temporarily "
         "unavailable) while connecting to upstream", "upstream_queue_full"),
        (AT + "*7 connect() failed (111: Connection refused) while connecting to upstream",
         "upstream_refused"),
        (AT + "*3 upstream timed out (110: Connection timed out)", "upstream_timed_out"),
        (AT + "*3 no live upstreams while connecting to upstream", "no_live_upstreams"),
        (AT + "*3 connect() to 127.0.0.1:80 failed (99: Cannot assign requested address)",
         "no_ports"),
        ("[21-Nov-2026 05:01:01] WARNING: [pool www] server reached pm.max_children setting (5)",
         "max_children"),
        (AT + "signal process started", None),
        (APACHE.format("mpm_prefork", "AH00161: server reached MaxRequestWorkers setting, consider "
         "raising the MaxRequestWorkers setting"), "max_workers"),
        (APACHE.format("mpm_event", "AH03490: scoreboard is full, not at MaxRequestWorkers."
         "Increase ServerLimit."), "max_workers"),
        (APACHE.format("mpm_event", "AH10159: server is within MinSpareThreads of "
         "MaxRequestWorkers, consider raising the MaxRequestWorkers setting"), None),
        (APACHE.format("proxy", "(111)Connection refused: AH00957: http: attempt to connect to "
         "127.0.0.1:80 (127.0.0.1:80) failed"), "upstream_refused"),
        (APACHE.format("proxy", "(99)Cannot assign requested address: AH00957: http: attempt to "
         "connect to 127.0.0.1:80 (127.0.0.1:80) failed"), "no_ports"),
        (APACHE.format("proxy_http", "(70007)The timeout specified has expired: AH01102: error "
         "reading status line from remote server 127.0.0.1:80"), "upstream_timed_out"),
        (APACHE.format("proxy_balancer", "AH01167: balancer://web: All workers are in error state "
         "for route ()"), "no_live_upstreams"),
        (APACHE.format("core", "(24)Too many open files: AH00052: child pid 9 exit signal"),
         "open_files"),
    ],
)  # fmt: skip
def test_complaints(line: str, about: str | None) -> None:
    writer = Apache() if ":error]" in line else PhpFpm() if "[pool " in line else Nginx()
    part = Part(writer, site_of(Role.PROXY, "embedded"))
    assert complaints(f"{line}\n{line}\n", part) == ({about: 2} if about else {})


def test_only_what_was_written_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "it's $(a) log"
    log.write_text("before\n")
    begun = position(str(log))
    with log.open("a") as more:
        more.write("after\n" * 100)
    assert since(begun) == "after\n" * 100
    monkeypatch.setattr(server_log, "LARGEST", 12)
    assert since(begun) == "after\n" * 2


def test_no_log_at_all(tmp_path: Path) -> None:
    assert since(position(str(tmp_path / "none"))) == ""


@pytest.mark.parametrize(
    ("service", "role", "installed", "expected"),
    [
        (Nginx(), Role.PROXY, False, "/srv/lb/nginx-error.log"),
        (Nginx(), Role.PROXY, True, "/var/log/nginx/error.log"),
        (PhpFpm(), Role.APP, False, "/srv/lb/php-fpm.log"),
        (PhpFpm(), Role.APP, True, "php8.2-fpm.service"),
        (Apache(), Role.PROXY, False, "/srv/lb/apache2-error.log"),
        (Apache(), Role.PROXY, True, "/var/log/apache2/error.log"),
        (Memcached(), Role.CACHE, False, None),
        (Memcached(), Role.CACHE, True, "memcached.service"),
    ],
)
def test_where_a_service_says_what_is_wrong(
    service: Service, role: Role, installed: bool, expected: str | None
) -> None:
    assert log_of(Part(service, site_of(role, installed))) == expected
