"""MariaDB: the language of its option files, its check, and what follows from its counters."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.services.base import AdoptedConfig, Endpoint, Placement, Role
from autotune.services.config_files import ConfigSyntaxError
from autotune.services.diagnosis import InstanceActivity, InstanceReading, Resource
from autotune.services.mariadb import service as mariadb
from autotune.services.mariadb import syntax
from autotune.services.mariadb.service import DIAGNOSIS, RATIO_RULES, parse_counters
from autotune.space.facts import HostFacts
from autotune.space.target_space import build_space
from autotune.target.read_target import read_target

PRINTED = (Path(__file__).parent / "fixtures" / "mariadb.txt").read_text()
STATUS = (Path(__file__).parent / "fixtures" / "mariadb-status.txt").read_text()
SITE = Placement(tier="db", host="db1", role=Role.DATABASE, directory="/run/x", installed=True,
            listen=Endpoint("10.0.0.4", 3306),
            programs={"mariadbd": "/usr/sbin/mariadbd", "mariadb": "/usr/bin/mariadb"})  # fmt: skip


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("max-connections = 400 # was 151", "max_connections", ["400"]),
        ("  innodb_log_file_size=268435456", "innodb_log_file_size", ["268435456"]),
        ("loose-query_cache_size = 0", "query_cache_size", ["0"]),
        ("init_connect = 'a # b' c", "init_connect", ["'a # b' c"]),
        ("skip-name-resolve", "skip_name_resolve", []),
        ("sql_mode =", "sql_mode", []),
        ("!includedir /etc/mysql/conf.d/", "!includedir", ["/etc/mysql/conf.d/"]),
        ("[mariadb-10.11] # x", "[mariadb-10.11]", []),
    ],
)
def test_a_line(line: str, name: str, arguments: list[str]) -> None:
    for end in ("", "\n", "\r\n"):
        (directive,) = syntax.parse_directives(line + end)
        assert directive.name.text == name
        assert [word.text for word in directive.arguments] == arguments
        for word in directive.arguments:
            assert line[word.start : word.end] == word.text


@pytest.mark.parametrize("text", ["[mysqld", "a = 'b", "= 4", "a b"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigSyntaxError, match="line 2"):
        syntax.parse_directives(f"# x\n{text}\n")


def test_a_long_line_takes_no_long_time() -> None:
    for text in (" " * 100_000 + "=", "a" + " " * 100_000 + '"', "a = " + "'" * 99_999):
        with pytest.raises(ConfigSyntaxError):
            syntax.parse_directives(text)


def test_what_is_in_effect_has_the_parameters_units() -> None:
    values = mariadb.parse_effective(PRINTED)
    assert set(values) == {parameter.name for parameter in mariadb.PARAMETERS}
    # Debian's package as it comes, on two CPUs.
    stock = {p.name: p.stock for p in mariadb.PARAMETERS} | {"thread_pool_size": 2}
    assert values == stock
    assert type(values["innodb_buffer_pool_size"]) is int
    odd = mariadb.parse_effective(
        "sort_buffer_size\t1536\nquery_cache_type\tON\nquery_cache_size\t1048576\n"
    )
    assert odd == {"sort_buffer_size": 1.5, "query_cache_size": 1}


@pytest.mark.parametrize(
    ("said", "status", "refused"),
    [
        ("[Warning] Could not increase number of max_open_files to more than 20000", 0, ""),
        ("[Warning] option 'max_allowed_packet': unsigned value 9 adjusted to 1024", 0, ""),
        ("[ERROR] Parsing options for plugin 'InnoDB' failed. Disabling plugin", 0, "InnoDB"),
        ("[Warning] option 'innodb-log-file-size': unsigned value 1 adjusted to 4194304", 0, "adj"),
        ("Abort", 7, "Abort"),
    ],
)
def test_it_is_refused_for_what_it_says_too(
    said: str, status: int, refused: str, tmp_path: Path
) -> None:
    """What the real one says is tried on a lab host; here a program that repeats it."""
    program = tmp_path / "mariadbd"
    program.write_text(f'#!/bin/sh\necho "$@"\ncat >&2 <<"END"\n{said}\nEND\nexit {status}\n')
    program.chmod(0o755)
    how = mariadb.Mariadb().build_validation(SITE, {})
    assert how[-1] == "/etc/mysql/mariadb.conf.d/zz-autotune.cnf"
    assert "/usr/sbin/mariadbd" in how
    argv = [str(program) if word == "/usr/sbin/mariadbd" else word for word in how]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == bool(refused)
    assert refused in done.stdout
    assert bool(done.stdout) == bool(refused)


def test_an_adopted_one_is_asked_at_its_own_socket() -> None:
    service = mariadb.Mariadb()
    adopted = replace(SITE, adopted=AdoptedConfig((), "/srv/db.sock"))
    assert "--socket=/srv/db.sock" in service.list_readbacks(adopted)[0].argv
    assert service.get_socket(adopted) == "/srv/db.sock"
    assert service.get_socket(SITE) == SITE.listen
    assert service.build_validation(adopted, {})[-1] == mariadb._ERROR_PATTERN


@pytest.mark.parametrize(
    ("printed", "refused"),
    [("wsrep_connected\tON", True), ("wsrep_connected\tOFF", False), ("", False)],
)
def test_a_node_of_a_cluster_is_refused(printed: str, refused: bool, tmp_path: Path) -> None:
    client = tmp_path / "mariadb"
    client.write_text(f"#!/bin/sh\ncase $* in *wsrep_connected*) echo '{printed}' ;; esac\n")
    client.chmod(0o755)
    site = replace(SITE, programs={**SITE.programs, "mariadb": str(client)})
    argv = mariadb.Mariadb().build_unpersisted_check(site, {})
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ("Galera" in done.stdout) == refused
    assert len(done.stdout.splitlines()) == 2 * refused


@pytest.mark.parametrize(
    ("set_by_sql", "in_files", "said"),
    [
        ("max_connections\t500", "max-connections    151",
         "has max_connections 500, but its files set 151"),
        ("max_connections\t500", "max-connections    500", ""),
        ("read_only\tOFF", "read-only    TRUE", "has read_only OFF, but its files set ON"),
        ("read_only\tOFF", "read-only    FALSE", ""),
        ("read_only\tON\ntable_open_cache\t4000", "read-only TRUE\ntable-open-cache 2000",
         "has table_open_cache 4000"),
        ("innodb_io_capacity_max\t4000", "innodb-io-capacity-max  4294967295", "files set DEFAULT"),
        ("", "max-connections    151", ""),
    ],
)  # fmt: skip
def test_a_value_that_only_sql_set_is_refused(
    set_by_sql: str, in_files: str, said: str, tmp_path: Path
) -> None:
    """A restart would end a study's host with other values than it had before."""
    outputs = {"mariadb": set_by_sql, "mariadbd": f"--------- ----\n{in_files}"}
    for name, output in outputs.items():
        (tmp_path / name).write_text(
            f"#!/bin/sh\ncase $* in *SYSTEM_VARIABLES* | *--help*) cat <<'END'\n{output}\nEND\nesac\n"
        )
        (tmp_path / name).chmod(0o755)
    site = replace(SITE, programs={name: str(tmp_path / name) for name in outputs})
    argv = mariadb.Mariadb().build_unpersisted_check(site, {})
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    sentence, _, hint = done.stdout.partition("\n")
    assert (said in sentence, bool(said)) == (True, bool(sentence))
    assert ("SET GLOBAL" in hint) == bool(said)


