"""Find the units that run Node.js, their addresses, and the parameters in their environment."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from posixpath import basename, join

from autotune.services import app_server, command_line, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import ParameterLocation, ServerCandidate
from autotune.services.base import Value
from autotune.services.directives import NUMBER, AdoptionResult, Notation, ValueCheck
from autotune.services.nodejs.service import (
    FLAGS_VARIABLE,
    OPTIONS_BY_PARAMETER,
    POOL_VARIABLE,
    Nodejs,
    round_semi_space_size,
)
from autotune.services.unit_environment import EnvironmentSetting, UnitEnvironment
from autotune.services.visible_directives import VisibleDirectives

# Fedora and SUSE append the version to the program's name.
_PROGRAM_PATTERN = re.compile(r"node(js)?(-?[0-9]+)?|npm|yarn|pnpm")
_SHELL_WORD_PATTERN = re.compile(r"(?<![\w.-])(?:node(?:js)?|npm|yarn|pnpm)(?![\w.-])")
# Variables for the number of workers. autotune assumes that an application reads those variables that
# its unit sets.
_WORKER_VARIABLES = ("WEB_CONCURRENCY", "CLUSTER_WORKERS", "NODE_WORKERS", "NUM_WORKERS", "WORKERS",
            "NODE_CLUSTER_WORKERS", "CLUSTER_SIZE", "INSTANCES")  # fmt: skip
_UNKNOWN_WORKERS_REASON = (
    "its environment does not set the number: `Environment=WEB_CONCURRENCY=1` in the unit makes"
    " it tunable if the application reads the variable"
)


def _parse_semi_space_size(text: str) -> Value | None:
    size = NUMBER.parse(text)
    return round_semi_space_size(size) if isinstance(size, int) else None


_NOTATIONS = {"max_semi_space_size": Notation(_parse_semi_space_size)}


def _list_candidates(host: RunningHost) -> Iterator[ServerCandidate | str]:
    units = dict.fromkeys(
        unit
        for program in ("node", "npm", "yarn", "pnpm")
        for unit in unit_files.find_units_mentioning(host.tree, program)
    )
    environments_by_unit = {
        unit: environment for unit in units if (environment := _find_node_environment(host, unit))
    }
    for unit in units:
        if command_line.starts_shell(
            unit_files.list_arguments(host.tree, unit), _SHELL_WORD_PATTERN
        ):
            yield f"{unit}: {command_line.SHELL_REASON}"
    node_ports = {
        listener.port for listener in host.listeners if listener.program in Nodejs.programs["node"]
    }
    yield from _list_package_programs(host, units, environments_by_unit) if node_ports else ()
    port_by_unit = {
        unit: environment.get_number("PORT") for unit, environment in environments_by_unit.items()
    }
    unassigned_ports = node_ports - {*port_by_unit.values()}
    for unit, environment in environments_by_unit.items():
        candidate_port = port_by_unit[unit]
        if (
            candidate_port is None
            and len(unassigned_ports) == 1
            and list(port_by_unit.values()).count(None) == 1
        ):
            candidate_port = next(iter(unassigned_ports))
        if candidate_port is not None:
            unit_file = unit_files.list_unit_files(host.tree, unit)[0]
            yield unit, unit_environment.build_config(environment, unit_file), str(candidate_port)
        elif unassigned_ports:
            yield f"{unit}: unknown port. Set `Environment=PORT=…` in the unit to tune it"


def _find_node_environment(host: RunningHost, unit: str) -> UnitEnvironment | None:
    """Return the environment of a unit that starts Node.js or one of its package managers, directly or
    through programs such as `nice`.
    """
    words = command_line.skip_wrappers(unit_files.list_arguments(host.tree, unit))
    is_node = any(_PROGRAM_PATTERN.fullmatch(basename(word.lstrip("-@:+!"))) for word in words[:1])
    return unit_environment.read_environment(host.tree, unit) if is_node else None


def _list_package_programs(
    host: RunningHost, units: Iterable[str], known_units: Container[str]
) -> Iterator[str]:
    """Yield the reason why a unit is not tuned that runs a program of an installed package."""
    for unit in units:
        program = next(iter(_list_command_words(host, unit)), "")
        if "/node_modules/" in program and unit not in known_units:
            yield f"{unit}: not tuned, because {basename(program)} starts Node.js"


def _find_default(service: RunningService, parameter_name: str) -> Value | None:
    """Return the default of a parameter, or ``None`` if the default is unknown.

    The default of `max_semi_space_size` depends on the memory of the process, which the read-back of
    the running unit determines. The default of `max_old_space_size` depends on the host.
    """
    if parameter_name != "max_semi_space_size":
        return None
    key = (Nodejs.deployment, service.port, Nodejs.name)
    return service.host.effective.get(key, {}).get(parameter_name)


def _list_command_words(host: RunningHost, unit: str) -> list[str]:
    words = map(command_line.unquote_word, unit_files.list_arguments(host.tree, unit))
    return [word.text.lstrip("-@:+!") for word in words]


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return edits that tune the parameters in a unit's environment, unless the unit's command
    overrides them.
    """
    environment = unit_environment.read_environment(service.host.tree, service.unit)
    written_words = _list_command_words(service.host, service.unit)
    command_words = [word.replace("_", "-") for word in written_words]
    location_by_parameter: dict[str, ParameterLocation] = {
        "uv_threadpool_size": EnvironmentSetting("uv_threadpool_size", POOL_VARIABLE, 4)
    }
    for parameter_name, option in OPTIONS_BY_PARAMETER.items():
        location_by_parameter[parameter_name] = EnvironmentSetting(
            parameter_name,
            FLAGS_VARIABLE,
            _find_default(service, parameter_name),
            option,
            _NOTATIONS.get(parameter_name, NUMBER),
        )
        if any(f"--{word}".startswith(option) for word in command_words):
            location_by_parameter[parameter_name] = app_server.explain_command_option(
                option, FLAGS_VARIABLE
            )
    location_by_parameter["workers"] = _UNKNOWN_WORKERS_REASON
    for variable in filter(environment.get_value, reversed(_WORKER_VARIABLES)):
        location_by_parameter["workers"] = EnvironmentSetting("workers", variable, None)
    if any(word.startswith("env-file") for word in written_words):
        reason = "the file that its command names with `--env-file` may set it"
        location_by_parameter = dict.fromkeys(location_by_parameter, reason)
    location_by_parameter |= _list_script_settings(service.host, service.unit, written_words)
    return app_server.tune_parameters(
        service.config, environment, location_by_parameter, accepts_value
    )


