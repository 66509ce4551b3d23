"""What no file says of a running Redis: a restart would open it, lock clients out, or lose data."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile, Endpoint, Placement, Role
from autotune.services.redis.service import Redis
from autotune.services.redis_protocol import DEBIAN_FILE
from autotune.transports.local import LocalTransport
from tests.deploy.lab import Ground, renewed
from tests.discovery.places import adopted, host
from tests.lab.shared import SharedLab
from tests.ports import free_port

PASSWORD = "korrekt Pferd-7"


@pytest.fixture
def port() -> int:
    return free_port()


def edited(file: Path) -> AdoptedConfig:
    """A main file that is edited."""
    return AdoptedConfig((ConfigFile(str(file), "redis.conf.j2"),), main=str(file))


def cli(port: int, *words: str, password: str = "") -> str:
    argv = ["redis-cli", "-p", str(port), *(["-a", password] if password else []), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def started(port: int, place: Path, text: str, *options: str) -> Iterator[Placement]:
    """A server with this file, adopted as a host's own."""
    file = place / "redis.conf"
    file.write_text(f"port {port}\nbind 127.0.0.1\ndir {place}\n{text}", newline="")
    argv = ["redis-server", str(file), *options]
    server = subprocess.Popen(argv, cwd=place, stdout=subprocess.DEVNULL)
    try:
        while not cli(port, "PING"):
            assert server.poll() is None
            time.sleep(0.01)
        programs = {"redis-cli": str(shutil.which("redis-cli"))}
        yield Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                   listen=Endpoint("127.0.0.1", port), programs=programs,
                   adopted=edited(file))  # fmt: skip
    finally:
        server.kill()
        server.wait()


def checked(site: Placement, *, allows_data_loss: bool = False) -> str:
    """What is said of a running server."""
    argv = Redis().build_unpersisted_check(site, {}, allows_data_loss=allows_data_loss)
    assert argv is not None
    return LocalTransport().run(argv).stdout.strip()


def unsaved(port: int, lines: str, *commands: tuple[str, ...], place: Path) -> str:
    """What is said of a server with these lines in its file that was then told these commands."""
    (place / "more.conf").write_text(f'requirepass "{PASSWORD}"\n')
    (place / "users.acl").write_text(f"user default on >{PASSWORD.replace(' ', '')} ~* &* +@all\n")
    with started(port, place, f"save ''\n{lines.replace('HERE', str(place))}") as site:
        for command in commands:
            assert cli(port, *command, password=PASSWORD if PASSWORD in lines else "") == "OK"
        return checked(site)


def test_what_a_file_includes_is_never_an_option_of_what_reads_it(tmp_path: Path) -> None:
    """The file may be another account's: sed would write files, and run programs, as root."""
    file, written = tmp_path / "redis.conf", tmp_path / "written"
    file.write_text(f"include --expression=1w{written}\n")
    site = Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                listen=Endpoint("127.0.0.1", 1), programs={"redis-cli": "true"},
                adopted=edited(file))  # fmt: skip
    argv = Redis().build_unpersisted_check(site, {})
    assert argv is not None
    LocalTransport().run(argv)
    assert not written.exists()


def test_the_main_file_is_read_even_if_an_included_one_is_edited_first() -> None:
    """The password and the limits of memory may be in a file that autotune does not edit."""
    texts = {
        DEBIAN_FILE: f'port 6379\nrequirepass "{PASSWORD}"\ninclude /etc/redis/own.conf\n',
        "/etc/redis/own.conf": "io-threads 2\n",
    }
    tier = adopted(host("db1", "10.0.0.4", texts, "redis-server.service"))
    own = tier.adopted_configs["store.db1.redis"]
    assert own.files[0].path == "/etc/redis/own.conf"
    site = Placement(tier="store", host="db1", role=Role.STORE, directory="/run/x", installed=True,
                listen=Endpoint("10.0.0.4", 6379), programs={"redis-cli": "redis-cli"},
                adopted=own)  # fmt: skip
    check = Redis().build_unpersisted_check(site, {})
    for argv in (check, Redis().list_readbacks(site)[0].argv):
        assert argv is not None
        assert argv[4] == DEBIAN_FILE


