"""Map options in a running MariaDB's files to parameters, and find the effective line of each
option.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from autotune.services.adoption import (
    Adoption,
    DistributionLayout,
    DistributionLayouts,
    RunningHost,
    RunningService,
)
from autotune.services.base import Parameter
from autotune.services.config_files import Config, FileTree, read_config
from autotune.services.directives import (
    ON_OFF,
    DirectiveInsertion,
    Notation,
    Tunable,
    build_size_notation,
    find_line_end,
)
from autotune.services.mariadb import syntax
from autotune.services.mariadb.parameters import PARAMETERS
from autotune.services.unit_environment import (
    expand_command,
    find_option_values,
    read_environment,
)
from autotune.services.unit_files import list_unit_paths
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

DEBIAN_FILE, REDHAT_FILE = "/etc/mysql/my.cnf", "/etc/my.cnf"
LAYOUTS = DistributionLayouts(
    (
        DistributionLayout("Debian, Ubuntu", "mariadb.service", DEBIAN_FILE),
        DistributionLayout("Fedora, RHEL, SUSE", "mariadb.service", REDHAT_FILE),
    )
)
# Groups that the server reads. The last line with an option takes effect. Groups with a version are
# handled separately.
_SERVER_GROUP_PATTERN = re.compile(
    r"(?:mysqld|mariadbd?|server|client-server|galera)(?P<version>-[0-9.]+)?"
)
_SERVER_GROUPS = ("[mysqld]", "[mariadb]", "[mariadbd]", "[server]")
# Parameters without a unit also accept suffixes: 4K means 4096.
_COUNT_NOTATION = Notation(build_size_notation("B").parse)
_OPTION_PREFIXES = ("skip_", "disable_", "enable_", "maximum_")
_MIN_PREFIX_LENGTH = 6  # shorter prefixes of names are too often ambiguous
_UNIT_NAME = "mariadb.service"
# Options that select other files or groups.
_FILE_OPTIONS = (
    "--defaults-file",
    "--defaults-extra-file",
    "--defaults-group-suffix",
    "--no-defaults",
)
_FILE_VARIABLES = ("MYSQL_HOME", "MYSQL_GROUP_SUFFIX")  # select files or groups, too
# Maps each parameter to the parameters from which the server computes its default.
_COMPUTED_FROM = {
    "back_log": ("max_connections",),
    "thread_cache_size": ("max_connections",),
    "innodb_io_capacity_max": ("innodb_io_capacity",),
}
_PARAMETER_NAMES = tuple(parameter.name for parameter in PARAMETERS)
_BOOLEAN_WORDS = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}


def read_host_config(file_tree: FileTree, main_file: str = DEBIAN_FILE) -> Config:
    """Return the options in groups that the MariaDB server reads."""
    config = read_config(file_tree, main_file, syntax.parse_directives, syntax.parse_include)
    counting_directives = {
        (placed_directive.name, group_match["version"] or ""): placed_directive
        for placed_directive in config.directives
        if (group_match := _SERVER_GROUP_PATTERN.fullmatch(placed_directive.block))
    }
    return replace(config, directives=tuple(counting_directives.values()))


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    if not (layout := LAYOUTS.select_for_host(host)):
        return
    if REDHAT_FILE in host.tree.files and any(p.startswith("/etc/mysql/") for p in host.tree.files):
        yield (
            f"MariaDB also reads {REDHAT_FILE}, which autotune does not edit: move its options to "
            "/etc/mysql"
        )
        return
    command_words = expand_command(host.tree, layout.unit)
    command_options = {word.partition("=")[0]: word.partition("=")[2] for word in command_words}
    if unsupported_options := [name for name in _FILE_OPTIONS if name in command_options]:
        yield f"MariaDB is not tuned: the command of {layout.unit} sets `{unsupported_options[0]}`"
        return
    environment = read_environment(host.tree, layout.unit)
    variable_name = next(filter(environment.get_value, _FILE_VARIABLES), "")
    reason = f"the environment of {layout.unit} sets `{variable_name}`"
    config = replace(
        read_host_config(host.tree, layout.main_file),
        uncertain={"*": reason} if variable_name else {},
    )
    if missing_reason := config.explain_missing_main():
        yield f"MariaDB is not tuned: {missing_reason}"
        return
    port = ["", *find_option_values(command_words, "--port", "-P")][-1]
    yield RunningService(
        host=host,
        key="mariadb",
        config=config,
        tier_kind="db",
        unit=layout.unit_unless_debian,
        port=int(port) if is_uint(port) else config.find_last_number("port", 3306),
        listen_address=["", *find_option_values(command_words, "--socket", "-S")][-1]
        or config.find_last_word("socket", "/run/mysqld/mysqld.sock"),
    )


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for every parameter. A missing parameter is added below the header of the last
    server group.
    """
    max_connections = service.config.find_last_number("max_connections", 151)
    # Defaults that the server computes if no file sets a value (MariaDB manual).
    computed_defaults = {
        "back_log": min(900, 50 + max_connections // 5),
        "thread_cache_size": min(256, max_connections),
        "thread_pool_size": service.host.processors,
        # By default, innodb_io_capacity_max is twice innodb_io_capacity, but at least 2000.
        "innodb_io_capacity_max": max(
            2000, 2 * service.config.find_last_number("innodb_io_capacity", 200)
        ),
        # A query cache that is enabled without a size has 1 MB, and a size alone enables the cache.
        "query_cache_size": int(
            service.config.find_last_word("query_cache_type").lower() in ("1", "on")
        ),
    }
    reasons = {
        name: f"`{option}` sets it under another name: write `{name} = …` to tune it"
        for name, option in _find_aliases(service.config)
    }
    unit = service.unit or _UNIT_NAME
    for option in expand_command(service.host.tree, unit):
        option_name = (
            option.partition("=")[0].replace("-", "_").removeprefix("__").removeprefix("loose_")
        )
        for name in (option_name, *(name for name, _ in _match_alias(option_name))):
            reasons[name] = f"the command of {unit} sets `{option.partition('=')[0]}`"
    for parameter in PARAMETERS:
        name, notation = parameter.name, _select_notation(parameter)
        default_value = computed_defaults.get(name, parameter.stock)
        insertion = DirectiveInsertion(
            default_value,
            find_line_end(service.config, *_SERVER_GROUPS),
            f"\n{name} = ",
            computed_from=_COMPUTED_FROM.get(name, ()),
        )
        yield Tunable(name, name, notation, insertion=insertion, skip_reason=reasons.get(name, ""))


def _find_aliases(config: Config) -> Iterator[tuple[str, str]]:
    """Yield each parameter that an option sets under another name, together with that option's
    name.
    """
    for option in {placed.name for placed in config.directives} - {*_PARAMETER_NAMES}:
        yield from _match_alias(option)


def _match_alias(option: str) -> Iterator[tuple[str, str]]:
    bare_name = next((option.removeprefix(p) for p in _OPTION_PREFIXES if option.startswith(p)), "")
    matching_names = [
        name
        for name in _PARAMETER_NAMES
        if len(option) >= _MIN_PREFIX_LENGTH and name.startswith(option)
    ]
    name = matching_names[0] if len(matching_names) == 1 else bare_name
    yield from [(name, option)] if name in _PARAMETER_NAMES else ()


def _select_notation(parameter: Parameter) -> Notation:
    if isinstance(parameter.stock, bool):
        return Notation(lambda text: _BOOLEAN_WORDS.get(text.lower()), ON_OFF.build_expression)
    word_by_lowercase = {word.lower(): word for word in parameter.choices if isinstance(word, str)}
    if word_by_lowercase:
        return Notation(lambda text: word_by_lowercase.get(text.lower()))
    return build_size_notation(parameter.unit) if parameter.unit else _COUNT_NOTATION


VISIBLE_DIRECTIVES = VisibleDirectives(
    syntax.parse_directives, frozenset((*_PARAMETER_NAMES, "port")), reads=frozenset(("port",))
)

ADOPTION = Adoption(
    title="MariaDB",
    units=("mariadb.service",),
    # MySQL has different options and file locations.
    other_units=("mysql.service", "mysqld.service"),
    # autotune does not read all of /etc/mysql, because Debian stores a password in this directory.
    paths=(
        "etc/my.cnf",
        "etc/my.cnf.d",
        "etc/alternatives/my.cnf",
        "etc/mysql/my.cnf",
        "etc/mysql/mariadb.cnf",
        "etc/mysql/conf.d",
        "etc/mysql/mariadb.conf.d",
        *list_unit_paths(_UNIT_NAME),
    ),
    version_script=(
        "runs mariadb.service && mariadbd --version | sed -n 's,.*Ver \\([^ ]*\\).*,MariaDB \\1,p'"
    ),
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    list_tunables=_list_tunables,
)
