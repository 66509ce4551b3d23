"""Locations of a service's parameters in its files, and the notation of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.services.base import Parameter, Value
from autotune.services.config_files import Config, PlacedDirective
from autotune.target.units import SIZE

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_MICROSECONDS = {"us": 1, "": 1000, "ms": 1000,
                 **{unit: seconds * 10**6 for unit, seconds in _SECONDS.items() if unit}}  # fmt: skip
_BYTES = {"": 1, **dict.fromkeys("kK", 2**10), **dict.fromkeys("mM", 2**20)}
# Text that a template would interpret as its syntax, and carriage returns that it would drop.
_OURS = re.compile(r"\{*\r|\{+[{%#]")
_DIGITS = re.compile(r"[0-9]{1,15}")
_KEPT_UNITS = ("", "s", "k", "K", ".0")  # these stay after a number that a variable replaces
_AMOUNT = re.compile(r"([0-9]{1,15})([A-Za-z]*)")


@dataclass(frozen=True)
class Notation:
    """Conversion between text and values.

    ``read`` returns the value of a text, or ``None`` without an exact value. ``write`` returns the
    template expression for a variable name.
    """

    read: Callable[[str], Value | None]
    write: Callable[[str], str] = str

    def expression(self, variable: str, written: str, value: Value) -> tuple[int, str]:
        """Return the number of characters of ``written`` to replace, and the template text for
        them.

        The template text renders to the original text at ``value``.
        """
        digits = _DIGITS.match(written)
        # 0 may lack a unit, but other numbers need one.
        bare = value != 0 or self.write(variable) == variable
        if digits and bare and digits[0] == str(value) and written[digits.end() :] in _KEPT_UNITS:
            return digits.end(), f"{{{{ {variable} }}}}"
        if isinstance(value, str) and value in (written, written[1:-1]):
            before, after = written.split(value, 1)  # quotes, or nothing
            return len(written), f"{before}{{{{ {variable} }}}}{after}"
        now = f'"{written}" if {variable} == {literal(value)}'
        return len(written), f"{{{{ {now} else {self.write(variable)} }}}}"


def literal(value: Value) -> str:
    """Return a value as a literal in a template expression."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _number(text: str) -> Value | None:
    return int(text) if _DIGITS.fullmatch(text) else None


def _amount(units: Mapping[str, int], counted: int = 1) -> Callable[[str], Value | None]:
    """Return a parser of amounts in any of ``units``, as whole multiples of ``counted`` base units."""

    def read(text: str) -> Value | None:
        amount = _AMOUNT.fullmatch(text)
        if amount is None or amount[2] not in units:
            return None
        number, rest = divmod(int(amount[1]) * units[amount[2]], counted)
        return None if rest else number

    return read


def size(unit: str) -> Notation:
    """Return the notation of whole ``KB`` or ``MB``, written with K, M or G, or in bytes."""
    units = {**_BYTES, **dict.fromkeys("gG", 2**30)}
    return Notation(_amount(units, SIZE[unit]), lambda name: f'{name} ~ "{unit[0]}"')


def switch(on: str, off: str) -> Notation:
    """Return the notation of two words in any case."""
    words = {on: True, off: False}
    return Notation(
        lambda text: words.get(text.lower()),
        lambda name: f'("{on}" if {name} else "{off}")',
    )


NUMBER = Notation(_number)
SIGNED = Notation(lambda text: int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else None)
REAL = Notation(lambda text: float(text) if re.fullmatch(r"[0-9]{1,15}(\.[0-9]+)?", text) else None)
SECONDS = Notation(_amount(_SECONDS))
SECONDS_S = Notation(SECONDS.read, lambda name: f'{name} ~ "s"')
MILLISECONDS = Notation(_amount(_MICROSECONDS, 1000), lambda name: f'{name} ~ "ms"')
KILOBYTES = Notation(_amount(_BYTES, 2**10), lambda name: f'{name} ~ "k"')
WORD = Notation(str)
QUOTED_WORD = Notation(lambda text: text[1:-1] if text[:1] + text[-1:] in ('""', "''") else text)
ON_OFF = switch("on", "off")
FLAG = Notation(lambda _: None, lambda _: "")  # a word without a value; not tuned if set
CAPITAL_ON_OFF = Notation(ON_OFF.read, lambda name: f'("On" if {name} else "Off")')
YES_NO = switch("yes", "no")


def notation_of(parameter: Parameter, switch: Notation, **units: Notation) -> Notation:
    """Return the notation of a parameter by its type.

    ``switch`` applies to booleans, and ``units`` to numbers with a unit.
    """
    if isinstance(parameter.stock, bool):
        return switch
    if isinstance(parameter.stock, float):
        return REAL
    words = any(isinstance(choice, str) for choice in parameter.choices)
    return WORD if words else units.get(parameter.unit, NUMBER)


