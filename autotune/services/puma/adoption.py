"""Find running Puma servers, and map their configuration files, commands and units to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from posixpath import join

from autotune.services import app_server, command_line, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import ParameterLocation, ServerCandidate
from autotune.services.base import Parameter, Value
from autotune.services.config_files import Config, Word, merge_configs, read_config
from autotune.services.directives import (
    NUMBER,
    AdoptionResult,
    DirectiveInsertion,
    Notation,
    Tunable,
    ValueCheck,
    append_line,
)
from autotune.services.puma import syntax
from autotune.services.puma.service import PARAMETERS, Puma
from autotune.services.unit_environment import EnvironmentSetting, UnitEnvironment
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

_LONG_OPTIONS = {
    "-b": "--bind",
    "-C": "--config",
    "-e": "--environment",
    "-p": "--port",
    "-t": "--threads",
    "-w": "--workers",
}
_FLAG_OPTIONS = frozenset(("-q", "-v", "-s", "-V", "-h")) | {
    f"--{name}"
    for name in (
        "no-config",
        "debug",
        "preload",
        "prune-bundler",
        "quiet",
        "log-requests",
        "silent",
        "early-hints",
        "redirect-append",
        "no-redirect-append",
    )
}
_VALUE_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        "control-url",
        "control-token",
        "dir",
        "fork-worker",
        "include",
        "pidfile",
        "redirect-stdout",
        "redirect-stderr",
        "restart-cmd",
        "state",
        "tag",
        "extra-runtime-dependencies",
        "bind-to-activated-sockets",
        "version",
        "help",
    )
)
# The command options that set each parameter. Without such an option, an environment variable may set
# the parameter.
_COMMAND_OPTIONS = {
    "workers": ("--workers",),
    "min_threads": ("--threads",),
    "max_threads": ("--threads",),
    "backlog": ("--bind", "--port"),
    "preload_app": ("--preload",),
}
_ENVIRONMENT_VARIABLES = {
    "workers": ("WEB_CONCURRENCY",),
    "min_threads": ("PUMA_MIN_THREADS", "MIN_THREADS"),
    "max_threads": ("PUMA_MAX_THREADS", "MAX_THREADS"),
}
# Options and calls that set an address. Each option or call is followed by a prefix and a suffix that
# turn the address into the content of a Ruby string.
_ADDRESS_CALLS = (
    ("--bind", "", ""),
    ("bind", "", ""),
    ("--port", ":#{", "}"),
    ("port", ":#{", "}"),
)
_INTERPOLATION_PATTERN = re.compile(r"#\{((?:[^{}]|\{[^{}]*\})*)\}")
_PRELOAD_CALL = "preload_app!"  # whether Puma preloads by default depends on its version
_SWITCH_NOTATION = Notation(
    {"": True, "true": True, "false": False}.get, lambda name: f'(" true" if {name} else " false")'
)
_parse_options = partial(
    command_line.parse_options,
    programs=("puma",),
    long_names=_LONG_OPTIONS,
    flag_options=_FLAG_OPTIONS,
    long_options=_VALUE_OPTIONS | {name for name in _FLAG_OPTIONS if name.startswith("--")},
)
_PROGRAM_PATTERN = re.compile(r"\bpuma\b")


def _list_candidates(host: RunningHost) -> Iterator[ServerCandidate | str]:
    for unit in unit_files.find_units_mentioning(host.tree, "puma"):
        unit_command = command_line.read_unit_command(host.tree, unit, _parse_options)
        if not unit_command.find_all("puma"):
            arguments = unit_files.list_arguments(host.tree, unit)
            if command_line.starts_shell(arguments, _PROGRAM_PATTERN):
                yield f"{unit}: {command_line.SHELL_REASON}"
            continue
        environment = unit_environment.read_environment(host.tree, unit)
        if (
            path := host.tree.resolve(_find_config_path(host, unit_command, environment))
        ) not in host.tree.files:
            yield f"{unit}: not tuned, because the configuration file {path} does not exist"
            continue
        own_config = read_config(host.tree, path, syntax.parse_directives)
        config = merge_configs(
            path, (unit_command, unit_environment.build_config(environment, path), own_config)
        )
        if own_config.unread_files and not any(
            config.find_all(name) for name, *_ in _ADDRESS_CALLS
        ):
            yield f"{unit}: not tuned, because {path} is not read ({own_config.unread_files[path]})"
            continue
        if _serves_only_tls(host, config, unit):
            yield f"{unit}: {app_server.TLS_REASON}"
            continue
        yield unit, config, _find_listen_address(host, config, environment)


def _serves_only_tls(host: RunningHost, config: Config, unit: str) -> bool:
    """True if all addresses on which Puma listens use TLS."""
    addresses = [
        placed.words[0].strip("\"'")
        for name, *_ in _ADDRESS_CALLS
        for placed in config.find_all(name)
    ]
    has_tls = bool(config.find_all("ssl_bind")) or any(a.startswith("ssl://") for a in addresses)
    has_plain = not all(address.startswith("ssl://") for address in addresses)
    return has_tls and not has_plain and not unit_files.find_socket_address(host.tree, unit)


def _find_config_path(host: RunningHost, command: Config, environment: UnitEnvironment) -> str:
    unit_directory = unit_files.find_option(host.tree, environment.unit, "WorkingDirectory")
    working_directory = command.find_last_word("--dir") or unit_directory
    environment_names = (
        environment.get_value(name) for name in ("APP_ENV", "RACK_ENV", "RAILS_ENV")
    )
    environment_name = command.find_last_word("--environment") or next(
        filter(None, environment_names), "development"
    )
    named_file = command.find_last_word("--config")
    candidate_paths = [
        join(working_directory.lstrip("-") or "/", path)
        for path in (
            [named_file] if named_file else [f"config/puma/{environment_name}.rb", "config/puma.rb"]
        )
    ]
    return next(
        (path for path in candidate_paths if host.tree.resolve(path) in host.tree.files),
        candidate_paths[-1],
    )


def _find_listen_address(host: RunningHost, config: Config, environment: UnitEnvironment) -> str:
    """Return the port or socket path on which Puma listens. A systemd socket unit overrides Puma's
    own settings.
    """
    socket_address = unit_files.find_socket_address(host.tree, environment.unit)
    own_addresses = [
        f"{text_before}{placed_directive.words[0]}{text_after}"
        for name, text_before, text_after in _ADDRESS_CALLS
        for placed_directive in config.find_all(name)
    ]
    patterns = [
        _build_address_pattern(config, environment, listen_location)
        for listen_location in ([socket_address] if socket_address else own_addresses)
    ]
    matching_sockets = (
        app_server.match_sockets(host, pattern)
        for pattern in patterns
        if "/" in pattern or is_uint(pattern)
    )
    single_sockets = (sockets[0] for sockets in matching_sockets if len(sockets) == 1)
    return next(single_sockets, (patterns or [str(Puma.port)])[0])


def _build_address_pattern(config: Config, environment: UnitEnvironment, address: str) -> str:
    """Return the port or path in ``address``, with `*` for each part that only Ruby can evaluate."""

    def substitute(match: re.Match[str]) -> str:
        number_source = syntax.resolve_number(config, Word(match[1], 0), environment.values)
        return str(number_source[0]) if number_source else "*"

    return app_server.parse_address(_INTERPOLATION_PATTERN.sub(substitute, address.strip("\"'")))


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return edits that tune each parameter in Puma's file or in the unit's environment, or add the
    parameter.
    """
    environment = unit_environment.read_environment(service.host.tree, service.unit)
    location_by_parameter = {
        parameter.name: _locate_parameter(service, environment, parameter)
        for parameter in PARAMETERS
    }
    return app_server.tune_parameters(
        service.config, environment, location_by_parameter, accepts_value
    )


