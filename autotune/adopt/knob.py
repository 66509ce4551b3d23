"""Where a parameter of the catalogue is in a service's files, or would be: as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from autotune.adopt.config import Config, Seen
from autotune.adopt.values import Kind, literal
from autotune.services.base import Value

# Whether a value is one that the catalogue's parameter can have.
Accepts = Callable[[str, Value], bool]
Spot = tuple[str, int]  # a file and a place in it


@dataclass(frozen=True)
class Edit:
    """``text`` of a template in place of a file's own from ``start`` to ``end``."""

    path: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Absent:
    """What to do where there is no such directive: ``text``, an expression, at ``spot``.

    ``default`` is what the software takes without it; at that value nothing is written. Without
    a spot in these files the parameter is not tuned. ``shown`` replaces the comparison with the
    default as the condition of writing it.
    """

    default: Value
    spot: Callable[[Config], Spot | None]
    text: str
    shown: str = ""


@dataclass(frozen=True)
class Knob:
    """``blocks``: those it counts in, by name, if not in all. ``argument``: which of its words."""

    parameter: str
    directive: str
    kind: Kind
    blocks: tuple[str, ...] | None = None
    argument: int = 0
    absent: Absent | None = None
    counts: Callable[[Seen], bool] = lambda _: True


@dataclass(frozen=True)
class Tuned:
    """``values``: the baseline by parameter. ``left``: why others stay as they are."""

    edits: tuple[Edit, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def tuned(config: Config, knobs: Iterable[Knob], accepts: Accepts) -> Tuned:
    """Of a directive that is there more than once the outermost counts, if it says one thing."""
    made = Tuned()
    for knob in knobs:
        places = _outermost(config, knob)
        made = (_there if places else _not_there)(made, config, knob, places, accepts)
    return made


def joined(one: Tuned, other: Tuned) -> Tuned:
    return Tuned(
        (*one.edits, *other.edits), {**one.values, **other.values}, {**one.left, **other.left}
    )


def _outermost(config: Config, knob: Knob) -> list[Seen]:
    found = [
        seen
        for seen in config.called(knob.directive)
        if (knob.blocks is None or seen.block in knob.blocks) and knob.counts(seen)
    ]
    depth = min((seen.directive.depth for seen in found), default=0)
    return [seen for seen in found if seen.directive.depth == depth]


def _there(made: Tuned, _: Config, knob: Knob, places: list[Seen], accepts: Accepts) -> Tuned:
    words = {
        seen.words[knob.argument] if len(seen.words) > knob.argument else "" for seen in places
    }
    if len(words) > 1:
        return _left(made, knob, f"`{knob.directive}` is there with several values")
    written = words.pop()
    value = knob.kind.read(written)
    if value is None or not accepts(knob.parameter, value):
        return _left(made, knob, f"`{knob.directive} {written}` is no value to start from")
    edits = []
    for seen in places:
        word = seen.directive.arguments[knob.argument]
        length, text = knob.kind.expression(knob.parameter, written, value)
        edits.append(Edit(seen.path, word.start, word.start + length, text))
    return joined(made, Tuned(tuple(edits), {knob.parameter: value}))


def _not_there(made: Tuned, config: Config, knob: Knob, _: list[Seen], accepts: Accepts) -> Tuned:
    absent = knob.absent
    spot = absent.spot(config) if absent else None
    if absent is None or spot is None:
        return _left(made, knob, f"there is no `{knob.directive}`")
    if not accepts(knob.parameter, absent.default):
        return _left(made, knob, f"the default of `{knob.directive}` is out of the catalogue")
    shown = absent.shown or f"{knob.parameter} != {literal(absent.default)}"
    edit = Edit(spot[0], spot[1], spot[1], f'{{{{ {absent.text} if {shown} else "" }}}}')
    return joined(made, Tuned((edit,), {knob.parameter: absent.default}))


def _left(made: Tuned, knob: Knob, why: str) -> Tuned:
    return joined(made, Tuned(left={knob.parameter: why}))


# -- natural places ------------------------------------------------------------------------------


def inside(block: str) -> Callable[[Config], Spot | None]:
    """Right after the brace that opens the first block of that name."""

    def spot(config: Config) -> Spot | None:
        for seen in config.called(block):
            directive, text = seen.directive, config.texts[seen.path]
            end = directive.arguments[-1].end if directive.arguments else directive.name.end
            brace = text.find("{", end)
            if brace >= 0 and not text[end:brace].strip():
                return seen.path, brace + 1
        return None

    return spot


def behind(name: str, argument: int = 0) -> Callable[[Config], Spot | None]:
    """Right after the value of the only directive of that name."""

    def spot(config: Config) -> Spot | None:
        found = config.called(name)
        if len(found) != 1 or len(found[0].directive.arguments) <= argument:
            return None
        return found[0].path, found[0].directive.arguments[argument].end

    return spot


def before(name: str) -> Callable[[Config], Spot | None]:
    """Right before the only directive of that name."""

    def spot(config: Config) -> Spot | None:
        found = config.called(name)
        return (found[0].path, found[0].directive.name.start) if len(found) == 1 else None

    return spot


def at_end(config: Config) -> Spot | None:
    """Behind everything in the main file."""
    text = config.texts.get(config.main)
    return (config.main, len(text)) if text is not None else None
