"""The syntax of postgresql.conf, a name and its value a line, and what values mean."""

from __future__ import annotations

import re

from autotune.services.base import Parameter, Value
from autotune.services.config_files import Directive, Word, tokens

# A quote inside of a value is written twice, or behind a backslash.
_LINE = re.compile(
    r"""[^\S\n]*(?:(?P<name>[A-Za-z_][\w.$]*)[^\S\n]*(?:=[^\S\n]*|(?<=[^\S\n]))"""
    r"""(?P<value>'(?:[^'\\\n]|\\.|'')*'|[^\s#']+)[^\S\n]*)?(?:\#[^\n]*)?(?:\n|$)"""
)
_INCLUDES = {"include": "{}", "include_if_exists": "{}", "include_dir": "{}/*.conf"}
# What begins with another 0 is octal.
_AMOUNT = re.compile(
    r"(-?(?!0[0-9])(?:[0-9]{1,15}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:[eE][+-]?[0-9])?)\s*([A-Za-z]*)"
)
# By what PostgreSQL calls them; KB is what we do.
UNITS = {"": 1, "B": 1, "kB": 2**10, "KB": 2**10, "8kB": 2**13, "MB": 2**20, "GB": 2**30, "TB": 2**40,
         "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86_400}  # fmt: skip
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True,
             "off": False, "false": False, "no": False, "0": False}  # fmt: skip
_WORDS = {word: "on" if on else "off" for word, on in _SWITCHES.items()} | {"pglz": "on"}


def read(text: str) -> tuple[Directive, ...]:
    """Every assignment, names in small letters as the server has them. Raises Unreadable."""
    return tuple(
        Directive(Word(line["name"].lower(), line.start("name")),
                  (Word(line["value"], line.start("value")),))
        for line in tokens(text, _LINE, "it is no `name = value`") if line["name"]
    )  # fmt: skip


def plain(value: str) -> str:
    """A value without its quotes."""
    if not value.startswith("'"):
        return value
    return re.sub(r"''|\\(.)", lambda quoted: quoted[1] or "'", value[1:-1])


def includes(directive: Directive) -> str | None:
    """The files that a line includes, as a pattern."""
    pattern = _INCLUDES.get(directive.name.text)
    return pattern.format(plain(directive.arguments[0].text)) if pattern else None


def meaning(parameter: Parameter, text: str, bare: str) -> Value | None:
    """What a value says, in the parameter's unit; ``None`` for what is no whole number of them.

    A number without a unit counts ``bare``.
    """
    text = plain(text).strip()
    if isinstance(parameter.stock, bool):  # any beginning that no other has will do
        meant = {on for word, on in _SWITCHES.items() if word.startswith(text.lower())}
        return meant.pop() if len(meant) == 1 else None
    if isinstance(parameter.stock, str):
        return _WORDS.get(text.lower(), text.lower())
    amount = _AMOUNT.fullmatch(text)
    if amount is None or amount[2] not in UNITS:
        return None
    if text == "-1":
        return -1
    number = float(amount[1]) * UNITS[amount[2] or bare] / UNITS[parameter.unit]
    if isinstance(parameter.stock, float):
        return number
    return round(number) if abs(number - round(number)) < 1e-9 else None


def written(parameter: Parameter) -> str:
    """The expression of templates for a value."""
    name, unit = parameter.name, {"KB": "kB"}.get(parameter.unit, parameter.unit)
    if isinstance(parameter.stock, bool):
        return f'("on" if {name} else "off")'
    return f'({name} ~ "{unit}" if {name} > 0 else {name})' if unit else name
