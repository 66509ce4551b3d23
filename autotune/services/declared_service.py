"""Build a service that a target declares: a `Service` from a `ServiceSpec`.

The service's files are edited at the positions of their directives, or rendered from the user's
templates. Commands never contain tuned values: a command is a list of words from the target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from autotune.services.adoption import Adoption, RunningHost, RunningService
from autotune.services.base import (
    Action,
    Argv,
    Bound,
    ConfigFile,
    Effect,
    Endpoint,
    Parameter,
    Placement,
    Readback,
    ResourceNeeds,
    Role,
    Service,
    Settings,
    Value,
)
from autotune.services.config_files import (
    Config,
    ConfigSyntaxError,
    Directive,
    PlacedDirective,
    Word,
)
from autotune.services.diagnosis import CounterQuery, Diagnosis, Resource, build_command_query
from autotune.services.directives import (
    MILLISECONDS,
    REAL_NUMBER,
    SECONDS,
    SIGNED_NUMBER,
    WORD,
    AdoptionResult,
    DirectiveInsertion,
    Notation,
    Tunable,
    ValueCheck,
    add_new_file,
    build_switch_notation,
    map_directives,
    merge_results,
)
from autotune.services.readback import parse_number
from autotune.services.visible_directives import VisibleDirectives
from autotune.strict_parsing import is_decimal, parse_decimal
from autotune.target.declared_service import Answers, ServiceParameter, ServiceSpec
from autotune.target.quantities import convert_to_unit

# The tier kinds that differ from the name of the service's role.
_TIER_KINDS = {Role.PROXY: "lb", Role.DATABASE: "db"}
_VALUE_PATTERN = r"([^\s;,\"']+)"
_SUFFIX_PATTERN = re.compile(r"[A-Za-z%]*")
_SWITCH = build_switch_notation("true", "false")
# Parsers of printed values, by the type of the parameter. Other values are numbers.
_VALUE_PARSERS: Mapping[type, Callable[[str], Value | None]] = {
    bool: _SWITCH.parse,
    str: WORD.parse,
}


def build_service(service_name: str, spec: ServiceSpec) -> Service:
    """Return the service called ``service_name``, including its adoption and diagnosis."""
    commands = [
        *([spec.check] if spec.check else []),
        *(readback_answers.command for readback_answers in spec.read),
        *([spec.counters.command] if spec.counters else []),
    ]
    role, title = Role(spec.role), spec.title or service_name
    attributes: dict[str, Any] = {
        "spec": spec,
        "name": service_name,
        "deployment": service_name,
        "title": title,
        "role": role,
        "port": spec.port,
        "unit_name": spec.unit,
        "packages": spec.packages,
        "package_source": ""
        if spec.packages
        else "install it, or correct its name in `services:`; `packages:` names its packages",
        "programs": {argv[0]: (argv[0],) for argv in commands},
        "keeps_data": spec.keeps_data,
        "forgets_on_restart": spec.forgets_on_restart,
        # The unit defines the reload command. The signal here only marks the service as reloadable.
        "reload_signal": "HUP" if spec.reload else None,
        "parameters": tuple(_build_parameter(name, p) for name, p in spec.parameters.items()),
        "needs": ResourceNeeds(source="the target", **spec.needs.model_dump(exclude_none=True)),
        "adoption": _build_adoption(service_name, spec),
        "diagnosis": _build_diagnosis(spec),
    }
    built_service: Service = type("Declared", (_DeclaredService,), attributes)()
    return built_service


class _DeclaredService(Service):
    spec: ClassVar[ServiceSpec]

    def list_config_files(self, placement: Placement) -> tuple[ConfigFile, ...]:
        return tuple(
            ConfigFile(path, file.template or f"{self.name}: {path}", int(file.mode, 8), file.text)
            for path, file in self.spec.files.items()
            if file.text or file.template
        )

    def get_socket(self, placement: Placement) -> str | Endpoint | None:
        return placement.listen if self.spec.listens else None

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        return _build_command(self.spec.check, placement) if self.spec.check else None

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        # Values in a range are numbers, but the default may be an expression of host facts.
        value_types = {
            name: type(parameter.default) if parameter.choices else float
            for name, parameter in self.spec.parameters.items()
        }
        return tuple(
            Readback(
                _build_command(readback_answers.command, placement),
                partial(_parse_values, readback_answers, value_types),
            )
            for readback_answers in self.spec.read
        )


def _build_command(command: Argv, placement: Placement) -> Argv:
    """Return the command with the program's path, and with `{host}` and `{port}` replaced by the
    service's address.
    """
    listen_endpoint = placement.listen
    command_words = (
        word.replace("{host}", listen_endpoint.host).replace("{port}", str(listen_endpoint.port))
        for word in command[1:]
    )
    return (placement.programs[command[0]], *command_words)


def _parse_values(answers: Answers, value_types: Mapping[str, type], output: str) -> Settings:
    parsed_values: dict[str, Value] = {}
    for parameter_name, pattern in answers.values.items():
        match = re.search(pattern, output, re.MULTILINE)
        parse_value = _VALUE_PARSERS.get(value_types[parameter_name], parse_number)
        # A pattern may match without its group.
        if match and match[1] is not None and (value := parse_value(match[1])) is not None:
            parsed_values[parameter_name] = value
    return parsed_values


def _build_parameter(parameter_name: str, spec: ServiceParameter) -> Parameter:
    def convert_bound(bound: Any) -> Any:
        """Return a quantity in the parameter's unit. Other text is an expression or a choice, and
        is not changed.
        """
        return convert_to_unit(bound, spec.unit or "")

    bounds: tuple[Bound | None, ...] = tuple(map(convert_bound, spec.range or (None, None)))
    return Parameter(
        parameter_name,
        spec.meaning,
        stock=convert_bound(spec.default),
        action=Action[spec.action.upper()],
        source=spec.source,
        unit=spec.unit or "",
        low=bounds[0],
        high=bounds[1],
        log=spec.log,
        choices=spec.choices or (),
        recommended=convert_bound(spec.recommended),
        when=tuple(spec.when.items()),
        on_demand=spec.on_demand,
        capped_by=spec.capped_by or "",
        effect=Effect(spec.effect),
        direction=spec.direction,
        safe=(convert_bound(spec.safe[0]), convert_bound(spec.safe[1])) if spec.safe else None,
    )


# -- files on a host ---------------------------------------------------------------


def _build_adoption(service_name: str, spec: ServiceSpec) -> Adoption:
    role = Role(spec.role)

    def find_running(host: RunningHost) -> Iterator[RunningService | str]:
        if host.is_active(spec.unit):
            yield RunningService(
                host=host,
                key=service_name,
                config=_read_host_config(host, spec),
                tier_kind=_TIER_KINDS.get(role, role),
                port=spec.port,
                role=role,
            )

    return Adoption(
        title=spec.title or service_name,
        units=(spec.unit,),
        paths=tuple(path.removeprefix("/") for path in spec.files),
        version_script="",
        find_services=find_running,
        visible=VisibleDirectives(
            partial(_parse_known_directives, spec), _list_literals(spec), hides_unknown_names=True
        ),
        tune_parameters=partial(_tune_parameters, spec),
        new_file_modes={path: int(file.mode, 8) for path, file in spec.files.items()},
    )


def _read_host_config(host: RunningHost, spec: ServiceSpec) -> Config:
    """Return the directives that set the parameters, read from the parameters' files. A file may be a
    drop-in that does not exist yet.
    """
    text_by_path, unread_reasons = dict[str, str](), dict[str, str]()
    for path, file in spec.files.items():
        real_path = host.tree.resolve(path)
        try:
            if real_path in host.tree.files or file.text is None:
                text_by_path[real_path] = host.tree.read_text(real_path)
            else:
                text_by_path[real_path] = ""
        except ConfigSyntaxError as error:
            unread_reasons[real_path] = str(error)
        except KeyError:
            unread_reasons[real_path] = host.tree.explain_missing(path)
    directives = [
        PlacedDirective(path, directive)
        for parameter in spec.parameters.values()
        if parameter.directive
        and (path := _find_parameter_path(host, spec, parameter)) in text_by_path
        for directive in _find_directives(text_by_path[path], parameter)
    ]
    return Config(_find_parameter_path(host, spec), text_by_path, tuple(directives), unread_reasons)


def _find_parameter_path(
    host: RunningHost, spec: ServiceSpec, parameter: ServiceParameter | None = None
) -> str:
    """Return the path of the parameter's file, or of the service's first file if no parameter is
    given.
    """
    own_file = parameter.file if parameter else None
    return host.tree.resolve(own_file or next(iter(spec.files)))


def _build_directive_label(parameter: ServiceParameter) -> str:
    return " ".join(filter(None, (parameter.section, parameter.directive)))


def _find_directives(file_text: str, parameter: ServiceParameter) -> Iterator[Directive]:
    start, end = _find_section(file_text, parameter.section) or (0, 0)
    for match in _compile_directive(parameter.directive or "").finditer(file_text, start, end):
        name = Word(_build_directive_label(parameter), match.start())
        yield Directive(name, (Word(match[1], match.start(1)),))


_VALUE_UNIT_PATTERN = re.compile(r"[A-Za-z%]{0,4}")


def _parse_known_directives(spec: ServiceSpec, file_text: str) -> Iterator[Directive]:
    """Yield the directives of the declared parameters. The syntax of all other text is unknown."""
    for parameter in spec.parameters.values():
        if parameter.section:
            section_name = _get_section_name(parameter)
            for header in re.finditer(_build_header_pattern(parameter.section), file_text):
                yield Directive(Word(section_name, header.end() - len(section_name)))
        for placed_directive in (
            _find_directives(file_text, parameter) if parameter.directive else ()
        ):
            yield from _parse_literals(file_text, parameter.directive or "", placed_directive)


def _list_literals(spec: ServiceSpec) -> frozenset[str]:
    """Return the literal words in the declared sections and directives."""
    literal_words = set(map(_get_section_name, spec.parameters.values()))
    for parameter in spec.parameters.values():
        literal_words |= {_get_literal_prefix(word) for word in (parameter.directive or "").split()}
    return frozenset(literal_words - {""})


def _get_literal_prefix(word: str) -> str:
    """Return the text before the value in a word of a directive; empty for a wildcard."""
    literal_prefix = word.partition("{}")[0].rstrip("=")
    return "" if literal_prefix == "*" else literal_prefix


def _parse_literals(
    file_text: str, directive: str, placed_directive: Directive
) -> Iterator[Directive]:
    """Yield each literal word of a directive at its position, then the directive's value with its
    unit.
    """
    value_word, name_word = placed_directive.arguments[0], Word("", placed_directive.name.start)
    for literal_word in filter(None, map(_get_literal_prefix, directive.split())):
        literal_position = file_text.find(literal_word, name_word.end, value_word.start)
        if literal_position >= 0:
            name_word = Word(literal_word, literal_position)
            yield Directive(name_word)
    value_end = _VALUE_UNIT_PATTERN.match(file_text, value_word.end).end()  # type: ignore[union-attr]  # always matches
    yield Directive(name_word, (Word(file_text[value_word.start : value_end], value_word.start),))


def _get_section_name(parameter: ServiceParameter) -> str:
    """Return the name of the parameter's section without brackets, or an empty string."""
    return (parameter.section or "").strip("[]")


