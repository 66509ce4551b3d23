"""A password of a Redis that is in no file: a restart would open it, or lock its clients out."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile, Endpoint, Placement, Role
from autotune.services.redis.service import Redis
from autotune.transports.local import LocalTransport
from tests.deploy.lab import Ground, renewed
from tests.lab.shared import SharedLab
from tests.ports import free_port

PASSWORD = "korrekt Pferd-7"


@pytest.fixture
def port() -> int:
    return free_port()


def cli(port: int, *words: str, password: str = "") -> str:
    argv = ["redis-cli", "-p", str(port), *(["-a", password] if password else []), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def unsaved(port: int, lines: str, *commands: tuple[str, ...], place: Path) -> str:
    """What is said of a server with these lines in its file that was then told these commands."""
    file = place / "redis.conf"
    (place / "more.conf").write_text(f'requirepass "{PASSWORD}"\n')
    (place / "users.acl").write_text(f"user default on >{PASSWORD.replace(' ', '')} ~* &* +@all\n")
    file.write_text(f"port {port}\nbind 127.0.0.1\nsave ''\n{lines.replace('HERE', str(place))}")
    server = subprocess.Popen(["redis-server", str(file)], cwd=place, stdout=subprocess.DEVNULL)
    try:
        while not cli(port, "PING"):
            assert server.poll() is None
            time.sleep(0.01)
        for command in commands:
            assert cli(port, *command, password=PASSWORD if PASSWORD in lines else "") == "OK"
        programs = {"redis-cli": str(shutil.which("redis-cli"))}
        own = AdoptedConfig((ConfigFile(str(file), "redis.conf.j2"),))
        site = Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                    listen=Endpoint("127.0.0.1", port), programs=programs, adopted=own)  # fmt: skip
        argv = Redis().build_unpersisted_check(site, {})
        assert argv is not None
        return LocalTransport().run(argv).stdout
    finally:
        server.kill()
        server.wait()


def test_what_a_file_includes_is_never_an_option_of_what_reads_it(tmp_path: Path) -> None:
    """The file may be another account's: sed would write files, and run programs, as root."""
    file, written = tmp_path / "redis.conf", tmp_path / "written"
    file.write_text(f"include --expression=1w{written}\n")
    site = Placement(tier="store", host="h", role=Role.STORE, directory="/run/x", installed=True,
                listen=Endpoint("127.0.0.1", 1), programs={"redis-cli": "true"},
                adopted=AdoptedConfig((ConfigFile(str(file), "redis.conf.j2"),)))  # fmt: skip
    argv = Redis().build_unpersisted_check(site, {})
    assert argv is not None
    LocalTransport().run(argv)
    assert not written.exists()


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
    sentence, _, command = unsaved(port, lines, *commands, place=tmp_path).strip().partition("\n")
    assert bool(sentence) == refused
    assert ("CONFIG REWRITE" in command) == refused
    assert PASSWORD not in sentence + command


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
