"""Which gunicorns run on a host, and what their commands and configuration files say of parameters."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from posixpath import join
from typing import Any

from autotune.services import app_server, command_line, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.app_server import Candidate
from autotune.services.base import Parameter
from autotune.services.command_line import Words, last
from autotune.services.config_files import Config, Directive, Tree
from autotune.services.directives import NUMBER, Absent, Accepts, Adopted, Tunable, joined
from autotune.services.gunicorn.service import PARAMETERS, UNIT, Gunicorn
from autotune.strict import LARGEST

_PROGRAMS = ("gunicorn", "gunicorn3")
_FILE = "gunicorn.conf.py"  # read where it is started, unless the command names another
_PLACES = ("etc", "etc/*", "srv/*", "srv/*/*", "opt/*", "opt/*/*", "var/www/*", "var/www/*/*",
           "home/*/*")  # fmt: skip
_SHORT = {"-b": "--bind", "-c": "--config", "-e": "--env", "-k": "--worker-class", "-t": "--timeout",
          "-w": "--workers"}  # fmt: skip
_FLAGS = frozenset(f"--{name}" for name in (
    "reload", "spew", "check-config", "print-config", "preload", "no-sendfile", "reuse-port",
    "daemon", "initgroups", "capture-output", "log-syslog", "disable-redirect-access-to-syslog",
    "enable-stdio-inheritance", "proxy-protocol", "do-handshake-on-connect",
    "suppress-ragged-eofs", "strip-header-spaces",
)) | {"-D", "-R"}  # fmt: skip
_THREADED = ("sync", "gthread")  # with threads the first is the second
_SUMS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def options(words: Words) -> Iterator[Directive]:
    return command_line.options(words, _PROGRAMS, _SHORT, _FLAGS)


def find(host: RunningHost) -> Iterator[RunningService | str]:
    return app_server.running(host, Gunicorn, _candidates(host))


def _candidates(host: RunningHost) -> Iterator[Candidate | str]:
    for unit in unit_files.naming(host.tree, "gunicorn"):
        config = command_line.gather(host.tree, unit, options)
        place = _listens(host.tree, config, unit)
        if config.called("--env") and place in host.backlogs:
            yield f"{unit}: what `--env` gives away is in its command: not tuned; use EnvironmentFile="
        elif config.called("gunicorn"):
            yield unit, config, place


def _listens(tree: Tree, config: Config, unit: str) -> str:
    """A TCP port, or the name of a unix socket. What systemd opens for it counts more than its own."""
    bind = last(config, "--bind") or _written(tree, config, unit, "bind") or "127.0.0.1:8000"
    place = unit_files.opened(tree, unit) or str(bind)
    is_socket = place.startswith(("unix:", "/"))
    return re.sub("^unix:(//)?", "", place) if is_socket else place.rpartition(":")[2]


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Every parameter that is no expression in the configuration file; the command counts more."""
    config, tree, unit = service.config, service.host.tree, service.unit
    kind = last(config, "--worker-class") or _written(tree, config, unit, "worker_class") or "sync"
    left = {} if kind in _THREADED else {"threads": f"a worker of class {kind} has none"}
    if unit_files.opened(tree, unit):
        left["backlog"] = "it is the `Backlog=` of its socket unit"
    tunables = []
    for parameter in PARAMETERS:
        default = _written(tree, config, unit, parameter.name, service.host.processors)
        if isinstance(default, str):
            left[parameter.name] = (
                f"{_path(tree, config, unit)} works it out: a number has it tuned"
            )
        if parameter.name not in left:
            value = parameter.stock if default is None else default
            tunables.append(_tunable(parameter, value))
    drop_in = unit_files.drop_in(unit)
    return joined(Adopted(left=left), command_line.tune(config, tunables, accepts, drop_in))


def _tunable(parameter: Parameter, default: Any) -> Tunable:
    name = parameter.name
    option = "--keep-alive" if name == "keepalive" else f"--{name.replace('_', '-')}"
    text = f'" {option}=" ~ {name}'
    return Tunable(name, option, NUMBER, absent=Absent(default, command_line.end, text))


def _path(tree: Tree, config: Config, unit: str) -> str:
    """The configuration file that it reads."""
    directory = unit_files.option(tree, unit, "WorkingDirectory").lstrip("-") or "/"
    return join(directory, last(config, "--config").removeprefix("file:") or _FILE)


def _written(
    tree: Tree, config: Config, unit: str, name: str, processors: int = 1
) -> int | str | None:
    """What the configuration file assigns to a name: a number, text, or text that says how it is worked
    out; ``None`` where it says nothing of it."""
    content = tree.files.get(tree.real(_path(tree, config, unit)), b"")
    try:
        statements = ast.parse(content).body
        values = {target.id: statement.value for statement in statements
                  if isinstance(statement, ast.Assign) for target in statement.targets
                  if isinstance(target, ast.Name)}  # fmt: skip
        value = _value(values[name], processors) if name in values else None
        return (
            value if isinstance(value, str | None) or abs(value) < LARGEST else f"{name}: too large"
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of what is nested too deeply
        return None


def _value(node: ast.expr, processors: int) -> int | str:
    """Numbers, sums and products of them, and the count of processors, as examples have it."""
    match node:
        case ast.List(elts=[first, *_]):  # of places to listen at
            return _value(first, processors)
        case ast.Constant(value=int() | str() as value):
            return value
        case ast.Call(func=ast.Name(id="cpu_count") | ast.Attribute(attr="cpu_count"), args=[]):
            return processors
        case ast.BinOp(left=left, op=op, right=right):
            sides = (_value(left, processors), _value(right, processors))
            if type(op) in _SUMS and all(isinstance(side, int) for side in sides):
                return int(_SUMS[type(op)](*sides))
    return ast.unparse(node)


ADOPTION = Adoption(
    known_as="gunicorn",
    units=(UNIT,),
    paths=(*unit_files.ANY, *(f"{place}/*gunicorn*.py" for place in _PLACES)),
    version="command -v gunicorn >/dev/null && gunicorn --version | sed 's,(version \\(.*\\)),\\1,'",
    find=find,
    tune=tune,
)  # fmt: skip
