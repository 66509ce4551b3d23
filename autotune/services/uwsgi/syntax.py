"""Syntax of uWSGI's .ini files: one option per line, in sections. The last occurrence of an option
takes effect.
"""

from __future__ import annotations

import re

from autotune.services.config_files import Directive, Word

SECTION_HEADER = "[uwsgi]"
_LINE_PATTERN = re.compile(
    r"(?m)^[ \t]*(?:(?P<section>\[[^\]\n]*\])"
    r"|(?P<name>[\w.-]+)[ \t]*=[ \t]*(?P<value>(?:[^\n]*[^ \t\r\n])?))[ \t\r]*$"
)
# Options that have two names in the manual.
_OPTION_ALIASES = {
    "workers": "processes",
    "p": "processes",
    "http-socket": "socket",
    "uwsgi-socket": "socket",
    "https-socket": "https",
    "l": "listen",
    "t": "harakiri",
    "R": "max-requests",
}
_BLOCK_START_PATTERN, _BLOCK_END_NAMES = re.compile(r"if-.*|for(-.*)?"), ("endif", "endfor")


INCLUDE_OPTIONS = ("ini", "include", "inherit", "import", "ini-paste", "yaml", "json", "xml")


def list_names(option_name: str) -> tuple[str, ...]:
    """Return the long names of an option."""
    aliases = (alias for alias, name in _OPTION_ALIASES.items() if name == option_name)
    return (option_name, *(alias for alias in aliases if len(alias) > 1))


def get_canonical_name(option_name: str) -> str:
    """Return the name under which autotune handles an option, which may have several names."""
    return _OPTION_ALIASES.get(option_name, option_name)


def parse_directives(file_text: str) -> tuple[Directive, ...]:
    """Return the header of the section `[uwsgi]`, and the section's options by canonical name. A
    value is a single word that may contain spaces.

    The ``blocks`` of an option contain the condition or loop around the option.
    """
    directives: list[Directive] = []
    section, enclosing_blocks = "", tuple[tuple[str, ...], ...]()
    for line in _LINE_PATTERN.finditer(file_text):
        if line["section"] is not None:
            section = line["section"]
            directives += [Directive(Word(section, line.start("section")))] * (
                section == SECTION_HEADER
            )
        elif section == SECTION_HEADER:
            option_name = get_canonical_name(line["name"])
            enclosing_blocks = () if option_name in _BLOCK_END_NAMES else enclosing_blocks
            value_words = (Word(line["value"], line.start("value")),) if line["value"] else ()
            directives.append(
                Directive(Word(option_name, line.start("name")), value_words, enclosing_blocks)
            )
            enclosing_blocks = (
                ((option_name,),)
                if _BLOCK_START_PATTERN.fullmatch(option_name)
                else enclosing_blocks
            )
    return tuple(directives)


def parse_include(directive: Directive) -> str | None:
    """Return the path of an additional file that an option includes, or ``None``."""
    is_include = directive.name.text in INCLUDE_OPTIONS and directive.arguments
    include_path = directive.arguments[0].text if is_include else ""
    return include_path if include_path and ":" not in include_path else None
