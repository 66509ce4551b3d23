"""What installed programs read in candidate files, while the files in place stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.file_values import read_file_values
from autotune.services.base import AdoptedConfig, Readback, Settings, Value
from autotune.services.mariadb.service import parse_option_table
from autotune.services.php_ini.service import parse_phpinfo
from autotune.services.postgresql.service import parse_dump
from autotune.services.registry import SHIPPED
from tests.deploy.doubles import Here

OPTION_TABLE = """mysqld  Ver 10.11
  --max-connections=#  The number of simultaneous clients allowed

Variables (--variable-name=value)
and boolean options {FALSE|TRUE}                             Value (after reading options)
------------------------------------------------------------ -------------
innodb-buffer-pool-size                                      134217728
max-connections                                              151
slow-query-log                                               FALSE

To see what values a running server is using, type 'SHOW VARIABLES'
"""


def test_the_option_table_is_in_units_of_parameters() -> None:
    values = parse_option_table(OPTION_TABLE)
    assert values["max_connections"] == 151
    assert values["innodb_buffer_pool_size"] == 128


def test_printed_settings_are_in_units_of_parameters() -> None:
    values = parse_dump(
        "shared_buffers|16384\nwork_mem|4096\njit|on\nmax_connections|100\nother|1\n"
    )
    assert values["shared_buffers"] == 128
    assert (values["jit"], values["max_connections"]) == (True, 100)


def test_printed_directives_are_in_units_of_parameters() -> None:
    text = (
        "opcache.memory_consumption => 128 => 128\nrealpath_cache_size => 4096K => 4096K\nx => y\n"
    )
    assert parse_phpinfo(text)["opcache_memory_consumption"] == 128


def parse(text: str) -> Settings:
    rows = (line.partition("=") for line in text.splitlines())
    return {name: int(value) for name, equals, value in rows if equals}


def build_case(place: Path, script: str, files: Mapping[str, bytes]) -> Any:
    readback = Readback(("sh", "-c", script, "sh", *files), parse)
    service = SimpleNamespace(name="server", list_file_readbacks=lambda _: (readback,))
    site = SimpleNamespace(directory=str(place / "run" / "web"), adopted=AdoptedConfig())
    return SimpleNamespace(name="web", service=service, placement=site), files


def test_files_are_read_at_their_paths_and_stay_as_they_are(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("workers=1\n")
    cases = [build_case(tmp_path, 'cat "$1"', {str(conf): b"workers=%d\n" % n}) for n in (2, 3)]
    rejected = build_case(tmp_path, 'cat "$1"; exit 1', {str(conf): b"workers=4\n"})
    assert read_file_values(Here(tmp_path), [*cases, rejected]) == [
        {"workers": 2}, {"workers": 3}, {},
    ]  # fmt: skip
    assert conf.read_text() == "workers=1\n"
    assert list((tmp_path / "run").iterdir()) == []
    assert not (tmp_path / "autotune").exists()


# service, its file with a value, and that value
PROGRAMS: list[tuple[str, str, str, dict[str, Value]]] = [
    (
        "nginx",
        "nginx.conf",
        "worker_processes 3;\nevents { worker_connections 2222; }\nhttp { keepalive_timeout 11; }\n",
        {"worker_processes": 3, "worker_connections": 2222, "keepalive_timeout": 11},
    ),
    (
        "php_fpm",
        "php-fpm.conf",
        "[www]\nuser = www-data\nlisten = /tmp/s\npm = static\npm.max_children = 17\n",
        {"pm": "static", "max_children": 17},
    ),
]


@pytest.mark.stack
@pytest.mark.parametrize(("name", "file", "text", "values"), PROGRAMS)
def test_installed_programs_read_candidates(
    name: str, file: str, text: str, values: dict[str, Value], tmp_path: Path
) -> None:
    path = str(tmp_path / file)
    Path(path).write_text("nothing valid")
    service = next(each for each in SHIPPED.services if each.name == name)
    programs = {
        key: next(found for word in words if (found := shutil.which(word)))
        for key, words in service.programs.items()
    }
    site: Any = SimpleNamespace(
        directory=str(tmp_path / "run" / name),
        adopted=AdoptedConfig(main=path),
        programs=programs,
        unit=None,
        socket_name="/tmp/s",
        listen=None,
        choose=lambda private, installed: installed,
    )
    case: Any = SimpleNamespace(name=name, service=service, placement=site)
    read = read_file_values(Here(tmp_path), [(case, {path: text.encode()})])[0]
    assert {name: read.get(name) for name in values} == values
    assert Path(path).read_text() == "nothing valid"
