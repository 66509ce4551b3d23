"""Connections that nginx keeps to what is behind it, added to a site's own files or taken out of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tier_adoption import AdoptedTier, adopt_tier
from autotune.discovery.tiers import DiscoveredTier, find_instances
from autotune.services.base import Value
from tests.discovery.places import POOL, host
from tests.discovery.test_tier_adoption import given_back, rendered

MAIN, FPM = "/etc/nginx/nginx.conf", "/etc/php/8.2/fpm/php-fpm.conf"
KEPT = {"upstream_keepalive": 16, "upstream_keepalive_requests": 500}
EMPTY = 'proxy_set_header Connection "";'
BALANCER = """\
events { worker_connections 512; }
http {
    upstream web {
        least_conn;
        server 127.0.0.1:81;
        server 127.0.0.1:82;
    }
    server {
        listen 127.0.0.1:80;
        location /a { proxy_set_header Host $host; proxy_set_header X-A 1; proxy_pass http://web; }
        location /b { proxy_pass http://web/b; }
    }
}
"""
PHP = """\
events { worker_connections 512; }
http {
    upstream pool {
        server unix:/run/php/php8.2-fpm.sock;
    }
    server {
        listen 127.0.0.1:80;
        location / { fastcgi_pass pool; }
    }
}
"""
OVER_HTTP_1_1 = BALANCER.replace("proxy_pass", f"proxy_http_version 1.1; {EMPTY} proxy_pass")
KEEPING = OVER_HTTP_1_1.replace("82;", "82; keepalive 32;")
API = "    upstream api { server 127.0.0.1:83; }\n    server {\n"


def lb(text: str) -> tuple[AdoptedTier, DiscoveredHost]:
    site = host("lb1", "10.0.0.9", {MAIN: text}, "nginx.service")
    (front,) = find_instances(site)[0]
    return adopt_tier(DiscoveredTier("lb", (front,))), site


def web(text: str) -> tuple[AdoptedTier, DiscoveredHost]:
    site = host("web1", "10.0.0.1", {MAIN: text, FPM: POOL}, "nginx.service", "php8.2-fpm.service")
    (front,) = find_instances(site)[0]
    return adopt_tier(DiscoveredTier("web", (front,))), site


def skipped(tier: AdoptedTier, site: DiscoveredHost, name: str, reason: str) -> None:
    """The file stays, and the parameter is not tuned for this reason."""
    given_back(tier, site)
    assert name not in tier.baseline_values
    assert tier.skipped[name] == reason


def with_changes(tier: AdoptedTier, changed: Mapping[str, Value]) -> str:
    return next(text for path, text in rendered(tier, changed).items() if path.endswith(MAIN))


def accepted(text: str, directory: Path) -> None:
    """By nginx itself."""
    path = directory / "nginx.conf"
    path.write_text(f"pid {directory}/pid;\n{text}")
    command = (
        "nginx",
        "-t",
        "-q",
        "-e",
        f"{directory}/log",
        "-p",
        f"{directory}/",
        "-c",
        str(path),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.stack
def test_a_balancer_that_keeps_none_gets_some_behind_its_method(tmp_path: Path) -> None:
    tier, site = lb(BALANCER)
    given_back(tier, site)
    assert tier.baseline_values["nginx.upstream_keepalive"] == 0
    assert tier.baseline_values["nginx.upstream_keepalive_requests"] == 1000
    text = with_changes(tier, KEPT)
    accepted(text, tmp_path)
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("server 127.0.0.1:82;")
    assert lines[at + 1 : at + 3] == ["keepalive 16;", "keepalive_requests 500;"]
    assert lines[lines.index("http {") + 1 :][:2] == ["proxy_http_version 1.1;", EMPTY]
    # A block that sets headers has none of those around it.
    assert [
        line for line in lines if line.startswith(f"location /a {{ {EMPTY} proxy_set_header Host")
    ]
    assert text.count(EMPTY) == 2


@pytest.mark.parametrize(
    "own",
    ["proxy_http_version 1.1;", 'proxy_set_header connection "upgrade";',
     "proxy_set_header Connection $connection_upgrade;"],
)  # fmt: skip
def test_what_the_site_says_of_its_connections_stays(own: str) -> None:
    tier, site = lb(BALANCER.replace("location /b {", f"location /b {{ {own}"))
    given_back(tier, site)
    assert "nginx.upstream_keepalive" not in tier.baseline_values
    assert "its own" in tier.skipped["nginx.upstream_keepalive"]


def test_a_server_without_an_upstream_keeps_none() -> None:
    tier, _ = lb(BALANCER.replace("http://web", "http://127.0.0.1:81"))
    assert "no `upstream`" in tier.skipped["nginx.upstream_keepalive"]


@pytest.mark.stack
@pytest.mark.parametrize("written", ["32 ", '"32"'])
def test_none_is_no_directive(tmp_path: Path, written: str) -> None:
    kept = f"82; keepalive  {written}; keepalive_requests 50;"
    tier, site = lb(OVER_HTTP_1_1.replace("82;", kept))
    given_back(tier, site)
    assert tier.baseline_values["nginx.upstream_keepalive"] == 32
    assert kept.replace("32", "8") in with_changes(tier, {"upstream_keepalive": 8})
    without = with_changes(tier, {"upstream_keepalive": 0, "upstream_keepalive_requests": 60})
    assert "82;  keepalive_requests 60;" in without
    accepted(without, tmp_path)


@pytest.mark.parametrize("kept", [32, 0])
def test_connections_over_http_1_0_are_none_and_more_of_them_need_http_1_1(kept: int) -> None:
    tier, site = lb(BALANCER.replace("82;", f"82; keepalive {kept}; keepalive_requests 50;"))
    given_back(tier, site)
    assert tier.baseline_values["nginx.upstream_keepalive"] == 0
    assert tier.baseline_values["nginx.upstream_keepalive_requests"] == 50
    for connections in (8, 32):
        text = with_changes(tier, {"upstream_keepalive": connections})
        assert f"82; keepalive {connections}; keepalive_requests 50;" in text
        lines = [line.strip() for line in text.splitlines()]
        assert lines[lines.index("http {") + 1 :][:2] == ["proxy_http_version 1.1;", EMPTY]
        assert text.count(EMPTY) == 2  # also in the block that sets headers


# Files in which nginx keeps connections: what they set is the baseline.
KEPT_CONNECTIONS = {
    "both directives in each location": KEEPING,
    "both directives in http": BALANCER.replace("82;", "82; keepalive 32;")
    .replace("http {", f"http {{ proxy_http_version 1.1; {EMPTY}")
    .replace("location /a {", f"location /a {{ {EMPTY}"),
    "a server without an upstream": KEEPING.replace(
        "location /b", "location /c { proxy_pass http://127.0.0.1:84; } location /b"
    ),
    "an unused upstream": KEEPING.replace("    server {\n", API),
    "a variable after the name of the upstream": KEEPING.replace("    server {\n", API).replace(
        "http://web", "http://web$request_uri"
    ),
    "a minor location that closes them": KEEPING.replace("location /a", "location /").replace(
        "location /b { proxy_http_version 1.1;", "location /b {"
    ),
    "connections of gRPC": BALANCER.replace("82;", "82; keepalive 32;").replace(
        "proxy_pass http:", "grpc_pass grpc:"
    ),
}


@pytest.mark.parametrize("text", KEPT_CONNECTIONS.values(), ids=list(KEPT_CONNECTIONS))
def test_connections_that_are_kept_are_the_baseline(text: str) -> None:
    tier, site = lb(text)
    given_back(tier, site)
    assert tier.baseline_values["nginx.upstream_keepalive"] == 32
    assert "keepalive 9;" in with_changes(tier, {"upstream_keepalive": 9})


VERSION = "`keepalive` has no effect without `proxy_http_version 1.1`"
HEADER = '`keepalive` has no effect without `proxy_set_header Connection ""`'
PARTIAL = "only some upstreams set `keepalive`: set it in all of them to tune it"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (KEEPING.replace("location /b { proxy_http_version 1.1;", "location /b {"), VERSION),
        (KEEPING.replace("/b { proxy_http_version 1.1;", "/b { proxy_http_version 1.0;"), VERSION),
        # Another server with the same words as one that keeps connections.
        ((f"{KEEPING.rstrip()[:-1]} server {{ listen 127.0.0.1:84;"
          " location /b { proxy_pass http://web/b; } }\n}\n"), VERSION),
        (KEEPING.replace(f"/b {{ proxy_http_version 1.1; {EMPTY}", "/b { proxy_http_version 1.1;"),
         HEADER),
        (KEEPING.replace(EMPTY, "proxy_set_header Connection $upgrade;").replace(
            "http {", "http { map $http_upgrade $upgrade { default upgrade; '' close; }"), HEADER),
        (KEEPING.replace("    server {\n", API).replace(
            "location /b", "location /c { proxy_pass http://api; } location /b"), PARTIAL),
    ],
)  # fmt: skip
def test_connections_that_only_some_requests_keep_are_no_baseline(text: str, reason: str) -> None:
    skipped(*lb(text), "nginx.upstream_keepalive", reason)


def test_connections_to_a_pool_that_nginx_closes_can_be_kept() -> None:
    tier, site = web(PHP.replace("fpm.sock;", "fpm.sock; keepalive 4;"))
    given_back(tier, site)
    assert tier.baseline_values["nginx.fastcgi_keep_conn"] is False
    assert tier.baseline_values["nginx.fastcgi_keepalive"] == 4
    text = with_changes(tier, {"fastcgi_keep_conn": True, "fastcgi_keepalive": 6})
    assert "fpm.sock; keepalive 6;" in text
    assert text.count("fastcgi_keep_conn on;") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PHP.replace("fastcgi_pass", "fastcgi_keep_conn on; fastcgi_pass"),
         "`fastcgi_keep_conn on` has no effect without `keepalive` in an upstream"),
        (PHP.replace("fpm.sock;", "fpm.sock; keepalive 4;")
         .replace("    server {\n", "    upstream old { server unix:/run/old.sock; }\n    server {\n")
         .replace("location /", "location /old { fastcgi_pass old; } location /"), PARTIAL),
    ],
)  # fmt: skip
def test_connections_to_pools_that_only_one_side_keeps(text: str, reason: str) -> None:
    skipped(*web(text), "nginx.fastcgi_keepalive", reason)


@pytest.mark.stack
@pytest.mark.parametrize("said", ["", "fastcgi_keep_conn off;"])
def test_connections_to_a_pool_are_kept_on_both_sides(tmp_path: Path, said: str) -> None:
    tier, site = web(PHP.replace("fastcgi_pass", f"{said} fastcgi_pass"))
    given_back(tier, site)
    assert tier.baseline_values["nginx.fastcgi_keep_conn"] is False
    assert tier.baseline_values["nginx.fastcgi_keepalive"] == 8
    text = with_changes(tier, {"fastcgi_keep_conn": True, "fastcgi_keepalive": 3})
    accepted(text, tmp_path)
    assert "php8.2-fpm.sock;\n        keepalive 3;" in text
    assert text.count("fastcgi_keep_conn on;") == 1
    assert with_changes(tier, {"fastcgi_keepalive": 3}) == with_changes(tier, {})


def test_a_limit_of_descriptors_goes_up_with_connections_and_never_down() -> None:
    tier, site = lb(f"worker_rlimit_nofile 2000;\n{BALANCER}")
    given_back(tier, site)
    for connections, limit in ((64, 2000), (900, 2000), (4096, 8256)):
        text = with_changes(tier, {"worker_connections": connections})
        assert f"worker_rlimit_nofile {limit};" in text
