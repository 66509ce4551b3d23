"""Environment variables of units: parse them as systemd does, and set them in place or in a
drop-in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from autotune import config_text
from autotune.services import unit_files
from autotune.services.base import Value
from autotune.services.command_line import unquoted
from autotune.services.config_files import Config, Tree, Word
from autotune.services.directives import (
    NUMBER,
    Accepts,
    Adopted,
    Edit,
    exchanged,
    joined,
    literal,
    new_file,
)
from autotune.strict import is_whole

# Usual directories of applications and environment files.
PLACES = ("srv/*", "srv/*/*", "opt/*", "opt/*/*", "var/www/*",
          "var/www/*/*", "home/*/*", "home/*/*/*")  # fmt: skip
FILES = ("etc/default/*", "etc/*.env", "etc/*/*.env",
         *(f"{place}/{name}" for place in PLACES for name in (".env", "*.env")))  # fmt: skip
_LINE = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?(?P<name>\w+)[ \t]*=[ \t]*(?P<value>[^\n]*)$")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_PLAIN = re.compile(r"""[^"'\\%\n]*""")  # text with the same meaning with and without quotes


@dataclass(frozen=True)
class Variable:
    """A variable. ``place`` is the offset of its value in the file at ``path``."""

    value: str
    path: str
    place: int


@dataclass(frozen=True)
class Environment:
    """A unit's environment. ``texts`` are the unit's files, ``unread`` its unreadable environment
    files.
    """

    unit: str
    texts: Mapping[str, str]
    variables: Mapping[str, Variable]
    unread: tuple[str, ...] = ()

    def value(self, name: str) -> str:
        """Return the value of a variable, or an empty string."""
        return self.variables[name].value if name in self.variables else ""

    def number(self, name: str) -> int | None:
        return int(self.value(name)) if is_whole(self.value(name)) else None

    @property
    def values(self) -> Mapping[str, str]:
        return {name: variable.value for name, variable in self.variables.items()}

    @property
    def drop_in(self) -> str:
        return unit_files.drop_in(self.unit)


@dataclass(frozen=True)
class Setting:
    """A parameter that is a variable's value, or the number of an ``option=`` in it.

    ``default`` is its value if unset. Without a default, only a set parameter is tuned.
    """

    parameter: str
    variable: str
    default: Value | None
    option: str = ""


def read(tree: Tree, unit: str) -> Environment:
    """Return the environment of a unit and its drop-ins. `EnvironmentFile=` overrides
    `Environment=`.
    """
    texts = {path: tree.text(path) for path in unit_files.files(tree, unit)}
    variables: dict[str, Variable] = {}
    named: list[str] = []
    for path, text in texts.items():
        for line in unit_files.read(text):
            words = [unquoted(word) for word in line.arguments]
            if line.name.text == "Environment":
                variables = {**variables, **dict(_assigned(path, words))} if words else {}
            elif line.name.text == "EnvironmentFile":
                named = [*named, *(word.text.lstrip("-") for word in words)] if words else []
    for path in named:
        content = tree.content(path)
        variables |= {line["name"]: Variable(line["value"].strip(" \t\r\"'"), path, line.start("value"))
                      for line in _LINE.finditer(content)}  # fmt: skip
    unread = (*(path for path in named if tree.real(path) not in tree.files),
              *unit_files.unfollowed(tree, unit))  # fmt: skip
    return Environment(unit, texts, variables, unread)


def words(tree: Tree, unit: str) -> tuple[str, ...]:
    """Return the words of a unit's command with variables expanded, or none if it was not read."""
    starting = unit_files.starting(tree, unit)
    written = " ".join(word.text for word in starting[1].arguments) if starting else ""
    environment = read(tree, unit)
    values = _VARIABLE.sub(lambda name: environment.value(name[1]), written)
    return tuple(word.strip("\"'") for word in values.split())


def values_of(words: Sequence[str], *options: str) -> list[str]:
    """Return the values after any of these options in a command."""
    return [value for option, value in pairwise(words) if option in options]


def _assigned(path: str, words: Iterable[Word]) -> Iterator[tuple[str, Variable]]:
    for word in words:
        name, sign, text = word.text.partition("=")
        value = unquoted(Word(text, word.start + len(name) + 1))
        if sign:
            yield name, Variable(value.text, path, value.start)