def _build_header_pattern(section: str) -> str:
    """Return a pattern for the header of a section, up to the end of the name. If ``section`` has no
    brackets, the header may be `[name]` or `name`.
    """
    name_pattern, is_optional = re.escape(section.strip("[]")), not section.startswith("[")
    brackets_pattern = rf"(\[(?={name_pattern}\])){'?' * is_optional}"
    return rf"(?m)^{brackets_pattern}{name_pattern}(?![\w.-])"


def _find_section(file_text: str, section: str | None) -> tuple[int, int] | None:
    """Return the range of the only section with this name, without its header line.

    The header is `[name]`, or `name` followed by indented lines.
    """
    if section is None:
        return 0, len(file_text)
    header_pattern = _build_header_pattern(section) + r"[^\n]*"
    header_matches = list(re.finditer(header_pattern, file_text))
    if len(header_matches) != 1:
        return None
    next_section_pattern = re.compile(r"(?m)^\[" if header_matches[0][1] else r"(?m)^[^\s#]")
    next_section = next_section_pattern.search(file_text, header_matches[0].end())
    return header_matches[0].end(), next_section.start() if next_section else len(file_text)


def _compile_directive(directive: str) -> re.Pattern[str]:
    """Return a pattern for a directive that allows any blanks between words and any unit after the
    value.
    """
    pattern_text = ""
    for word in directive.split():
        text_before, value, text_after = word.partition("{}")
        literal_pattern = re.escape(text_before) + (
            _VALUE_PATTERN + re.escape(_SUFFIX_PATTERN.sub("", text_after, 1)) if value else ""
        )
        word_pattern = {"*": r"\S.*?", "=": "="}.get(word, literal_pattern)
        blank_pattern = r"[ \t]*" if "=" in (word, pattern_text[-1:]) else r"[ \t]+"
        pattern_text += (blank_pattern if pattern_text else "") + word_pattern
    return re.compile(rf"(?m)^[ \t]*{pattern_text}(?=$|[\s;,#])")


