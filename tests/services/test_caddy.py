"""Caddy: its language, what it prints of its configuration, and what edits mean to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.config_text import decode
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.caddy import syntax
from autotune.services.caddy.service import SERVICES, parse_effective
from autotune.services.config_files import ConfigSyntaxError
from tests.discovery.places import host
from tests.discovery.test_field import found_of, tier_of
from tests.discovery.test_tier_adoption import rendered

FIXTURE = (Path(__file__).parent / "fixtures" / "caddy.txt").read_text()
FIELD = Path(__file__).parents[1] / "discovery" / "field" / "caddy.yaml"
CASES = [case for case in YAML(typ="safe").load(FIELD) if case.get("values") and "port" in case]
SITE = Placement(
    tier="lb", host="h", role=Role.PROXY, directory="/run/t", listen=Endpoint("10.0.0.1", 80),
    programs={"caddy": "/usr/bin/caddy"}, installed=True,
)  # fmt: skip


def read(text: str) -> list[tuple[str, list[str], list[str]]]:
    return [
        (d.name.text, [word.text for word in d.arguments], [block[0] for block in d.blocks])
        for d in syntax.parse_directives(text)
    ]


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("respond hi # c", "respond", ["hi"]),
        ("respond hi#c", "respond", ["hi#c"]),
        ('respond "a # b" 200', "respond", ['"a # b"', "200"]),
        (r'respond "a \" b"', "respond", [r'"a \" b"']),
        ('respond `{ "a" }`', "respond", ['`{ "a" }`']),
        ('respond a"b c', "respond", ['a"b', "c"]),
        ("redir {scheme}://x{uri}", "redir", ["{scheme}://x{uri}"]),
        ("reverse_proxy a:80 \\\n\tb:80", "reverse_proxy", ["a:80", "b:80"]),
        ("respond <<END\n\t{ a\n\tEND 200", "respond", ["<<END\n\t{ a\n\tEND", "200"]),
    ],
)
def test_a_line(line: str, name: str, arguments: list[str]) -> None:
    for end in ("", "\n", "\r\n", "\t\n"):
        assert read(f":80 {{\n{line}{end or chr(10)}}}\n")[1] == (name, arguments, ["site"])
    for directive in syntax.parse_directives(f":80\n{line}"):
        for word in directive.arguments:
            assert f":80\n{line}"[word.start : word.end] == word.text


def test_blocks_at_the_top_of_a_file() -> None:
    text = (
        "\ufeff# c\n{\n\tadmin off\n}\n(own) {\n\tencode gzip\n}\n"
        "a.example,\nb.example, c.example {\n\timport own\n}\n"
    )
    assert read(text) == [
        ("options", [], []),
        ("admin", ["off"], ["options"]),
        ("(own)", [], []),
        ("encode", ["gzip"], ["snippet"]),
        ("site", ["a.example", "b.example", "c.example"], []),
        ("import", ["own"], ["site"]),
    ]
    assert read("localhost\n\nrespond hi\n") == [
        ("site", ["localhost"], []),
        ("respond", ["hi"], ["site"]),
    ]
    assert read("encode gzip\nheader {\n\tA b\n}\n") == [
        ("encode", ["gzip"], []),
        ("header", [], []),
        ("A", ["b"], ["header"]),
    ]


@pytest.mark.parametrize(
    "text",
    [":80 {\n", "}\n", ":80 {\n}\n}\n", ":80 { respond hi }\n", ":80 {\nhandle { x\n}\n}\n",
     ':80 {\nrespond "a\n}\n', ":80 {\nrespond `a\n}\n", ":80 {\n{\n}\n}\n", ":80 {\n" * 102,
     ":80 {\nrespond <<END\nhi\n}\n"],
)  # fmt: skip
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigSyntaxError, match=r"line \d+"):
        list(syntax.parse_directives(text))


def test_values_in_effect() -> None:
    assert parse_effective(FIXTURE) == {
        "gomaxprocs": 2, "gogc": 200, "lb_policy": "least_conn", "compression": False,
        "keepalive_idle_conns_per_host": 100, "max_conns_per_host": 64,
    }  # fmt: skip
    assert parse_effective("GOGC=off\n") == {"gogc": "off"}


def test_the_password_of_a_user_is_not_an_address() -> None:
    text = ":80 {\n\tbasic_auth {\n\t\tadmin $2a$14$Zkx19XL\n\t}\n\treverse_proxy 10.0.0.2:80\n}\n"
    for options, address in (("", ""), ("{\n\tadmin unix//run/caddy.sock\n}\n", "/run/caddy.sock")):
        site = host("h1", "10.0.0.9", {"/etc/caddy/Caddyfile": options + text}, "caddy.service")
        configs = tier_of(site, "caddy").adopted_configs
        assert [own.listen for name, own in configs.items() if "caddy" in name] == [address]


def proxies(*handlers: dict[str, Any]) -> str:
    routes = [{"handle": [{"handler": "reverse_proxy", **handler}]} for handler in handlers]
    return json.dumps({"apps": {"http": {"servers": {"srv0": {"routes": routes}}}}})


DEFAULTS = {
    "lb_policy": "random",
    "keepalive_idle_conns_per_host": 32,
    "max_conns_per_host": 0,
    "compression": True,
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (proxies({}), DEFAULTS),
        (proxies({}, {"transport": {"protocol": "fastcgi"}}), DEFAULTS),
        (proxies({"transport": {"protocol": "fastcgi"}}), {}),
        (proxies({}, {"transport": {"protocol": "http", "max_conns_per_host": 5}}),
         {name: value for name, value in DEFAULTS.items() if name != "max_conns_per_host"}),
        # Other options of the pool switch its default off.
        (proxies({"transport": {"keep_alive": {"idle_timeout": 10**9}}}),
         {name: v for name, v in DEFAULTS.items() if name != "keepalive_idle_conns_per_host"}),
        ("", {}), ("{", {}), ("{}\n", {}), ('{"a": ' * 5000, {}), ('{"handler": ["reverse_proxy"]}', {}),
    ],
)  # fmt: skip
def test_values_of_proxies(text: str, values: dict[str, Any]) -> None:
    assert parse_effective(text) == values


def test_who_validates_it() -> None:
    script, *words = SERVICES[0].build_validation(SITE, {})[2:]
    assert "systemd-run" in script
    assert words == [
        "sh", "caddy.service", "caddyfile", "env", "STEPPATH=/tmp", "/usr/bin/caddy", "validate",
        "--config=/etc/caddy/Caddyfile", "--adapter",
    ]  # fmt: skip


def test_a_container_validates_it_without_systemd() -> None:
    assert SERVICES[0].build_validation(replace(SITE, unit="shop:web"), {}) == (
        "env", "STEPPATH=/tmp", "/usr/bin/caddy", "validate", "--config=/etc/caddy/Caddyfile",
        "--adapter", "caddyfile",
    )  # fmt: skip


def adapt(directory: Path, files: dict[str, str], main: str) -> dict[str, Any]:
    """Return the values that Caddy finds in files, which are put below a directory."""
    shutil.rmtree(directory, ignore_errors=True)
    for path, text in files.items():
        place = directory / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode())
    command = ("caddy", "adapt", f"--config={directory / main[1:]}", "--adapter", "caddyfile")
    variables = {"SITE_PORT": "8081", "BACKEND": "10.0.0.2:80", "STEPPATH": "/tmp"}
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(parse_effective(done.stdout))


@pytest.mark.stack
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_edits_mean_to_it_what_they_say(case: dict[str, Any], tmp_path: Path) -> None:
    found = found_of(case)
    main = next((path for path in case["files"] if path.startswith("/srv")), "/etc/caddy/Caddyfile")
    before = {path: decode(text) for path, text in found.tree.files.items()}
    if case.get("unread") or "/etc/caddy/common" in before:
        pytest.skip("an import with an absolute path")
    tier = tier_of(found, case.get("deployment", "caddy"))
    baseline = {name.removeprefix("caddy."): v for name, v in tier.baseline_values.items()}
    values = adapt(tmp_path / "before", before, main)
    assert {n: v for n, v in values.items() if n in baseline}.items() <= baseline.items()
    changed = {n: v for n, v in case.get("changed", {}).items() if not n.startswith("go")}
    after = {path.removeprefix("h1"): text for path, text in rendered(tier, changed).items()}
    values = adapt(tmp_path / "after", before | after, main)
    assert changed.items() <= values.items()
    assert {n: v for n, v in values.items() if n in baseline}.items() <= (
        baseline | changed
    ).items()
