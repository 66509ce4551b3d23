"""The syntax of uWSGI's .ini files: an option a line, in sections; of several the last counts."""

from __future__ import annotations

import re

from autotune.services.config_files import Directive, Word

SECTION = "[uwsgi]"
_LINE = re.compile(
    r"(?m)^[ \t]*(?:(?P<section>\[[^\]\n]*\])|(?P<name>[\w.-]+)[ \t]*=[ \t]*(?P<value>[^\n]*?))[ \t\r]*$"
)
# Options for which the manual has two names.
_SAME = {"workers": "processes", "p": "processes", "http-socket": "socket", "uwsgi-socket": "socket",
         "l": "listen", "t": "harakiri", "R": "max-requests"}  # fmt: skip
_OPENS, _CLOSES = re.compile(r"if-.*|for(-.*)?"), ("endif", "endfor")


def called(name: str) -> str:
    """The first of an option's names."""
    return _SAME.get(name, name)


def read(text: str) -> tuple[Directive, ...]:
    """The section itself and its options, under the first of their names; a value is one word, spaces
    included. ``within`` is the condition or loop around an option."""
    directives: list[Directive] = []
    section, within = "", tuple[tuple[str, ...], ...]()
    for line in _LINE.finditer(text):
        if line["section"] is not None:
            section = line["section"]
            directives += [Directive(Word(section, line.start("section")))] * (section == SECTION)
        elif section == SECTION:
            name = called(line["name"])
            within = () if name in _CLOSES else within
            value = (Word(line["value"], line.start("value")),) if line["value"] else ()
            directives.append(Directive(Word(name, line.start("name")), value, within))
            within = ((name,),) if _OPENS.fullmatch(name) else within
    return tuple(directives)


def included(directive: Directive) -> str | None:
    """What an option reads beside its own file."""
    named = directive.name.text in ("ini", "include", "inherit") and directive.arguments
    return directive.arguments[0].text if named else None