def _select_notation(parameter: ServiceParameter) -> Notation:
    """Return the notation in which a value is read and written, including the unit that follows the
    value in the directive.
    """
    suffix_match = _SUFFIX_PATTERN.match((parameter.directive or "").partition("{}")[2])
    suffix = suffix_match[0] if suffix_match else ""
    declared_numbers = (parameter.default, *(parameter.range or ()))
    if suffix:
        return Notation(
            lambda text: (
                SIGNED_NUMBER.parse(text.removesuffix(suffix)) if text.endswith(suffix) else None
            ),
            lambda name: f"{name} ~ {json.dumps(suffix)}",
        )
    if isinstance(parameter.default, bool):
        return _SWITCH
    if isinstance(parameter.default, str) and parameter.range is None:
        return WORD
    if parameter.unit in ("ms", "s"):
        return Notation({"ms": MILLISECONDS, "s": SECONDS}[parameter.unit].parse)
    return (
        REAL_NUMBER
        if any(isinstance(declared_number, float) for declared_number in declared_numbers)
        else SIGNED_NUMBER
    )


def _tune_parameters(
    spec: ServiceSpec, running: RunningService, accepts_value: ValueCheck
) -> AdoptionResult:
    """Return edits that replace existing values, add lines and add files."""
    host, config = running.host, running.config
    new_files = {
        path: file.text
        for name, file in spec.files.items()
        if file.text and config.texts.get(path := host.tree.resolve(name)) == ""
    }
    path_by_parameter = {
        name: _find_parameter_path(host, spec, parameter)
        for name, parameter in spec.parameters.items()
        if parameter.directive
    }
    tunables = [
        _build_tunable(name, spec.parameters[name], path, config.texts.get(path))
        for name, path in path_by_parameter.items()
        if path not in new_files
    ]
    return merge_results(
        map_directives(config, tunables, accepts_value),
        *(_adopt_new_file(path, text, spec, accepts_value) for path, text in new_files.items()),
    )


