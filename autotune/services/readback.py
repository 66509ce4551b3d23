"""Parse effective values from the output of servers and of ``ss``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping

from autotune.services.base import Parameter, Placement, Readback, Settings, Value
from autotune.services.config_files import ConfigSyntaxError, Directive, DirectiveParser
from autotune.target.quantities import SIZE_UNITS

OutputParser = Callable[[str], Settings]

_NUMBER_PATTERN = re.compile(r"[+-]?[0-9]{1,19}(\.[0-9]+)?")


def parse_number(text: str) -> Value:
    """Return ``text`` as an int or float if it is a number, or else as text."""
    if not _NUMBER_PATTERN.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def build_config_parser(
    parse_directives: DirectiveParser,
    parameters_by_directive: Mapping[str, str],
    parse_value: Callable[[str, str], Value | None] = lambda _, word: parse_number(word),
) -> OutputParser:
    """Return a parser for a configuration that a program prints.

    If a directive occurs several times, the first of its outermost occurrences takes effect.
    ``parse_value`` converts the directive's argument, without quotes, to a value, or to ``None`` if the
    argument is invalid.
    """

    def parse(output: str) -> Settings:
        outermost_directives: dict[str, Directive] = {}
        with contextlib.suppress(ConfigSyntaxError):  # ignore text after the configuration
            for directive in parse_directives(output):
                parameter_name = parameters_by_directive.get(directive.name.text, "")
                is_in_section = (
                    parameter_name in outermost_directives
                    and directive.depth >= outermost_directives[parameter_name].depth
                )
                if parameter_name and directive.arguments and not is_in_section:
                    outermost_directives[parameter_name] = directive
        first_arguments = {
            name: directive.arguments[0].text.strip("\"'")
            for name, directive in outermost_directives.items()
        }
        parsed_values = {name: parse_value(name, word) for name, word in first_arguments.items()}
        return {name: value for name, value in parsed_values.items() if value is not None}

    return parse


def convert_unit(parameter: Parameter, printed_text: str) -> Value:
    """Return the value of printed text, such as `ON`, `OFF` or a size in bytes, in the parameter's
    unit.
    """
    printed_value = parse_number(printed_text)
    if isinstance(parameter.stock, bool):
        return printed_value == "ON"
    is_size_number = parameter.unit and isinstance(printed_value, int)
    return (
        parse_number(f"{int(printed_value) / SIZE_UNITS[parameter.unit]:.10g}")
        if is_size_number
        else printed_value
    )


def build_backlog_parser(parameter_name: str = "backlog") -> OutputParser:
    """Return a parser for the output of ``ss -ltnH`` or ``ss -lxH``, in which the Send-Q of a
    listening socket is its backlog.

    If there are several sockets (per worker or address family), the parser returns the smallest
    backlog, because the shortest queue overflows first.
    """

    def parse(output: str) -> Settings:
        backlogs = re.findall(r"(?m)^(?:\S+\s+)?LISTEN\s+[0-9]+\s+([0-9]{1,9})\s", output)
        return {parameter_name: min(int(backlog) for backlog in backlogs)} if backlogs else {}

    return parse


def build_backlog_readback(
    placement: Placement, parameter_name: str = "backlog", socket: str = ""
) -> Readback:
    """Return the command that reads the backlog that the kernel granted to a listening socket.

    The socket is the Unix socket ``socket``, or the socket on the service's port if ``socket`` is
    empty.
    """
    ss_options = (
        ("-lxH", f"src unix:{socket}") if socket else ("-ltnH", f"sport = :{placement.listen.port}")
    )
    return Readback(("ss", *ss_options), build_backlog_parser(parameter_name))
