"""Lines that an export exchanges in a host's own file: what a service itself would edit, and no more."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.config_text import decode, encode
from autotune.deploy.stack import ServiceInstance
from autotune.errors import AutotuneError
from autotune.export.export_error import ExportError
from autotune.export.setting_lines import check_lines
from autotune.export.unit_commands import can_run_commands
from autotune.report.studies import open_study
from autotune.services.registry import SHIPPED
from autotune.unified_diff import Hunk, find_hunks
from tests.deploy.test_desired_state import wanted
from tests.discovery.test_field import CASES, found_of, tier_of
from tests.discovery.test_tier_adoption import rendered

STUDY = Path(__file__).parents[1] / "report" / "studies" / "improved"


# Values on lines of their own, and words that autotune never writes: `autotune apply` edits these.
LEFT = (
    "lines that go on, carriage returns and names in any case",
    "switches in every spelling",
)
EDITED = [case for case in CASES
          if "refused" not in case.values[1] and case.values[1]["name"] not in LEFT]  # fmt: skip


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ServiceInstance:
    return wanted(tmp_path_factory.mktemp("target")).instances[0]


def of_service(part: ServiceInstance, key: str) -> ServiceInstance:
    service = next(service for service in SHIPPED.services if key in (service.key, service.name))
    return replace(part, service=service)


def check(part: ServiceInstance, *hunks: Hunk) -> None:
    check_lines(open_study(STUDY), part, "/etc/its.conf", hunks)


@pytest.mark.parametrize(("service", "case"), EDITED)
def test_edits_of_a_service_are_exported(
    part: ServiceInstance, service: str, case: dict[str, Any]
) -> None:
    found = found_of(case)
    tier = tier_of(found, case.get("deployment", service))
    before = {path: decode(content) for path, content in found.tree.files.items()}
    after = rendered(tier, case.get("changed", {}))
    for name, own in tier.adopted_configs.items():
        for file in own.files:
            if not can_run_commands(file.path):
                old = encode(before.get(file.path, ""))
                new = encode(after[f"h1{file.path}"])
                hunks = find_hunks(old, new, old, new)
                assert hunks is not None
                is_exported = case.get("exported", True)
                with nullcontext() if is_exported else pytest.raises(ExportError):
                    check(of_service(part, name.rpartition(".")[2]), *hunks)


MASKED, MASKED2 = "autotune-masked-1-of-2", "autotune-masked-2-of-2"
SAFE = {
    "number": ("redis", ["hz 10\n"], ["hz 20\n"]),
    "no end of line": ("redis", ["port 1"], ["port 1\n", "hz 20\n"]),
    "several on a line": (
        "nginx",
        ["events { worker_connections 512; } include x;\n"],
        ["events { worker_connections 4k; } include x;\n"],
    ),
    "settings that nginx writes": (
        "nginx",
        ["worker_processes auto;\n", "listen 80;\n", "access_log /var/log/x;\n"],
        ["worker_processes 4;\n", "listen 80 backlog=9 reuseport;\n",
         "access_log /var/log/x combined buffer=64k flush=5s;\n",
         "    open_file_cache max=1000;\n", "    ssl_session_cache shared:autotune:1m;\n",
         '    proxy_set_header Connection "";\n'],
    ),
    "carriage return": ("mariadb", ["max_connections = 1\r\n"], ["max_connections = 2\r\n"]),
    "behind masked values": ("nginx", [f"access_log {MASKED};\n"],
                            [f"access_log {MASKED} buffer=64k flush=5s;\n"]),
    "in front of masked values": ("mariadb", [f"max_connections = 1 # {MASKED}\n"],
                                 [f"max_connections = 2 # {MASKED}\n"]),
    "between masked values": ("haproxy", [f"    server {MASKED} maxconn 20 {MASKED2}\n"],
                             [f"    server {MASKED} maxconn 50 {MASKED2}\n"]),
}  # fmt: skip
UNSAFE = {
    "module": ("nginx", [], ["load_module /tmp/evil.so;\n"]),
    "module behind a setting": ("nginx", ["worker_processes 1;\n"],
                                ["worker_processes 2; load_module /tmp/evil.so;\n"]),
    "included file": ("nginx", ["worker_processes 1;\n"], ["worker_processes 1;\n", "include /tmp/x;\n"]),
    "command of a log": ("apache", [], ['ErrorLog "|/bin/sh -c id"\n']),
    "module of Apache": ("apache", ["KeepAlive On\n"], ["LoadModule evil /tmp/evil.so\n"]),
    "access": ("apache", ["Require all denied\n"], ["Require all granted\n"]),
    "access goes": ("nginx", ["    deny all;\n"], []),
    "setting in place of access": ("nginx", ["    deny all;\n"], ["    keepalive_timeout 5s;\n"]),
    "access by two words": ("nginx", ["    deny all;\n"], ["    keepalive_timeout 5s; deny all;\n"]),
    "code of PHP": ("php-fpm", [], ["php_admin_value[auto_prepend_file] = /tmp/x\n"]),
    "preloaded code": ("php-ini-fpm", [], ["opcache.preload = /tmp/evil.php\n"]),
    "extension": ("php-ini-fpm", [], ["extension = evil\n"]),
    "functions": ("php-ini-fpm", ["disable_functions = exec\n"], ["disable_functions = exec on\n"]),
    "part of a word": ("php-ini-fpm", ["disable_functions = a,exec\n"],
                       ["disable_functions = a,1 exec\n"]),
    "comment": ("php-ini-fpm", ["disable_functions = exec\n"], [";disable_functions = exec\n"]),
    "comment in words of settings": ("php-ini-fpm", ["disable_functions = exec\n"],
                                     ["memory_limit = 1M;disable_functions = exec\n"]),
    "a comment ends": ("nginx", ["# load_module x;\n"], ["# worker_processes 1;\n", " load_module x;\n"]),
    "a comment goes": ("php-ini-fpm", [";extension = x\n"], ["extension = x\n"]),
    "account": ("memcached", ["-u memcache\n"], ["-u root\n"]),
    "account by number": ("php-fpm", ["user = 33\n"], ["user = 0\n"]),
    "address": ("redis", ["bind 127\n"], ["bind 0\n"]),
    "address of a port": ("memcached", ["-l 127\n"], ["-l 0\n"]),
    "password": ("redis", ["requirepass 1234\n"], ["requirepass 1\n"]),
    "password goes": ("redis", ["requirepass 1234\n"], []),
    "renamed command": ("redis", [], ["loadmodule /tmp/x.so\n"]),
    "code of Ruby": ("puma", ["workers 2\n"], ["workers `id`\n"]),
    "code of Ruby in text": ("puma", ["bind 'tcp://0.0.0.0:1'\n"], ['bind "#{system(1)}"\n']),
    "mode in Ruby": ("puma", ["File.chmod(0600, key)\n"], ["File.chmod(0666, key)\n"]),
    "program": ("uwsgi", [], ["exec-asap = id\n"]),
    "program of HAProxy": ("haproxy", [], ["    external-check command /bin/sh\n"]),
    "lua": ("haproxy", ["    maxconn 10\n"], ["    maxconn 10\n", "    lua-load /tmp/x\n"]),
    "plugin": ("mariadb", [], ["plugin_load_add = evil\n"]),
    "command of PostgreSQL": ("postgresql", [], ["archive_command = 'id'\n"]),
    "library": ("postgresql", ["shared_buffers = 1MB\n"], ["shared_preload_libraries = on\n"]),
    "section": ("mariadb", [], ["[client]\n"]),
    "carriage return": ("redis", ["hz 10\n"], ["hz 10\rrequirepass 1\n"]),
    "end of text": ("redis", ["hz 10\n"], ["hz 10\0\n"]),
    "escape": ("redis", ["hz 10\n"], ["hz 10\x1b\n"]),
    "line end of Unicode": ("redis", [], ["hz 10\u2028\n"]),
    "continued": ("apache", [], ["KeepAliveTimeout 5\\\n"]),
    "digits of Unicode": ("redis", ["hz 10\n"], ["hz \u0661\n"]),
    "half of a character": ("redis", ["hz \ud800\n"], ["hz 10\n"]),
    "endless line": ("redis", ["hz 10\n"], [f"hz {'1 ' * 10**6}\n"]),
    "words that take hours to align": ("nginx", [f"zzz worker_connections {'1 ' * 1000}\n"],
                                       [f"zzz worker_connections {'1 2 ' * 500}\n"]),
    "many lines": ("redis", [], ["hz 20\n"] * 10**5),
    "an argument becomes a directive": ("nginx", ["access_log load_module;\n"],
                                        ["access_log off; load_module;\n"]),
    "a directive becomes an argument": ("nginx", ["{ multi_accept on; deny all; }\n"],
                                        ["{ multi_accept on deny all; }\n"]),
    "masked values become a directive": ("nginx", [f"access_log {MASKED};\n"],
                                        [f"access_log off; {MASKED};\n"]),
    "masked values leave a comment": ("nginx", [f"# {MASKED}\n"], [f"{MASKED}\n"]),
    "masked values become a comment": ("php-ini-fpm", [f"disable_functions = {MASKED}\n"],
                                      [f"disable_functions = ;{MASKED}\n"]),
    "masked values get another name": ("nginx", [f"deny {MASKED};\n"],
                                      [f"keepalive_timeout {MASKED};\n"]),
    "masked values get a name": ("nginx", [f"access_log {MASKED};\n"],
                                [f"access_log buffer=64k {MASKED};\n"]),
    "masked values leave quotes": ("nginx", [f"access_log '{MASKED}';\n"], [f"access_log {MASKED};\n"]),
    "masked values change places": ("haproxy", [f"    server {MASKED} maxconn 20 {MASKED2}\n"],
                                   [f"    server {MASKED2} maxconn 20 {MASKED}\n"]),
    "masked values go": ("nginx", [f"deny {MASKED};\n"], []),
    "masked values become a value": ("redis", ["hz 10\n"], [f"hz {MASKED}\n"]),
    "masked values become another word": ("nginx", [f"access_log {MASKED};\n"],
                                         [f"access_log {MASKED}1;\n"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAFE)
def test_settings_are_exchanged(part: ServiceInstance, name: str) -> None:
    key, removed, added = SAFE[name]
    check(of_service(part, key), Hunk(2, tuple(removed), tuple(added)))


@pytest.mark.parametrize("count", [21, 10**5])
def test_lines_that_take_long_to_compare_are_refused(part: ServiceInstance, count: int) -> None:
    hunk = Hunk(2, ("hz 10\n",) * count, ("hz 20\n",) * count)
    with pytest.raises(AutotuneError, match=r"too many lines change in ") as raised:
        check(of_service(part, "redis"), hunk)
    assert "autotune apply" in (raised.value.hint or "")


@pytest.mark.parametrize("name", UNSAFE)
def test_nothing_but_settings_is_exchanged(part: ServiceInstance, name: str) -> None:
    key, removed, added = UNSAFE[name]
    with pytest.raises(
        AutotuneError, match=r"line 2 .* changes something other than settings of"
    ) as raised:
        check(of_service(part, key), Hunk(2, tuple(removed), tuple(added)))
    assert "autotune apply" in (raised.value.hint or "")


def test_a_service_without_files_of_its_own_has_none_edited(part: ServiceInstance) -> None:
    (service,) = SHIPPED.list_by_name("sysctl")
    with pytest.raises(AutotuneError, match="changes something other than settings"):
        check(replace(part, service=service), Hunk(2, (), ("a = 1\n",)))
