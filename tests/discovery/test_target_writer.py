"""A target and its templates written from what was read of hosts; and how hosts are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.deploy import adopted_files, stack
from autotune.deploy.desired_state import render_files
from autotune.deploy.stack import StackContext
from autotune.deploy.staged_cases import fill_secrets
from autotune.discovery import host_reading, target_writer
from autotune.discovery.target_writer import _name_hosts, write_target
from autotune.environments.stack_files import find_template_overrides
from autotune.environments.target_warnings import find_warnings
from autotune.errors import AutotuneError
from autotune.services.base import Argv, resolve_config_files
from autotune.services.registry import SHIPPED
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target
from autotune.transports.base import CommandResult, SshHost
from tests.deploy.doubles import Here
from tests.discovery.places import FACTS, LB, cache, host, store, web
from tests.full_disk import limit_file_size

HOSTS = [
    host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": LB}, "nginx.service"),
    web(),
    web("web2", "10.0.0.2"),
    cache(),
    store(),
]


def test_the_target_reads_and_its_baseline_is_every_file_as_it_was(tmp_path: Path) -> None:
    written = write_target(HOSTS, tmp_path / "mine.yaml", None, "/index.php")
    assert written.tier_summaries[0] == "lb: nginx on lb1, port 80; forwards to web"
    file = read_target(written.target_file)
    facts = dict.fromkeys(file.target.hosts, FACTS)
    space = build_space(file, facts)
    own = adopted_files.read_adopted_files(find_template_overrides(file))
    programs = {
        program: f"/usr/sbin/{program}"
        for name, tier in file.target.tiers.items()
        for place in SHIPPED.list_tier_services(name, tier)
        for program in place.service.programs
    }
    programs["php-fpm"] = "/usr/sbin/php-fpm8.2"
    context = StackContext(
        "/run/x", {}, dict.fromkeys(facts, programs), facts, installed=True, adopted=own
    )
    laid = stack.build_stack(file.target, context)
    adopted_files.check_adopted_files(own, [part.name for part in laid.instances])
    assert str(laid.entry) == "10.0.0.9:80"
    settings = space.build_candidate({}).settings
    before = {one.name: one.tree.files for one in HOSTS}
    rendered = 0
    for part in laid.instances:
        made = render_files(
            part.service, part.placement, settings, file.target.data, find_template_overrides(file)
        )
        originals = before[part.placement.host]
        for path, content in fill_secrets(part, made, originals).items():
            assert content == before[part.placement.host][path], path
            rendered += 1
        assert {f.path for f in resolve_config_files(part.service, part.placement)} == set(made)
    assert rendered == len([f for one in own.values() for f in one.files]) == 9
    assert settings["lb.nginx.upstream_keepalive"] == 16


def test_a_written_target_causes_no_warning(tmp_path: Path) -> None:
    hosts = [*HOSTS, host("idle", "10.0.0.8", {})]
    written = write_target(hosts, tmp_path / "mine.yaml", None, "/index.php")
    assert any("idle: autotune found no service" in note for note in written.notes)
    text = written.target_file.read_text()
    assert "lb.nginx.open_file_cache: {fixed: 0}" in text
    assert "lb.nginx.open_file_cache_valid: {fixed: 60}" in text  # no effect without a cache
    assert find_warnings(read_target(written.target_file)) == []


def test_a_tier_that_was_renamed_is_refused(tmp_path: Path) -> None:
    written = write_target(HOSTS, tmp_path / "mine.yaml", None, "/")
    own = adopted_files.read_adopted_files(written.templates_directory)
    with pytest.raises(AutotuneError, match=r"web\.web1\.nginx") as raised:
        adopted_files.check_adopted_files(own, [part.replace("web.", "site.") for part in own])
    assert "use the same tier, host and service names" in (raised.value.hint or "")


def test_a_target_that_a_full_disk_stopped_is_written_again(tmp_path: Path) -> None:
    for max_bytes in (100, 3000):
        with limit_file_size(max_bytes), pytest.raises(OSError, match="File too large"):
            write_target(HOSTS, tmp_path / "mine.yaml", None, "/")
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert write_target(HOSTS, tmp_path / "mine.yaml", None, "/").target_file.exists()


@pytest.mark.parametrize("text", ["[]", "{", '{"a": {}}', '{"a": {"files": "x"}}'])
def test_a_manifest_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / adopted_files.ADOPTED_FILE).write_text(text)
    with pytest.raises(AutotuneError, match="cannot be read"):
        adopted_files.read_adopted_files(tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write_target(HOSTS, tmp_path / "mine.yaml", None, "/")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(AutotuneError, match="already exists"):
        write_target(HOSTS, tmp_path / "mine.yaml", None, "/")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--from", ","], "--from: missing host", "user@host"),
        (["--from", "a:b:c"], "is not a host", "user@host"),
        (["--from", "root@2001:db8::1"], "2001:db8::1 is not in brackets", "'[2001:db8::1]'"),
        (["--from", "ssh://root@10.0.0.1"], "'10.0.0.1' is not a host name", "user@host"),
        (["--from", "x", "--example", "lab"], "cannot be combined", "omit --from"),
        (["--from", "x", "--ssh-config", "/nope"], "/nope does not exist", "ssh_config"),
        (["--from", "x", "--ssh-config", "~nobody-here/x"], "x does not exist", "ssh_config"),
        (["--from", "nobody@127.0.0.1:1"], "127.0.0.1", "check the host name, the port and sshd"),
    ],
)
def test_mistakes(arguments: list[str], message: str, hint: str) -> None:
    done = CliRunner().invoke(app, ["init", *arguments])
    error = done.exception
    assert isinstance(error, AutotuneError)
    assert message in error.message
    assert hint in (error.hint or "")


def test_a_host_where_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match="idle: autotune found no service to tune") as raised:
        write_target([host("idle", "10.0.0.8", {})], tmp_path / "mine.yaml", None, "/")
    assert "nginx" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("names", "unique_names"),
    [
        (["db", "db", "db-2"], ["db", "db-2", "db-2-2"]),
        (["db", "db-2", "db"], ["db", "db-2", "db-3"]),
    ],
)
def test_hosts_with_the_same_name_get_numbers(names: list[str], unique_names: list[str]) -> None:
    hosts = [host(name, f"10.0.0.{number}", {}) for number, name in enumerate(names, 1)]
    assert [each.name for each in _name_hosts(hosts)] == unique_names


# -- reading a host -------------------------------------------------------------------------------


class Stubbed(Here):
    """This machine, with some of its programs replaced by scripts."""

    def __init__(self, place: Path, programs: dict[str, str]) -> None:
        super().__init__(place)
        for name, text in programs.items():
            (place / name).write_text(f"#!/bin/sh\n{text}\n")
            (place / name).chmod(0o755)

    def run(self, argv: Argv, **options: object) -> CommandResult:  # type: ignore[override]  # handed on
        if script := options.get("input"):
            assert isinstance(script, bytes)
            options["input"] = f"PATH={self.place}:$PATH\n".encode() + script
        return super().run(argv, **options)  # type: ignore[arg-type]  # as they came


SYSTEMCTL = r"""
case "$*" in
    list-unit-files*fpm*) echo php8.2-fpm.service enabled ;;
    list-unit-files*postgresql*) echo 'postgresql@.service disabled disabled' ;;
    list-units*postgresql*) echo 'postgresql@15-main.service loaded active running Cluster 15-main' ;;
    show*LoadState*ActiveState*)
        while [ "$1" != -- ]; do shift; done
        for unit in "$@"; do
            case $unit in
                --) continue ;;
                nginx.service | postgresql@15-main.service)
                    printf 'ActiveState=%s\nLoadState=%s\n' active loaded ;;
                php8.2-fpm.service) printf 'LoadState=%s\nActiveState=%s\n' loaded inactive ;;
                *) printf 'LoadState=%s\nActiveState=%s\n' not-found inactive ;;
            esac
            echo
        done | sed '$d' ;;
    *) exit 3 ;;
