"""Find the units that run Node.js, their addresses, and the parameters in their environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename

from autotune.services import app_server, command_line, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import ParameterLocation, ServerCandidate
from autotune.services.directives import AdoptionResult, ValueCheck
from autotune.services.nodejs.service import (
    FLAGS_VARIABLE,
    OPTIONS_BY_PARAMETER,
    POOL_VARIABLE,
    Nodejs,
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
# Defaults of Node.js, without `max_old_space_size`, whose default depends on the host.
_DEFAULT_VALUES = {"max_semi_space_size": 16}


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
        if command_line.starts_shell(_list_command_words(host, unit), _SHELL_WORD_PATTERN):
            yield f"{unit}: {command_line.SHELL_REASON}"
    port_by_unit = {
        unit: environment.get_number("PORT") for unit, environment in environments_by_unit.items()
    }
    unassigned_ports = {
        listener.port for listener in host.listeners if listener.program in Nodejs.programs["node"]
    } - {*port_by_unit.values()}
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
    """Return the environment of a unit that starts Node.js or one of its package managers."""
    programs = [basename(word) for word in _list_command_words(host, unit) if "=" not in word]
    first_program = next((program for program in programs if program != "env"), "")
    return (
        unit_environment.read_environment(host.tree, unit)
        if _PROGRAM_PATTERN.fullmatch(first_program)
        else None
    )


def _list_command_words(host: RunningHost, unit: str) -> list[str]:
    exec_start = unit_files.find_exec_start(host.tree, unit)
    return [word.text.lstrip("-@:+!") for word in exec_start[1].arguments] if exec_start else []


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return edits that tune the parameters in a unit's environment, unless the unit's command
    overrides them.
    """
    environment = unit_environment.read_environment(service.host.tree, service.unit)
    command_words = [
        word.replace("_", "-") for word in _list_command_words(service.host, service.unit)
    ]
    location_by_parameter: dict[str, ParameterLocation] = {
        "uv_threadpool_size": EnvironmentSetting("uv_threadpool_size", POOL_VARIABLE, 4)
    }
    for parameter_name, option in OPTIONS_BY_PARAMETER.items():
        location_by_parameter[parameter_name] = EnvironmentSetting(
            parameter_name, FLAGS_VARIABLE, _DEFAULT_VALUES.get(parameter_name), option
        )
        if any(f"--{word}".startswith(option) for word in command_words):
            location_by_parameter[parameter_name] = app_server.explain_command_option(
                option, FLAGS_VARIABLE
            )
    location_by_parameter["workers"] = _UNKNOWN_WORKERS_REASON
    for variable in filter(environment.get_value, reversed(_WORKER_VARIABLES)):
        location_by_parameter["workers"] = EnvironmentSetting("workers", variable, None)
    return app_server.tune_parameters(
        service.config, environment, location_by_parameter, accepts_value
    )


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
