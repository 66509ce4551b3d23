"""Services of the host itself: its kernel and the limits of its units."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.desired_state import render_files
from autotune.services.base import Action, Endpoint, Placement, Role
from autotune.services.limits import service as limits
from autotune.services.limits.service import Limits
from autotune.services.registry import SHIPPED
from autotune.services.sysctl import service as sysctl
from autotune.services.sysctl.service import Sysctl
from autotune.target.model import Data

FIXTURES = Path(__file__).parent / "fixtures"
SITE = Placement(
    tier="web",
    host="web1",
    role=Role.HOST,
    directory="/",
    listen=Endpoint("198.18.0.2", 80),
    installed=True,
    programs={"php-fpm": "/usr/sbin/php-fpm8.2", "nginx": "/usr/sbin/nginx", "sysctl": "sysctl"},
    facts={"nofile": 1_048_576},
)


def test_the_kernel_gets_what_the_study_sets_and_nothing_else() -> None:
    settings = {
        "web.sysctl.net.core.somaxconn": 8192,
        "web.sysctl.net.ipv4.ip_local_port_range": "1024 65535",
        "lb.sysctl.net.core.somaxconn": 128,
        "web.nginx.backlog": 300,
    }
    assert Sysctl().build_sysctls(SITE, settings) == {
        "net.core.somaxconn": "8192",
        "net.ipv4.ip_local_port_range": "1024 65535",
    }


def test_what_a_listening_socket_gets_needs_a_restart() -> None:
    """Connections inherit the buffers that their listening socket got when it was created."""
    restarting = {p.name for p in sysctl.PARAMETERS if p.action is Action.RESTART}
    assert restarting == {
        "net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_fastopen",
        "net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
    }  # fmt: skip


def test_what_drops_connections_of_clients_is_tuned_on_demand() -> None:
    (parameter,) = (p for p in sysctl.PARAMETERS if p.name == "net.ipv4.tcp_tw_recycle")
    assert parameter.on_demand


def test_the_kernels_values_are_read_back() -> None:
    (readback,) = Sysctl().list_readbacks(SITE)
    assert readback.argv[:2] == ("sysctl", "-e")
    assert readback.parse((FIXTURES / "sysctl.txt").read_text()) == {
        "net.core.somaxconn": 4096,
        "net.ipv4.tcp_tw_reuse": 2,
        "net.ipv4.ip_local_port_range": "32768 60999",
        "net.ipv4.tcp_congestion_control": "bbr",
    }


@pytest.mark.parametrize(
    ("deployment", "units"),
    [
        ("nginx+php-fpm", ("php8.2-fpm.service", "nginx.service")),
        ("nginx", ("nginx.service",)),
        ("memcached", ("memcached.service",)),
    ],
)
def test_a_drop_in_for_each_unit(deployment: str, units: tuple[str, ...]) -> None:
    service = Limits(tuple(service for service, _ in SHIPPED.services_of(deployment)))
    rendered = render_files(service, SITE, {"web.limits.nofile": 65535}, Data())
    assert tuple(rendered) == tuple(f"/etc/systemd/system/{unit}.d/autotune.conf" for unit in units)
    for content in rendered.values():
        assert content.decode().splitlines()[1:] == ["[Service]", "LimitNOFILE=65535:524288"]


@pytest.mark.parametrize(("nofile", "set_by_apachectl"), [(1024, 8192), (65535, 65535)])
def test_apachectl_is_told_what_it_would_set_itself(nofile: int, set_by_apachectl: int) -> None:
    service = Limits((SHIPPED.services_of("apache")[0][0],))
    (content,) = render_files(service, SITE, {"web.limits.nofile": nofile}, Data()).values()
    lines = content.decode().splitlines()
    assert f"LimitNOFILE={nofile}:524288" in lines
    assert f'Environment="APACHE_ULIMIT_MAX_FILES=ulimit -n {set_by_apachectl}"' in lines


@pytest.mark.parametrize(
    ("nofile", "allowed", "line"),
    [
        (1024, 1_048_576, "LimitNOFILE=1024:524288"),
        (800_000, 1_048_576, "LimitNOFILE=800000:800000"),
        (1024, 4096, "LimitNOFILE=1024:4096"),
    ],
)
def test_the_hard_limit_stays_what_the_distribution_has(
    nofile: int, allowed: int, line: str
) -> None:
    site = Placement(**{**SITE.__dict__, "facts": {"nofile": allowed}})
    service = Limits((SHIPPED.services_of("nginx")[0][0],))
    (content,) = render_files(service, site, {"web.limits.nofile": nofile}, Data()).values()
    assert line in content.decode()


def test_limits_are_read_back() -> None:
    text = (FIXTURES / "limits.txt").read_text()
    assert set(limits.parse_open_files(text)) == {"nofile"}
    assert limits.parse_open_files("cat: /proc//limits: No such file or directory\n") == {}
    assert limits.parse_open_files("LimitNOFILESoft=1024\n") == {}


@pytest.mark.parametrize(
    ("process", "unit", "limit"),
    [
        ("4096", "4096", 4096),
        ("19900", "1024", 1024),  # memcached raises its own to what `-c` needs
        ("1024", "65535", 1024),  # not restarted since
        ("4096", "infinity", 4096),
    ],
)
def test_a_limit_is_what_the_unit_gave_its_process(process: str, unit: str, limit: int) -> None:
    text = f"Max open files            {process}   524288   files\nLimitNOFILESoft={unit}\n"
    assert limits.parse_open_files(text) == {"nofile": limit}


def test_the_lowest_limit_of_several_units_counts() -> None:
    service = Limits(tuple(service for service, _ in SHIPPED.services_of("nginx+php-fpm")))
    (readback,) = service.list_readbacks(SITE)
    assert readback.argv[-2:] == ("php8.2-fpm.service", "nginx.service")
    one, other = (
        f"Max open files   {limit}   524288   files\nLimitNOFILESoft={limit}\n"
        for limit in (1024, 65535)
    )
    assert readback.parse(one + other) == readback.parse(other + one) == {"nofile": 1024}
    assert readback.parse(other + "LimitNOFILESoft=1024\n") == {}  # a unit without a process


def test_choices_that_the_host_has_are_asked_for() -> None:
    assert set(sysctl.AVAILABLE_CHOICES_KEYS.values()) <= set(sysctl.KERNEL_KEYS)