esac
"""


def test_a_host_is_read_in_few_exchanges(tmp_path: Path) -> None:
    sockets = """
    case $1 in
        -lxH) echo 'u_str LISTEN 0 4096 /run/php/php8.2-fpm.sock 1 * 0' ;;
        *) echo 'LISTEN 0 511 0.0.0.0:80 0.0.0.0:*'; echo 'LISTEN 0 128 [::]:80 [::]:*' ;;
    esac"""
    names = "case $1 in -I) echo 10.0.0.1 fd00::1 ;; -f) exit 1 ;; *) echo web-1.example ;; esac"
    transport = Stubbed(tmp_path, {"systemctl": SYSTEMCTL, "ss": sockets, "hostname": names,
                             "nproc": "echo 3"})  # fmt: skip
    found = host_reading.read_host(transport, SshHost("login", "10.0.0.1", user="me"))
    assert (found.name, found.address, found.user) == ("web-1", "10.0.0.1", "me")
    assert found.units == {"nginx.service": "active", "php8.2-fpm.service": "inactive",
                           "postgresql@15-main.service": "active"}  # fmt: skip
    assert found.names == {"10.0.0.1", "fd00::1", "web-1.example"}
    assert found.processors == 3
    assert found.backlogs == {"/run/php/php8.2-fpm.sock": 4096, "80": 128}
    assert found.facts.memory > 0
    assert transport.exchanges <= 5  # two of them for what links lead to
    for path in found.tree.files:
        # Where Debian's databases have what was set by SQL, and nothing else of their data; and
        # the units of what has its options there.
        units = path.startswith(("/usr/lib/systemd/system/", "/lib/systemd/system/"))
        # A package's, and what it starts with.
        defaults = path == "/usr/share/uwsgi/conf/default.ini"
        assert (
            path.startswith("/etc/")
            or units
            or defaults
            or path.endswith("/main/postgresql.auto.conf")
        )
        assert not path.endswith((".key", ".pem"))


def test_a_host_without_systemd_is_told(tmp_path: Path) -> None:
    # A shell that finds nothing is as good as a host that has nothing.
    transport = Stubbed(tmp_path, {})
    original = transport.run

    def without(argv: Argv, **options: object) -> CommandResult:
        script = options.get("input")
        if isinstance(script, bytes):
            options["input"] = script.replace(b"command -v systemctl", b"false systemctl")
        return original(argv, **options)

    transport.run = without  # type: ignore[method-assign,assignment]  # for this test alone
    with pytest.raises(AutotuneError, match="has no systemd"):
        host_reading.read_host(transport, SshHost("login", "10.0.0.1"))


def test_the_manifest_is_json_that_says_which_file_comes_from_what(tmp_path: Path) -> None:
    written = write_target(HOSTS, tmp_path / "mine.yaml", None, "/")
    found = json.loads((written.templates_directory / adopted_files.ADOPTED_FILE).read_text())
    assert found["web.web1.php_fpm"] == {
        "files": {
            "/etc/php/8.2/fpm/pool.d/www.conf": {
                "template": "web1/etc/php/8.2/fpm/pool.d/www.conf.j2",
                "mode": "0644",
            }
        },
        "listen": "/run/php/php8.2-fpm.sock",
    }


def test_templates_that_another_command_wrote_meanwhile_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "templates" / "mine" / "own.json"

    def choose(*_: object) -> target_writer.LoadRequest:
        other.parent.mkdir(parents=True)
        other.write_text("{}")
        return target_writer.LoadRequest("path: /")

    monkeypatch.setattr(target_writer, "_choose_request", choose)
    with pytest.raises(FileExistsError):
        write_target(HOSTS, tmp_path / "mine.yaml", None, "/")
    assert other.read_text() == "{}"
