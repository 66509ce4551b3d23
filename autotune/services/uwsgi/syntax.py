"""Syntax of uWSGI's .ini files: one option per line, in sections. The last occurrence takes effect."""

from __future__ import annotations

import re

from autotune.services.config_files import Directive, Word

SECTION = "[uwsgi]"
_LINE = re.compile(
    r"(?m)^[ \t]*(?:(?P<section>\[[^\]\n]*\])|(?P<name>[\w.-]+)[ \t]*=[ \t]*(?P<value>[^\n]*?))[ \t\r]*$"
)
# Options with two names in the manual.
_SAME = {"workers": "processes", "p": "processes", "http-socket": "socket", "uwsgi-socket": "socket",
         "l": "listen", "t": "harakiri", "R": "max-requests"}  # fmt: skip
_OPENS, _CLOSES = re.compile(r"if-.*|for(-.*)?"), ("endif", "endfor")


def called(name: str) -> str:
    """Return the canonical name of an option."""
    return _SAME.get(name, name)


def read(text: str) -> tuple[Directive, ...]:
    """Return the section and its options by canonical name. A value is one word with its spaces.

    ``within`` is the condition or loop around an option.
    """
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
    """Return the path of an additional file that an option includes."""
    named = directive.name.text in ("ini", "include", "inherit") and directive.arguments
    return directive.arguments[0].text if named else None
