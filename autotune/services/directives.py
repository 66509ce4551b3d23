"""Map a service's parameters to directives in its configuration files, and convert parameter values
to text and back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.services.base import Parameter, Value
from autotune.services.config_files import Config, PlacedDirective
from autotune.target.quantities import SIZE_UNITS

_SECONDS_BY_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_MICROSECONDS_BY_UNIT = {
    "us": 1,
    "": 1000,
    "ms": 1000,
    **{unit: seconds * 10**6 for unit, seconds in _SECONDS_BY_UNIT.items() if unit},
}
_BYTES_BY_UNIT = {"": 1, **dict.fromkeys("kK", 2**10), **dict.fromkeys("mM", 2**20)}
# Matches text that the template engine would interpret as syntax, and carriage returns, which the
# engine would drop.
_TEMPLATE_SYNTAX_PATTERN = re.compile(r"\{*\r|\{+[{%#]")
_DIGITS_PATTERN = re.compile(r"[0-9]{1,15}")
_REUSABLE_SUFFIXES = ("", "s", "k", "K", ".0")  # suffixes of a number that stay in the file
_AMOUNT_PATTERN = re.compile(r"([0-9]{1,15})([A-Za-z]*)")


@dataclass(frozen=True)
class Notation:
    """The conversion between text in a configuration file and a parameter's value.

    ``parse`` returns the value of a text, or ``None`` if the text has no exact value.
    ``build_expression`` returns the template expression that writes the variable with a given name.
    """

    parse: Callable[[str], Value | None]
    build_expression: Callable[[str], str] = str

    def build_replacement(self, variable: str, written_text: str, value: Value) -> tuple[int, str]:
        """Return how many characters of ``written_text`` to replace, and the template text that replaces
        them.

        For the current ``value``, the template text renders to the original text.
        """
        digits = _DIGITS_PATTERN.match(written_text)
        # The value 0 may lack a unit, but other numbers need a unit.
        needs_no_unit = value != 0 or self.build_expression(variable) == variable
        if (
            digits
            and needs_no_unit
            and digits[0] == str(value)
            and written_text[digits.end() :] in _REUSABLE_SUFFIXES
        ):
            return digits.end(), f"{{{{ {variable} }}}}"
        if isinstance(value, str) and value in (written_text, written_text[1:-1]):
            text_before, text_after = written_text.split(
                value, 1
            )  # the quotes around the value, if any
            return len(written_text), f"{text_before}{{{{ {variable} }}}}{text_after}"
        unchanged_expression = f'"{written_text}" if {variable} == {format_literal(value)}'
        return len(
            written_text
        ), f"{{{{ {unchanged_expression} else {self.build_expression(variable)} }}}}"


def format_literal(value: Value) -> str:
    """Return a value as a literal in a template expression."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _parse_number(text: str) -> Value | None:
    return int(text) if _DIGITS_PATTERN.fullmatch(text) else None


def _build_amount_parser(
    factors_by_unit: Mapping[str, int], base_factor: int = 1
) -> Callable[[str], Value | None]:
    """Return a parser that reads an amount in any of ``factors_by_unit``, and returns it as a multiple of
    ``base_factor``.
    """

    def parse_amount(text: str) -> Value | None:
        amount_match = _AMOUNT_PATTERN.fullmatch(text)
        if amount_match is None or amount_match[2] not in factors_by_unit:
            return None
        unit_count, remainder = divmod(
            int(amount_match[1]) * factors_by_unit[amount_match[2]], base_factor
        )
        return None if remainder else unit_count

    return parse_amount


def build_size_notation(unit: str) -> Notation:
    """Return the notation for a size in whole ``KB`` or ``MB``. A file may contain the size in bytes,
    or with the suffix K, M or G.
    """
    bytes_by_unit = {**_BYTES_BY_UNIT, **dict.fromkeys("gG", 2**30)}
    return Notation(
        _build_amount_parser(bytes_by_unit, SIZE_UNITS[unit]), lambda name: f'{name} ~ "{unit[0]}"'
    )