def _list_script_settings(
    host: RunningHost, unit: str, command_words: Iterable[str]
) -> dict[str, str]:
    """Return the parameters that a script in package.json may set, each with the reason."""
    if not {"npm", "yarn", "pnpm"} & {*map(basename, command_words)}:
        return {}
    directory = unit_files.find_option(host.tree, unit, "WorkingDirectory").lstrip("-") or "/"
    path = join(directory, "package.json")
    text = host.tree.read_text_or_empty(path).replace("_", "-")
    names = {"uv_threadpool_size": POOL_VARIABLE, **OPTIONS_BY_PARAMETER}
    return {
        parameter: f"{path} sets `{name}`: move it to the unit to tune it"
        for parameter, name in names.items()
        if name.replace("_", "-") in text
    }


VISIBLE_DIRECTIVES = VisibleDirectives(
    lambda _: (),  # Node.js has no configuration file
    frozenset(OPTIONS_BY_PARAMETER.values()),
    visible_variables=re.compile(
        "|".join((*_WORKER_VARIABLES, POOL_VARIABLE, FLAGS_VARIABLE, "PORT"))
    ),
)

ADOPTION = app_server.build_adoption(
    Nodejs,
    _list_candidates,
    tune_parameters,
    visible=VISIBLE_DIRECTIVES,
    version_script="command -v node >/dev/null && echo Node.js $(node --version)",
)
