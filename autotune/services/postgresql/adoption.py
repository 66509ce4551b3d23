"""Read PostgreSQL's files, which contain one name and value per line, and map them to
parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import Parameter, Value
from autotune.services.config_files import Config, Directive, Word, read_config, tokenize
from autotune.services.directives import Tunable, append_line
from autotune.services.postgresql.parameters import PARAMETERS, build_unit_notation, unquote
from autotune.services.postgresql.service import LAYOUTS, SOCKET_DIRECTORY, Postgresql
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint, split_lines

# A quote inside a value is doubled, or a backslash precedes the quote.
_LINE_PATTERN = re.compile(
    r"""[^\S\n]*(?:(?P<name>[A-Za-z_][\w.$]*)[^\S\n]*(?:=[^\S\n]*|(?<=[^\S\n]))"""
    r"""(?P<value>'(?:[^'\\\n]|\\.|'')*'|[^\s#']+)[^\S\n]*)?(?:\#[^\n]*)?(?:\n|$)"""
)
_INCLUDE_PATTERNS = {"include": "{}", "include_if_exists": "{}", "include_dir": "{}/*.conf"}
_ALTER_SYSTEM_REASON = "postgresql.auto.conf overrides it: run `ALTER SYSTEM RESET {}` to tune it"
_COMMAND_REASON = "pg_ctl.conf overrides it: move it to postgresql.conf to tune it"
# Parameters whose default has changed: the first version with the new default, and that default
# (release notes).
_CHANGED_DEFAULTS: dict[str, tuple[int, Value]] = {"effective_io_concurrency": (18, 16)}
_COMMAND_OPTION_PATTERN = re.compile(r"(?:-c\s*|--)([A-Za-z][\w-]*)=")


def parse_directives(file_text: str) -> tuple[Directive, ...]:
    """Return every assignment, with names in lower case, because the server ignores case. Raises
    ConfigSyntaxError.
    """
    return tuple(
        Directive(
            Word(line["name"].lower(), line.start("name")),
            (Word(line["value"], line.start("value")),),
        )
        for line in tokenize(file_text, _LINE_PATTERN, "expected `name = value`")
        if line["name"]
    )


def parse_include(directive: Directive) -> str | None:
    """Return the path pattern that a line includes."""
    pattern = _INCLUDE_PATTERNS.get(directive.name.text)
    return pattern.format(unquote(directive.arguments[0].text)) if pattern else None


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield every running PostgreSQL cluster."""
    running_clusters = (LAYOUTS.match_instance(unit) for unit in host.units if host.is_active(unit))
    for layout in filter(None, running_clusters):
        if not layout.name and host.tree.resolve(layout.main_file) not in host.tree.files:
            if layout.version:  # Debian's unit that starts all clusters has no version
                yield f"PostgreSQL ({layout.unit}) is not tuned: {layout.main_file} does not exist"
            continue
        config = read_config(
            host.tree,
            layout.main_file,
            parse_directives,
            parse_include,
            relative_to_includer=True,
        )
        port = _find_value(config, "port", str(Postgresql.port))
        socket_directory = (
            _find_value(config, "unix_socket_directories", SOCKET_DIRECTORY)
            .partition(",")[0]
            .strip()
        )
        if is_uint(port) and socket_directory.startswith("/"):
            yield RunningService(
                host=host,
                key=Postgresql.deployment,
                config=config,
                tier_kind="db",
                port=int(port),
                listen_address=socket_directory,
                unit=layout.unit_unless_debian,
                instance=layout.version,
            )
        else:
            yield f"PostgreSQL ({layout.unit}) is not tuned: it has no unix socket"


def _find_value(config: Config, directive_name: str, default: str) -> str:
    return unquote(config.find_last_word(directive_name, default))


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for every parameter.

    Missing parameters are added at the end of the main file. Settings from the command line or from
    `ALTER SYSTEM` are not tuned.
    """
    config, file_tree = service.config, service.host.tree
    data_directory = _find_value(config, "data_directory", dirname(config.main_file))
    auto_file = f"{data_directory}/postgresql.auto.conf"
    auto_config = read_config(file_tree, auto_file, parse_directives, parse_include)
    sql_names = {line.name for line in auto_config.directives}
    # Options in Debian's start command override all files.
    start_options = file_tree.read_text_or_empty(f"{dirname(config.main_file)}/pg_ctl.conf")
    command_names = {
        parameter_name.replace("-", "_").lower()
        for line in split_lines(start_options)
        if not line.lstrip().startswith("#")
        for parameter_name in _COMMAND_OPTION_PATTERN.findall(line)
    }
    for parameter in PARAMETERS:
        parameter_name, notation = parameter.name, build_unit_notation(parameter)
        skip_reason = (
            _COMMAND_REASON
            if parameter_name in command_names
            else _ALTER_SYSTEM_REASON.format(parameter_name)
            if parameter_name in sql_names
            else ""
        )
        skip_reason = skip_reason or _explain_unknown_default(parameter_name, service)
        default = _find_default(parameter, service.instance)
        insertion = append_line(config, default, f"{parameter_name} = ")
        yield Tunable(
            parameter_name,
            parameter_name,
            notation,
            insertion=insertion,
            last_wins=True,
            skip_reason=skip_reason,
        )


def _find_default(parameter: Parameter, version: str) -> Value:
    first_version, new_default = _CHANGED_DEFAULTS.get(parameter.name, (0, parameter.stock))
    major_version = version.partition(".")[0]
    has_new_default = is_uint(major_version) and int(major_version) >= first_version
    return new_default if has_new_default else parameter.stock


def _explain_unknown_default(parameter_name: str, service: RunningService) -> str:
    """Return the reason why the default of a parameter that no file sets is unknown, or an empty
    string.
    """
    if (
        service.instance
        or parameter_name not in _CHANGED_DEFAULTS
        or service.config.find_all(parameter_name)
    ):
        return ""
    return "its default depends on the version of PostgreSQL: set it in postgresql.conf to tune it"


ADOPTION = Adoption(
    title=Postgresql.title,
    units=("postgresql@*.service", "postgresql-*.service", "postgresql.service"),
    paths=(
        "etc/postgresql",
        "var/lib/postgresql/*/*/postgresql.auto.conf",
        "var/lib/pgsql/data/postgresql*.conf",
        "var/lib/pgsql/*/data/postgresql*.conf",
    ),
    version_script="""for directory in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/bin; do
    version=${directory#/usr/lib/postgresql/} place=/var/lib/pgsql
    [ "$version" = "$directory" ] || place=/etc/postgresql/${version%%/*}
    [ ! -x "$directory/postgres" ] || [ ! -d "$place" ] ||
        "$directory/postgres" -V | sed 's,^postgres (PostgreSQL) \\([^ ]*\\).*,PostgreSQL \\1,'
done""",
    find_services=find_services,
    visible=VisibleDirectives(
        parse_directives,
        frozenset((*(parameter.name for parameter in PARAMETERS), "port")),
        reads=frozenset(("port",)),
    ),
    list_tunables=_list_tunables,
)
