"""Parsers on what the programs really print: recorded from Debian 12's packages.

Small made-up texts only where the recorded ones lack a case.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.services import option_lines
from autotune.services.base import Settings
from autotune.services.nginx.syntax import parse_directives
from autotune.services.php_fpm.syntax import parse_log
from autotune.services.readback import (
    OutputParser,
    build_backlog_parser,
    build_config_parser,
    parse_number,
)
from autotune.services.redis_protocol import build_pair_parser

FIXTURES = Path(__file__).parent / "fixtures"


def same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


NGINX = same("worker_processes", "worker_connections", "multi_accept", "accept_mutex", "use",
             "keepalive", "keepalive_timeout", "keepalive_requests", "fastcgi_keep_conn")  # fmt: skip


def directives(names: dict[str, str]) -> OutputParser:
    """Of nginx, as values."""
    switches = {"on": True, "off": False}
    return build_config_parser(
        parse_directives, names, lambda _, word: switches.get(word, parse_number(word))
    )


def assignments(names: dict[str, str]) -> OutputParser:
    """Of PHP-FPM."""
    return build_config_parser(parse_log, names)


def lines(names: dict[str, str]) -> OutputParser:
    """Of memcached."""
    return build_config_parser(option_lines.parse_directives, names)


POOL = same("pm", "pm.max_children", "pm.start_servers", "pm.process_idle_timeout")


@pytest.mark.parametrize(
    ("fixture", "parse", "settings"),
    [
        (
            "nginx",
            directives(NGINX),
            {
                "worker_processes": 2, "worker_connections": 1500, "multi_accept": True,
                "accept_mutex": False, "use": "epoll", "keepalive": 32, "keepalive_timeout": 65,
                "keepalive_requests": 2000,  # the clients' one, not the upstream's 5000
            },
        ),
        (
            "nginx-web",
            directives(NGINX),
            {
                "worker_processes": 1, "worker_connections": 1800, "multi_accept": False,
                "accept_mutex": True, "use": "epoll", "keepalive": 8, "keepalive_timeout": 0,
                "keepalive_requests": 1, "fastcgi_keep_conn": True,
            },
        ),
        # Debian's own file has `# multi_accept on;`.
        ("nginx-debian", directives(NGINX), {"worker_processes": "auto", "worker_connections": 768}),
        ("nginx-rejected", directives(NGINX), {}),
        (
            "php-fpm",
            assignments(POOL),
            {"pm": "dynamic", "pm.max_children": 12, "pm.start_servers": 3,
             "pm.process_idle_timeout": 10},
        ),
        ("php-fpm-static", assignments(same("pm", "pm.start_servers")),
         {"pm": "static", "pm.start_servers": 0}),
        ("php-fpm-ondemand", assignments(same("pm")), {"pm": "ondemand"}),
        (
            "php-fpm-debian",
            assignments(same("pm", "pm.max_children", "listen.backlog", "listen", "daemonize")),
            {"pm": "dynamic", "pm.max_children": 5, "listen.backlog": -1,
             "listen": "/run/php/php8.2-fpm.sock", "daemonize": "yes"},
        ),
        (
            "memcached-tool",
            lines(same("maxbytes", "num_threads", "growth_factor", "inter", "cas_enabled")),
            {"maxbytes": 48 * 2**20, "num_threads": 3, "growth_factor": 1.07,
             "inter": "127.0.0.1", "cas_enabled": "yes"},
        ),
        (
            "redis-cli",
            build_pair_parser(same("io-threads", "tcp-backlog", "maxclients", "save", "appendonly")),
            {"io-threads": 2, "tcp-backlog": 345, "maxclients": 777, "save": "", "appendonly": "no"},
        ),
        ("ss-tcp", build_backlog_parser(), {"backlog": 200}),
        ("ss-tcp-reuseport", build_backlog_parser(), {"backlog": 300}),
        ("ss-tcp-two-families", build_backlog_parser(), {"backlog": 77}),
        ("ss-unix", build_backlog_parser("listen_backlog"), {"listen_backlog": 99}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_recorded(fixture: str, parse: OutputParser, settings: Settings) -> None:
    found = parse((FIXTURES / f"{fixture}.txt").read_text())
    assert found == settings
    assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in settings.items()}


@pytest.mark.parametrize(
    "parse",
    [
        lines(NGINX),
        build_pair_parser(NGINX),
        directives(NGINX),
        assignments(NGINX),
        build_backlog_parser(),
    ],
)
@pytest.mark.parametrize("text", ["", "\n", "no such file or directory\n", "use", "LISTEN", "a = "])
def test_what_was_not_printed_is_not_found(parse: OutputParser, text: str) -> None:
    assert parse(text) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("use epoll;", {"use": "epoll"}),
        ("#use poll;\nuse epoll;", {"use": "epoll"}),
        ("events { # use poll;\n use epoll; }", {"use": "epoll"}),
        ("events{use epoll;multi_accept on;}", {"use": "epoll", "multi_accept": True}),
        ("log_format x 'use poll;'; use epoll;", {"use": "epoll"}),
        ('log_format x "use \\" poll;"; use epoll;', {"use": "epoll"}),
        ("set $x a;#b;\nuse 'epoll';", {"use": "epoll"}),
        ("location ~ a#use\\ b { proxy_pass http://${x}; } use epoll;", {"use": "epoll"}),
        ("proxy_use poll; user use;", {}),
        ("use\n    epoll\n;", {"use": "epoll"}),
        ("http { upstream u { keepalive_timeout 9; } keepalive_timeout 75; }",
         {"keepalive_timeout": 75}),
        ("server { keepalive_timeout 1; } server { keepalive_timeout 2; }",
         {"keepalive_timeout": 1}),
        ("use epoll", {}),
        ("use;", {}),
    ],
)  # fmt: skip
def test_directives(text: str, found: Settings) -> None:
    assert directives(NGINX)(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pm = static", {"pm": "static"}),
        ("[21-Nov-2026 05:28:59] NOTICE: \tpm = static\n\tpm = dynamic", {"pm": "static"}),
        ("; pm = static", {}),
        ("xpm = static", {}),
        ("pm.max_children = 5", {"pm.max_children": 5}),
        ("pm.max_children_x = 5", {}),
    ],
)
def test_assignments(text: str, found: Settings) -> None:
    assert assignments(POOL)(text) == found


def test_the_shortest_queue_counts() -> None:
    text = (FIXTURES / "ss-tcp-reuseport.txt").read_text() + (FIXTURES / "ss-tcp.txt").read_text()
    assert build_backlog_parser()(text) == {"backlog": 200}


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-1", -1), ("1.07", 1.07), ("0.80", 0.8), ("1_000", "1_000"), ("nan", "nan"),
     ("inf", "inf"), ("10s", "10s"), ("1e3", "1e3"), ("", ""), ("0x10", "0x10")],
)  # fmt: skip
def test_number(text: str, value: object) -> None:
    assert parse_number(text) == value
    assert type(parse_number(text)) is type(value)
