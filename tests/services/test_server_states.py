"""Servers that load balancers regard as failed, from the output of the software."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotune.services.haproxy import servers as haproxy
from autotune.services.nginx import servers as nginx
from autotune.services.varnish import servers as varnish

# `show stat` of HAProxy 2.6, with the columns that matter.
HAPROXY = """\
Name: HAProxy

# pxname,svname,slim,algo,status,check_status,
http,FRONTEND,2000,,OPEN,,
app,w1,40,,DOWN,L4CON,
app,w2,40,,UP 1/3,L7OK,
app,w3,40,,DOWN 1/2,L7OK,
app,w4,40,,MAINT,,
app,w5,40,,no check,,
app,BACKEND,200,roundrobin,DOWN,,

"""
NGINX_LINE = (
    "2026/11/26 {time} [error] 71#71: *9 no live upstreams while connecting to upstream, client: "
    '198.18.3.1, server: , request: "GET / HTTP/1.1", upstream: "http://{name}/", host: "shop"'
)
VARNISH = """\
Backend name   Admin      Probe    Health     Last change
boot.web1      probe      0/8      sick       Thu, 26 Nov 2026 15:14:59 GMT
boot.web2      probe      8/8      healthy    Thu, 26 Nov 2026 15:14:59 GMT
boot.web3      sick       0/8      sick       Thu, 26 Nov 2026 15:14:59 GMT
boot.web4      healthy    0/0      healthy    Thu, 26 Nov 2026 15:14:59 GMT
"""
VARNISH_6 = """\
Backend name                   Admin      Probe                Last updated
boot.web1                      probe      Sick 0/8             Thu, 26 Nov 2026 15:14:59 GMT
boot.web2                      probe      Healthy 8/8          Thu, 26 Nov 2026 15:14:59 GMT
"""


def test_haproxy_reports_servers_that_failed_their_checks() -> None:
    assert haproxy.parse_down_servers(HAPROXY) == ("app/w1", "app/w3")


def test_varnish_reports_sick_backends() -> None:
    assert varnish.parse_sick_backends(VARNISH) == ("boot.web1",)
    assert varnish.parse_sick_backends(VARNISH_6) == ("boot.web1",)


@pytest.mark.parametrize(
    ("timeout", "time", "dead"),
    [
        ("-", "15:14:59", ("app",)),
        ("-", "15:14:30", ()),
        ("60", "15:14:30", ("app",)),
        ("60", "15:13:30", ()),
        ("30s 2m", "15:13:30", ("app",)),
        ("30s 1m30s", "15:13:29", ()),
    ],
)
def test_nginx_has_no_server_until_fail_timeout(timeout: str, time: str, dead: object) -> None:
    line = NGINX_LINE.format(time=time, name="app")
    text = "\n".join(["2026/11/26 15:15:00", timeout, line, line])
    assert nginx.parse_dead_upstreams(text) == dead


def test_nginx_prints_every_fail_timeout_with_its_unit(tmp_path: Path) -> None:
    config = tmp_path / "nginx.conf"
    config.write_text("upstream app { server a fail_timeout=2m; server b fail_timeout=30s; }\n")
    check = nginx.build_server_check(("cat", str(config)))  # the option -T of cat shows tabs
    printed = subprocess.run(check.argv, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines()[1] == "2m 30s"


def test_nginx_without_such_lines_has_all_servers() -> None:
    assert nginx.parse_dead_upstreams("2026/11/26 15:15:00\n-\n") == ()


@pytest.mark.parametrize(
    "parse",
    [haproxy.parse_down_servers, nginx.parse_dead_upstreams, varnish.parse_sick_backends],
)
@pytest.mark.parametrize("text", ["", "connection refused\n", "\x00\n\n"])
def test_output_without_states_is_refused(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ("backend app\n server w1 h:80 check inter 10s fall 3 rise 2\n", 20.0),
        ("backend app\n default-server inter 10s\n server w1 h:80 check\n", 20.0),
        ("backend app\n server w1 h:80 check\n", 4.0),
        ("backend app\n server w1 h:80 check inter 500\n", 4.0),
        ("backend app\n server w1 h:80 check inter 1h rise 9\n", 600.0),
        ("backend app\n server w1 h:80 check inter 1s downinter 30s rise 3\n", 90.0),
        ("backend app\n default-server downinter 5000\n server w1 h:80 check\n", 10.0),
        ("backend app\n server w1 h:80\n", 0.0),
        ("backend 'app\n", 0.0),
    ],
)
def test_haproxy_needs_its_checks_to_use_a_server_again(config: str, seconds: float) -> None:
    assert haproxy.find_recovery_seconds({"haproxy.cfg": config.encode()}) == seconds


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ("upstream app { server a; server b fail_timeout=30s; }", 30.0),
        ("upstream app { server a fail_timeout=2m; server b fail_timeout=30s; }", 120.0),
        ("upstream app { server a fail_timeout=1m30s; }", 90.0),
        ("upstream app { server a fail_timeout=1d; }", 600.0),
        ("upstream app { server a; server b; }", 10.0),
        ("server { listen 80; }", 0.0),
    ],
)
def test_nginx_needs_fail_timeout(config: str, seconds: float) -> None:
    assert nginx.find_recovery_seconds({"nginx.conf": config.encode()}) == seconds
