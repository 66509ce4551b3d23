"""The distribution's own option files, as its units read them."""

from __future__ import annotations

import pytest

from autotune.services.base import Endpoint, Placement, Role
from autotune.services.memcached.service import Memcached, parse_options
from autotune.services.nginx.service import parse_effective
from autotune.services.redis.service import Redis

DEBIAN = b"""\
# memcached default config file
-d

logfile /var/log/memcached.log
-m 64
-l 127.0.0.1 # the loopback
-P /var/run/memcached/memcached.pid
"""


def test_what_is_no_option_for_a_server_in_the_foreground_does_not_count() -> None:
    pid = ("-P", "/var/run/memcached/memcached.pid")
    assert parse_options(DEBIAN) == ("-m", "64", "-l", "127.0.0.1", *pid)


@pytest.mark.parametrize(
    "lines",
    [
        DEBIAN,
        DEBIAN.replace(b"-P ", b"-P"),
        DEBIAN.replace(b"-P ", b"--pidfile="),
        DEBIAN.replace(b"-P ", b"--pidfile ") + b"-e /mnt/pmem/items\n",
        DEBIAN + b"--memory-file=/mnt/pmem/items\n",
    ],
)
def test_a_trial_leaves_the_running_servers_files_alone(lines: bytes) -> None:
    site = Placement(
        tier="cache",
        host="mc1",
        role=Role.CACHE,
        directory="/run/x",
        listen=Endpoint("10.0.0.1", 11211),
        installed=True,
        programs={"memcached": "/usr/bin/memcached"},
    )
    trial = Memcached().build_validation(site, {"/etc/memcached.conf": lines})
    assert trial.argv == (
        "/usr/bin/memcached", "-m", "64", "-l", "127.0.0.1", "-s", "trial.sock",
    )  # fmt: skip


def test_workers_that_nginx_counts_itself_are_not_told() -> None:
    text = "worker_processes auto;\nevents { worker_connections 768; }\n"
    assert parse_effective(text) == {"worker_connections": 768}


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (b"port 6379\n# tls-port 6380\n", ()),
        (b"port 6379\n  TLS-Port 6380\ntls-cert-file /etc/redis/a.crt\n", ("--tls-port", "0")),
    ],
)
def test_a_trial_of_redis_listens_on_no_port(lines: bytes, options: tuple[str, ...]) -> None:
    site = Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                listen=Endpoint("10.0.0.1", 6379),
                programs={"redis-server": "/usr/bin/redis-server"})  # fmt: skip
    trial = Redis().build_validation(site, {"/etc/redis/redis.conf": lines})
    start = trial.argv.index("--port")
    assert trial.argv[start : trial.argv.index("--dir")] == ("--port", "0", *options)