def _locate_parameter(
    service: RunningService, environment: UnitEnvironment, parameter: Parameter
) -> ParameterLocation:
    config, parameter_name = service.config, parameter.name
    calls = config.find_all(_PRELOAD_CALL if parameter_name == "preload_app" else parameter_name)
    if option := next(filter(config.find_all, _COMMAND_OPTIONS.get(parameter_name, ())), ""):
        return app_server.explain_command_option(option, config.main_file)
    is_conditional = any(call.directive.blocks for call in calls)
    skip_reason = app_server.explain_condition(config.main_file) if is_conditional else ""
    if parameter_name == "backlog":
        skip_reason = app_server.explain_socket_unit(service.host, service.unit) or skip_reason
    if skip_reason:
        return skip_reason
    if not calls or parameter_name == "preload_app":
        return _locate_missing(config, environment, parameter)
    if len({call.words[0] for call in calls}) > 1:
        return f"{config.main_file} contains several values"
    number_source = syntax.resolve_number(
        config, calls[0].directive.arguments[0], environment.values
    )
    if number_source is None:
        return f"{config.main_file} computes it: set a number to tune it"
    current_value, value_location = number_source
    return (
        value_location
        if isinstance(value_location, Word)
        else EnvironmentSetting(parameter_name, value_location, current_value)
    )


