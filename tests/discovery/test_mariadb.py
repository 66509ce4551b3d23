"""A host's own MariaDB adopted: the option that counts of several files, and lines that come."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.tiers import find_instances
from autotune.services.base import Value
from tests.discovery.places import host, web
from tests.discovery.test_tier_adoption import adopted, given_back, rendered

STYLES = Path(__file__).parent / "styles"
SHOP = (STYLES / "mariadb-shop.cnf").read_text()
# As Debian 12 has them, without the comments.
MAIN = """\
[client-server]
socket = /run/mysqld/mysqld.sock

!includedir /etc/mysql/conf.d/
!includedir /etc/mysql/mariadb.conf.d/
"""
SERVER = """\
[server]

[mysqld]
pid-file                = /run/mysqld/mysqld.pid
basedir                 = /usr
#innodb_buffer_pool_size = 8G
bind-address            = 127.0.0.1
expire_logs_days        = 10
character-set-server  = utf8mb4

[embedded]
[mariadb]
[mariadb-10.11]
"""
FILES = {
    "/etc/mysql/mariadb.cnf": MAIN,
    "/etc/mysql/conf.d/mysql.cnf": "[mysql]\n",
    "/etc/mysql/mariadb.conf.d/50-server.cnf": SERVER,
    "/etc/mysql/mariadb.conf.d/60-galera.cnf": "[galera]\n#wsrep_on = ON\n",
}
LINKS = {
    "/etc/mysql/my.cnf": "/etc/alternatives/my.cnf",
    "/etc/alternatives/my.cnf": "/etc/mysql/mariadb.cnf",
}
OWN = "/etc/mysql/mariadb.conf.d/70-shop.cnf"


def database(**files: str) -> DiscoveredHost:
    more = {f"/etc/mysql/mariadb.conf.d/{name}": text for name, text in files.items()}
    return host("db1", "10.0.0.4", FILES | more, "mariadb.service", links=LINKS)


def changed_lines(found: DiscoveredHost, changed: dict[str, Value]) -> dict[str, set[str]]:
    before = {f"db1{path}": text.decode() for path, text in found.tree.files.items()}
    after = rendered(adopted(found)["db"], changed)
    lines = {path: {line.strip() for line in {*text.split("\n")} - {*before[path].split("\n")}}
             for path, text in after.items()}  # fmt: skip
    return {path.rpartition("/")[2]: of_file for path, of_file in lines.items() if of_file}


def test_debian_s_own_files() -> None:
    found = database()
    tier = adopted(found)["db"]
    given_back(tier, found)
    assert (tier.discovered_tier.deployment, tier.discovered_tier.port) == ("mariadb", 3306)
    assert tier.adopted_configs["db.db1.mariadb"].listen == "/run/mysqld/mysqld.sock"
    values = {name.removeprefix("mariadb."): value for name, value in tier.baseline_values.items()}
    assert not [name for name in tier.skipped if name.startswith("mariadb.")]
    assert values["innodb_buffer_pool_size"] == 128
    assert values["thread_pool_size"] == 2
    assert changed_lines(found, {"table_open_cache": 3000, "tmp_table_size": 64}) == {
        "50-server.cnf": {"table_open_cache = 3000", "tmp_table_size = 64M"}
    }


def test_what_is_read_last_counts() -> None:
    found = database(**{"70-shop.cnf": SHOP, "80-more.cnf": "[mariadbd]\nmax_connections=500\n"})
    tier = adopted(found)["db"]
    given_back(tier, found)
    values = {name.removeprefix("mariadb."): value for name, value in tier.baseline_values.items()}
    assert values.items() >= {
        "max_connections": 500, "thread_cache_size": 256, "back_log": 150,
        "innodb_buffer_pool_size": 1024, "innodb_log_file_size": 256,
        "innodb_adaptive_hash_index": True, "sort_buffer_size": 100, "query_cache_size": 16,
        "tmp_table_size": 32,
        "table_open_cache": 4000,
    }.items()  # fmt: skip
    # It may lose data: asked for by name alone, and otherwise as it is.
    assert values["innodb_flush_log_at_trx_commit"] == 2
    assert "hush" not in "".join(tier.templates.values())


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"max_connections": 90}, {"max-connections\t= 90   # was 151",
                                   "back_log = 130", "thread_cache_size = 256"}),
        ({"innodb_buffer_pool_size": 512}, {"innodb-buffer-pool-size = 512M"}),
        ({"innodb_log_file_size": 96}, {"innodb_log_file_size=96M"}),
        ({"innodb_adaptive_hash_index": False}, {"loose-innodb_adaptive_hash_index = off"}),
        ({"sort_buffer_size": 64}, {"sort_buffer_size        = 64K"}),
        ({"query_cache_size": 0}, {"query_cache_size        = 0M"}),
        ({"innodb_flush_method": "fsync"}, {"innodb_flush_method = fsync"}),
    ],
)  # fmt: skip
def test_another_value_changes_its_own_line_alone(
    changed: dict[str, Value], lines: set[str]
) -> None:
    files = changed_lines(database(**{"70-shop.cnf": SHOP}), changed)
    assert files == {"70-shop.cnf": lines}


@pytest.mark.parametrize(
    ("changed", "lines"),
    [
        ({"max_connections": 300},
         {"max_connections = 300", "back_log = 80", "thread_cache_size = 151"}),
        ({"innodb_io_capacity": 1500},
         {"innodb_io_capacity = 1500", "innodb_io_capacity_max = 2000"}),
    ],
)  # fmt: skip
def test_a_default_that_the_server_computes_keeps_its_value(
    changed: dict[str, Value], lines: set[str]
) -> None:
    assert changed_lines(database(), changed) == {"50-server.cnf": lines}


def test_a_version_s_own_group_leaves_it_open_what_counts() -> None:
    tier = adopted(database(**{"x.cnf": "[mariadb-11.4]\nback_log = 9\n[mysqld]\nback_log = 70\n"}))
    assert tier["db"].skipped["mariadb.back_log"] == "`back_log` occurs with several values"


def test_it_is_the_web_tier_s_database() -> None:
    tiers = adopted(web(), database())
    assert tiers["web"].discovered_tier.uses == ("db",)


def test_another_main_file_and_another_distribution_are_named() -> None:
    elsewhere = host("db1", "10.0.0.4", {**FILES, "/etc/my.cnf": "[mysqld]\n"}, "mariadb.service")
    assert "also reads /etc/my.cnf" in find_instances(elsewhere)[1][0]
    mysql = host("db1", "10.0.0.4", {}, "mysql.service")
    assert "MariaDB runs as mysql.service" in find_instances(mysql)[1][0]
