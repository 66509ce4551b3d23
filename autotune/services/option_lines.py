"""Configuration files of an option and its values on a line: their syntax, and options adopted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from autotune.services.base import Settings, Value
from autotune.services.config_files import Config, Directive, Word
from autotune.services.directives import (
    Absent,
    Accepts,
    Adopted,
    Notation,
    Tunable,
    at_end,
    map_directives,
)
from autotune.services.readback import Parser, number

# Option, parameter, how its value is written, and what the software takes without it.
Options = Iterable[tuple[str, str, Notation, Value]]

_LINE = re.compile(r"[^\n]*(?:\n|$)")
_WORD = re.compile(r""""(?:\\.|[^"\\\n])*"|'[^'\n]*'|[^\s]+""")


def read(text: str) -> tuple[Directive, ...]:
    """Every option; a comment takes a whole line, or the rest of one behind a space."""
    directives: list[Directive] = []
    place = 0
    while place < len(text):
        line = _LINE.match(text, place)
        assert line is not None
        words: list[Word] = []
        for match in _WORD.finditer(text, place, line.end()):
            if match[0].startswith("#"):
                break
            words.append(Word(match[0], match.start()))
        if words:
            directives.append(Directive(words[0], tuple(words[1:])))
        place = line.end()
    return tuple(directives)


def words(names: Mapping[str, str]) -> Parser:
    """Parser of ``name value`` lines that a program prints: their names → ours."""

    def parse(text: str) -> Settings:
        return {
            names[line.name.text]: number(line.arguments[0].text)
            for line in read(text)
            if line.arguments and line.name.text in names
        }

    return parse


def tune(config: Config, options: Options, accepts: Accepts) -> Adopted:
    """Every option of ``options``; what the main file does not have goes to its end."""
    text = config.texts.get(config.main, "")
    first, last = ("", r"\n") if text.endswith("\n") or not text else (r"\n", "")
    tunables = [
        Tunable(parameter, option, notation, absent=Absent(
            default, at_end, f'"{first}{option} " ~ {notation.write(parameter)} ~ "{last}"'))
        for option, parameter, notation, default in options
    ]  # fmt: skip
    return map_directives(config, tunables, accepts)


def last_number(config: Config, option: str, default: int) -> int:
    """The number an option is given last."""
    values = [directive.words[0] for directive in config.called(option) if directive.words]
    return int(values[-1]) if values and values[-1].isdigit() else default
