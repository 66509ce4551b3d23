"""The syntax of option files: ``name = value`` under ``[group]``, and ``!include`` lines."""

from __future__ import annotations

import re

from autotune.services.command_line import unquoted
from autotune.services.config_files import Directive, Word, tokens

# Groups are not repeated possessively: Python before 3.11.5, Debian 12's, gets that wrong (gh-106052).
# A comment begins with a `#` outside of quotes, or with a `;` at the start of a line.
_LINE = re.compile(
    r"""[^\S\n]*+(?:\[(?P<group>[^\]\n]*)\][^\n]*+"""
    r"""|(?P<include>!include(?:dir)?)[^\S\n]+(?P<path>[^\n]*+)|(?:(?P<name>[A-Za-z][\w.-]*+)[^\S\n]*+(?:=[^\S\n]*+"""
    r"""(?P<value>(?:"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'|[^\n\#"'])*))?|;[^\n]*+)?"""
    r"""(?:\#[^\n]*+)?)(?:\n|$)"""
)


def read(text: str) -> tuple[Directive, ...]:
    """Every group, include and option, names with ``_`` for ``-``. Raises Unreadable."""
    directives: list[Directive] = []
    within: tuple[tuple[str, ...], ...] = ()
    for line in tokens(text, _LINE, "this is no option"):
        if line["group"] is not None:
            within = ((line["group"].strip(),),)
            header = Word(f"[{within[0][0]}]", line.start("group") - 1)
            directives.append(Directive(header, (), within))
        elif line["include"]:
            path = Word(line["path"].rstrip(), line.start("path"))
            directives.append(Directive(Word(line["include"], line.start("include")), (path,)))
        elif line["name"]:
            name = line["name"].replace("-", "_").removeprefix("loose_")
            value = unquoted(Word((line["value"] or "").rstrip(), line.start("value")))
            arguments = (value,) if value.text else ()
            directives.append(Directive(Word(name, line.start("name")), arguments, within))
    return tuple(directives)


def included(directive: Directive) -> str | None:
    """What a line includes: a file, or those of a directory that end in `.cnf`."""
    path = directive.arguments[0].text if directive.arguments else ""
    patterns = {"!include": path, "!includedir": f"{path.rstrip('/')}/*.cnf"}
    return patterns.get(directive.name.text) if path else None