def build_switch_notation(on_word: str, off_word: str) -> Notation:
    """Return the notation for a switch that is written as ``on_word`` or ``off_word``, in any case."""
    value_by_word = {on_word: True, off_word: False}
    return Notation(
        lambda text: value_by_word.get(text.lower()),
        lambda name: f'("{on_word}" if {name} else "{off_word}")',
    )


NUMBER = Notation(_parse_number)
SIGNED_NUMBER = Notation(lambda text: int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else None)
REAL_NUMBER = Notation(
    lambda text: float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", text) else None
)
SECONDS = Notation(_build_amount_parser(_SECONDS_BY_UNIT))
SECONDS_WITH_SUFFIX = Notation(SECONDS.parse, lambda name: f'{name} ~ "s"')
MILLISECONDS = Notation(
    _build_amount_parser(_MICROSECONDS_BY_UNIT, 1000), lambda name: f'{name} ~ "ms"'
)
KILOBYTES = Notation(_build_amount_parser(_BYTES_BY_UNIT, 2**10), lambda name: f'{name} ~ "k"')
WORD = Notation(str)
QUOTED_WORD = Notation(lambda text: text[1:-1] if text[:1] + text[-1:] in ('""', "''") else text)
ON_OFF = build_switch_notation("on", "off")
# A directive without a value, whose parameter is not tuned if a file already contains the directive.
FLAG = Notation(lambda _: None, lambda _: "")
CAPITAL_ON_OFF = Notation(ON_OFF.parse, lambda name: f'("On" if {name} else "Off")')
YES_NO = build_switch_notation("yes", "no")


def parse_seconds(text: str) -> int | None:
    """Return the seconds in a duration that may consist of several units, such as `1m30s`, or ``None``
    for other text.
    """
    amounts = [SECONDS.parse(amount) for amount in re.findall(r"[0-9]+[a-z]*", text)]
    seconds = [amount for amount in amounts if isinstance(amount, int)]
    is_duration = re.fullmatch(r"([0-9]{1,9}[a-z]+){0,4}[0-9]{1,9}[a-z]*", text)
    return sum(seconds) if is_duration and len(seconds) == len(amounts) else None


def select_notation(
    parameter: Parameter, switch_notation: Notation, **unit_notations: Notation
) -> Notation:
    """Return the notation for a parameter, depending on its type.

    ``switch_notation`` applies to booleans, and ``unit_notations`` to numbers that have a unit.
    """
    if isinstance(parameter.stock, bool):
        return switch_notation
    if isinstance(parameter.stock, float):
        return REAL_NUMBER
    has_words = any(isinstance(allowed_value, str) for allowed_value in parameter.choices)
    return WORD if has_words else unit_notations.get(parameter.unit, NUMBER)


def build_auto_notation(auto_value: int) -> Notation:
    """Return the notation for a number that may also be written as ``auto``, which means
    ``auto_value``.
    """
    return Notation(lambda text: auto_value if text == "auto" else _parse_number(text))


# Returns true if the catalogue allows a value for the parameter with a given name.
ValueCheck = Callable[[str, Value], bool]
FilePosition = tuple[str, int]  # the path of a file, and an offset in its text


@dataclass(frozen=True)
class Edit:
    """The replacement of a file's text from ``start`` to ``end`` with the template text ``text``."""

    path: str
    start: int
    end: int
    text: str

    @classmethod
    def replace_value(cls, placed_directive: PlacedDirective, text: str) -> Edit:
        """Return an edit that replaces a directive's value with ``text``, within its quotes."""
        word = placed_directive.directive.arguments[0]
        quotes = len(word.text) > 1 and word.text[0] == word.text[-1] and word.text[0] in "\"'"
        return cls(placed_directive.path, word.start + quotes, word.end - quotes, text)

    @classmethod
    def insert_text(cls, position: FilePosition, text: str) -> Edit:
        """Return an edit that inserts ``text`` at ``position``."""
        return cls(*position, position[1], text)


