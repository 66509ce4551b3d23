"""What is tuned of a host's own files, what is left, and that the baseline gives them back."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import config_text
from autotune.deploy.templates import render_text
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tier_adoption import AdoptedTier, adopt_tier
from autotune.discovery.tiers import DiscoveredInstance, DiscoveredTier, find_instances, group_tiers
from autotune.services.adoption import RunningService
from autotune.services.base import Role, Value
from autotune.services.config_files import FileTree, unpack_tree
from autotune.services.nginx import adoption as of_nginx
from tests.discovery.places import FACTS, NGINX, POOL, SITE, WEB, cache, filled, host, store, web


def adopted(*hosts: DiscoveredHost) -> dict[str, AdoptedTier]:
    found = [member for one in hosts for member in find_instances(one)[0]]
    return {tier.name: adopt_tier(tier) for tier in group_tiers(found)}


def rendered(tier: AdoptedTier, changed: Mapping[str, Value] | None = None) -> dict[str, str]:
    """Every adopted file by `host/path`, at the baseline with some of it changed, as it is deployed."""
    instances = {instance.host.name: instance for instance in tier.discovered_tier.instances}
    return {f"{name}{path}": filled(instances[name], service, path, text)
            for name, service, path, text in masked_texts(tier, changed)}  # fmt: skip


def masked_texts(
    tier: AdoptedTier, changed: Mapping[str, Value] | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """Host, service, path and text of every adopted file, as a study has it."""
    for part, own in tier.adopted_configs.items():
        _, name, service = part.split(".")
        values = {key.partition(".")[2]: value for key, value in tier.baseline_values.items()
                  if key.startswith(f"{service}.")} | dict(changed or {})  # fmt: skip
        if "ServerLimit" in values and "ThreadsPerChild" in values:
            values.setdefault(
                "MaxRequestWorkers", int(values["ServerLimit"]) * int(values["ThreadsPerChild"])
            )
        for file in own.files:
            yield name, service, file.path, render_text(tier.templates[file.template], values)


def backup(*hosts: DiscoveredHost) -> dict[str, str]:
    return {f"{one.name}{path}": config_text.decode(content)
            for one in hosts for path, content in one.tree.files.items()}  # fmt: skip


def given_back(tier: AdoptedTier, *hosts: DiscoveredHost) -> None:
    before = backup(*hosts)
    made = rendered(tier)
    assert made
    assert made == {path: before[path] for path in made}


def test_a_web_host() -> None:
    found = web()
    tier = adopted(found)["web"]
    given_back(tier, found)
    assert tier.discovered_tier.deployment == "nginx+php-fpm"
    assert tier.baseline_values == {
        "nginx.worker_processes": 2,
        "nginx.worker_connections": 768,
        "nginx.multi_accept": False,
        "nginx.accept_mutex": False,
        "nginx.use": "epoll",
        "nginx.keepalive_timeout": 65,
        "nginx.keepalive_requests": 1000,
        "nginx.backlog": 511,
        "nginx.reuseport": False,
        "nginx.access_log_buffer": 0,
        "nginx.fastcgi_buffer_size": 4,
        "nginx.fastcgi_buffers": 8,
        "nginx.ssl_session_cache": 0,
        "nginx.ssl_session_timeout": 300,
        "nginx.ssl_session_tickets": True,
        "nginx.ssl_buffer_size": 16,
        "nginx.http2": False,
        "nginx.gzip": False,
        "nginx.gzip_comp_level": 1,
        "nginx.gzip_min_length": 20,
        "nginx.open_file_cache": 0,
        "nginx.open_file_cache_valid": 60,
        "nginx.open_file_cache_min_uses": 1,
        "php_fpm.pm": "dynamic",
        "php_fpm.max_children": 5,
        "php_fpm.start_servers": 2,
        "php_fpm.min_spare_servers": 1,
        "php_fpm.max_spare_servers": 3,
        "php_fpm.process_idle_timeout": 10,
        "php_fpm.max_requests": 0,
        "php_fpm.listen_backlog": 511,
    }
    assert tier.adopted_configs["web.web1.php_fpm"].listen == "/run/php/php8.2-fpm.sock"
    assert tier.adopted_configs["web.web1.limits"].files == ()


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"worker_processes": 3}, ["worker_processes 3;"]),
        ({"worker_connections": 4096},
         ["worker_connections 4096;", "worker_rlimit_nofile 8256;"]),
        ({"worker_connections": 64}, ["worker_connections 64;"]),
        ({"multi_accept": True}, ["multi_accept on;"]),
        ({"keepalive_timeout": 0}, ["keepalive_timeout 0s;"]),
        ({"keepalive_requests": 9}, ["keepalive_requests 9;"]),
        ({"backlog": 9}, ["listen 80 default_server backlog=9;",
                          "listen [::]:80 default_server backlog=9;",
                          "listen 443 ssl backlog=9;"]),
        ({"reuseport": True}, ["listen 80 default_server reuseport;",
                               "listen [::]:80 default_server reuseport;",
                               "listen 443 ssl reuseport;"]),
        ({"access_log_buffer": 64},
         ["access_log /var/log/nginx/access.log combined buffer=64k flush=5s;"]),
        ({"fastcgi_buffer_size": 16},
         ["fastcgi_buffer_size 16k;", "fastcgi_busy_buffers_size 16k;"]),
        ({"pm": "static", "max_children": 50}, ["pm = static", "pm.max_children = 50"]),
        ({"max_requests": 500}, ["pm.max_requests = 500"]),
        ({"listen_backlog": 4096}, ["listen.backlog = 4096"]),
    ],
)  # fmt: skip
def test_another_value_changes_its_own_lines_alone(
    changed: dict[str, Value], lines: list[str]
) -> None:
    found = web()
    before = backup(found)
    after = rendered(adopted(found)["web"], changed)
    new = {line.strip() for path, text in after.items()
           for line in set(text.splitlines()) - set(before[path].splitlines())}  # fmt: skip
    assert new == set(lines)


@pytest.mark.parametrize(
    ("changed", "parameter", "why"),
    [
        ({"nginx": NGINX.replace("65s", "$wanted")}, "nginx.keepalive_timeout", r"\$wanted"),
        ({"nginx": NGINX.replace("65s", "500ms")}, "nginx.keepalive_timeout", "500ms"),
        ({"site": SITE.replace("80;", "80 backlog=9;")}, "nginx.backlog", "already"),
        ({"nginx": NGINX.replace("\tkeepalive", "fastcgi_buffers 4 64k;\tkeepalive")},
         "nginx.fastcgi_buffers", "`fastcgi_buffers 4 64k` is not a valid"),
        ({"pool": POOL + POOL.replace("= 5", "= 9").replace("www", "two")},
         "php_fpm.max_children", "several values"),
        ({"pool": POOL + POOL.replace("www", "two")}, "php_fpm.max_children",
         "^2 pools share it, so 2 × max_children processes would run$"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_stays_and_is_told(
    changed: dict[str, str], parameter: str, why: str
) -> None:
    found = web(**changed)
    tier = adopted(found)["web"]
    given_back(tier, found)
    assert parameter not in tier.baseline_values
    assert re.search(why, tier.skipped[parameter])


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_word_in_quotes_is_the_word(quote: str) -> None:
    pool = f"[www]\nlisten = /run/s\npm = {quote}static{quote}\npm.max_children = 5\n"
    found = web(pool=pool)
    tier = adopted(found)["web"]
    given_back(tier, found)
    assert tier.baseline_values["php_fpm.pm"] == "static"
    (text,) = (t for path, t in rendered(tier, {"pm": "dynamic"}).items() if "www.conf" in path)
    assert f"pm = {quote}dynamic{quote}\n" in text
    assert "pm.start_servers = 2\n" in text


@pytest.mark.parametrize(("written", "value"), [("1m", 60), ("75", 75), ("75s", 75), ("0", 0)])
def test_units(written: str, value: int) -> None:
    found = web(nginx=NGINX.replace("65s", written))
    tier = adopted(found)["web"]
    given_back(tier, found)
    assert tier.baseline_values["nginx.keepalive_timeout"] == value
    assert (
        "keepalive_timeout 9"
        in rendered(tier, {"keepalive_timeout": 9})["web1/etc/nginx/nginx.conf"]
    )


def test_a_file_included_twice_is_changed_once() -> None:
    twice = "server { include own; } server { include own; }"
    found = host("web1", "10.0.0.1", {
        "/etc/nginx/nginx.conf": f"events {{ }} http {{ {twice} }}",
        "/etc/nginx/own": "listen 80; keepalive_timeout 5;",
    }, "nginx.service")  # fmt: skip
    tier = adopted(found)["web"]
    given_back(tier, found)
    assert rendered(tier, {"keepalive_timeout": 6, "backlog": 7})["web1/etc/nginx/own"] == (
        "listen 80 backlog=7; keepalive_timeout 6;"
    )


def test_hosts_of_a_tier_must_agree() -> None:
    one, other = web(), web("web2", "10.0.0.2", pool=POOL.replace("= 5", "= 9"))
    tier = adopted(one, other)["web"]
    given_back(tier, one, other)
    assert tier.skipped["php_fpm.max_children"] == "the hosts have different values"
    assert tier.baseline_values["php_fpm.start_servers"] == 2
    assert "nginx.backlog" in tier.baseline_values


def test_limits_that_only_one_host_sets_stay() -> None:
    plain = "LoadModule mpm_event_module a\nListen 80\nProxyPass / http://10.0.0.2/\n"
    limits = "ThreadsPerChild 50\nMaxRequestWorkers 800\n"
    one, other = (
        host(name, address, {"/etc/apache2/apache2.conf": text}, "apache2.service")
        for name, address, text in (
            ("lb1", "10.0.0.8", plain),
            ("lb2", "10.0.0.9", plain + limits),
        )
    )
    tier = adopted(one, other)["lb"]
    given_back(tier, one, other)
    left = {"apache.ThreadsPerChild", "apache.ServerLimit"}
    assert left <= {*tier.skipped}
    assert not left & {*tier.baseline_values}


def test_what_depends_on_a_value_that_differs_stays_too() -> None:
    pools = (f"[www]\nlisten = /run/s\npm = {way}\npm.max_children = 5\n"
             for way in ("static", "ondemand"))  # fmt: skip
    one, other = web(pool=next(pools)), web("web2", "10.0.0.2", pool=next(pools))
    tier = adopted(one, other)["web"]
    given_back(tier, one, other)
    assert tier.skipped["php_fpm.pm"] == "the hosts have different values"
    assert "`pm`" in tier.skipped["php_fpm.start_servers"]
    assert tier.baseline_values["php_fpm.max_children"] == 5


def test_a_cache_and_a_store() -> None:
    found = adopted(web(), cache(), store())
    given_back(found["cache"], cache())
    given_back(found["store"], store())
    assert found["cache"].baseline_values["memcached.memory"] == 64
    made = rendered(found["cache"], {"memory": 128, "threads": 8})["mc1/etc/memcached.conf"]
    assert made == "-d\n-m 128\n-p 11211\n-l 10.0.0.3\n-t 8\n"
    made = rendered(found["store"], {"hz": 20, "activerehashing": False})[
        "db1/etc/redis/redis.conf"
    ]
    assert made == "bind 10.0.0.4\nport 6379\nhz 20\nactiverehashing no\n"


def test_a_password_stays_on_its_host() -> None:
    (template,) = adopted(store("requirepass foo\nhz 10\n"))["store"].templates.values()
    assert "foo" not in template
    assert template.startswith("requirepass autotune-masked-1-of-1\nhz {{ hz }}\n")


APACHE = """\
ServerRoot "/etc/apache2"
LoadModule mpm_event_module modules/mod_mpm_event.so
Listen 80
keepalive On
KeepAliveTimeout 5
<IfModule mpm_prefork_module>
    StartServers 9
    MaxRequestWorkers 250
