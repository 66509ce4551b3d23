"""What nginx does for some sites alone: where it is tuned, and a real nginx that does it over TLS."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.discovery.target_writer import find_instances
from autotune.discovery.tier_adoption import AdoptedTier, adopt_tier
from autotune.discovery.tiers import DiscoveredTier
from autotune.services.base import Value
from autotune.services.nginx.service import parse_effective
from tests.discovery.places import host
from tests.discovery.test_tier_adoption import given_back, rendered
from tests.loads.tls import NAME, serving

MAIN = "/etc/nginx/nginx.conf"
TLS = {
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_session_tickets",
    "ssl_buffer_size",
    "http2",
}
FILES = {"gzip", "gzip_comp_level", "gzip_min_length", "open_file_cache", "open_file_cache_valid",
         "open_file_cache_min_uses"}  # fmt: skip
CACHE = "proxy_cache_path /var/cache/c keys_zone=c:1m; "


def tier(http: str) -> AdoptedTier:
    server = "location / { proxy_pass http://10.0.0.9:80; } }"
    site = host("web1", "10.0.0.1", {
        MAIN: f"events {{ }} http {{ {http} {server} }}\n"}, "nginx.service")  # fmt: skip
    (front,) = find_instances(site)[0]
    found = adopt_tier(DiscoveredTier("web", (front,)))
    given_back(found, site)
    return found


@pytest.mark.parametrize(
    ("http", "more"),
    [
        ("server { listen 80;", set()),
        ("server { listen 443 ssl;", TLS),
        (CACHE + "server { listen 80;", set()),
        (CACHE + "proxy_cache c; server { listen 80;", {"proxy_cache_lock"}),
    ],
)
def test_it_is_tuned_where_the_site_has_it(http: str, more: set[str]) -> None:
    tuned = {name.removeprefix("nginx.") for name in tier(http).baseline_values}
    assert tuned & (TLS | FILES | {"proxy_cache_lock", "fastcgi_cache_lock"}) == FILES | more


@pytest.mark.parametrize(
    ("written", "changed", "line"),
    [
        ("", {"ssl_session_cache": 10}, "ssl_session_cache shared:autotune:10m;"),
        ("ssl_session_cache shared:SSL:5m;", {"ssl_session_cache": 0}, "ssl_session_cache none;"),
        ("ssl_session_timeout 10m;", {"ssl_session_timeout": 900}, "ssl_session_timeout 900;"),
        ("ssl_buffer_size 8k;", {"ssl_buffer_size": 4}, "ssl_buffer_size 4k;"),
        ("", {"http2": True}, "listen 443 ssl http2;"),
        ("gzip on;", {"gzip": False}, "gzip off;"),
        ("open_file_cache max=1000 inactive=20s;", {"open_file_cache": 10_000},
         "open_file_cache max=10000 inactive=20s;"),
    ],
)  # fmt: skip
def test_a_change_is_its_own_directive(
    written: str, changed: Mapping[str, Value], line: str
) -> None:
    made = rendered(tier(f"{written} server {{ listen 443 ssl;"), changed)[f"web1{MAIN}"]
    assert line in made


def test_what_is_in_effect_is_in_our_units() -> None:
    text = (
        "events { } http { ssl_session_cache shared:SSL:10m; ssl_buffer_size 8k; gzip on;"
        " ssl_session_timeout 10m; open_file_cache max=1000 inactive=20s; proxy_cache_lock on; }"
    )
    assert parse_effective(text) == {
        "ssl_session_cache": 10, "ssl_buffer_size": 8, "gzip": True, "ssl_session_timeout": 600,
        "open_file_cache": 1000, "proxy_cache_lock": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "default"),
    [
        ("0.8.54", 100),
        ("1.9.15", 100),
        ("1.18.0", 100),
        ("1.19.9", 100),
        ("1.19.10", None),
        ("1.22.1", None),
    ],
)
def test_an_old_version_has_another_default(version: str, default: int | None) -> None:
    head = f"nginx version: nginx/{version}\n# configuration file /etc/nginx/nginx.conf:\n"
    assert parse_effective(f"{head}http {{ }}").get("keepalive_requests") == default
    text = "http { keepalive_requests 7; }"
    assert parse_effective(f"{head}{text}")["keepalive_requests"] == 7


# A site on loopback, where its port is put in later.
PORT = "4443"
REAL = f"""daemon off; master_process off; pid pid; error_log error.log;
events {{ }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  ssl_certificate site.pem; ssl_certificate_key site.key; ssl_session_tickets off;
  server {{ listen 127.0.0.1:{PORT} ssl; return 200 "found\\n"; }}
}}
"""


def resumed(directory: Path, config: str) -> bool:
    """Whether a client that was there before is spared a whole handshake."""
    with serving(directory, config) as site:

        def connect(*options: str) -> str:
            command = ("openssl", "s_client", "-connect", str(site.endpoint), "-servername", NAME,
                       "-tls1_2", "-CAfile", "ca.pem", *options)  # fmt: skip
            done = subprocess.run(command, cwd=directory, input="", capture_output=True, text=True,
                                  check=True, timeout=60)  # fmt: skip
            return done.stdout

        connect("-sess_out", "session")
        return "Reused, TLSv1.2" in connect("-sess_in", "session")


@pytest.mark.stack
@pytest.mark.parametrize(("sessions", "resumes"), [(0, False), (1, True)])
def test_a_real_nginx_resumes_sessions_as_it_is_told(
    tmp_path: Path, sessions: int, resumes: bool
) -> None:
    site = host("web1", "10.0.0.1", {MAIN: REAL}, "nginx.service")
    (front,) = find_instances(site)[0]
    found = adopt_tier(DiscoveredTier("web", (front,)))
    changed = {"ssl_session_cache": sessions, "ssl_session_timeout": 600, "ssl_buffer_size": 4,
               "gzip": True, "gzip_comp_level": 4, "gzip_min_length": 1000, "open_file_cache": 1000,
               "open_file_cache_valid": 30, "open_file_cache_min_uses": 2, "http2": True}  # fmt: skip
    made = rendered(found, changed)[f"web1{MAIN}"]
    config = made.replace("{", "{{").replace("}", "}}").replace(PORT, "{port}")
    assert resumed(tmp_path, config) is resumes
    printed = subprocess.run(("nginx", "-T", "-p", f"{tmp_path}/", "-c", "nginx.conf"),
                             capture_output=True, text=True, check=True).stdout  # fmt: skip
    effective = parse_effective(printed)
    asked = {name: value for name, value in changed.items() if name != "http2" and (sessions or
             name != "ssl_session_cache")}  # fmt: skip
    assert {name: effective.get(name) for name in asked} == asked


def test_messages_before_the_files_hide_no_directive() -> None:
    printed = (
        "nginx: the configuration file /etc/nginx/nginx.conf syntax is ok\n"
        "nginx: configuration file /etc/nginx/nginx.conf test is successful\n"
        "# configuration file /etc/nginx/nginx.conf:\n"
        "worker_processes 3;\nevents { worker_connections 2222; }\n"
    )
    assert parse_effective(printed) == {"worker_processes": 3, "worker_connections": 2222}


def test_connections_to_servers_behind_have_values_of_their_own() -> None:
    printed = (
        "# configuration file /etc/nginx/nginx.conf:\nevents {}\n"
        "stream { server { listen 1; } upstream s { server a; } }\n"
        "http { upstream app { server a; keepalive_requests 100000; keepalive_timeout 9; }\n"
        "server { keepalive_timeout 70; } }\n"
    )
    assert parse_effective(printed) == {"keepalive_timeout": 70}