def assignments(files: Mapping[str, bytes], pattern: str) -> tuple[str, ...]:
    """Return the ``NAME=value`` assignments in a unit's ``files`` that match ``pattern``.

    Of several, the last one takes effect.
    """
    lines = (line for path, content in files.items() if path.startswith(unit_files.PLACES)
             for line in unit_files.read(config_text.decode(content))
             if line.name.text == "Environment")  # fmt: skip
    words = (unquoted(word).text for line in lines for word in line.arguments)
    return tuple(word for word in words if re.fullmatch(pattern, word))


def config(environment: Environment, main: str) -> Config:
    """Return the files of a unit as a configuration, with the drop-in that tuning may add."""
    return Config(main, {environment.drop_in: "", **environment.texts})


def tune(environment: Environment, settings: Iterable[Setting], accepts: Accepts) -> Adopted:
    """Tune variables in the host's own unit files, else in a drop-in."""
    parts: list[Adopted] = []
    lines, values = "", dict[str, Value]()
    by_variable = sorted(settings, key=lambda setting: setting.variable)
    for name, several in groupby(by_variable, key=lambda setting: setting.variable):
        adopted, pieces = _pieces(environment, name, [*several], accepts)
        variable = environment.variables.get(name)
        if variable and variable.path.startswith(f"{unit_files.PLACES[0]}/"):
            at = variable.place
            edits = (Edit(variable.path, at + start, at + end, text) for start, end, text in pieces)
            adopted = Adopted(tuple(edits), adopted.values, adopted.left)
        elif pieces:
            lines += f'Environment="{name}={exchanged(environment.value(name), pieces)}"\n'
            values |= adopted.values
        parts.append(adopted)
    if values:
        text = environment.texts.get(environment.drop_in, "")
        header = "" if text else "[Service]\n"
        parts.append(new_file(environment.drop_in, header + lines, values, len(text)))
    return joined(*parts)


_Pieces = list[tuple[int, int, str]]


def _pieces(
    environment: Environment, name: str, settings: list[Setting], accepts: Accepts
) -> tuple[Adopted, _Pieces]:
    """Return values, reasons for untuned settings, and the replacements in a variable's value."""
    adopted, pieces = Adopted(), _Pieces()
    for setting in settings:
        value, piece = _piece(environment, setting)
        if why := _reason(environment, setting, value):
            adopted.left[setting.parameter] = why
        elif value is None or not accepts(setting.parameter, value):
            adopted.left[setting.parameter] = f"`{name}` has no valid baseline value"
        else:
            adopted.values[setting.parameter] = value
            pieces.append(piece)
    return adopted, pieces


def _piece(environment: Environment, setting: Setting) -> tuple[Value | None, tuple[int, int, str]]:
    """Return the current value, and the part of the variable's text that follows the parameter.

    The part includes its template text.
    """
    text, parameter = environment.value(setting.variable), setting.parameter
    option = setting.option.replace("-", "[-_]")  # both spellings are valid
    options = list(re.finditer(rf"(?<!\S){option}=(\d+)(?!\S)", text)) if option else []
    number = options[-1] if options else None  # the last one takes effect
    start = number.start(1) if number else 0
    written = number[1] if number else "" if setting.option else text
    if written:
        value = NUMBER.read(written)
        if value is None:
            return None, (0, 0, "")
        length, expression = NUMBER.expression(parameter, written, value)
        return value, (start, start + length, expression)
    if not setting.option:
        default = None if setting.variable in environment.variables else setting.default
        return default, (0, 0, f"{{{{ {parameter} }}}}")
    space = " " if text else ""
    own = f'"{space}{setting.option}=" ~ {parameter}'
    condition = f"{parameter} != {literal(setting.default or 0)}"
    return setting.default, (len(text), len(text), f'{{{{ {own} if {condition} else "" }}}}')


def _reason(environment: Environment, setting: Setting, value: Value | None) -> str:
    """Return the reason why a setting is not tuned, or an empty string."""
    name, variable = setting.variable, environment.variables.get(setting.variable)
    if variable is None and environment.unread:
        return f"{environment.unread[0]} was not read and may set `{name}`"
    if variable and variable.path not in environment.texts:
        return f"{variable.path} sets `{name}`: move it to `Environment=` in the unit to tune it"
    if variable and not _PLAIN.fullmatch(variable.value):
        return f"`{name}` is not plain text"
    if value is None and not (variable and not setting.option):
        return f"`{setting.option or name}` is missing"
    return ""
