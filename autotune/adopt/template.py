"""A file made into a template that, at the values it was made from, is that file again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.adopt.syntax import Directive, Word

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
# What a template would read as its own, and the carriage returns that it would drop.
_OURS = re.compile(r"\{*\r|\{+[{%#]")


@dataclass(frozen=True)
class Adopted:
    """``baseline`` has the value each variable of the ``template`` stands for, as it was written."""

    template: str
    baseline: Mapping[str, str]


def adopt(text: str, directives: Iterable[Directive], variables: Mapping[str, str]) -> Adopted:
    """Put a variable where a directive of ``variables`` (its name → the variable's) has a number.

    Of a directive that is there more than once the outermost counts, wherever it has the same value
    there; with several values it stays as it is: no single one is the baseline.
    """
    places: dict[str, list[Word]] = {}
    depths: dict[str, int] = {}
    for directive in directives:
        variable = variables.get(directive.name.text)
        if variable is None or len(directive.arguments) != 1:
            continue
        if directive.depth < depths.get(variable, directive.depth + 1):
            depths[variable], places[variable] = directive.depth, []
        if directive.depth == depths[variable]:
            places[variable].append(directive.arguments[0])
    chosen = {
        word: variable
        for variable, words in places.items()
        if len({word.text for word in words}) == 1 and _NUMBER.fullmatch(words[0].text)
        for word in words
    }
    baseline = {variable: word.text for word, variable in chosen.items()}
    pieces = [(word.start, word.end, f"{{{{ {variable} }}}}") for word, variable in chosen.items()]
    return Adopted(exchanged(text, pieces), baseline)


def exchanged(text: str, pieces: Iterable[tuple[int, int, str]]) -> str:
    """A template of ``text`` with some of it, from start to end, in the template's own words.

    Pieces at the same place come in the order they are given.
    """
    found, place = [], 0
    for start, end, own in sorted(pieces, key=lambda piece: piece[:2]):
        found += [_apart(_literal(text[place:start])), own]
        place = end
    return "".join([*found, _literal(text[place:])])


def _apart(literal: str) -> str:
    """Braces that would be taken for part of the variable after them, said by the template."""
    bare = literal.rstrip("{")
    braces = literal[len(bare) :]
    return f'{bare}{{{{ "{braces}" }}}}' if braces else literal


def _literal(text: str) -> str:
    """Text that a template gives back unchanged."""
    return _OURS.sub(lambda ours: '{{ "' + ours[0].replace("\r", "\\r") + '" }}', text)
