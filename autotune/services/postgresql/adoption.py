"""Read PostgreSQL's files, which contain one name and value per line, and map them to
parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import dirname, join

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import (
    Adoption,
    DistributionLayout,
    RunningHost,
    RunningService,
)
from autotune.services.base import Parameter, Value
from autotune.services.config_files import (
    Config,
    Directive,
    FileTree,
    PlacedDirective,
    Word,
    read_config,
    tokenize,
)
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
_COMMAND_REASON = "{} overrides it: move it to postgresql.conf to tune it"
# A hot standby must not have lower values than its primary. If its primary's value is raised, it stops
# replaying, and stays behind even after the old value is back.
_STANDBY_REASONS = dict.fromkeys(
    ("max_connections", "max_worker_processes"),
    "standbys that {} admits would stop if their primary's value exceeded theirs",
)
# A line of `pg_hba.conf` that lets another host replicate.
_STANDBY_PATTERN = re.compile(
    r"""(?m)^[ \t]*host\w*[ \t]+(?:[^\s,#"]+[ \t]*,[ \t]*)*replication[ \t,]"""
    r"""(?![^\n#]*[ \t](?:reject|samehost|localhost|127\.|::1))[ \t]*[^\s#]"""
)
# Parameters whose default has changed: the first versions with each default, in descending order
# (release notes).
_CHANGED_DEFAULTS: dict[str, tuple[tuple[int, Value], ...]] = {
    "effective_io_concurrency": ((18, 16), (0, 1)),
    "checkpoint_completion_target": ((14, 0.9), (0, 0.5)),
}
_COMMAND_OPTION_PATTERN = re.compile(
    r"""(?:-c[\s\\"']*|--)(?P<name>[A-Za-z][\w-]{0,63})=(?P<value>[^\s\\"']*)|"""
    r"""(?<![\w-])-(?P<letter>[BFNSkp])[\s\\"']*(?P<argument>[^\s\\"'-][^\s\\"']*)?"""
)
_SHORT_OPTIONS = {
    "B": "shared_buffers",
    "F": "fsync",
    "N": "max_connections",
    "S": "work_mem",
    "k": "unix_socket_directories",
    "p": "port",
}


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
        if moved_directory := _find_moved_directory(host.tree, layout):
            yield (
                f"PostgreSQL ({layout.unit}) is not tuned: its data directory is {moved_directory},"
                f" not {dirname(layout.main_file)}"
            )
            continue
        config = read_config(
            host.tree,
            layout.main_file,
            parse_directives,
            parse_include,
            relative_to_includer=True,
        )
        # Options of the command override `ALTER SYSTEM`, which overrides the files.
        overrides = {line.name: unquote(line.words[0]) for line in _read_auto_file(host, config)}
        overrides |= {name: value for name, (value, _) in _read_options(host, config).items()}
        port = overrides.get("port") or _find_value(config, "port", str(Postgresql.port))
        socket_directories = overrides.get("unix_socket_directories") or _find_value(
            config, "unix_socket_directories", SOCKET_DIRECTORY
        )
        socket_directory = socket_directories.partition(",")[0].strip()
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


def _find_moved_directory(file_tree: FileTree, layout: DistributionLayout) -> str:
    """Return the data directory that a unit's command or environment selects, if its files are not at
    the distribution's place. Debian's units find their directories in other ways.
    """
    if layout.name:
        return ""
    command = unit_environment.expand_command(file_tree, layout.unit)
    environment = unit_environment.read_environment(file_tree, layout.unit)
    directory = [
        environment.get_value("PGDATA"),
        *unit_environment.find_option_values(command, "-D", "--pgdata"),
    ][-1]
    usual_directory = file_tree.resolve(dirname(layout.main_file))
    return directory if directory and file_tree.resolve(directory) != usual_directory else ""


def _read_auto_file(host: RunningHost, config: Config) -> tuple[PlacedDirective, ...]:
    """Return the assignments in the file of `ALTER SYSTEM`."""
    data_directory = _find_value(config, "data_directory", dirname(config.main_file))
    auto_file = f"{data_directory}/postgresql.auto.conf"
    return read_config(host.tree, auto_file, parse_directives, parse_include).directives


def _read_options(host: RunningHost, config: Config) -> dict[str, tuple[str, str]]:
    """Return the parameters that the server's command line sets, by name: each with its value, and
    where it is set.
    """
    directory = dirname(config.main_file)
    start_options = host.tree.read_text_or_empty(f"{directory}/pg_ctl.conf")
    texts = {
        "pg_ctl.conf": "\n".join(
            line for line in split_lines(start_options) if not line.lstrip().startswith("#")
        )
    }
    if layout := LAYOUTS.match_instance(config.main_file):
        command = unit_environment.expand_command(host.tree, layout.unit)
        texts[f"the command of {layout.unit}"] = " ".join(command[1:])
    return {
        (match["name"] or _SHORT_OPTIONS[match["letter"]]).replace("-", "_").lower(): (
            match["value"] or match["argument"] or "",
            source,
        )
        for source, text in texts.items()
        for match in _COMMAND_OPTION_PATTERN.finditer(text)
    }


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for every parameter.

    Missing parameters are added at the end of the main file. Settings from the command line or from
    `ALTER SYSTEM` are not tuned.
    """
    config = service.config
    sql_names = {line.name for line in _read_auto_file(service.host, config)}
    options = _read_options(service.host, config)
    hba_file = join(dirname(config.main_file), _find_value(config, "hba_file", "pg_hba.conf"))
    access_rules = service.host.tree.read_text_or_empty(hba_file)
    standby_reasons = _STANDBY_REASONS if _STANDBY_PATTERN.search(access_rules) else {}
    for parameter in PARAMETERS:
        parameter_name, notation = parameter.name, build_unit_notation(parameter)
        skip_reason = (
            _COMMAND_REASON.format(options[parameter_name][1])
            if parameter_name in options
            else _ALTER_SYSTEM_REASON.format(parameter_name)
            if parameter_name in sql_names
            else standby_reasons.get(parameter_name, "").format(hba_file)
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
    defaults = _CHANGED_DEFAULTS.get(parameter.name, ((0, parameter.stock),))
    major_number = int(major) if is_uint(major := version.partition(".")[0]) else 0
    return next(default for first, default in defaults if major_number >= first)


def _explain_unknown_default(parameter_name: str, service: RunningService) -> str:
    """Return the reason why the default of a parameter that no file sets is unknown, or an empty
    string.
    """
    return (
        ""
        if service.instance
        or parameter_name not in _CHANGED_DEFAULTS
        or service.config.find_all(parameter_name)
        else "its default depends on the version of PostgreSQL: set it in postgresql.conf to tune it"
    )


ADOPTION = Adoption(
    title=Postgresql.title,
    units=("postgresql@*.service", "postgresql-*.service", "postgresql.service"),
    paths=(
        "etc/postgresql",
        "var/lib/postgresql/*/*/postgresql.auto.conf",
        "var/lib/pgsql/data/postgresql*.conf",
        "var/lib/pgsql/*/data/postgresql*.conf",
        *(
            f"{place[1:]}/postgresql*.service{end}"
            for place in unit_files.UNIT_DIRECTORIES
            for end in ("", ".d")
        ),
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
