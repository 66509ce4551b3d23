"""What sessions of a running PostgreSQL use: values of roles and databases, and plans that they keep."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from autotune.services.base import Action, AdoptedConfig, Endpoint, Placement, Role, Settings
from autotune.services.postgresql.service import LAYOUTS, VERSIONS, Postgresql
from autotune.transports.local import LocalTransport
from tests.ports import free_port

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as its owner"),
]
_OPTIONS = {"fsync": "off", "listen_addresses": "", "shared_buffers": "16MB", "autovacuum": "off"}
_GONE = "SELECT count(*) FROM pg_stat_activity WHERE usename = '{}' AND datname = 'shop'"
_ROLES = """
CREATE ROLE app LOGIN;
CREATE ROLE analyst LOGIN;
CREATE DATABASE shop;
"""


def programs() -> Path:
    places = (Path(LAYOUTS[0].for_instance(version).program_directory) for version in VERSIONS)
    return next(place for place in places if (place / "postgres").exists())


def as_owner(program: str, *words: str | Path) -> list[str]:
    owner = ("setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups")
    return [*owner, str(programs() / program), *map(str, words)]


@pytest.fixture(scope="module")
def site() -> Iterator[Placement]:
    """A cluster of its own, with its socket and its files in one directory."""
    place, port = Path(tempfile.mkdtemp(prefix="autotune-pg.", dir="/tmp")), free_port()
    shutil.chown(place, "postgres", "postgres")
    options = {**_OPTIONS, "port": port, "unix_socket_directories": place}
    server = None
    try:
        make = as_owner("initdb", "-D", place / "data", "--no-sync", "--locale=C", "-A", "trust")
        subprocess.run(make, cwd=place, stdout=subprocess.DEVNULL, check=True)
        own_file = place / "data" / "postgresql.conf"
        own_file.write_text("".join(f"{name} = '{value}'\n" for name, value in options.items()))
        start = as_owner("postgres", "-D", place / "data")
        server = subprocess.Popen(start, cwd=place, stderr=subprocess.DEVNULL)
        there = Placement(tier="db", host="h", role=Role.DATABASE, directory="/run/x", installed=True,
                    listen=Endpoint("127.0.0.1", port), adopted=AdoptedConfig((), str(place)),
                    programs={"postgres": str(programs() / "postgres")})  # fmt: skip
        is_ready = as_owner("pg_isready", "-h", place, "-p", str(port))
        while subprocess.run(
            is_ready, cwd=place, stdout=subprocess.DEVNULL, check=False
        ).returncode:
            assert server.poll() is None
            time.sleep(0.05)
        sql(there, _ROLES)
        yield there
    finally:
        if server is not None:
            server.send_signal(2)
            server.wait(60)
        shutil.rmtree(place)


def client(site: Placement, user: str, database: str) -> list[str]:
    where = ["-h", site.adopted_address, "-p", str(site.listen.port), "-U", user, "-d", database]
    return as_owner("psql", "-XAtq", *where, "-v", "ON_ERROR_STOP=1")


def sql(site: Placement, text: str) -> str:
    argv = client(site, "postgres", "postgres")
    return subprocess.run(
        argv, input=text, text=True, cwd="/", check=True, stdout=subprocess.PIPE
    ).stdout


@contextmanager
def connected(
    site: Placement, user: str, database: str = "shop"
) -> Iterator[subprocess.Popen[str]]:
    """A session that stays, as those of an application do."""
    with subprocess.Popen(client(site, user, database), cwd="/", text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:  # fmt: skip
        answer(session, "SELECT 1")
        yield session
        assert session.stdin is not None
        session.stdin.close()
        session.wait(30)
        while sql(site, _GONE.format(user)) != "0\n":
            time.sleep(0.01)


def answer(session: subprocess.Popen[str], statement: str) -> str:
    assert session.stdin is not None
    assert session.stdout is not None
    session.stdin.write(f"{statement};\n\\echo =\n")
    session.stdin.flush()
    lines = list[str]()
    while (line := session.stdout.readline()) != "=\n":
        assert line, "the session has ended"
        lines.append(line)
    return "".join(lines)


def effective(site: Placement, *, is_deployed: bool = False) -> Settings:
    """What is read before a study, or after a deployment."""
    (readback,) = Postgresql().list_readbacks(site)
    argv = readback.argv if is_deployed else readback.adoption_argv
    assert argv is not None
    return readback.parse(LocalTransport().run(argv).stdout)


@pytest.mark.parametrize(
    ("where", "users", "counts"),
    [
        ("ROLE app", ["app"], True),
        ("ROLE app", ["analyst"], False),
        ("ROLE app", ["analyst", "app"], True),
        ("ROLE app", [], True),  # it may connect for each request
        ("DATABASE shop", ["app"], True),
        ("ROLE app IN DATABASE shop", ["app"], True),
        ("ROLE app IN DATABASE postgres", ["app"], False),
        ("ROLE ALL", ["app"], True),
        ("ROLE postgres", ["app"], False),  # the role of the query itself
        ("DATABASE postgres", ["app"], False),
    ],
)
def test_a_value_of_a_role_or_a_database_counts_if_clients_use_it(
    site: Placement, where: str, users: list[str], counts: bool
) -> None:
    before = effective(site)
    assert (before["work_mem"], before["jit"], before["random_page_cost"]) == (4096, True, 4.0)
    own = ("Work_Mem = '6MB'", "jit = off", "random_page_cost = 2", "search_path = a, b")
    sql(site, "".join(f"ALTER {where} SET {value};\n" for value in own))
    wanted = {"work_mem": 6144, "jit": False, "random_page_cost": 2.0} if counts else {}
    try:
        with ExitStack() as sessions:
            for user in users:
                sessions.enter_context(connected(site, user))
            assert effective(site) == {**before, **wanted}
    finally:
        sql(site, f"ALTER {where} RESET ALL;")


def test_after_a_deployment_only_values_of_connected_clients_count(site: Placement) -> None:
    """The application may connect for each request, and the role may be that of a rare report."""
    sql(site, "ALTER ROLE analyst SET work_mem = '256MB';")
    try:
        assert effective(site)["work_mem"] == 262_144
        assert effective(site, is_deployed=True)["work_mem"] == 4096
        with connected(site, "analyst"):
            assert effective(site, is_deployed=True)["work_mem"] == 262_144
    finally:
        sql(site, "ALTER ROLE analyst RESET ALL;")


def test_the_value_with_the_highest_precedence_counts(site: Placement) -> None:
    sql(site, "ALTER DATABASE shop SET work_mem = '8MB'; ALTER ROLE app SET work_mem = '16MB';")
    with connected(site, "app") as session:
        assert answer(session, "SHOW work_mem") == "16MB\n"
        assert effective(site)["work_mem"] == 16_384
    sql(site, "ALTER DATABASE shop RESET ALL; ALTER ROLE app RESET ALL;")


_SESSION = """
SET jit_above_cost = 0; SET plan_cache_mode = force_generic_plan;
SET enable_bitmapscan = off; SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
PREPARE goods(int) AS SELECT count(*), max(name) FROM goods WHERE kind = $1
"""
_GOODS = """
CREATE TABLE goods AS SELECT i % 100 AS kind, md5(i::text) AS name FROM generate_series(1, 100000) i;
CREATE INDEX ON goods (kind);
VACUUM ANALYZE goods;
GRANT SELECT ON goods TO app
"""


@pytest.fixture(scope="module")
def goods(site: Placement) -> Placement:
    with connected(site, "postgres") as session:
        answer(session, _GOODS)
    return site


@contextmanager
def written(site: Placement, name: str, value: str) -> Iterator[None]:
    """A value in the cluster's file, which it has read again."""
    file = Path(site.adopted_address) / "data" / "postgresql.conf"
    before = file.read_text()
    file.write_text(f"{before}{name} = {value}\n")
    sql(site, "SELECT pg_reload_conf()")
    try:
        while sql(site, f"SHOW {name}") != f"{value}\n":
            time.sleep(0.01)
        yield
    finally:
        file.write_text(before)
        sql(site, "SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("name", "before", "after", "avoided"),
    [
        ("effective_cache_size", "1GB", "1MB", "seqscan"),
        ("random_page_cost", "4", "8", "seqscan"),
        ("max_parallel_workers_per_gather", "2", "0", "indexscan"),
        ("jit", "off", "on", "seqscan"),
    ],
)
def test_values_that_only_affect_plans_need_a_restart(
    goods: Placement, name: str, before: str, after: str, avoided: str
) -> None:
    with written(goods, name, before), connected(goods, "app") as session:
        answer(session, f"SET enable_{avoided} = off; {_SESSION}")
        plan = answer(session, "EXPLAIN EXECUTE goods(7)")
        with written(goods, name, after):
            while answer(session, f"SHOW {name}") != f"{after}\n":
                time.sleep(0.01)
            assert answer(session, "EXPLAIN EXECUTE goods(7)") == plan
            answer(session, f"DEALLOCATE goods; {_SESSION}")
            assert answer(session, "EXPLAIN EXECUTE goods(7)") != plan
    (parameter,) = (p for p in Postgresql().parameters if p.name == name)
    assert parameter.action is Action.RESTART
