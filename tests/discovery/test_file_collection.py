"""Files that a configuration names are fetched from real directories, wherever they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.config_text import encode
from autotune.discovery.file_collection import (
    build_usual_command,
    collect_named_files,
    look_up_files,
    unpack_collected,
)
from autotune.discovery.host_reading import DiscoveredHost
from autotune.transports.local import LocalTransport
from tests.discovery.places import adopted, host

UNIT = "redis-server.service"


def collect(main: str) -> DiscoveredHost:
    """Return a host whose main file is given, with the files of this machine that it names."""
    found = host("h1", "10.0.0.9", {"/etc/redis/redis.conf": main}, UNIT)
    look_up_files(found)
    tree = collect_named_files(LocalTransport(), found, found.tree)
    return DiscoveredHost(**{**vars(found), "tree": tree})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory whose parents only root can change, as links need."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def test_includes_of_other_directories_and_of_files_there(directory: Path) -> None:
    (directory / "a b.conf").write_bytes(b"# Gr\xf6\xdfe\nhz 20\n")
    (directory / "z.conf").write_text(f"include {directory}/deeper/*.txt\nmaxclients 500\n")
    (directory / "deeper").mkdir()
    (directory / "deeper" / "x.txt").write_text("tcp-backlog 900\n")
    tier = adopted(collect(f"hz 10\ninclude {directory}/*.conf\n"))
    values = {
        name: tier.baseline_values[f"redis.{name}"] for name in ("hz", "maxclients", "tcp_backlog")
    }
    assert values == {"hz": 20, "maxclients": 500, "tcp_backlog": 900}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("large.conf", b"hz 20\n" + b"#" * (5 << 20), "it is larger than 4096 KB"),
        ("own.key", b"hz 20\n", "its name suggests a key or a password"),
        ("missing.conf", None, "includes this file, but it was not read"),
    ],
)
def test_a_file_that_is_not_read_hides_what_it_may_set(
    directory: Path, name: str, content: bytes | None, reason: str
) -> None:
    path = directory / name
    if content is not None:
        path.write_bytes(content)
    tier = adopted(collect(f"hz 10\ninclude {path}\n"))
    assert "redis.hz" not in tier.baseline_values
    assert str(path) in tier.skipped["redis.hz"]
    assert reason in tier.skipped["redis.hz"]


def test_a_directory_of_keys_is_read_if_a_file_names_its_files(directory: Path) -> None:
    (directory / "ssl").mkdir()
    (directory / "ssl" / "tls.conf").write_bytes(encode("hz 30\n"))
    tier = adopted(collect(f"include {directory}/ssl/tls.conf\n"))
    assert tier.baseline_values["redis.hz"] == 30


def test_patterns_are_no_commands(directory: Path) -> None:
    (directory / "own.conf").write_text("hz 30\n")
    mark = directory / "mark"
    tier = adopted(
        collect(f"include '{directory}/$(touch {mark})*'\ninclude {directory}/own.conf\n")
    )
    assert not mark.exists()
    assert tier.baseline_values["redis.hz"] == 30


def test_keys_passwords_and_modules_are_not_read(tmp_path: Path) -> None:
    for name in ("nginx.conf", "site.key", "site.pem", "users.htpasswd", ".htpasswd", "mod.so"):
        (tmp_path / name).write_text(f"content of {name}\n")
    (tmp_path / "link.conf").symlink_to("nginx.conf")
    command = build_usual_command([str(tmp_path)])
    printed = LocalTransport().run(command.argv, timeout=60.0).stdout
    tree = unpack_collected("web1", printed)
    assert {Path(path).name for path in (*tree.files, *tree.links)} == {"nginx.conf", "link.conf"}
