"""Find running Pumas, and map their configuration files, commands and units to parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from posixpath import join

from autotune.services import app_server, command_line, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import Candidate, Place
from autotune.services.base import Parameter, Value
from autotune.services.config_files import Config, Word, gather, together
from autotune.services.directives import (
    NUMBER,
    Absent,
    Accepts,
    Adopted,
    Notation,
    Tunable,
    last_line,
)
from autotune.services.puma import syntax
from autotune.services.puma.service import PARAMETERS, Puma
from autotune.services.understood import Understood
from autotune.services.unit_environment import Environment, Setting
from autotune.strict import is_whole

_SHORT = {"-b": "--bind", "-C": "--config", "-e": "--environment", "-p": "--port", "-t": "--threads",
          "-w": "--workers"}  # fmt: skip
_FLAGS = frozenset(("-q", "-v", "-s", "-V", "-h")) | {f"--{name}" for name in (
    "no-config", "debug", "preload", "prune-bundler", "quiet", "log-requests", "silent", "early-hints",
    "redirect-append", "no-redirect-append",
)}  # fmt: skip
# Command options, else environment variables, that set each parameter.
_OPTIONS = {"workers": ("--workers",), "min_threads": ("--threads",), "max_threads": ("--threads",),
            "backlog": ("--bind", "--port"), "preload_app": ("--preload",)}  # fmt: skip
_VARIABLES = {"workers": ("WEB_CONCURRENCY",), "min_threads": ("PUMA_MIN_THREADS", "MIN_THREADS"),
              "max_threads": ("PUMA_MAX_THREADS", "MAX_THREADS")}  # fmt: skip
# Options and calls that set an address, with the text that turns it into a Ruby string.
_ADDRESSES = (("--bind", "", ""), ("bind", "", ""), ("--port", ":#{", "}"), ("port", ":#{", "}"))
_INTERPOLATED = re.compile(r"#\{((?:[^{}]|\{[^{}]*\})*)\}")
_PRELOAD = "preload_app!"  # the default depends on the version
_SWITCH = Notation({"": True, "true": True, "false": False}.get,
                   lambda name: f'(" true" if {name} else " false")')  # fmt: skip
_options = partial(command_line.options, programs=("puma",), short=_SHORT, flags=_FLAGS)


def _candidates(host: RunningHost) -> Iterator[Candidate | str]:
    for unit in unit_files.naming(host.tree, "puma"):
        command = command_line.gather(host.tree, unit, _options)
        if not command.called("puma"):
            continue
        environment = unit_environment.read(host.tree, unit)
        if (path := host.tree.real(_path(host, command, environment))) not in host.tree.files:
            yield f"{unit}: not tuned, because the configuration file {path} does not exist"
            continue
        own = gather(host.tree, path, syntax.read)
        config = together(path, (command, unit_environment.config(environment, path), own))
        yield unit, config, _listens(host, config, environment)


def _path(host: RunningHost, command: Config, environment: Environment) -> str:
    """Return the path of the configuration file."""
    in_unit = unit_files.option(host.tree, environment.unit, "WorkingDirectory")
    directory = command.last("--dir") or in_unit
    names = (environment.value(name) for name in ("APP_ENV", "RACK_ENV", "RAILS_ENV"))
    name = command.last("--environment") or next(filter(None, names), "development")
    own = command.last("--config")
    paths = [join(directory.lstrip("-") or "/", path)
             for path in ([own] if own else [f"config/puma/{name}.rb", "config/puma.rb"])]  # fmt: skip
    return next((path for path in paths if host.tree.real(path) in host.tree.files), paths[-1])


def _listens(host: RunningHost, config: Config, environment: Environment) -> str:
    """Return the port or socket path with exactly one listener; sockets from systemd come first."""
    opened = unit_files.opened(host.tree, environment.unit)
    own = [f"{before}{placed.words[0]}{after}" for name, before, after in _ADDRESSES
           for placed in config.called(name)]  # fmt: skip
    patterns = [_pattern(config, environment, place) for place in ([opened] if opened else own)]
    matching = (app_server.listening(host, pattern)
                for pattern in patterns if "/" in pattern or is_whole(pattern))  # fmt: skip
    alone = (listening[0] for listening in matching if len(listening) == 1)
    return next(alone, (patterns or [str(Puma.port)])[0])


def _pattern(config: Config, environment: Environment, address: str) -> str:
    """Return the port or path of ``address``, with a star for parts that only Ruby can evaluate."""

    def number(match: re.Match[str]) -> str:
        source = syntax.source(config, Word(match[1], 0), environment.values)
        return str(source[0]) if source else "*"

    return app_server.place_of(_INTERPOLATED.sub(number, address.strip("\"'")))


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Tune each parameter in Puma's file or its unit's environment, or add it."""
    environment = unit_environment.read(service.host.tree, service.unit)
    places = {parameter.name: _place(service, environment, parameter) for parameter in PARAMETERS}
    return app_server.tune(service.config, environment, places, accepts)


