"""Map the settings of PHP-FPM's pools to parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from posixpath import join

from autotune.services import unit_environment, unit_files
from autotune.services.adoption import (
    Adoption,
    DistributionLayout,
    DistributionLayouts,
    RunningHost,
    RunningService,
)
from autotune.services.config_files import (
    Config,
    Directive,
    FileTree,
    PlacedDirective,
    parse_include,
    read_config,
)
from autotune.services.directives import (
    NUMBER,
    QUOTED_WORD,
    SECONDS_WITH_SUFFIX,
    DirectiveInsertion,
    Tunable,
    find_value_end,
)
from autotune.services.php_fpm import syntax
from autotune.services.visible_directives import VisibleDirectives

DEFAULT_BACKLOG = 511  # default before PHP 8.2; later versions use the kernel's limit
SPARE_SERVER_DEFAULTS = {"start_servers": 2, "min_spare_servers": 1, "max_spare_servers": 3}
LAYOUTS = DistributionLayouts(
    (
        DistributionLayout(
            "Debian, Ubuntu", "php{version}-fpm.service", "/etc/php/{version}/fpm/php-fpm.conf"
        ),
        DistributionLayout("Fedora, RHEL", "php-fpm.service", "/etc/php-fpm.conf"),
        *(
            DistributionLayout("SUSE", "php-fpm.service", f"/etc/php{version}/fpm/php-fpm.conf")
            for version in (8, 7)
        ),
    )
)
_PREFIX = "/usr"  # in every distribution's build
NON_DYNAMIC_MODES = ("static", "ondemand")


def read_host_config(file_tree: FileTree, main_file: str) -> Config:
    """Return the directives of each pool. The last occurrence of a directive in any file takes
    effect.
    """
    config = read_config(file_tree, main_file, syntax.parse_directives, _parse_include)
    # PHP-FPM ignores the case of a pool's name.
    last_directives = {
        (placed.block.lower(), placed.name): placed for placed in _assign_pools(config.directives)
    }
    return replace(config, directives=tuple(last_directives.values()))


def _parse_include(directive: Directive) -> str | None:
    """Return the pattern in an include, which is relative to the directory that PHP was built for."""
    pattern = parse_include(directive)
    return pattern and join(_PREFIX, pattern)


def _assign_pools(directives: Iterable[PlacedDirective]) -> Iterator[PlacedDirective]:
    """Yield the directives with the pool to which each one belongs. After an include, that is the last
    pool in the included files, up to the next section.
    """
    include_sections: dict[str, tuple[tuple[str, ...], ...]] = {}  # by the file of the include
    selected: dict[tuple[str, tuple[tuple[str, ...], ...]], tuple[tuple[str, ...], ...]] = {}
    previous: PlacedDirective | None = None
    for placed in directives:
        path, blocks = placed.path, placed.directive.blocks
        if previous and previous.path != path and include_sections.get(path) == blocks:
            selected[path, blocks] = previous.directive.blocks
        include_sections.pop(path, None)
        if placed.name == "include":
            include_sections[path] = blocks
        pool = selected.get((path, blocks), blocks[-1:])
        previous = replace(placed, directive=replace(placed.directive, blocks=pool))
        yield previous


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    """Yield every running version of PHP-FPM, starting with the newest."""
    running_layouts = filter(
        None, (LAYOUTS[0].match_instance(unit) for unit in host.units if host.is_active(unit))
    )
    sorted_layouts = sorted(
        running_layouts,
        key=lambda layout: [int(version_part) for version_part in layout.version.split(".")],
        reverse=True,
    )
    for layout in sorted_layouts or filter(None, [LAYOUTS.select_for_host(host)]):
        command_words = unit_environment.expand_command(host.tree, layout.unit)
        named_files = unit_environment.find_option_values(command_words, "-y", "--fpm-config")
        main_file = [layout.main_file, *named_files][-1]
        config = read_host_config(host.tree, main_file)
        if missing_reason := config.explain_missing_main():
            yield f"PHP-FPM ({layout.unit}) is not tuned: {missing_reason}"
            continue
        locations = list_locations(config)
        yield RunningService(
            host=host,
            key="php-fpm",
            config=config,
            listen_address=next(iter(locations), ""),
            gateway_addresses=locations,
            unit=layout.unit_unless_debian if main_file == layout.main_file else layout.unit,
            instance=layout.unit,
        )


def _list_tunables(service: RunningService) -> Iterator[Tunable]:
    """Yield a tunable for every parameter. If pools differ, only values that all pools share are
    tunable.
    """
    config = service.config
    # Use the socket's actual backlog, because the default depends on the version of PHP.
    backlog = service.host.backlogs.get(service.listen_address, DEFAULT_BACKLOG)
    process_manager = next(
        (placed.words[0] for placed in config.find_all("pm") if placed.words), ""
    )
    reason = _explain_process_limit(config)
    shared_reason = _explain_shared_limit(config)
    yield Tunable("pm", "pm", QUOTED_WORD)
    yield Tunable("max_children", "pm.max_children", NUMBER, skip_reason=reason or shared_reason)
    value_ends = find_value_end(config, "pm.max_children")
    for parameter_name, directive, notation, default_value, insertion_positions in (
        ("process_idle_timeout", "pm.process_idle_timeout", SECONDS_WITH_SUFFIX, 10, value_ends),
        ("max_requests", "pm.max_requests", NUMBER, 0, value_ends),
        ("listen_backlog", "listen.backlog", NUMBER, backlog, find_value_end(config, "listen")),
    ):
        insertion = DirectiveInsertion(default_value, insertion_positions, f"\n{directive} = ")
        yield Tunable(parameter_name, directive, notation, insertion=insertion)
    for parameter_name, default_value in SPARE_SERVER_DEFAULTS.items():
        # FPM requires these directives if `pm` is `dynamic`. If the host's file sets another `pm`,
        # autotune writes the directives only in configurations with `dynamic`.
        insertion = DirectiveInsertion(
            default_value, value_ends, f"\npm.{parameter_name} = ", condition='pm == "dynamic"'
        )
        is_not_dynamic = QUOTED_WORD.parse(process_manager) in NON_DYNAMIC_MODES
        yield Tunable(
            parameter_name,
            f"pm.{parameter_name}",
            NUMBER,
            insertion=insertion if is_not_dynamic else None,
            skip_reason=shared_reason,  # its rules compare it with `max_children`
        )


def _explain_process_limit(config: Config) -> str:
    """Return why `pm.max_children` is not the only limit of processes, or an empty string."""
    process_limit = config.find_last_number("process.max", 0)
    return f"`process.max = {process_limit}` limits all pools together" if process_limit else ""


def _explain_shared_limit(config: Config) -> str:
    """Return why the number of processes is not tuned if several pools set the same number, or an empty
    string.

    The rules about memory and connections count `pm.max_children` once, but each pool starts that many
    processes.
    """
    pool_limits = config.find_all("pm.max_children")
    distinct_limits = {
        NUMBER.parse(word.strip("\"'")) for placed in pool_limits for word in placed.words[:1]
    }
    if len(pool_limits) < 2 or len(distinct_limits) > 1:
        return ""
    count = len(pool_limits)
    return f"{count} pools share it, so {count} × max_children processes would run"


def list_locations(config: Config) -> tuple[str, ...]:
    """Return the path or port of each pool."""
    return tuple(
        address if address.startswith("/") else address.rpartition(":")[2]
        for address in list_listen_addresses(config)
    )


def list_listen_addresses(config: Config) -> list[str]:
    """Return the address of each pool. `$pool` means the pool's name."""
    return [
        placed_directive.words[0].strip("\"'").replace("$pool", placed_directive.block)
        for placed_directive in config.find_all("listen")
        if placed_directive.words
    ]


VISIBLE_DIRECTIVES = VisibleDirectives(syntax.parse_directives, frozenset((
    "pm", "pm.max_children", "pm.process_idle_timeout", "pm.max_requests", "listen", "listen.backlog",
    *(f"pm.{name}" for name in SPARE_SERVER_DEFAULTS),
)), reads=frozenset(("listen",)))  # fmt: skip

ADOPTION = Adoption(
    title="PHP-FPM behind a web server",
    units=("php*-fpm.service",),
    other_units=LAYOUTS.other_units,
    paths=(
        "etc/php",
        "etc/php-fpm.conf",
        "etc/php-fpm.d",
        "etc/php[78]/fpm",
        *(
            f"{place[1:]}/php*-fpm.service{end}"
            for place in unit_files.UNIT_DIRECTORIES
            for end in ("", ".d")
        ),
    ),
    version_script="""for fpm in /usr/sbin/php-fpm*; do
    runs "${fpm#/usr/sbin/}" || runs "php${fpm#/usr/sbin/php-fpm}-fpm.service" || continue
    "$fpm" -v | sed -n 's,^PHP \\([^ ]*\\).*,PHP-FPM \\1,p'
done""",
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    list_tunables=_list_tunables,
)
