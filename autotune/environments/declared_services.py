"""Check the services that a target declares against the catalogue and the tiers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from autotune.errors import TargetError
from autotune.services.registry import RESERVED_NAMES
from autotune.space.expression import parse_expression
from autotune.space.facts import PLACEHOLDER_FACTS
from autotune.target.declared_service import ServiceSpec
from autotune.target.messages import format_value
from autotune.target.quantities import convert_to_unit
from autotune.target.read_target import TargetFile
from autotune.target.value_hints import split_words
from autotune.target.yaml_document import Location

# The name of a program with an argument. The path of a program may contain spaces.
_ARGUMENTS_PATTERN = re.compile(r"^[^/\s]+\s+\S|\s-")


def find_errors(file: TargetFile) -> Iterator[TargetError]:
    """Yield an error for each declared service with a duplicate name, an invalid expression, or a file
    without text.
    """
    for name, service_spec in file.target.services.items():
        error_location = ("services", name)
        if name in RESERVED_NAMES:
            message = f"autotune already contains a service {name}"
            yield file.document.build_error(error_location, message, hint=f"rename it to my_{name}")
        yield from _find_expression_errors(file, name, service_spec)
        yield from _find_command_errors(file, name, service_spec)
    for name, tier in file.target.tiers.items():
        for service in tier.service:
            if service in file.target.services and not file.target.edits_host_files(name):
                yield from _find_missing_texts(file, name, service)


def _find_expression_errors(
    file: TargetFile, service_name: str, service_spec: ServiceSpec
) -> Iterator[TargetError]:
    facts = PLACEHOLDER_FACTS.to_names()
    for parameter, declared_parameter in service_spec.parameters.items():
        for field_name in ("default", "range", "recommended", "safe"):
            field_value = getattr(declared_parameter, field_name)
            for bound in field_value if isinstance(field_value, tuple) else (field_value,):
                # A bound is either a quantity in the parameter's unit or an expression of host facts.
                if declared_parameter.choices is None and isinstance(
                    convert_to_unit(bound, declared_parameter.unit or ""), str
                ):
                    error_location = ("services", service_name, "parameters", parameter, field_name)
                    yield from _check_expression(file, error_location, str(bound), set(facts))
    for size, text in service_spec.needs.model_dump().items():
        if text:
            yield from _check_expression(
                file, ("services", service_name, "needs", size), text, {*service_spec.parameters}
            )


def _find_command_errors(
    file: TargetFile, service_name: str, service_spec: ServiceSpec
) -> Iterator[TargetError]:
    """Yield an error for each program whose arguments are in the same item of the list."""
    commands: list[tuple[Location, Sequence[str]]] = [
        (("check",), service_spec.check or ()),
        *((("read", i, "command"), a.command) for i, a in enumerate(service_spec.read)),
        (("counters", "command"), service_spec.counters.command if service_spec.counters else ()),
    ]
    for location, arguments in commands:
        program, *further_arguments = (*arguments, "")
        if _ARGUMENTS_PATTERN.search(program):
            words = split_words(program) + [a for a in further_arguments if a]
            yield file.document.build_error(
                ("services", service_name, *location),
                f"{format_value(program)} is read as the name of one program",
                hint=f"write each word as an item of the list: `[{', '.join(words)}]`",
            )


def _check_expression(
    file: TargetFile, error_location: tuple[str, ...], expression_text: str, allowed_names: set[str]
) -> Iterator[TargetError]:
    try:
        unknown_names = sorted({*parse_expression(expression_text).names()} - allowed_names)
    except ValueError as error:
        hint = getattr(error, "hint", None)
        yield file.document.build_error(error_location, str(error), hint=hint)
        return
    for unknown_name in unknown_names:
        yield file.document.unknown_name_error(error_location, "name", allowed_names, unknown_name)


def _find_missing_texts(file: TargetFile, tier: str, service: str) -> Iterator[TargetError]:
    """Yield an error for each file that has no text in a tier that replaces files."""
    for path, declared_file in file.target.services[service].files.items():
        if declared_file.text is None and declared_file.template is None:
            message = f"tier {tier} replaces files, but {path} lacks `text` and `template`"
            hint = "remove `replace:` and `templates:` to edit the file on its hosts"
            yield file.document.build_error(
                ("services", service, "files", path), message, hint=hint
            )
