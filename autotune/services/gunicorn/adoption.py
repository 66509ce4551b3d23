"""Find running gunicorn servers, and map their commands and configuration files to parameters."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from posixpath import join

from autotune.services import app_server, command_line, unit_environment, unit_files
from autotune.services.adoption import RunningHost, RunningService, is_loopback
from autotune.services.app_server import ServerCandidate
from autotune.services.config_files import Config, Directive, FileTree, Word
from autotune.services.directives import (
    NUMBER,
    AdoptionResult,
    DirectiveInsertion,
    Tunable,
    ValueCheck,
)
from autotune.services.gunicorn.service import PARAMETER_NAMES, PARAMETERS, Gunicorn
from autotune.services.unit_environment import UnitEnvironment
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import MAX_NUMBER, is_uint

# Fedora and SUSE append the Python version to the program's name.
_PROGRAM_NAMES = (
    "gunicorn",
    "gunicorn3",
    "gunicorn-3",
    *(f"gunicorn-3.{minor}" for minor in range(6, 20)),
    "gunicorn.app.wsgiapp",  # the module that the program runs
)
# gunicorn reads this file in the working directory, unless the command names another file
_DEFAULT_CONFIG_FILE = "gunicorn.conf.py"
_LONG_OPTIONS = {
    "-b": "--bind",
    "-c": "--config",
    "-e": "--env",
    "-k": "--worker-class",
    "-t": "--timeout",
    "-w": "--workers",
}
_FLAG_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        "reload",
        "spew",
        "check-config",
        "print-config",
        "preload",
        "no-sendfile",
        "reuse-port",
        "daemon",
        "initgroups",
        "capture-output",
        "log-syslog",
        "disable-redirect-access-to-syslog",
        "enable-stdio-inheritance",
        "proxy-protocol",
        "do-handshake-on-connect",
        "suppress-ragged-eofs",
        "permit-obsolete-folding",
        "strip-header-spaces",
        "permit-unconventional-http-method",
        "permit-unconventional-http-version",
        "casefold-http-method",
    )
) | {"-D", "-R"}
# With several threads, a sync worker becomes a gthread worker.
_THREADED_CLASSES = ("sync", "gthread")
_ARITHMETIC_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_VALUE_OPTIONS = frozenset(
    f"--{name}"
    for name in (
        "access-logfile",
        "access-logformat",
        "backlog",
        "ca-certs",
        "cert-reqs",
        "certfile",
        "chdir",
        "ciphers",
        "dogstatsd-tags",
        "error-logfile",
        "forwarded-allow-ips",
        "forwarder-headers",
        "graceful-timeout",
        "group",
        "header-map",
        "keep-alive",
        "keyfile",
        "limit-request-field_size",
        "limit-request-fields",
        "limit-request-line",
        "log-config",
        "log-config-dict",
        "log-config-json",
        "log-file",
        "log-level",
        "log-syslog-facility",
        "log-syslog-prefix",
        "log-syslog-to",
        "logger-class",
        "max-requests",
        "max-requests-jitter",
        "name",
        "paste",
        "paste-global",
        "pid",
        "proxy-allow-from",
        "pythonpath",
        "reload-engine",
        "reload-extra-file",
        "ssl-version",
        "statsd-host",
        "statsd-prefix",
        "threads",
        "umask",
        "user",
        "worker-connections",
        "worker-tmp-dir",
        "help",
        "version",
    )
)
_parse_options = partial(
    command_line.parse_options,
    programs=_PROGRAM_NAMES,
    long_names=_LONG_OPTIONS,
    flag_options=_FLAG_OPTIONS,
    long_options=_VALUE_OPTIONS | {name for name in _FLAG_OPTIONS if name.startswith("--")},
)
_PROGRAM_PATTERN = re.compile(r"\bgunicorn3?\b")
_DEFAULT_PORT = "8000"
# Python names through which code may assign any variable.
_OPAQUE_NAMES = frozenset(
    ("locals", "globals", "vars", "exec", "eval", "setattr", "delattr", "__dict__", "modules")
)


def _list_candidates(host: RunningHost) -> Iterator[ServerCandidate | str]:
    for unit in unit_files.find_units_mentioning(host.tree, "gunicorn"):
        config = command_line.read_unit_command(host.tree, unit, _parse_options)
        listen_address = _find_listen_address(host.tree, config, unit)
        variable_names = [
            placed.name for placed in config.directives if placed.name.startswith("$")
        ]
        if config.find_all("--env") and listen_address in host.backlogs:
            yield f"{unit}: not tuned, because its command contains `--env`. Use EnvironmentFile="
        elif variable_names and config.find_all("gunicorn"):
            yield f"{unit}: not tuned, because its command contains `{variable_names[0]}`"
        elif config.find_all("gunicorn"):
            yield _locate_port(host, unit, config, listen_address)
        elif command_line.starts_shell(
            unit_files.list_arguments(host.tree, unit), _PROGRAM_PATTERN
        ):
            yield f"{unit}: {command_line.SHELL_REASON}"


def _locate_port(
    host: RunningHost, unit: str, config: Config, listen_address: str
) -> ServerCandidate | str:
    """Return the candidate with its address, or the reason why the candidate is not tuned. If a file
    computes the address and gunicorn listens on only one port, the candidate gets that port.
    """
    path = _find_config_path(host.tree, config, unit)
    is_hidden = (
        listen_address == _DEFAULT_PORT
        and listen_address not in host.backlogs
        and _is_opaque_file(host.tree, path)
    )
    if not is_hidden and (
        is_uint(listen_address)
        or listen_address.endswith(".sock")
        or "/" in listen_address
        or "%" in listen_address
    ):
        return unit, config, listen_address
    listening_ports = {
        str(listener.port) for listener in host.listeners if listener.program.startswith("gunicorn")
    }
    if len(listening_ports) == 1:
        return unit, config, listening_ports.pop()
    return f"{unit}: not tuned, because {path} computes `bind`: use `--bind` to tune it"


def _is_opaque_file(file_tree: FileTree, path: str) -> bool:
    """True if a configuration file cannot be parsed, or may set names that its source does not
    show.
    """
    assigned_values = _parse_assignments(file_tree.files.get(file_tree.resolve(path), b""))
    return assigned_values is None or "*" in assigned_values


def _find_listen_address(file_tree: FileTree, config: Config, unit: str) -> str:
    """Return the TCP port or Unix socket. A systemd socket unit overrides gunicorn's own
    setting.
    """
    environment = unit_environment.read_environment(file_tree, unit)
    bound = [
        unit_environment.VARIABLE_PATTERN.sub(
            lambda name: environment.get_value(name[1]) or name[0], word
        )
        for placed in config.find_all("--bind")
        for word in placed.words[:1]
    ]
    # An address that other hosts can reach takes precedence.
    bind_address = (
        min(reversed(bound), key=is_loopback, default="")
        or _find_configured_value(file_tree, config, unit, "bind")
        or environment.get_value("PORT")  # then gunicorn listens on all addresses
        or f"127.0.0.1:{_DEFAULT_PORT}"
    )
    return app_server.parse_address(
        unit_files.find_socket_address(file_tree, unit) or str(bind_address)
    )


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    """Return edits that tune every parameter, unless the file sets the parameter to an expression. New
    values are written to the command, which overrides the file.
    """
    config, file_tree, unit = service.config, service.host.tree, service.unit
    worker_class = (
        config.find_last_word("--worker-class")
        or _find_configured_value(file_tree, config, unit, "worker_class")
        or "sync"
    )
    skip_reasons = {"backlog": app_server.explain_socket_unit(service.host, unit)}
    if worker_class not in _THREADED_CLASSES:
        skip_reasons["threads"] = f"workers of class {worker_class} have no threads"
    unread_reason = _explain_unread_config(file_tree, config, unit)
    tunables = []
    for name, stock_value in ((parameter.name, parameter.stock) for parameter in PARAMETERS):
        option_name = format_option_name(name)
        default = _find_configured_value(file_tree, config, unit, name, service.host.processors)
        if isinstance(default, str) and not config.find_all(option_name):
            skip_reasons[name] = (
                f"{_find_config_path(file_tree, config, unit)} computes it: set a number to tune it"
            )
        skip_reasons[name] = skip_reasons.get(name) or (
            "" if config.find_all(option_name) else unread_reason
        )
        current_value = default if isinstance(default, int) else stock_value
        insertion = DirectiveInsertion(
            current_value, command_line.find_command_end(config), f" {option_name}="
        )
        tunables.append(
            Tunable(
                name,
                option_name,
                NUMBER,
                insertion=insertion,
                last_wins=True,
                skip_reason=skip_reasons.get(name, ""),
            )
        )
    return command_line.tune_options(
        config, tunables, accepts_value, unit_files.get_drop_in_path(unit)
    )


def format_option_name(parameter_name: str) -> str:
    """Return the command-line option for a parameter."""
    return (
        "--keep-alive" if parameter_name == "keepalive" else f"--{parameter_name.replace('_', '-')}"
    )


def _find_config_path(file_tree: FileTree, config: Config, unit: str) -> str:
    working_directory = (
        unit_files.find_option(file_tree, unit, "WorkingDirectory").lstrip("-") or "/"
    )
    arguments_by_option = {
        line.name.text: line.arguments
        for line in _parse_environment_options(unit_environment.read_environment(file_tree, unit))
    }
    named_files = [word.text for word in arguments_by_option.get("--config", ())]
    return join(
        working_directory,
        (config.find_last_word("--config") or "".join(named_files)).removeprefix("file:")
        or _DEFAULT_CONFIG_FILE,
    )


def _explain_unread_config(file_tree: FileTree, config: Config, unit: str) -> str:
    """Return why the values in the environment or in a configuration file may be unknown; empty if
    they are known.
    """
    if unread_files := unit_environment.read_environment(file_tree, unit).unread_files:
        return f"{unread_files[0]} may set it, but was not read"
    path = _find_config_path(file_tree, config, unit)
    file_content = file_tree.files.get(file_tree.resolve(path))
    if file_content is None:
        is_default_file = path.endswith(f"/{_DEFAULT_CONFIG_FILE}") and "%" not in path
        return (
            ""
            if is_default_file and path not in file_tree.unread
            else f"{path} may set it, but was not read"
        )
    if _parse_assignments(file_content) is None:
        return f"{path} may set it, but cannot be parsed"
    return ""


# Adoption searches the same file for each parameter.
@lru_cache(maxsize=4)
def _parse_assignments(file_content: bytes) -> Mapping[str, ast.expr | ast.stmt] | None:
    """Return the assignments in a configuration file, or ``None`` if it is invalid."""
    try:
        return _collect_assignments(ast.parse(file_content).body)
    # RecursionError and MemoryError are raised for deeply nested code
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _find_configured_value(
    file_tree: FileTree, config: Config, unit: str, setting_name: str, processors: int = 1
) -> int | str | None:
    """Return the value of a setting in the environment, or else in the configuration file.

    The result is a number, a text or the source of an expression, or ``None`` if nothing sets the
    value.
    """
    environment = unit_environment.read_environment(file_tree, unit)
    environment_values = [
        line.arguments[0].text
        for line in _parse_environment_options(environment)
        if line.name.text == format_option_name(setting_name) and line.arguments
    ]
    if environment_values:
        return (
            int(environment_values[-1])
            if is_uint(environment_values[-1])
            else environment_values[-1]
        )
    file_content = file_tree.files.get(
        file_tree.resolve(_find_config_path(file_tree, config, unit)), b""
    )
    try:
        assigned_values = _parse_assignments(file_content) or {}
        if assigned_node := assigned_values.get(
            setting_name, assigned_values.get("*") if setting_name in PARAMETER_NAMES else None
        ):
            evaluated_value = _evaluate_expression(assigned_node, processors)
            if setting_name in PARAMETER_NAMES and is_uint(str(evaluated_value)):
                evaluated_value = int(evaluated_value)  # gunicorn accepts numbers as text
            return (
                evaluated_value
                if isinstance(evaluated_value, str) or abs(evaluated_value) < MAX_NUMBER
                else f"{setting_name}: too large"
            )
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # raised for deeply nested code
        pass
    return environment.get_number("WEB_CONCURRENCY") if setting_name == "workers" else None


def _parse_environment_options(environment: UnitEnvironment) -> Iterable[Directive]:
    """Return gunicorn's options in the unit's environment.

    These options override the configuration file. Options of the command override both.
    """
    try:
        option_words = shlex.split(environment.get_value("GUNICORN_CMD_ARGS"))
    except ValueError:
        return ()
    return _parse_options(tuple(Word(word, 0) for word in (_PROGRAM_NAMES[0], *option_words)))


def _collect_assignments(statements: Iterable[ast.stmt]) -> dict[str, ast.expr | ast.stmt]:
    """Return the last value that is assigned to each name, or the whole statement if it is complex.

    The key `*` means any other name.
    """
    assigned_values: dict[str, ast.expr | ast.stmt] = {}
    for statement in statements:
        if _may_set_any_name(statement):
            assigned_values = {"*": statement}
            continue
        match statement:
            case ast.Assign(
                targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=tuple_values)
            ) if len(names) == len(tuple_values) and all(
                isinstance(name, ast.Name) for name in names
            ):
                assigned_values |= {
                    name_node.id: value_node
                    for name_node, value_node in zip(names, tuple_values, strict=True)
                    if isinstance(name_node, ast.Name)
                }
            case ast.Assign(targets=names, value=value) if all(
                isinstance(name, ast.Name) for name in names
            ):
                assigned_values |= {name.id: value for name in names if isinstance(name, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                assigned_values[target] = value
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                assigned_values |= {(alias.asname or alias.name): statement for alias in imported}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                assigned_values[statement.name] = statement
            case _:
                assigned_values |= _list_stored_names(statement)
        assigned_values |= {
            node.target.id: statement
            for node in ast.walk(statement)
            if isinstance(node, ast.NamedExpr)
        }
    return assigned_values


def _list_stored_names(statement: ast.stmt) -> dict[str, ast.expr | ast.stmt]:
    """Return the names that a statement assigns, deletes, imports, defines or binds in a pattern."""
    names: list[str | None] = []
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.append(name)
            case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.MatchMapping(rest=name):
                names.append(name)
            case ast.ExceptHandler(name=name) | ast.alias(asname=str(name)) | ast.alias(name=name):
                names.append(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.append(name)
    return {name: statement for name in names if name}


def _may_set_any_name(statement: ast.stmt) -> bool:
    """True if code may assign variables whose names are not in its source."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _OPAQUE_NAMES:
                return True
            case ast.Global() | ast.ImportFrom(names=[ast.alias(name="*")]):
                return True
    return False


