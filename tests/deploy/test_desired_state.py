"""From settings to what every host should be, without a host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.deploy.desired_state import (
    DesiredState,
    _list_removed_paths,
    build_desired_state,
    find_instance_actions,
    list_required_actions,
    render_files,
)
from autotune.deploy.stack import ServiceInstance, Stack, StackContext, build_stack
from autotune.errors import AutotuneError
from autotune.export.host_setup import build_host_setup
from autotune.runtimes.systemd import RUNTIME, UnitLayout
from autotune.services.base import (
    Action,
    AdoptedConfig,
    ConfigFile,
    Endpoint,
    Placement,
    Role,
    Settings,
)
from autotune.services.gunicorn.service import Gunicorn
from autotune.services.local_cache.service import LocalCache
from autotune.services.registry import SHIPPED
from autotune.space.facts import HostFacts
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target

TARGET = """\
name: fleet
slo: {p99: 50ms, errors: 0.1%}
hosts:
  lb1: {address: 10.0.0.1}
  web1: {address: 10.0.0.2}
  mc1: {address: 10.0.0.3}
  db1: {address: 10.0.0.4}
tiers:
  lb:    {hosts: lb1, service: nginx, forwards_to: web, port: 8080}
  web:   {hosts: web1, service: nginx+php-fpm, app: reference, uses: [cache, store]}
  cache: {hosts: mc1, service: memcached}
  store: {hosts: db1, service: redis}
