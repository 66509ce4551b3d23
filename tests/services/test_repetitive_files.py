"""Files that repeat one piece, as no program writes them, are read as any other file.

A search that starts anew at each piece would not end within the time limit of the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from autotune.discovery import tiers
from autotune.services import apache_config
from autotune.services.caddy import adoption as caddy_adoption
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.nginx import servers as nginx_servers
from autotune.services.nginx import syntax as nginx
from autotune.services.php_fpm import syntax as php_fpm
from autotune.services.puma import syntax as puma
from autotune.services.uwsgi import syntax as uwsgi
from autotune.services.varnish import syntax as varnish
from autotune.target.messages import find_nearest_name

SIZE = 500_000
Parser = Callable[[str], Any]


def parse_ruby(text: str) -> object:
    return puma.parse_directives(text, strict=False)


REPETITIONS: dict[str, tuple[Parser, str, str, str]] = {
    "blanks in a block": (puma._ENV_LOOKUP_PATTERN.fullmatch, 'ENV.fetch("X") {', " ", ""),
    "blanks in a default": (puma._ENV_LOOKUP_PATTERN.fullmatch, 'ENV.fetch("X",', " ", ""),
    "blanks after a key": (puma._ENV_LOOKUP_PATTERN.fullmatch, 'ENV["X"] ||', " ", "("),
    "quotes in Ruby": (parse_ruby, 'threads 1, "', '\\"', ""),
    "a method in Ruby": (puma._ENDLESS_METHOD_PATTERN.match, "def a", " ", ""),
    "blanks in uWSGI": (uwsgi.parse_directives, "[uwsgi]\nprocesses = ", " ", "x"),
    "comments in Lua": (nginx.parse_directives, "content_by_lua_block {", "--[[\n", ""),
    "strings in Lua": (nginx.parse_directives, "content_by_lua_block {", "[[", ""),
    "quotes in Lua": (nginx.parse_directives, "content_by_lua_block {", '\\"', ""),
    "messages of PHP-FPM": (php_fpm.parse_log, "", "[\n", ""),
    "quotes in PHP-FPM": (php_fpm.parse_directives, "[a]\n", 'a=\\"\n', ""),
    "comments in VCL": (varnish.parse_vcl, "", "/*", ""),
    "variables in a Caddyfile": (caddy_adoption._PLACEHOLDER_PATTERN.findall, "", "{$a:", ""),
    "a long word": (tiers._ADDRESS_PATTERN.findall, "", "a", ""),
    "empty lines": (apache_config._EXPORT_PATTERN.findall, "", "\n", ""),
    "no upstream": (lambda text: nginx_servers.find_recovery_seconds({"a": text.encode()}), "", "\n", ""),
    "a long name": (lambda text: find_nearest_name(text, [f"{text}b", "a"]), "", "ab", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", REPETITIONS.values(), ids=REPETITIONS)
def test_a_repeated_piece_is_read_once(case: tuple[Parser, str, str, str]) -> None:
    parse, head, piece, tail = case
    try:
        result = parse(head + piece * (SIZE // len(piece)) + tail)
        if isinstance(result, Iterable):
            list(result)
    except ConfigSyntaxError:
        pass


@pytest.mark.parametrize(("text", "name", "default"), [
    ('ENV.fetch("X") { 5 }', "X", "5"),
    ('ENV.fetch( "X" , "5" )', "X", "5"),
    ('Integer(ENV["X"] || 5)', "X", "5"),
    ('(ENV["X"] || 5 ).to_i', "X", "5"),
    ('ENV["X"] || 5.to_i', "X", "5"),
    ('ENV.fetch("X") {5}.to_i', "X", "5"),
    ('ENV["X"]', "X", ""),
])  # fmt: skip
def test_a_variable_with_a_default_is_found_in_ruby(text: str, name: str, default: str) -> None:
    match = puma._ENV_LOOKUP_PATTERN.fullmatch(text)
    assert match is not None
    assert (match["fetched"] or match["key"], puma._get_default_text(match)) == (name, default)


def test_an_address_is_found_from_the_start_of_its_name() -> None:
    text = "http://web:80,[::1]:90 x[::2]:81 10.0.0.1:11 Xhttp://a.b-c:123 unix:/a:b"
    assert tiers._ADDRESS_PATTERN.findall(text) == [
        ("web", "80"), ("[::1]", "90"), ("[::2]", "81"), ("10.0.0.1", "11"), ("a.b-c", "123"),
    ]  # fmt: skip