@dataclass(frozen=True)
class DirectiveInsertion:
    """How to add a missing directive: at each of ``positions``, its value is written between
    ``text_before`` and ``text_after``.

    ``default`` is the value that the software uses without the directive. Without ``positions``,
    the parameter is not tuned. The directive is written if the value differs from ``default``, or
    if ``condition`` is true. A ``condition`` starts with the name of another parameter.

    The software may compute ``default`` from other parameters (``computed_from``). If one of their
    values changes, the directive is written as well, because the computed value would change.
    """

    default: Value
    positions: Sequence[FilePosition]
    text_before: str
    text_after: str = ""
    condition: str = ""
    computed_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tunable:
    """A parameter, and the directive that sets it.

    Only occurrences of the directive directly inside ``blocks`` are considered. ``last_wins`` is true
    if the last occurrence takes effect. ``skip_reason`` is the reason why the parameter is not tuned.
    ``extra_edits`` returns further edits that are required to tune the parameter from its current
    value.
    """

    parameter: str
    directive: str
    notation: Notation
    blocks: tuple[str, ...] | None = None
    insertion: DirectiveInsertion | None = None
    is_considered: Callable[[PlacedDirective], bool] = lambda _: True
    last_wins: bool = False
    skip_reason: str = ""
    extra_edits: Callable[[Config, Value], Iterable[Edit]] = lambda *_: ()


