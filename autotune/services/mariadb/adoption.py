"""Map options in a running MariaDB's files to parameters, and find the effective line of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from autotune.services.adoption import Adoption, Layout, Layouts, RunningHost, RunningService
from autotune.services.base import Parameter
from autotune.services.config_files import Config, Tree, gather
from autotune.services.directives import ON_OFF, Absent, Notation, Tunable, below, size
from autotune.services.mariadb import syntax
from autotune.services.mariadb.parameters import PARAMETERS
from autotune.services.understood import Understood

MAIN, OTHER = "/etc/mysql/my.cnf", "/etc/my.cnf"
LAYOUTS = Layouts((
    Layout("Debian, Ubuntu", "mariadb.service", MAIN),
    Layout("Fedora, RHEL, SUSE", "mariadb.service", OTHER),
))  # fmt: skip
# Groups that the server reads. The last line of an option takes effect. Groups with a version are
# counted separately.
_GROUP = re.compile(r"(?:mysqld|mariadbd?|server|client-server|galera)(?P<version>-[0-9.]+)?")
_PLAIN = ("[mysqld]", "[mariadb]", "[mariadbd]", "[server]")
_COUNT = Notation(size("B").read)  # parameters without a unit also accept suffixes: 4K is 4096
_PREFIXES = ("skip_", "disable_", "enable_", "maximum_")
_SHORTEST = 6  # minimum length of an unambiguous prefix of a name
_NAMES = tuple(parameter.name for parameter in PARAMETERS)
_ON = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}


def read(tree: Tree, main: str = MAIN) -> Config:
    """Return the options in these files that the server reads."""
    config = gather(tree, main, syntax.read, syntax.included)
    counting = {(placed.name, group["version"] or ""): placed for placed in config.directives
                if (group := _GROUP.fullmatch(placed.block))}  # fmt: skip
    return replace(config, directives=tuple(counting.values()))


def find(host: RunningHost) -> Iterator[RunningService | str]:
    if not (layout := LAYOUTS.of(host)):
        return
    if OTHER in host.tree.files and any(p.startswith("/etc/mysql/") for p in host.tree.files):
        yield f"MariaDB also reads {OTHER}, which autotune does not edit: move its options to /etc/mysql"
        return
    config = read(host.tree, layout.main)
    yield RunningService(host=host, key="mariadb", config=config, kind="db", unit=layout.own_unit,
                         port=config.number("port", 3306),
                         listen=config.last("socket", "/run/mysqld/mysqld.sock"))  # fmt: skip


def _tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield every parameter. Missing ones can be added below the server's last group."""
    clients = service.config.number("max_connections", 151)
    # Values that the server computes if no file sets them, according to the manual.
    worked_out = {
        "back_log": min(900, 50 + clients // 5),
        "thread_cache_size": min(256, clients),
        "thread_pool_size": service.host.processors,
        # An enabled query cache without a size has 1 MB, and a size alone enables it.
        "query_cache_size": int(service.config.last("query_cache_type").lower() in ("1", "on")),
    }
    left = {name: f"`{option}` sets it under another name: write `{name} = …` to tune it"
            for name, option in _otherwise(service.config)}  # fmt: skip
    for parameter in PARAMETERS:
        name, notation = parameter.name, _notation(parameter)
        default = worked_out.get(name, parameter.stock)
        absent = Absent(default, below(service.config, *_PLAIN), f"\n{name} = ")
        yield Tunable(name, name, notation, absent=absent, left=left.get(name, ""))


def _otherwise(config: Config) -> Iterator[tuple[str, str]]:
    """Yield parameters that an option sets under another name, with that name."""
    for option in {placed.name for placed in config.directives} - {*_NAMES}:
        bare = next((option.removeprefix(p) for p in _PREFIXES if option.startswith(p)), "")
        meant = [name for name in _NAMES if len(option) >= _SHORTEST and name.startswith(option)]
        name = meant[0] if len(meant) == 1 else bare
        yield from [(name, option)] if name in _NAMES else ()


def _notation(parameter: Parameter) -> Notation:
    if isinstance(parameter.stock, bool):
        return Notation(lambda text: _ON.get(text.lower()), ON_OFF.write)
    words = {word.lower(): word for word in parameter.choices if isinstance(word, str)}
    if words:
        return Notation(lambda text: words.get(text.lower()))
    return size(parameter.unit) if parameter.unit else _COUNT


UNDERSTOOD = Understood(syntax.read, frozenset((*_NAMES, "port")), reads=frozenset(("port",)))

ADOPTION = Adoption(
    known_as="MariaDB",
    units=("mariadb.service",),
    # MySQL uses other options and other file locations.
    elsewhere=("mysql.service", "mysqld.service"),
    # Not all of /etc/mysql, because Debian stores a password there.
    paths=("etc/my.cnf", "etc/my.cnf.d", "etc/alternatives/my.cnf", "etc/mysql/my.cnf",
           "etc/mysql/mariadb.cnf", "etc/mysql/conf.d", "etc/mysql/mariadb.conf.d"),
    version="runs mariadb.service && mariadbd --version | sed -n 's,.*Ver \\([^ ]*\\).*,MariaDB \\1,p'",
    find=find,
    understood=UNDERSTOOD,
    tunables=_tunables,
)  # fmt: skip