"""
FACTS = HostFacts(
    cpus=2,
    memory=2**31,
    nofile=65536,
    kernel_values={"net.core.somaxconn": "4096", "vm.swappiness": "60"},
)
NGINX, FPM = "nginx.service", "php8.2-fpm.service"
CONF, POOL = "/etc/nginx/nginx.conf", "/etc/php/8.2/fpm/php-fpm.conf"
KV = "/var/www/autotune/kv.php"
PHP = "/etc/php/8.2/fpm/conf.d/zz-autotune.ini"


def wanted(directory: Path, *changes: tuple[str, str], **changed: Any) -> DesiredState:
    text = TARGET
    for change in changes:
        text = text.replace(*change)
    (directory / "target.yaml").write_text(text)
    file = read_target(directory / "target.yaml")
    target = file.target
    facts = dict.fromkeys(target.hosts, FACTS)
    settings = build_space(file, facts).build_candidate(
        {name.replace("__", "."): value for name, value in changed.items()}
    ).settings  # fmt: skip
    services = [
        p.service
        for name, tier in target.tiers.items()
        for p in SHIPPED.list_tier_services(name, tier)
    ]
    alternatives = {name: found for one in services for name, found in one.programs.items()}
    programs = {name: f"/usr/sbin/{found[0]}" for name, found in alternatives.items()}
    programs["php-fpm"] = "/usr/sbin/php-fpm8.2"
    installed = dict.fromkeys(target.hosts, programs)
    account = ("www-data", "www-data")
    laid = build_stack(
        target, StackContext("/run/t", {}, installed, facts, *account, installed=True)
    )
    return build_desired_state(
        settings,
        laid,
        lambda p: render_files(p.service, p.placement, settings, target.data),
        RUNTIME.layout,
    )


@pytest.fixture
def stock(tmp_path: Path) -> DesiredState:
    return wanted(tmp_path)


def test_every_deployment_has_a_port() -> None:
    assert SHIPPED.deployment_ports.keys() == SHIPPED.deployments.keys()


def test_hosts_have_the_distributions_files_and_units(stock: DesiredState) -> None:
    def drop_in(unit: str) -> str:
        return f"/etc/systemd/system/{unit}.d/autotune.conf"

    assert {name: (set(host.files), dict(host.units)) for name, host in stock.hosts.items()} == {
        "lb1": ({CONF, drop_in(NGINX)}, {NGINX: True}),
        "web1": ({CONF, POOL, KV, PHP, drop_in(NGINX), drop_in(FPM)}, {FPM: True, NGINX: True}),
        "mc1": ({"/etc/memcached.conf", drop_in("memcached.service")}, {"memcached.service": True}),
        "db1": ({"/etc/redis/redis.conf", drop_in("redis-server.service")},
                {"redis-server.service": True}),
    }  # fmt: skip
    assert stock.hosts["lb1"].sysctls["net.core.somaxconn"] == "4096"
    assert stock.created_files("db1") == ("/var/lib/redis/autotune.rdb",)
    web, balancer = stock.hosts["web1"].starts, stock.hosts["lb1"].starts
    assert {unit: start.address for unit, start in web.items()} == {
        FPM: "/run/php/autotune-web.sock",
        NGINX: "80",
    }
    assert {unit: start.address for unit, start in balancer.items()} == {NGINX: "8080"}
    # A tier starts after the tiers that it calls.
    assert balancer[NGINX].rank > web[NGINX].rank == web[FPM].rank > 0
    assert list(stock.hosts["web1"].units) == [FPM, NGINX]  # in the order they start


@pytest.mark.parametrize(
    ("path", "holds", "lacks"),
    [
        (("lb1", CONF), [b"pid /run/nginx.pid;", b"user www-data www-data;",
                         b"listen 10.0.0.1:8080 ", b"server 10.0.0.2:80;"], [b"nginx-temp"]),
        (("web1", CONF), [b"unix:/run/php/autotune-web.sock", b"root /var/www/autotune;"], []),
        (("web1", POOL), [b"listen = /run/php/autotune-web.sock\n", b"user = www-data"], []),
        (("web1", KV), [b"'10.0.0.3', 11211", b"'10.0.0.4', 6379"], []),
        (("mc1", "/etc/memcached.conf"), [b"-l 10.0.0.3\n", b"-u memcache\n"], []),
        (("db1", "/etc/redis/redis.conf"), [b"bind 10.0.0.4\n", b"dir /var/lib/redis\n",
                                            b"dbfilename autotune.rdb\n"], [b"dump.rdb"]),
    ],
)  # fmt: skip
def test_templates_know_the_distributions_places(
    stock: DesiredState, path: tuple[str, str], holds: list[bytes], lacks: list[bytes]
) -> None:
    content = stock.hosts[path[0]].files[path[1]].content or b""
    for text in holds:
        assert text in content
    for text in lacks:
        assert text not in content


def test_a_tier_forwards_requests_to_the_tier_at_its_endpoints(stock: DesiredState) -> None:
    stack = Stack(stock.instances, Endpoint("10.0.0.1", 8080))
    assert stack.forwards_to == {"lb": "web"}


def test_only_instances_of_a_tier_with_a_local_cache_use_one(tmp_path: Path) -> None:
    cached = wanted(tmp_path, ("app: reference", "app: reference, local_cache: true"))
    endpoints = {(i.placement.tier, i.placement.local_cache) for i in cached.instances}
    assert endpoints == {
        ("lb", None), ("web", Endpoint("127.0.0.1", 11_311)), ("cache", None), ("store", None)
    }  # fmt: skip


def test_a_choice_stops_the_units_it_does_not_make(tmp_path: Path) -> None:
    both = ("service: nginx,", "service: [nginx, apache],")
    first = wanted(tmp_path, both)
    assert first.hosts["lb1"].units == {NGINX: True, "apache2.service": False}
    second = wanted(tmp_path, both, lb__service="apache")
    assert second.hosts["lb1"].units == {"apache2.service": True, NGINX: False}
    assert CONF not in second.hosts["lb1"].files


def test_two_parts_cannot_have_the_same_file(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match=r"web\.web1\.\w+ and lb\.web1\.\w+ both need /etc/"):
        wanted(tmp_path, ("hosts: lb1", "hosts: web1"))


def changed(stock: DesiredState, **values: Any) -> Settings:
    return {**stock.settings, **{name.replace("__", "."): v for name, v in values.items()}}


@pytest.mark.parametrize(
    ("host", "path", "before", "units"),
    [
        ("lb1", CONF, None, {NGINX: Action.RESTART}),
        ("lb1", CONF, {"lb__nginx__worker_processes": 7}, {NGINX: Action.RELOAD}),
        ("lb1", CONF, {"lb__nginx__reuseport": True}, {NGINX: Action.RESTART}),
        ("lb1", CONF, {"web__nginx__reuseport": True}, {NGINX: Action.RELOAD}),
        ("mc1", "/etc/memcached.conf", {}, {"memcached.service": Action.RESTART}),
        ("web1", POOL, {"web__php_fpm__max_children": 7}, {FPM: Action.RELOAD}),
        ("web1", KV, {}, {FPM: Action.RELOAD, NGINX: Action.RELOAD}),
        ("web1", f"/etc/systemd/system/{FPM}.d/autotune.conf", {}, {FPM: Action.RESTART}),
        ("web1", "net.core.somaxconn", {}, {FPM: Action.RESTART, NGINX: Action.RESTART}),
        ("web1", "net.ipv4.tcp_fin_timeout", {}, {}),
    ],
)
def test_what_a_change_needs(
    tmp_path: Path,
    host: str,
    path: str,
    before: dict[str, Any] | None,
    units: dict[str, Action],
) -> None:
    stock = wanted(tmp_path, web__sysctl__net__ipv4__tcp_fin_timeout=30)
    earlier = None if before is None else changed(stock, **before)
    assert list_required_actions(stock, host, earlier)[path] == units


def test_a_kernel_value_concerns_the_sockets_of_every_tier_on_the_host(tmp_path: Path) -> None:
    shared = wanted(
        tmp_path,
        ("  mc1: {address: 10.0.0.3}\n", ""),
        ("hosts: mc1", "hosts: web1"),
        web__sysctl__net__ipv4__tcp_fin_timeout=30,
    )
    actions = list_required_actions(shared, "web1", shared.settings)
    assert actions["net.core.somaxconn"] == dict.fromkeys(
        (FPM, NGINX, "memcached.service"), Action.RESTART
    )
    assert actions["net.ipv4.tcp_fin_timeout"] == {}


@pytest.mark.parametrize(
    ("changing_paths", "checked"), [({CONF}, {"lb.lb1.nginx": (CONF,)}), (set(), {})]
)
def test_software_validates_its_changing_files(
    stock: DesiredState, changing_paths: set[str], checked: dict[str, tuple[str, ...]]
) -> None:
    checks = stock.build_checks("lb1", changing_paths)
    assert {check.instance.name: check.changed_files for check in checks} == checked
    assert all(check.files[CONF] == stock.hosts["lb1"].files[CONF].content for check in checks)


def test_parts_without_a_unit_of_their_own_went_through_what_they_caused(
    stock: DesiredState,
) -> None:
    done = find_instance_actions(
        stock, {"web1": {FPM: Action.RELOAD}}, {"web1": {KV, "net.core.somaxconn"}}
    )
    assert {part: action for part, action in done.items() if action} == {
        "web.web1.reference": Action.RELOAD,
        "web.web1.sysctl": Action.RELOAD,
        "web.web1.php_fpm": Action.RELOAD,
    }


@pytest.mark.parametrize(
    ("changed", "known", "needed"),
    [
        ({"web__nginx__keepalive_timeout": 9}, True, "reload"),
        ({"web__nginx__backlog": 900}, True, "restart"),
        ({"web__nginx__keepalive_timeout": 9}, False, "restart"),
    ],
)
def test_hosts_whose_settings_are_known_need_what_differs_from_them(
    tmp_path: Path, stock: DesiredState, changed: dict[str, Any], known: bool, needed: str
) -> None:
    before = stock.settings if known else None
    setup = build_host_setup(wanted(tmp_path, **changed), "web1", before)
    assert setup.files[CONF].units == {NGINX: needed}


def test_the_unit_of_an_administrator_outlives_an_inactive_service() -> None:
    unit = ConfigFile("/etc/systemd/system/shop.service", "unit.j2", text="[Service]\n")
    site = Placement(tier="app", host="h", role=Role.APP, directory="/run/x", installed=True,
                     listen=Endpoint("127.0.0.1", 8000), programs={},
                     adopted=AdoptedConfig((unit,), unit="shop.service"))  # fmt: skip
    assert _list_removed_paths([ServiceInstance(Gunicorn(), site)], UnitLayout()) == []
    cache = ServiceInstance(LocalCache(), replace(site, role=Role.LOCAL, adopted=None))
    own_unit = "/etc/systemd/system/autotune-local-cache.service"
    assert _list_removed_paths([cache], UnitLayout()) == [own_unit]
