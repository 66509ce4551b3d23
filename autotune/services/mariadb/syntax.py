"""Syntax of MariaDB's option files: ``name = value`` under ``[group]``, and ``!include`` lines."""

from __future__ import annotations

import re

from autotune.services.command_line import unquote_word
from autotune.services.config_files import Directive, Word, tokenize

# Python before 3.11.5 (Debian 12) mishandles possessive groups (gh-106052), so the pattern contains no
# such groups. Comments start with `#` outside of quotes, or with `;` at the start of a line.
_LINE_PATTERN = re.compile(
    r"""[^\S\n]*+(?:\[(?P<group>[^\]\n]*)\][^\n]*+"""
    r"""|(?P<include>!include(?:dir)?)[^\S\n]+(?P<path>[^\n]*+)|(?:(?P<name>[A-Za-z][\w.-]*+)[^\S\n]*+(?:=[^\S\n]*+"""
    r"""(?P<value>(?:"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'|[^\n\#"'])*))?|;[^\n]*+)?"""
    r"""(?:\#[^\n]*+)?)(?:\n|$)"""
)


def parse_directives(file_text: str) -> tuple[Directive, ...]:
    """Return every group, include and option, with ``-`` in names replaced by ``_``. Raises
    ConfigSyntaxError.
    """
    directives: list[Directive] = []
    enclosing_blocks: tuple[tuple[str, ...], ...] = ()
    for line in tokenize(file_text, _LINE_PATTERN, "not a valid option line"):
        if line["group"] is not None:
            # MariaDB ignores blanks after a group's name, but not before it.
            enclosing_blocks = ((line["group"].rstrip(),),)
            header_word = Word(f"[{enclosing_blocks[0][0]}]", line.start("group") - 1)
            directives.append(Directive(header_word, (), enclosing_blocks))
        elif line["include"]:
            path_word = Word(line["path"].rstrip(), line.start("path"))
            directives.append(Directive(Word(line["include"], line.start("include")), (path_word,)))
        elif line["name"]:
            option_name = line["name"].replace("-", "_").removeprefix("loose_")
            value_word = unquote_word(Word((line["value"] or "").rstrip(), line.start("value")))
            arguments = (value_word,) if value_word.text else ()
            directives.append(
                Directive(Word(option_name, line.start("name")), arguments, enclosing_blocks)
            )
    return tuple(directives)


def parse_include(directive: Directive) -> str | None:
    """Return the path pattern that a line includes: a file, or all `.cnf` files in a directory."""
    path = directive.arguments[0].text if directive.arguments else ""
    patterns = {"!include": path, "!includedir": f"{path.rstrip('/')}/*.cnf"}
    return patterns.get(directive.name.text) if path else None