def _build_tunable(
    parameter_name: str, parameter: ServiceParameter, path: str, text: str | None
) -> Tunable:
    notation = _select_notation(parameter)
    default = _build_parameter(parameter_name, parameter).stock
    position = None if text is None else _find_insertion(text, parameter)
    insertion = None
    # A template cannot compare a value with a default that is an expression of host facts.
    if text is not None and position is not None and (parameter.choices or default != str(default)):
        text_before, _, directive_rest = (parameter.directive or "").partition("{}")
        line_start, line_end = ("\n    ", "") if parameter.section else ("", "\n")
        if not parameter.section and text and not text.endswith("\n"):
            line_start, line_end = "\n", ""
        text_after = _SUFFIX_PATTERN.sub("", directive_rest, count=1) + line_end
        insertion = DirectiveInsertion(
            default, [(path, position)], line_start + text_before, text_after
        )
    return Tunable(parameter_name, _build_directive_label(parameter), notation, insertion=insertion)


def _find_insertion(file_text: str, parameter: ServiceParameter) -> int | None:
    """Return the position for a new line: after the header of its section, or at the end of the
    file.
    """
    if "*" in (parameter.directive or "").split():
        return None
    if parameter.section is None:
        return len(file_text)
    section_range = _find_section(file_text, parameter.section)
    return section_range[0] if section_range else None


def _adopt_new_file(
    path: str, template_text: str, spec: ServiceSpec, accepts_value: ValueCheck
) -> AdoptionResult:
    """Return the adoption of a file that does not exist on the host, with the parameters in its
    template.
    """
    default_values = {
        name: _build_parameter(name, parameter).stock
        for name, parameter in spec.parameters.items()
        if re.search(rf"\b{name}\b", template_text)
    }
    if skip_reasons := {
        name: "its default is not a valid value on this host"
        for name in default_values
        if not accepts_value(name, default_values[name])
    }:
        return AdoptionResult(skipped=skip_reasons)
    return add_new_file(path, template_text, default_values)


# -- diagnosis -------------------------------------------------------------------------------------


def _build_diagnosis(spec: ServiceSpec) -> Diagnosis:
    """Return the diagnosis with the declared counters, the unit's journal, and the changes that the
    target recommends.
    """
    return Diagnosis(
        counter_query=_build_counter_query(spec) if spec.counters else None,
        find_log=lambda _: spec.unit,
        recommended_changes={Resource(name): changes for name, changes in spec.helps.items()},
    )


def _build_counter_query(spec: ServiceSpec) -> CounterQuery:
    counters = spec.counters
    assert counters is not None

    def parse_counters(output: str) -> Mapping[str, float]:
        matches = {
            name: re.search(pattern, output, re.MULTILINE)
            for name, pattern in counters.values.items()
        }
        return {
            name: parse_decimal(match[1])
            for name, match in matches.items()
            if match and is_decimal(match[1] or "")
        }

    level_names = frozenset(counters.levels)
    return build_command_query(
        build_command=partial(_build_command, counters.command),
        level_names=level_names,
        parse_counters=parse_counters,
    )
