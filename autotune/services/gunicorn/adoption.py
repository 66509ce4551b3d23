"""Find running gunicorns, and map their commands and configuration files to parameters."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import partial
from posixpath import join

from autotune.services import app_server, command_line, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService
from autotune.services.app_server import Candidate
from autotune.services.config_files import Config, Directive, Tree, Word
from autotune.services.directives import NUMBER, Absent, Accepts, Adopted, Tunable
from autotune.services.gunicorn.service import NAMES, PARAMETERS, Gunicorn
from autotune.services.understood import Understood
from autotune.services.unit_environment import Environment
from autotune.strict import LARGEST, is_whole

# Fedora and SUSE also add the Python version to the name.
_PROGRAMS = (
    "gunicorn",
    "gunicorn3",
    "gunicorn-3",
    *(f"gunicorn-3.{minor}" for minor in range(6, 20)),
)
_FILE = "gunicorn.conf.py"  # read from the working directory, unless the command sets another file
_SHORT = {"-b": "--bind", "-c": "--config", "-e": "--env", "-k": "--worker-class", "-t": "--timeout",
          "-w": "--workers"}  # fmt: skip
_FLAGS = frozenset(f"--{name}" for name in (
    "reload", "spew", "check-config", "print-config", "preload", "no-sendfile", "reuse-port",
    "daemon", "initgroups", "capture-output", "log-syslog", "disable-redirect-access-to-syslog",
    "enable-stdio-inheritance", "proxy-protocol", "do-handshake-on-connect",
    "suppress-ragged-eofs", "strip-header-spaces",
)) | {"-D", "-R"}  # fmt: skip
_THREADED = ("sync", "gthread")  # a sync worker with several threads becomes a gthread worker
_SUMS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_options = partial(command_line.options, programs=_PROGRAMS, short=_SHORT, flags=_FLAGS)


def _candidates(host: RunningHost) -> Iterator[Candidate | str]:
    for unit in unit_files.naming(host.tree, "gunicorn"):
        config = command_line.gather(host.tree, unit, _options)
        place = _listens(host.tree, config, unit)
        variables = [placed.name for placed in config.directives if placed.name.startswith("$")]
        if config.called("--env") and place in host.backlogs:
            yield f"{unit}: not tuned, because its command contains `--env`. Use EnvironmentFile="
        elif variables and config.called("gunicorn"):
            yield f"{unit}: not tuned, because its command contains `{variables[0]}`"
        elif config.called("gunicorn"):
            yield unit, config, place


def _listens(tree: Tree, config: Config, unit: str) -> str:
    """Return the TCP port or unix socket. A systemd socket unit overrides gunicorn's own setting."""
    bind = config.last("--bind") or _written(tree, config, unit, "bind") or "127.0.0.1:8000"
    return app_server.place_of(unit_files.opened(tree, unit) or str(bind))


def tune(service: RunningService, accepts: Accepts) -> Adopted:
    """Tune every parameter except expressions in the configuration file, which the command
    overrides.
    """
    config, tree, unit = service.config, service.host.tree, service.unit
    kind = config.last("--worker-class") or _written(tree, config, unit, "worker_class") or "sync"
    left = {"backlog": app_server.by_socket_unit(service.host, unit)}
    if kind not in _THREADED:
        left["threads"] = f"workers of class {kind} have no threads"
    tunables = []
    for name, stock in ((parameter.name, parameter.stock) for parameter in PARAMETERS):
        default = _written(tree, config, unit, name, service.host.processors)
        if isinstance(default, str):
            left[name] = f"{_path(tree, config, unit)} computes it: set a number to tune it"
        value = stock if default is None else default
        absent = Absent(value, command_line.end(config), f" {option(name)}=")
        tunables.append(Tunable(name, option(name), NUMBER, absent=absent, last=True,
                                left=left.get(name, "")))  # fmt: skip
    return command_line.tune(config, tunables, accepts, unit_files.drop_in(unit))


def option(name: str) -> str:
    """Return the command-line option for a parameter."""
    return "--keep-alive" if name == "keepalive" else f"--{name.replace('_', '-')}"


def _path(tree: Tree, config: Config, unit: str) -> str:
    """Return the path of the configuration file."""
    directory = unit_files.option(tree, unit, "WorkingDirectory").lstrip("-") or "/"
    arguments = {
        line.name.text: line.arguments for line in _arguments(unit_environment.read(tree, unit))
    }
    named = [word.text for word in arguments.get("--config", ())]
    return join(
        directory, (config.last("--config") or "".join(named)).removeprefix("file:") or _FILE
    )


def _written(
    tree: Tree, config: Config, unit: str, name: str, processors: int = 1
) -> int | str | None:
    """Return the value of a name in the environment, else in the configuration file.

    The result is a number, text, the source of an expression, or ``None`` if unset.
    """
    environment = unit_environment.read(tree, unit)
    by_environment = [line.arguments[0].text for line in _arguments(environment)
             if line.name.text == option(name) and line.arguments]  # fmt: skip
    if by_environment:
        return int(by_environment[-1]) if is_whole(by_environment[-1]) else by_environment[-1]
    content = tree.files.get(tree.real(_path(tree, config, unit)), b"")
    try:
        values = _assigned(ast.parse(content).body)
        if node := values.get(name, values.get("*") if name in NAMES else None):
            value = _value(node, processors)
            return value if isinstance(value, str) or abs(value) < LARGEST else f"{name}: too large"
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # raised for deeply nested code
        pass
    return environment.number("WEB_CONCURRENCY") if name == "workers" else None


def _arguments(environment: Environment) -> Iterable[Directive]:
    """Return the options in its environment, which override the file but not the command."""
    try:
        words = shlex.split(environment.value("GUNICORN_CMD_ARGS"))
    except ValueError:
        return ()
    return _options(tuple(Word(word, 0) for word in (_PROGRAMS[0], *words)))


def _assigned(statements: Iterable[ast.stmt]) -> dict[str, ast.expr | ast.stmt]:
    """Return the last value that each name is assigned, or the whole statement if it is complex.

    The name `*` stands for any name.
    """
    values: dict[str, ast.expr | ast.stmt] = {}
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=given)):
                values |= {
                    n.id: v for n, v in zip(names, given, strict=False) if isinstance(n, ast.Name)
                }
            case ast.Assign(targets=names, value=value):
                values |= {name.id: value for name in names if isinstance(name, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                values[target] = value
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                values = {"*": statement}
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                values |= {(alias.asname or alias.name): statement for alias in imported}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                values |= {node.id: statement for node in ast.walk(statement)
                           if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
    return values


def _value(node: ast.expr | ast.stmt, processors: int) -> int | str:
    """Evaluate numbers, their sums and products, and the processor count, as in common examples.

    For other expressions, return the source.
    """
    match node:
        case ast.List(elts=[first, *_]):  # of listening addresses
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


# Its configuration file is Python and is never edited.
UNDERSTOOD = Understood(
    lambda _: (),
    frozenset((*(option(parameter.name) for parameter in PARAMETERS), "--bind")),
    options=_options,
    variables=re.compile("WEB_CONCURRENCY|GUNICORN_CMD_ARGS"),
)

ADOPTION = app_server.adoption(
    Gunicorn, _candidates, tune, understood=UNDERSTOOD,
    paths=(f"{place}/*gunicorn*.py" for place in ("etc", "etc/*", *unit_environment.PLACES)),
    version="command -v gunicorn >/dev/null && gunicorn --version | sed 's,(version \\(.*\\)),\\1,'",
)  # fmt: skip
