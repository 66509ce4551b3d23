"""Logins of a memcached are in its file: one written whole must not take them away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.services.adoption import RunningHost, RunningService
from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role
from autotune.services.config_files import FileTree
from autotune.services.memcached.service import ADOPTION, Memcached
from autotune.transports.local import LocalTransport

SITE = Placement(tier="cache", host="h", role=Role.CACHE, directory="/run/x", installed=True,
            listen=Endpoint("127.0.0.1", 11211))  # fmt: skip


@pytest.mark.parametrize(
    ("line", "template", "refused"),
    [
        ("-m 64", b"-m 64\n", False),
        ("-S", b"-m 64\n", True),
        ("-vS # by SASL", b"-m 64\n", True),
        ("-m 64 -S", b"-m 64\n", True),
        ("--enable-sasl", b"-m 64\n", True),
        ("-Y /etc/memcached.users", b"-m 64\n", True),
        ("--auth-file=/etc/memcached.users", b"# -S\n", True),
        ("# -S", b"-m 64\n", False),
        ("-s /run/cache-S", b"-m 64\n", False),
        ("-uSYSTEM", b"-m 64\n", False),
        ("-S", b"-m 64\n-S\n", False),
    ],
)
def test_no_whole_file_takes_logins_away(
    tmp_path: Path, line: str, template: bytes, refused: bool
) -> None:
    file = tmp_path / "memcached.conf"
    file.write_text(f"-l 127.0.0.1\n{line}\n")

    class There(Memcached):
        def config_path(self, site: Placement) -> str:
            return str(file)

    argv = There().build_unpersisted_check(SITE, {str(file): template})
    answer = "" if argv is None else LocalTransport().run(argv).stdout
    assert ("the replaced file" in answer) == refused
    assert ("`replace: true`" in answer) == refused


def test_a_file_that_is_edited_keeps_its_logins() -> None:
    assert (
        Memcached().build_unpersisted_check(
            replace(SITE, adopted=AdoptedConfig()), {"/etc/memcached.conf": b"-m 64\n"}
        )
        is None
    )


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        # Ubuntu 24.04's own file: its tool cannot connect to ::1:11211.
        ("-p 11211\n-l 127.0.0.1\n-l ::1\n", "127.0.0.1"),
        ("-l [::1]:11211,10.0.0.9:11211\n", "10.0.0.9"),
        ("-l ::1\n", "::1"),
        ("-l 0.0.0.0\n-l ::\n", ""),
        ("-m 64\n", ""),
    ],
)
def test_its_tool_asks_an_address_of_ipv4(lines: str, address: str) -> None:
    running = RunningHost(
        tree=FileTree({"/etc/memcached.conf": lines.encode()}),
        units={"memcached.service": "active"},
    )
    (found,) = ADOPTION.find_services(running)
    assert isinstance(found, RunningService)
    assert (found.listen_address, found.port) == (address, 11211)
