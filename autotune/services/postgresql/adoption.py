"""Parse PostgreSQL's files (one name and value per line) and map them to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.config_files import Config, Directive, Word, gather, tokens
from autotune.services.directives import Tunable, last_line
from autotune.services.postgresql.parameters import PARAMETERS, notation, plain
from autotune.services.postgresql.service import LAYOUTS, SOCKETS, Postgresql
from autotune.services.understood import Understood
from autotune.strict import is_whole, split_lines

# A quote within a value is doubled, or follows a backslash.
_LINE = re.compile(
    r"""[^\S\n]*(?:(?P<name>[A-Za-z_][\w.$]*)[^\S\n]*(?:=[^\S\n]*|(?<=[^\S\n]))"""
    r"""(?P<value>'(?:[^'\\\n]|\\.|'')*'|[^\s#']+)[^\S\n]*)?(?:\#[^\n]*)?(?:\n|$)"""
)
_INCLUDES = {"include": "{}", "include_if_exists": "{}", "include_dir": "{}/*.conf"}
_BY_SQL = "postgresql.auto.conf overrides it: run `ALTER SYSTEM RESET {}` to tune it"
_BY_COMMAND = "pg_ctl.conf overrides it: move it to postgresql.conf to tune it"
_COMMAND = re.compile(r"(?:-c\s*|--)([A-Za-z][\w-]*)=")


def read(text: str) -> tuple[Directive, ...]:
    """Return every assignment, with names in lower case like the server. Raises Unreadable."""
    return tuple(
        Directive(Word(line["name"].lower(), line.start("name")),
                  (Word(line["value"], line.start("value")),))
        for line in tokens(text, _LINE, "expected `name = value`") if line["name"]
    )  # fmt: skip


def includes(directive: Directive) -> str | None:
    """Return the path pattern of the files that a line includes."""
    pattern = _INCLUDES.get(directive.name.text)
    return pattern.format(plain(directive.arguments[0].text)) if pattern else None


def find(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield every running cluster."""
    running = (LAYOUTS.having(unit) for unit in host.units if host.runs(unit))
    for place in filter(None, running):
        if not place.name and host.tree.real(place.main) not in host.tree.files:
            if place.version:  # Debian's unit for all clusters has no version
                yield f"PostgreSQL ({place.unit}) is not tuned: {place.main} does not exist"
            continue
        config = gather(host.tree, place.main, read, includes, beside=True)
        port = _value(config, "port", str(Postgresql.port))
        sockets = _value(config, "unix_socket_directories", SOCKETS).partition(",")[0].strip()
        if is_whole(port) and sockets.startswith("/"):
            yield RunningService(host=host, key=Postgresql.deployment, config=config, kind="db",
                                 port=int(port), listen=sockets, unit=place.own_unit)  # fmt: skip
        else:
            yield f"PostgreSQL ({place.unit}) is not tuned: it has no unix socket"


def _value(config: Config, name: str, default: str) -> str:
    return plain(config.last(name, default))


def _tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield every parameter. Missing ones are added at the end of the main file. Settings from the
    command line or `ALTER SYSTEM` are not tuned."""
    config, tree = service.config, service.host.tree
    main = f"{_value(config, 'data_directory', dirname(config.main))}/postgresql.auto.conf"
    by_sql = {line.name for line in gather(tree, main, read, includes).directives}
    # Options on Debian's start command override all files.
    options = tree.content(f"{dirname(config.main)}/pg_ctl.conf")
    by_command = {name.replace("-", "_").lower() for line in split_lines(options)
                  if not line.lstrip().startswith("#") for name in _COMMAND.findall(line)}  # fmt: skip
    for parameter in PARAMETERS:
        name, how = parameter.name, notation(parameter)
        left = _BY_COMMAND if name in by_command else _BY_SQL.format(name) if name in by_sql else ""
        absent = last_line(config, parameter.stock, f"{name} = ")
        yield Tunable(name, name, how, absent=absent, last=True, left=left)


ADOPTION = Adoption(
    known_as=Postgresql.title,
    units=("postgresql@*.service", "postgresql-*.service", "postgresql.service"),
    paths=("etc/postgresql", "var/lib/postgresql/*/*/postgresql.auto.conf",
           "var/lib/pgsql/data/postgresql*.conf", "var/lib/pgsql/*/data/postgresql*.conf"),
    version="""for directory in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/bin; do
    version=${directory#/usr/lib/postgresql/} place=/var/lib/pgsql
    [ "$version" = "$directory" ] || place=/etc/postgresql/${version%%/*}
    [ ! -x "$directory/postgres" ] || [ ! -d "$place" ] ||
        "$directory/postgres" -V | sed 's,^postgres (PostgreSQL) \\([^ ]*\\).*,PostgreSQL \\1,'
done""",
    find=find,
    understood=Understood(read, frozenset((*(parameter.name for parameter in PARAMETERS), "port")),
                          reads=frozenset(("port",))),
    tunables=_tunables,
)  # fmt: skip