@pytest.mark.parametrize(
    ("line", "template", "refused"),
    [
        ("", b"maxclients 100\n", False),
        (f'requirepass "{PASSWORD}"\n', b"maxclients 100\n", True),
        ("aclfile /etc/redis/users.acl\n", b"# requirepass in a comment\n", True),
        ("user shop on >secret ~* +@all\n", b"maxclients 100\n", True),
        (f'requirepass "{PASSWORD}"\n', b"maxclients 100\nrequirepass of-a-template\n", False),
        ("# requirepass foobared\n", b"maxclients 100\n", False),
        (f'RequirePass "{PASSWORD}"\n', b"maxclients 100\n", True),
        (f'requirepass\t"{PASSWORD}"\n', b"maxclients 100\n", True),
        (f'requirepass "{PASSWORD}"\n', b"maxclients 100\nRequirePass of-a-template\n", False),
        ("include HERE/more.conf\n", b"maxclients 100\n", True),
        ('include "HERE/more.conf"\r\n', b"maxclients 100\n", True),
        ("Include 'HERE/more.conf'\n", b"maxclients 100\n", True),
        ("include HERE/further.conf\n", b"maxclients 100\n", True),
    ],
)
def test_no_whole_file_takes_a_password_away(
    port: int, tmp_path: Path, line: str, template: bytes, refused: bool
) -> None:
    file = tmp_path / "redis.conf"
    file.write_text(f"port {port}\n{line}".replace("HERE", str(tmp_path)), newline="")
    (tmp_path / "more.conf").write_text(f'requirepass "{PASSWORD}"\n')
    (tmp_path / "further.conf").write_text(f"include {tmp_path}/more.conf\n")

    class There(Redis):
        def config_path(self, site: Placement) -> str:
            return str(file)

    site = Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                listen=Endpoint("127.0.0.1", port), programs={"redis-cli": "true"})  # fmt: skip
    argv = There().build_unpersisted_check(site, {"redis.conf": template})
    assert argv is not None
    answer = LocalTransport().run(argv).stdout
    assert ("the replaced file" in answer) == refused
    assert PASSWORD not in answer


# What a running server prints: `CONFIG GET NAME` prints the name and the value on two lines.
CLIENT = r"""#!/bin/sh
case $* in
    *'CONFIG GET maxmemory') printf 'maxmemory\n%s\n' "$LIMIT" ;;
    *'CONFIG GET maxmemory-policy') printf 'maxmemory-policy\n%s\n' "$POLICY" ;;
    *'CONFIG GET timeout') printf 'timeout\n%s\n' "$IDLE" ;;
    *'CONFIG GET appendfsync') printf 'appendfsync\n%s\n' "$SYNC" ;;
    *'CONFIG GET notify-keyspace-events') printf 'notify-keyspace-events\n%s\n' "$EVENTS" ;;
    *'CONFIG GET'*) ;;
    *INFO) printf 'role:%s\r\n' "$ROLE" ;;
    *) echo PONG ;;
esac
"""