@dataclass(frozen=True)
class AdoptionResult:
    """The edits that make parameters tunable. ``values`` are the current values of the tunable
    parameters, and ``skipped`` maps all other parameters to the reasons why they are not tuned.
    """

    edits: tuple[Edit, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def map_directives(
    config: Config, tunables: Iterable[Tunable], accepts_value: ValueCheck
) -> AdoptionResult:
    """Return the value and the edits for each parameter, or the reason why it is not tuned.

    The outermost occurrences of a directive must have equal values, unless `Tunable.last_wins` selects
    the last occurrence. Deeper occurrences are ignored.
    """
    adoption_result = AdoptionResult()
    for tunable in tunables:
        tunable_result = _map_directive(config, tunable, accepts_value, adoption_result.values)
        extra_edits = tuple(
            edit
            for value in tunable_result.values.values()
            for edit in tunable.extra_edits(config, value)
        )
        adoption_result = merge_results(
            adoption_result, AdoptionResult(extra_edits), tunable_result
        )
    return adoption_result


def _map_directive(
    config: Config, tunable: Tunable, accepts_value: ValueCheck, adopted_values: Mapping[str, Value]
) -> AdoptionResult:
    if reason := tunable.skip_reason or config.explain_uncertain(tunable.directive):
        return AdoptionResult(skipped={tunable.parameter: reason})
    counting_directives = [
        placed
        for placed in config.find_all(tunable.directive)
        if (tunable.blocks is None or placed.block in tunable.blocks)
        and tunable.is_considered(placed)
    ]
    depth = min((placed.directive.depth for placed in counting_directives), default=0)
    outermost_directives = [
        placed for placed in counting_directives if placed.directive.depth == depth
    ]
    if outermost_directives:
        return _map_present(
            tunable,
            outermost_directives[-1:] if tunable.last_wins else outermost_directives,
            accepts_value,
        )
    return _map_absent(tunable, accepts_value, adopted_values)


def merge_results(*results: AdoptionResult) -> AdoptionResult:
    """Return one adoption result with the edits, values and reasons of all ``results``."""
    adoption_result = AdoptionResult(tuple(edit for result in results for edit in result.edits))
    for result in results:
        adoption_result.values.update(result.values)
        adoption_result.skipped.update(result.skipped)
    return adoption_result


def _map_present(
    tunable: Tunable, matching_directives: list[PlacedDirective], accepts_value: ValueCheck
) -> AdoptionResult:
    parameter_name = tunable.parameter
    distinct_values = {
        _parse_quoted_value(tunable.notation, placed.words[0] if placed.words else "")
        for placed in matching_directives
    }
    if len(distinct_values) > 1:
        return AdoptionResult(
            skipped={parameter_name: f"`{tunable.directive}` occurs with several values"}
        )
    baseline_value = distinct_values.pop()
    has_word = any(placed.words for placed in matching_directives)
    if baseline_value is None and not has_word and tunable.notation is not FLAG:
        return AdoptionResult(skipped={parameter_name: f"`{tunable.directive}` has no value"})
    if baseline_value is None or not accepts_value(parameter_name, baseline_value):
        written_value = " ".join(matching_directives[0].words[:1])
        catalogue_note = "" if baseline_value is None else ": the catalogue allows other values"
        reason = (
            f"`{tunable.directive} {written_value}` is not a valid baseline value{catalogue_note}"
        )
        return AdoptionResult(skipped={parameter_name: reason})
    return AdoptionResult(
        tuple(_replace_value(tunable, placed, baseline_value) for placed in matching_directives),
        {parameter_name: baseline_value},
    )


def _parse_quoted_value(notation: Notation, written_text: str) -> Value | None:
    value = notation.parse(written_text)
    is_quoted = (
        len(written_text) > 1 and written_text[0] == written_text[-1] and written_text[0] in "\"'"
    )
    return notation.parse(written_text[1:-1]) if value is None and is_quoted else value


def _replace_value(tunable: Tunable, placed_directive: PlacedDirective, value: Value) -> Edit:
    word, notation = placed_directive.directive.arguments[0], tunable.notation
    is_quoted = notation.parse(word.text) is None
    written_text, replacement_start = (
        (word.text[1:-1], word.start + 1) if is_quoted else (word.text, word.start)
    )
    length, template_text = notation.build_replacement(tunable.parameter, written_text, value)
    return Edit(placed_directive.path, replacement_start, replacement_start + length, template_text)


def _map_absent(
    tunable: Tunable, accepts_value: ValueCheck, adopted_values: Mapping[str, Value]
) -> AdoptionResult:
    insertion, parameter_name = tunable.insertion, tunable.parameter
    if insertion is None or not insertion.positions:
        return AdoptionResult(skipped={parameter_name: f"`{tunable.directive}` is missing"})
    other_name = insertion.condition.partition(" ")[0]
    if other_name and other_name not in adopted_values:
        return AdoptionResult(
            skipped={parameter_name: f"it depends on `{other_name}`, which is not tuned"}
        )
    if not accepts_value(parameter_name, insertion.default):
        reason = f"{insertion.default!r} is not a valid baseline value of `{tunable.directive}`"
        return AdoptionResult(skipped={parameter_name: reason})
    end_literal = insertion.text_after and format_literal(insertion.text_after)
    text_expressions = filter(
        None,
        (
            format_literal(insertion.text_before),
            tunable.notation.build_expression(parameter_name),
            end_literal,
        ),
    )
    default_values = {
        parameter_name: insertion.default,
        **{n: adopted_values[n] for n in insertion.computed_from if n in adopted_values},
    }
    condition = insertion.condition or " or ".join(
        f"{name} != {format_literal(value)}" for name, value in default_values.items()
    )
    return AdoptionResult(
        insert_expression(insertion.positions, " ~ ".join(text_expressions), condition),
        {parameter_name: insertion.default},
    )


def insert_expression(
    positions: Iterable[FilePosition], expression: str, condition: str
) -> tuple[Edit, ...]:
    """Return edits that insert the value of ``expression`` at ``positions`` if ``condition`` holds."""
    template_text = f'{{{{ {expression} if {condition} else "" }}}}'
    return tuple(Edit.insert_text(position, template_text) for position in positions)


def add_new_file(
    path: str, text: str, values: Mapping[str, Value], insert_at: int = 0
) -> AdoptionResult:
    """Return a template for a file that does not exist on the host.

    The file stays absent as long as all of its parameters have the given ``values``. For an
    existing file, ``insert_at`` is the end of its text.
    """
    change_condition = " or ".join(
        f"{name} != {format_literal(value)}" for name, value in values.items()
    )
    template_block = (
        f"{{% if {change_condition} %}}\n{text}{{% endif %}}" if change_condition else ""
    )
    return AdoptionResult((Edit.insert_text((path, insert_at), template_block),), dict(values))


def render_edits(text: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """Return a template for ``text`` with ``replacements`` (start, end, template text).

    Replacements at the same position keep their order.
    """
    template_fragments, position = [], 0
    for start, end, template_text in sorted(replacements, key=lambda replacement: replacement[:2]):
        literal_text = _escape_text(text[position:start])
        bare_literal = literal_text.rstrip("{")
        if trailing_braces := literal_text[len(bare_literal) :]:
            # Literal braces directly before a variable would become part of the variable's syntax, so
            # a template expression outputs them.
            literal_text = f'{bare_literal}{{{{ "{trailing_braces}" }}}}'
        template_fragments += [literal_text, template_text]
        position = end
    return "".join([*template_fragments, _escape_text(text[position:])])


def _escape_text(literal_text: str) -> str:
    """Return a template text that renders to ``literal_text``."""
    return _TEMPLATE_SYNTAX_PATTERN.sub(
        lambda match: '{{ "' + match[0].replace("\r", "\\r") + '" }}', literal_text
    )


# -- insertion points ------------------------------------------------------------------------------


def find_block_start(config: Config, block_name: str) -> list[FilePosition]:
    """Return the position after the opening brace of the first block with this name."""
    for placed_directive in config.find_all(block_name):
        file_path, name_end = placed_directive.end_position
        brace_position = config.texts[file_path].find("{", name_end)
        if brace_position >= 0 and not config.texts[file_path][name_end:brace_position].strip():
            return [(file_path, brace_position + 1)]
    return []


def find_value_end(config: Config, directive_name: str) -> list[FilePosition]:
    """Return the position after the value of the only directive with this name. The result is empty
    unless there is exactly one such directive.
    """
    match config.find_all(directive_name):
        case [placed] if placed.words:
            return [(placed.path, placed.directive.arguments[0].end)]
    return []


def find_directive_start(config: Config, directive_name: str) -> list[FilePosition]:
    """Return the position before the only directive with this name. The result is empty unless there is
    exactly one such directive.
    """
    match config.find_all(directive_name):
        case [placed]:
            return [(placed.path, placed.directive.name.start)]
    return []


def find_line_end(config: Config, *names: str, must_be_only: bool = False) -> list[FilePosition]:
    """Return the end of the line with the first directive whose name is in ``names``. With
    ``must_be_only``, the result is empty if there are several such directives.
    """
    matching_directives = [placed for name in names for placed in config.find_all(name)]
    if not matching_directives or (must_be_only and len(matching_directives) > 1):
        return []
    path, position = matching_directives[0].end_position
    return [(path, position + len(config.texts[path][position:].partition("\n")[0]))]


def find_file_end(config: Config) -> list[FilePosition]:
    """Return the position at the end of the main file."""
    main_text = config.texts.get(config.main_file)
    return [] if main_text is None else [(config.main_file, len(main_text))]


def append_line(config: Config, default: Value, text_before: str) -> DirectiveInsertion:
    """Return an insertion of a separate line at the end of the main file."""
    main_text = config.texts.get(config.main_file, "")
    line_break, line_end = ("", "\n") if main_text.endswith("\n") or not main_text else ("\n", "")
    return DirectiveInsertion(default, find_file_end(config), line_break + text_before, line_end)