def _locate_missing(
    config: Config, environment: UnitEnvironment, parameter: Parameter
) -> EnvironmentSetting | Tunable:
    parameter_name, insertion = parameter.name, None
    if variables := _ENVIRONMENT_VARIABLES.get(parameter_name):
        variable = next(filter(environment.get_value, variables), variables[0])
        return EnvironmentSetting(parameter_name, variable, parameter.stock)
    if parameter_name == "preload_app":
        return Tunable(parameter_name, _PRELOAD_CALL, _SWITCH_NOTATION)
    if parameter_name == "backlog":
        insertion = _build_backlog_insertion(config, parameter.stock)
    elif parameter_name != "max_fast_inline":  # some versions of Puma do not support this parameter
        insertion = append_line(config, parameter.stock, f"{parameter_name} ")
    return Tunable(parameter_name, parameter_name, NUMBER, insertion=insertion)


def _build_backlog_insertion(config: Config, default: Value) -> DirectiveInsertion | None:
    """Return an insertion of the backlog before the closing quote of the address, if there is only
    one address.
    """
    match config.find_all("bind"):
        case [bind] if bind.words[0].endswith(("'", '"')) and not bind.directive.blocks:
            sign, (path, bind_end) = "&" if "?" in bind.words[0] else "?", bind.end_position
            return DirectiveInsertion(default, [(path, bind_end - 1)], f"{sign}backlog=")
    return None


VISIBLE_DIRECTIVES = VisibleDirectives(
    partial(syntax.parse_directives, strict=False),
    frozenset(
        (
            *(parameter.name for parameter in PARAMETERS),
            "port",
            _PRELOAD_CALL,
            "--workers",
            "--threads",
            "--port",
        )
    ),
    syntax.assigns_number,
    hides_unknown_names=True,
    reads=frozenset(("port", "--port")),
    writes=frozenset(("threads",)),
    parse_options=_parse_options,
    visible_variables=re.compile(r"(?:\w+_)?(?:THREADS|WORKERS|CONCURRENCY|PROCESSES|PORT)"),
)

ADOPTION = app_server.build_adoption(
    Puma, _list_candidates, tune_parameters, visible=VISIBLE_DIRECTIVES,
    paths=("etc/puma", *(f"{place}/{path}" for place in unit_environment.APPLICATION_DIRECTORIES
                         for path in ("config/puma*.rb", "config/puma/*.rb", "puma*.rb"))),
    version_script="command -v puma >/dev/null && puma --version",
)  # fmt: skip