SHOP = """\
name: shop
slo: {p99: 500ms}
replace: true
hosts: {web1: {address: 198.18.0.1}, db1: {address: 198.18.0.2}}
tiers:
  web: {hosts: web1, service: nginx+php-fpm, uses: [db]}
  db: {hosts: db1, service: mariadb}
load: {path: /}
"""


def test_its_connections_and_memory_are_in_the_rules(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    hosts = dict.fromkeys(("web1", "db1"), HostFacts(2, 2 * 2**30, 20_000))
    space = build_space(read_target(tmp_path / "shop.yaml"), hosts)
    few = space.build_candidate({"web.php_fpm.max_children": 64, "db.mariadb.max_connections": 20})
    assert few.settings["web.php_fpm.max_children"] == 20
    large = {"db.mariadb.innodb_buffer_pool_size": 1400, "db.mariadb.sort_buffer_size": 8192}
    sizes = space.build_candidate({**large, "db.mariadb.max_connections": 500}).settings
    buffers = sum(int(sizes[f"db.mariadb.{name}_buffer_size"]) * 1024
                  for name in ("sort", "join", "read", "read_rnd"))  # fmt: skip
    pool = int(sizes["db.mariadb.innodb_buffer_pool_size"]) * 2**20
    assert pool + int(sizes["db.mariadb.max_connections"]) * buffers <= 0.8 * 2 * 2**30


def reading(**counted: float) -> InstanceReading:
    activity: dict[str, Any] = {"counters": counted}
    part = InstanceActivity("db.db1.mariadb", "db", "db1", "mariadb", Role.DATABASE, **activity)
    return InstanceReading(part, {}, failed_requests=0, errors_dominate=False, idle_fraction=0.5)


@pytest.mark.parametrize(
    ("counted", "resource", "words"),
    [
        ({"Innodb_row_lock_waits": 600, "Questions": 10_000}, Resource.LOCKS, "600 times"),
        ({"Innodb_log_waits": 200, "Questions": 10_000}, Resource.DISK, "innodb_log_buffer_size"),
        ({"Innodb_buffer_pool_reads": 5000, "Innodb_buffer_pool_read_requests": 100_000},
         Resource.DISK, "raise innodb_buffer_pool_size"),
        ({"Created_tmp_disk_tables": 300, "Created_tmp_tables": 1000}, Resource.DISK,
         "raise tmp_table_size"),
        ({"Table_open_cache_overflows": 2000, "Questions": 9000}, Resource.CACHE,
         "raise table_open_cache"),
        ({"Threads_created": 900, "Connections": 1000}, Resource.WORKERS, "thread_cache_size"),
    ],
)  # fmt: skip
def test_what_is_frequent_is_named(
    counted: dict[str, float], resource: Resource, words: str
) -> None:
    findings = [found for rule in DIAGNOSIS.worker_rules if (found := rule(reading(**counted)))]
    assert [found.resource for found in findings] == [resource]
    assert words in findings[0].evidence
    tenth = {name: value / 100 if n == 0 else value
             for n, (name, value) in enumerate(counted.items())}  # fmt: skip
    assert not any(rule(reading(**tenth)) for rule in DIAGNOSIS.worker_rules)


def test_every_counter_is_in_what_it_prints() -> None:
    printed = parse_counters(STATUS)
    assert len(RATIO_RULES) == len(DIAGNOSIS.worker_rules)
    for counter, of, *_ in RATIO_RULES:
        assert {counter, of} <= printed.keys()
    assert DIAGNOSIS.client_limit is not None
    assert DIAGNOSIS.client_limit.refused_counter in printed
    assert not any(rule(reading(**printed)) for rule in DIAGNOSIS.worker_rules)


@pytest.mark.stack
@pytest.mark.parametrize("end", ["low", "high"])
def test_both_ends_of_a_range_are_taken_as_they_are(end: str) -> None:
    """The server adjusts what it has no room for, and only says so."""
    units = {"MB": "M", "KB": "K"}
    options = [
        f"--{parameter.name.replace('_', '-')}={value}{units.get(parameter.unit, '')}"
        for parameter in mariadb.PARAMETERS
        if isinstance(value := getattr(parameter, end), int)
    ]
    assert len(options) > 10
    done = subprocess.run(
        ["mariadbd", "--no-defaults", "--help", "--verbose", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not re.findall(rf".*(?:{mariadb._ERROR_PATTERN}).*", done.stderr)