def _evaluate_expression(node: ast.expr | ast.stmt, processors: int) -> int | str:
    """Return the value of an expression that consists of numbers, sums, products and the processor
    count, as in common examples.

    For any other expression, the expression's source is returned.
    """
    match node:
        case ast.List(elts=[first, *_]):  # a list of listening addresses
            return _evaluate_expression(first, processors)
        case ast.Constant(value=int() | str() as value):
            return value
        case ast.Call(func=ast.Name(id="cpu_count") | ast.Attribute(attr="cpu_count"), args=[]):
            return processors
        case ast.BinOp(left=left_operand, op=op, right=right_operand):
            operands = (
                _evaluate_expression(left_operand, processors),
                _evaluate_expression(right_operand, processors),
            )
            if type(op) in _ARITHMETIC_OPERATORS and all(
                isinstance(operand, int) for operand in operands
            ):
                return int(_ARITHMETIC_OPERATORS[type(op)](*operands))
    return ast.unparse(node)


# gunicorn's configuration file is Python code, which is never edited.
VISIBLE_DIRECTIVES = VisibleDirectives(
    lambda _: (),
    frozenset((*(format_option_name(parameter.name) for parameter in PARAMETERS), "--bind")),
    parse_options=_parse_options,
    visible_variables=re.compile("WEB_CONCURRENCY|GUNICORN_CMD_ARGS"),
)

ADOPTION = app_server.build_adoption(
    Gunicorn,
    _list_candidates,
    tune_parameters,
    visible=VISIBLE_DIRECTIVES,
    paths=(
        f"{place}/*gunicorn*.py"
        for place in ("etc", "etc/*", *unit_environment.APPLICATION_DIRECTORIES)
    ),
    version_script=(
        "command -v gunicorn >/dev/null && gunicorn --version | sed 's,(version \\(.*\\)),\\1,'"
    ),
)