@pytest.mark.parametrize(
    ("text", "running", "command", "said"),
    [
        ("", {}, "redis-server", ""),
        ("maxmemory 2gb\n", {"LIMIT": "2147483648"}, "redis-server", ""),
        ("MaxMemory \"2GB\"\r\nmaxmemory-policy AllKeys-LRU\n",
         {"LIMIT": "2147483648", "POLICY": "allkeys-lru"}, "redis-server", ""),
        ("maxmemory 1k\n", {"LIMIT": "1000"}, "redis-server", ""),
        ("maxmemory 2gb\nmaxmemory 100\n", {"LIMIT": "100"}, "redis-server", ""),
        ("", {"LIMIT": "2147483648"}, "redis-server",
         "has maxmemory 2147483648, but its files set 0, which a restart would restore"),
        ("maxmemory 1gb\n", {"LIMIT": "2147483648"}, "redis-server", "its files set 1073741824"),
        ("", {"POLICY": "allkeys-lru"}, "redis-server", "has maxmemory-policy allkeys-lru"),
        ("", {"LIMIT": "100"}, "redis-server --maxmemory 100", ""),
        ("", {"LIMIT": "100"}, "redis-server --MaxMemory 100", ""),
        ("", {"LIMIT": "100"}, "redis-server /etc/redis.conf $OPTIONS", ""),
        ("", {"LIMIT": "100"}, "redis-server /etc/redis.conf --include /etc/limits.conf", ""),
        ("include HERE/more.conf\nmaxmemory 2gb\n", {"LIMIT": "2147483648"}, "redis-server", ""),
        ("maxmemory 2gb\ninclude HERE/more.conf\n", {"LIMIT": "1073741824"}, "redis-server", ""),
        ("", {"IDLE": "300"}, "redis-server", "has timeout 300, but its files set 0"),
        ("timeout 300\n", {"IDLE": "300"}, "redis-server", ""),
        ("AppendFsync no\n", {}, "redis-server", "has appendfsync everysec, but its files set no"),
        ('notify-keyspace-events ""\n', {"EVENTS": "xE"}, "redis-server",
         "has notify-keyspace-events xE, but its files set nothing"),
        ("notify-keyspace-events Ex\n", {"EVENTS": "xE"}, "redis-server", ""),
        ("", {"LIMIT": "100", "EVENTS": "xE"}, "redis-server --maxmemory 100", "events xE"),
        ("replicaof 10.0.0.2 6379\n", {}, "redis-server", "is a primary, but a restart would"),
        ('SlaveOf "10.0.0.2" 6379\r\n', {}, "redis-server", "make it a replica"),
        ("replicaof 10.0.0.2 6379\n", {"ROLE": "slave"}, "redis-server", ""),
        ("replicaof 10.0.0.2 6379\nreplicaof no one\n", {}, "redis-server", ""),
        ("replicaof 10.0.0.2 6379\n", {}, "redis-server --replicaof no one", ""),
        ("", {"LIMIT": "100"}, "", ""),  # no such unit, so its command is unknown
    ],
)  # fmt: skip
def test_a_role_or_option_in_no_file_is_told(
    tmp_path: Path, text: str, running: dict[str, str], command: str, said: str
) -> None:
    file = tmp_path / "redis.conf"
    file.write_text(text.replace("HERE", str(tmp_path)), newline="")
    (tmp_path / "more.conf").write_text("maxmemory 1gb\n")
    programs = {"redis-cli": CLIENT, "systemctl": f"#!/bin/sh\necho '{command}'\n"}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    site = Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                listen=Endpoint("10.0.0.1", 6379), programs={"redis-cli": f"{tmp_path}/redis-cli"},
                adopted=edited(file))  # fmt: skip
    path = f"{tmp_path}:{os.environ['PATH']}"
    variables = {"PATH": path, "LIMIT": "0", "POLICY": "noeviction", "ROLE": "master"}
    variables |= {"IDLE": "0", "SYNC": "everysec", "EVENTS": ""} | running

    def check(placement: Placement) -> str:
        argv = Redis().build_unpersisted_check(placement, {})
        assert argv is not None
        return LocalTransport().run(argv, env=variables).stdout

    sentence, _, hint = check(site).partition("\n")
    assert (said in sentence, bool(said)) == (True, bool(sentence))
    assert ("CONFIG REWRITE" in hint) == bool(said)
    assert check(replace(site, unit="shop:store")) == ""  # in a container


@pytest.mark.stack
@pytest.mark.parametrize(
    ("lines", "commands", "refused"),
    [
        ("", (), False),
        ("", (("CONFIG", "SET", "requirepass", "other"),), True),
        (f'requirepass "{PASSWORD}"\n', (), False),
        (f'requirepass "{PASSWORD}"\n', (("CONFIG", "SET", "requirepass", "other"),), True),
        (f'requirepass "{PASSWORD}"\n', (("CONFIG", "SET", "requirepass", ""),), True),
        ("include HERE/more.conf\n", (), False),
        ('include "HERE/more.conf"\n', (), False),
        ("aclfile HERE/users.acl\n", (), False),
    ],
)
def test_a_password_in_no_file_is_told(
    port: int, tmp_path: Path, lines: str, commands: tuple[tuple[str, ...], ...], refused: bool
) -> None:
    sentence, _, command = unsaved(port, lines, *commands, place=tmp_path).partition("\n")
    assert bool(sentence) == refused
    assert ("CONFIG REWRITE" in command) == refused
    assert PASSWORD not in sentence + command


