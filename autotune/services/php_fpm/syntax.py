"""Syntax of the files of PHP-FPM and PHP: ``name = value`` under ``[section]``."""

from __future__ import annotations

import re

from autotune.services.config_files import Directive, Word, build_syntax_error

_LOG_PREFIX_PATTERN = re.compile(r"(?m)^\[[^\]\n]*\] NOTICE: ")
_LINE_PATTERN = re.compile(r"[^\n]*(?:\n|$)")
_SECTION_PATTERN = re.compile(r"\s*\[([^\]\n]*)\]")
_NAME_PATTERN = re.compile(r"\s*([^\s=;\[\]]+(?:\[[^\]\n]*\])?)\s*")
# A value extends to the end of the line, or to a comment that starts outside of quotes.
_VALUE_PATTERN = re.compile(
    r"""=[ \t]*((?:(?<!\\)"(?:\\.|[^"\\])*"|'[^']*'|[^;"'\r\n])*)""", re.DOTALL
)


def parse_directives(file_text: str) -> tuple[Directive, ...]:
    """Return every assignment, with its value as the only argument. Raises ConfigSyntaxError."""
    assignments: list[Directive] = []
    enclosing_blocks: tuple[tuple[str, ...], ...] = ()
    position = 0
    while position < len(file_text):
        line_match = _LINE_PATTERN.match(file_text, position)
        assert line_match is not None
        line_end = line_match.end()
        if section_match := _SECTION_PATTERN.match(file_text, position, line_end):
            enclosing_blocks = ((section_match[1].strip(),),)
        elif line_match[0].strip() and not line_match[0].lstrip().startswith((";", "#")):
            name = _NAME_PATTERN.match(file_text, position, line_end)
            if name is None:
                raise build_syntax_error(file_text, position, "not an assignment")
            value = _VALUE_PATTERN.match(file_text, name.end())
            argument = value and Word(value[1].rstrip(), value.start(1))
            arguments = (argument,) if argument and argument.text else ()
            assignments.append(Directive(Word(name[1], name.start(1)), arguments, enclosing_blocks))
            if value and value.end() > line_end:  # a quoted value that spans several lines
                line_end = _LINE_PATTERN.match(file_text, value.end()).end()  # type: ignore[union-attr]  # matches ""
        position = line_end
    return tuple(assignments)


def parse_log(log_text: str) -> tuple[Directive, ...]:
    """Return the configuration in the log of ``php-fpm -tt``."""
    return parse_directives(_LOG_PREFIX_PATTERN.sub("", log_text))