def _place(service: RunningService, environment: Environment, parameter: Parameter) -> Place:
    config, name = service.config, parameter.name
    calls = config.called(_PRELOAD if name == "preload_app" else name)
    if option := next(filter(config.called, _OPTIONS.get(name, ())), ""):
        return app_server.said_by_command(option, config.main)
    conditional = any(call.directive.within for call in calls)
    why = app_server.conditional(config.main) if conditional else ""
    if name == "backlog":
        why = app_server.by_socket_unit(service.host, service.unit) or why
    if why:
        return why
    if not calls or name == "preload_app":
        return _absent(config, environment, parameter)
    if len({call.words[0] for call in calls}) > 1:
        return f"{config.main} contains several values"
    source = syntax.source(config, calls[0].directive.arguments[0], environment.values)
    if source is None:
        return f"{config.main} computes it: set a number to tune it"
    value, place = source
    return place if isinstance(place, Word) else Setting(name, place, value)


def _absent(config: Config, environment: Environment, parameter: Parameter) -> Setting | Tunable:
    name, absent = parameter.name, None
    if variables := _VARIABLES.get(name):
        variable = next(filter(environment.value, variables), variables[0])
        return Setting(name, variable, parameter.stock)
    if name == "preload_app":
        return Tunable(name, _PRELOAD, _SWITCH)
    if name == "backlog":
        absent = _in_address(config, parameter.stock)
    elif name != "max_fast_inline":  # not every version supports it
        absent = last_line(config, parameter.stock, f"{name} ")
    return Tunable(name, name, NUMBER, absent=absent)


def _in_address(config: Config, default: Value) -> Absent | None:
    """Return the position before the closing quote of its address, if it listens on only one."""
    match config.called("bind"):
        case [bind] if bind.words[0].endswith(("'", '"')) and not bind.directive.within:
            sign, (path, end) = "&" if "?" in bind.words[0] else "?", bind.end
            return Absent(default, [(path, end - 1)], f"{sign}backlog=")
    return None


UNDERSTOOD = Understood(
    syntax.read,
    frozenset((*(parameter.name for parameter in PARAMETERS), "port", _PRELOAD, "--workers", "--threads",
               "--port")),
    syntax.is_number,
    only_known=True,
    reads=frozenset(("port", "--port")),
    writes=frozenset(("threads",)),
    options=_options,
    variables=re.compile(r"(?:\w+_)?(?:THREADS|WORKERS|CONCURRENCY|PROCESSES|PORT)"),
)  # fmt: skip

ADOPTION = app_server.adoption(
    Puma, _candidates, tune, understood=UNDERSTOOD,
    paths=("etc/puma", *(f"{place}/{path}" for place in unit_environment.PLACES
                         for path in ("config/puma*.rb", "config/puma/*.rb", "puma*.rb"))),
    version="command -v puma >/dev/null && puma --version",
)  # fmt: skip