def automatic(value: int) -> Notation:
    """Return the notation of a number, where ``auto`` means ``value``."""
    return Notation(lambda text: value if text == "auto" else _number(text))


# True if the catalogue's parameter allows a value.
Accepts = Callable[[str, Value], bool]
Position = tuple[str, int]  # a file and an offset


@dataclass(frozen=True)
class Edit:
    """Replacement of a file's text from ``start`` to ``end`` by template ``text``."""

    path: str
    start: int
    end: int
    text: str

    @classmethod
    def exchange(cls, placed: PlacedDirective, text: str) -> Edit:
        """Return an edit that replaces a directive's value."""
        word = placed.directive.arguments[0]
        return cls(placed.path, word.start, word.end, text)

    @classmethod
    def insertion(cls, position: Position, text: str) -> Edit:
        """Return an edit that inserts ``text`` at ``position``."""
        return cls(*position, position[1], text)


@dataclass(frozen=True)
class Absent:
    """How to add a missing directive: its value between ``before`` and ``after`` at each of
    ``places``.

    ``default`` is the software's value without the directive; at that value autotune writes no
    line. Without ``places`` the parameter is not tuned. ``condition`` starts with another
    parameter's name and replaces the comparison with the default.
    """

    default: Value
    places: Sequence[Position]
    before: str
    after: str = ""
    condition: str = ""


@dataclass(frozen=True)
class Tunable:
    """A parameter's directive.

    ``blocks`` restricts it to these enclosing blocks. ``last`` is true if the last occurrence takes
    effect. ``left`` is the reason why it is not tuned. ``also`` returns related edits for its
    value.
    """

    parameter: str
    directive: str
    notation: Notation
    blocks: tuple[str, ...] | None = None
    absent: Absent | None = None
    counts: Callable[[PlacedDirective], bool] = lambda _: True
    last: bool = False
    left: str = ""
    also: Callable[[Config, Value], Iterable[Edit]] = lambda *_: ()