</IfModule>
<IfModule mpm_event_module>
    StartServers 2
    ThreadsPerChild 25
    MaxRequestWorkers 150
</IfModule>
ProxyPass / http://10.0.0.1:80/
"""


def test_apache_as_a_load_balancer() -> None:
    found = host("lb1", "10.0.0.9", {"/etc/apache2/apache2.conf": APACHE}, "apache2.service")
    tiers_found = adopted(web(), found)
    tier = tiers_found["lb"]
    given_back(tier, found)
    assert tier.discovered_tier.forwards_to == "web"
    assert (
        tier.baseline_values["apache.ServerLimit"],
        tier.baseline_values["apache.StartServers"],
    ) == (6, 2)
    assert tier.baseline_values["apache.KeepAlive"] is True
    text = rendered(tier, {"ServerLimit": 40, "KeepAlive": False})["lb1/etc/apache2/apache2.conf"]
    for line in ("MaxRequestWorkers 1000\n", "\nServerLimit 40\n", "keepalive Off\n"):
        assert line in text
    assert "MaxRequestWorkers 250" in text


STYLES = Path(__file__).parent / "styles"


@pytest.mark.parametrize(
    ("style", "place", "units", "tuned"),
    [
        ("nginx-maps-and-tls.conf", "/etc/nginx/nginx.conf", ("nginx.service",),
         {"nginx.worker_processes": 4, "nginx.worker_connections": 4096}),
        ("nginx-windows-line-ends.conf", "/etc/nginx/nginx.conf", ("nginx.service",),
         {"nginx.worker_connections": 768}),
        ("apache-vhosts.conf", "/etc/apache2/apache2.conf", ("apache2.service",),
         {"apache.StartServers": 5}),
        ("apache-macros-and-proxy.conf", "/etc/apache2/apache2.conf", ("apache2.service",),
         {"apache.ThreadsPerChild": 25}),
        ("fpm-two-pools.conf", "/etc/php/8.2/fpm/php-fpm.conf", WEB, {}),
        ("php-ini-windows.ini", "/etc/php/8.2/fpm/php-fpm.conf", WEB, {}),
    ],
)  # fmt: skip
def test_styles(style: str, place: str, units: tuple[str, ...], tuned: dict[str, Value]) -> None:
    content = (STYLES / style).read_bytes()
    prefix = b""
    if place.startswith("/etc/apache2"):
        way = "prefork" if "vhosts" in style else "event"
        prefix = f"LoadModule mpm_{way}_module a\nLoadModule php_module b\nListen 80\n".encode()
    files = {path: text.decode() for path, text in web().tree.files.items()} if units is WEB else {}
    one = host("one", "10.0.0.1", files, *units, links=web().tree.links)
    found = replace(one, tree=FileTree({**one.tree.files, place: prefix + content}, one.tree.links))
    if style == "nginx-maps-and-tls.conf":
        (front,) = find_instances(found)[0]
        assert (front.port, front.tls) == (443, True)
        running = RunningService(
            key="nginx", host=found, role=Role.PROXY, config=of_nginx.read_host_config(found.tree)
        )
        member = DiscoveredInstance(found, "web", "nginx", 80, {"nginx": running})
        tier = adopt_tier(DiscoveredTier("web", (member,)))
    else:
        tier = next(iter(adopted(found).values()))
    made = {path.removeprefix("one"): text.encode() for path, text in rendered(tier).items()}
    assert made == {path: found.tree.files[path] for path in made}
    assert place in made or not tuned
    assert {name: tier.baseline_values[name] for name in tuned} == tuned


@pytest.mark.stack
def test_what_the_distribution_installs() -> None:
    packed = subprocess.run(
        ["tar", "-C", "/", "-c", "etc/nginx", "etc/apache2", "etc/php", "etc/redis",
         "etc/memcached.conf"], capture_output=True, check=True,
    ).stdout  # fmt: skip
    units = (*WEB, "apache2.service", "memcached.service", "redis-server.service")
    tree = unpack_tree(packed)
    found = DiscoveredHost(
        name="here", address="10.0.0.1", tree=tree, facts=FACTS,
        units=dict.fromkeys(units, "active"),
    )  # fmt: skip
    every = adopted(found)
    for tier in every.values():
        made = rendered(tier)
        # A file that is not there is empty.
        assert made == {path: tree.files.get(path.removeprefix("here"), b"").decode()
                        for path in made}  # fmt: skip
    assert {tier.discovered_tier.deployment for tier in every.values()} >= {"memcached", "redis"}
