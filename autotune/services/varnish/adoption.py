"""Map the options in a running Varnish's unit to parameters, and find the backends in its VCL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.services import command_line, unit_files
from autotune.services.adoption import Adoption, RunningHost, RunningService, is_loopback
from autotune.services.base import Parameter
from autotune.services.config_files import Config, Directive, FileTree, parse_include, read_config
from autotune.services.directives import (
    NUMBER,
    SECONDS,
    AdoptionResult,
    DirectiveInsertion,
    Notation,
    Tunable,
    ValueCheck,
    build_size_notation,
)
from autotune.services.varnish import syntax
from autotune.services.varnish.parameters import PARAMETERS
from autotune.services.varnish.service import DROP_IN_PATH, UNIT_NAME
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_uint

_STORAGE_PATTERN = re.compile(r"-s (?:(?!Transient=)[^=]*=)?(?:malloc|default)")
_PORTS_BY_NAME = {"http": "80", "https": "443", "http-alt": "8080"}  # as in /etc/services
_DEFAULT_STORAGE_MB = 100  # default size of the storage in MB, according to the manual


def find_services(host: RunningHost) -> Iterator[RunningService | str]:
    if not host.is_active(UNIT_NAME):
        return
    config = command_line.read_unit_command(host.tree, UNIT_NAME, syntax.parse_options)
    options_by_name = {placed.name: placed for placed in config.directives}
    command = config.find_all(command_line.EXEC_START)
    if command and not any(map(syntax.is_program, command[-1].directive.arguments)):
        yield f"Varnish is not tuned: {UNIT_NAME} starts another program, which starts varnishd"
        return
    listening_ports = {
        listener.port
        for listener in host.listeners
        if listener.program in ("varnishd", "cache-main")
    }
    if not options_by_name or any(
        "$" in word for placed in config.directives for word in placed.words
    ):
        yield f"Varnish is not tuned: {UNIT_NAME} does not list its options on its command line"
    elif not (
        http_ports := [
            port
            for port in _list_http_ports(config)
            if not listening_ports or port in listening_ports
        ]
    ):
        yield "Varnish is not adopted: it does not listen on a TCP port that its command sets for HTTP"
    else:
        instance_words = options_by_name["-n"].words if "-n" in options_by_name else ()
        yield RunningService(
            host=host,
            key="varnish",
            config=config,
            tier_kind="http_cache",
            port=http_ports[0],
            listen_address="".join(instance_words),
            backends=tuple(_list_backends(host.tree, config)),
        )


def _list_http_ports(config: Config) -> list[int]:
    """Return the HTTP ports, without Unix sockets and ports for the PROXY protocol."""
    listen_options = [(placed.words or ("",))[0].split(",") for placed in config.find_all("-a")]
    http_addresses = [
        address for address, *protocol in listen_options or [[":80"]] if "PROXY" not in protocol
    ]
    http_words = [address.rpartition("=")[2] for address in http_addresses]
    tcp_words = sorted((word for word in http_words if not word.startswith("/")), key=is_loopback)
    ports = [word.rpartition(":")[2] or "80" for word in tcp_words]
    return [
        int(port) for port in (_PORTS_BY_NAME.get(port, port) for port in ports) if is_uint(port)
    ]


def _list_backends(file_tree: FileTree, config: Config) -> Iterator[str]:
    yield from (placed.words[0] for placed in config.find_all("-b") if placed.words)
    for vcl_file in (placed.words[0] for placed in config.find_all("-f") if placed.words):
        vcl_config = read_config(file_tree, vcl_file, syntax.parse_vcl, parse_include)
        yield from (p.words[0] for p in vcl_config.find_all("backend") if p.words[0])


def tune_parameters(service: RunningService, accepts_value: ValueCheck) -> AdoptionResult:
    config = service.config
    return command_line.tune_options(
        config, (_build_tunable(config, p) for p in PARAMETERS), accepts_value, DROP_IN_PATH
    )


def _build_tunable(config: Config, parameter: Parameter) -> Tunable:
    parameter_name, notation = parameter.name, _select_notation(parameter)
    directive = f"-p {parameter_name}"
    default = parameter.stock
    text_before = f" -p {parameter_name}="
    skip_reason = ""
    if parameter_name == "storage":
        storage_options = [
            placed.name for placed in config.directives if _STORAGE_PATTERN.fullmatch(placed.name)
        ]
        directive = (*storage_options, "-s malloc")[0]
        default, text_before = _DEFAULT_STORAGE_MB, " -s malloc,"
        if len(storage_options) > 1:
            skip_reason = "its command sets several stores in memory"
        elif not storage_options and any(
            placed.name.startswith("-s ") for placed in config.directives
        ):
            skip_reason = "its command sets no store in memory"
    elif config.find_all("-I"):
        skip_reason = "the file that its command names with `-I` may set it"
    insertion = DirectiveInsertion(default, command_line.find_command_end(config), text_before)
    return Tunable(
        parameter_name,
        directive,
        notation,
        insertion=insertion,
        last_wins=True,
        skip_reason=skip_reason,
    )


def _select_notation(parameter: Parameter) -> Notation:
    if parameter.unit == "s":
        return SECONDS
    return build_size_notation(parameter.unit) if parameter.unit else NUMBER


def _is_storage(directive: Directive) -> bool:
    return bool(_STORAGE_PATTERN.fullmatch(directive.name.text))


VISIBLE_DIRECTIVES = VisibleDirectives(
    syntax.parse_vcl,
    frozenset(("-a", *(f"-p {parameter.name}" for parameter in PARAMETERS))),
    _is_storage,
    parse_options=syntax.parse_options,
)

ADOPTION = Adoption(
    title="Varnish",
    units=(UNIT_NAME,),
    paths=("etc/varnish", *unit_files.list_unit_paths(UNIT_NAME)),
    version_script=(
        f"runs {UNIT_NAME} && varnishd -V 2>&1 | sed -n 's,.*(varnish-\\([^ ]*\\) .*,Varnish \\1,p'"
    ),
    find_services=find_services,
    visible=VISIBLE_DIRECTIVES,
    tune_parameters=tune_parameters,
)