NO_SNAPSHOTS = ("CONFIG", "SET", "save", "")
NO_LOG, LOG = (("CONFIG", "SET", "appendonly", word) for word in ("no", "yes"))
IN_COMMAND = ("--save", "", "--appendonly", "no")


@pytest.mark.stack
@pytest.mark.parametrize(
    ("text", "options", "commands", "refused"),
    [
        ("", (), (), False),
        ("", (), (NO_SNAPSHOTS,), True),
        ("", IN_COMMAND, (), True),
        ("", (), (NO_SNAPSHOTS, ("FLUSHALL",)), False),
        ("", (), (NO_SNAPSHOTS, ("REPLICAOF", "127.0.0.1", "1")), False),
        ("", (), (LOG,), False),
        ("", (), (LOG, NO_SNAPSHOTS), True),  # it starts with the last snapshot
        ("appendonly yes\n", (), (NO_SNAPSHOTS,), False),
        ("appendonly yes\n", (), (NO_LOG,), True),  # it starts with the log
        ('AppendOnly "yes"\r\n', IN_COMMAND, (), True),
        ("save 60 1\nSAVE ''\n", (), (), False),  # whether this may be lost, its tier says
        ('save ""\r\nappendonly no\r\n', IN_COMMAND, (), False),
        ('save ""\nappendonly yes\n', (), (NO_LOG,), True),
        (f'requirepass "{PASSWORD}"\n', (), (NO_SNAPSHOTS,), True),
        ("user default on nopass ~* &* +@all\n", (), (NO_SNAPSHOTS,), True),
    ],
)
def test_data_that_a_restart_would_lose_are_told(
    port: int,
    tmp_path: Path,
    text: str,
    options: tuple[str, ...],
    commands: tuple[tuple[str, ...], ...],
    refused: bool,
) -> None:
    password = PASSWORD if PASSWORD in text else ""
    with started(port, tmp_path, text, *options) as site:
        for command in (("SET", "key", "value"), *commands):
            assert cli(port, *command, password=password) == "OK"
        sentence, _, hint = checked(site).partition("\n")
        assert ("a restart would lose data" in sentence) == bool(sentence) == refused
        assert PASSWORD not in sentence + hint
        assert site.adopted is not None
        assert not checked(replace(site, adopted=replace(site.adopted, loses="its data")))
        assert not checked(site, allows_data_loss=True)
        if not refused:
            return
        remedy = hint.removeprefix("run ").partition(" to save ")[0]
        assert ("--askpass" in remedy) == bool(password)
        login = ["-a", PASSWORD] if password else []
        program, *words = remedy.replace("--askpass ", "").split()
        argv = [program, *login, *words]
        assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "OK\n"
        assert not checked(site)  # its files now say so


@pytest.fixture
def ground(shared_lab: SharedLab, tmp_path: Path) -> Iterator[Ground]:
    with renewed(shared_lab, tmp_path) as ground:
        yield ground


@pytest.mark.lab
def test_nothing_is_tuned_that_a_restart_would_open(ground: Ground) -> None:
    ground.sh("flstore", "systemctl start redis-server; redis-cli CONFIG SET requirepass other")
    with pytest.raises(AutotuneError, match=r"flstore: Redis .* restart") as refused:
        ground.bed()
    assert refused.value.hint is not None
    command = (
        refused.value.hint.removeprefix("run ")
        .partition(" to save ")[0]
        .replace("--askpass", "-a other")
    )
    assert "OK" in ground.sh("flstore", command)
    with pytest.raises(AutotuneError, match="the replaced file") as refused:
        ground.bed()  # `replace: true`, by a template without a password
    assert "replace: true" in (refused.value.hint or "")
    ground.sh("flcache", "cp -a /etc/memcached.conf /root/; echo -S >>/etc/memcached.conf")
    with pytest.raises(AutotuneError, match="flcache: memcached authenticates its clients"):
        ground.bed()
    ground.sh("flcache", "mv /root/memcached.conf /etc/")