@dataclass(frozen=True)
class Adopted:
    """Result of adoption. ``values`` is the baseline, and ``left`` maps other parameters to
    reasons.
    """

    edits: tuple[Edit, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def map_directives(config: Config, tunables: Iterable[Tunable], accepts: Accepts) -> Adopted:
    """Map each parameter to its directive.

    Only the outermost occurrences count. They must agree, unless `Tunable.last` selects the last
    one.
    """
    adopted = Adopted()
    for tunable in tunables:
        own = _map(config, tunable, accepts, adopted.values)
        also = tuple(e for value in own.values.values() for e in tunable.also(config, value))
        adopted = joined(adopted, Adopted(also), own)
    return adopted


def _map(
    config: Config, tunable: Tunable, accepts: Accepts, others: Mapping[str, Value]
) -> Adopted:
    if tunable.left:
        return Adopted(left={tunable.parameter: tunable.left})
    counting = [
        placed
        for placed in config.called(tunable.directive)
        if (tunable.blocks is None or placed.block in tunable.blocks) and tunable.counts(placed)
    ]
    depth = min((placed.directive.depth for placed in counting), default=0)
    outermost = [placed for placed in counting if placed.directive.depth == depth]
    if outermost:
        return _present(tunable, outermost[-1:] if tunable.last else outermost, accepts)
    return _absent(tunable, accepts, others)


def joined(*parts: Adopted) -> Adopted:
    """Combine edits, values and reasons."""
    adopted = Adopted(tuple(edit for part in parts for edit in part.edits))
    for part in parts:
        adopted.values.update(part.values)
        adopted.left.update(part.left)
    return adopted


def _present(tunable: Tunable, places: list[PlacedDirective], accepts: Accepts) -> Adopted:
    name = tunable.parameter
    values = {
        _meaning(tunable.notation, placed.words[0] if placed.words else "") for placed in places
    }
    if len(values) > 1:
        return Adopted(left={name: f"`{tunable.directive}` occurs with several values"})
    value = values.pop()
    if value is None or not accepts(name, value):
        written = " ".join(places[0].words[:1])
        why = f"`{tunable.directive} {written}` is not a valid baseline value"
        return Adopted(left={name: why})
    return Adopted(tuple(_exchange(tunable, placed, value) for placed in places), {name: value})


def _meaning(notation: Notation, written: str) -> Value | None:
    value = notation.read(written)
    quoted = len(written) > 1 and written[0] == written[-1] and written[0] in "\"'"
    return notation.read(written[1:-1]) if value is None and quoted else value


def _exchange(tunable: Tunable, placed: PlacedDirective, value: Value) -> Edit:
    word, notation = placed.directive.arguments[0], tunable.notation
    inside_quotes = notation.read(word.text) is None
    written, start = (word.text[1:-1], word.start + 1) if inside_quotes else (word.text, word.start)
    length, text = notation.expression(tunable.parameter, written, value)
    return Edit(placed.path, start, start + length, text)


def _absent(tunable: Tunable, accepts: Accepts, others: Mapping[str, Value]) -> Adopted:
    absent, name = tunable.absent, tunable.parameter
    if absent is None or not absent.places:
        return Adopted(left={name: f"`{tunable.directive}` is missing"})
    other = absent.condition.partition(" ")[0]
    if other and other not in others:
        return Adopted(left={name: f"it depends on `{other}`, which is not tuned"})
    if not accepts(name, absent.default):
        why = f"the default of `{tunable.directive}` is outside the catalogue's range"
        return Adopted(left={name: why})
    end = absent.after and literal(absent.after)
    parts = filter(None, (literal(absent.before), tunable.notation.write(name), end))
    condition = absent.condition or f"{name} != {literal(absent.default)}"
    return Adopted(inserted(absent.places, " ~ ".join(parts), condition), {name: absent.default})


def inserted(places: Iterable[Position], text: str, condition: str) -> tuple[Edit, ...]:
    """Return edits that insert the result of the expression ``text`` at ``places`` if ``condition``
    holds.
    """
    line = f'{{{{ {text} if {condition} else "" }}}}'
    return tuple(Edit.insertion(position, line) for position in places)


def new_file(path: str, text: str, values: Mapping[str, Value], place: int = 0) -> Adopted:
    """Return a template for a file that is missing on the host.

    The file stays absent while all its parameters have their ``values``. For an existing file,
    ``place`` is the end of its text.
    """
    changed = " or ".join(f"{name} != {literal(value)}" for name, value in values.items())
    block = f"{{% if {changed} %}}\n{text}{{% endif %}}" if changed else ""
    return Adopted((Edit.insertion((path, place), block),), dict(values))


def exchanged(text: str, pieces: Iterable[tuple[int, int, str]]) -> str:
    """Return a template of ``text`` with ``pieces`` replaced: start, end and template text.

    Pieces at the same position keep their order.
    """
    literals, place = [], 0
    for start, end, own in sorted(pieces, key=lambda piece: piece[:2]):
        literal = _verbatim(text[place:start])
        bare = literal.rstrip("{")
        if braces := literal[len(bare) :]:
            # The variable after them would absorb these braces, so an expression writes them.
            literal = f'{bare}{{{{ "{braces}" }}}}'
        literals += [literal, own]
        place = end
    return "".join([*literals, _verbatim(text[place:])])


def _verbatim(text: str) -> str:
    """Return text that a template renders unchanged."""
    return _OURS.sub(lambda ours: '{{ "' + ours[0].replace("\r", "\\r") + '" }}', text)


# -- insertion points ------------------------------------------------------------------------------


def inside(config: Config, block: str) -> list[Position]:
    """Return the position after the opening brace of the first block of that name."""
    for placed in config.called(block):
        path, end = placed.end
        brace = config.texts[path].find("{", end)
        if brace >= 0 and not config.texts[path][end:brace].strip():
            return [(path, brace + 1)]
    return []


def behind(config: Config, name: str) -> list[Position]:
    """Return the position after the value of the only directive of that name."""
    match config.called(name):
        case [placed] if placed.words:
            return [(placed.path, placed.directive.arguments[0].end)]
    return []


def before(config: Config, name: str) -> list[Position]:
    """Return the position before the only directive of that name."""
    match config.called(name):
        case [placed]:
            return [(placed.path, placed.directive.name.start)]
    return []


def below(config: Config, *names: str, only: bool = False) -> list[Position]:
    """Return the line end of the first directive of these names, or of the ``only`` one."""
    heads = [placed for name in names for placed in config.called(name)]
    if not heads or (only and len(heads) > 1):
        return []
    path, place = heads[0].end
    return [(path, place + len(config.texts[path][place:].partition("\n")[0]))]


def at_end(config: Config) -> list[Position]:
    """Return the end of the main file."""
    text = config.texts.get(config.main)
    return [] if text is None else [(config.main, len(text))]


def last_line(config: Config, default: Value, before: str) -> Absent:
    """Return a separate line at the end of the main file."""
    text = config.texts.get(config.main, "")
    first, end = ("", "\n") if text.endswith("\n") or not text else ("\n", "")
    return Absent(default, at_end(config), first + before, end)
