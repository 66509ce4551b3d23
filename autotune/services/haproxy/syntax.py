"""Syntax of HAProxy's files: one directive per line, in sections that start with a keyword."""

from __future__ import annotations

import re
from itertools import pairwise

from autotune.services.config_files import Directive, Word, build_syntax_error

PROXY_SECTIONS = ("defaults", "frontend", "backend", "listen")
# Other sections may contain servers, addresses and timeouts that do not concern the site's requests.
TUNED_SECTIONS = ("global", *PROXY_SECTIONS)
SECTION_NAMES = frozenset(
    (*TUNED_SECTIONS, "userlist", "peers", "resolvers", "mailers", "cache", "program", "ring",
     "http-errors", "fcgi-app", "log-forward", "log-profile", "crt-store", "traces", "acme")
)  # fmt: skip
_TWO_WORD_DIRECTIVES = ("timeout", "option", "stats")  # directives whose names consist of two words
# Options in these directives count as separate directives. For example, the directive `server maxconn`
# is the option `maxconn` on a `server`, `default-server` or `server-template` line.
_OPTION_OWNERS = {
    "bind": "bind",
    "server": "server",
    "default-server": "server",
    "server-template": "server",
}
# A space ends a word and `#` ends a line, unless they are quoted or escaped.
_TOKEN_PATTERN = re.compile(
    r"""(?P<space>[^\S\n]+)|(?P<end>(?:\#[^\n]*)?(?:\n|$))"""
    r"""|(?P<word>(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\\[^\n]|[^\s\#"'\\])+)"""
)


def parse_directives(file_text: str) -> tuple[Directive, ...]:
    """Return the headers of all sections and the directives of ``TUNED_SECTIONS``, in the order of the
    file. Raises ConfigSyntaxError.
    """
    directives: list[Directive] = []
    enclosing_section: tuple[tuple[str, ...], ...] = ()
    line_words: list[Word] = []
    position = 0
    while position < len(file_text) or line_words:
        token = _TOKEN_PATTERN.match(file_text, position)
        if token is None or (token["word"] and not line_words and token["word"].startswith(".")):
            raise build_syntax_error(
                file_text, position, "an unclosed quote, or a conditional block"
            )
        if token["word"]:
            line_words.append(Word(token["word"], position))
        elif line_words and not token["space"]:
            name, rest = line_words[0], line_words[1:]
            if name.text in SECTION_NAMES:
                enclosing_section = ()
            elif name.text in _TWO_WORD_DIRECTIVES and rest:
                name, rest = Word(f"{name.text} {rest[0].text}", name.start), rest[1:]
            if not enclosing_section or enclosing_section[0][0] in TUNED_SECTIONS:
                directives.append(Directive(name, tuple(rest), enclosing_section))
                option_owner = _OPTION_OWNERS.get(name.text)
                for option, value_word in pairwise(rest) if option_owner else ():
                    full_name = Word(f"{option_owner} {option.text}", option.start)
                    directives.append(Directive(full_name, (value_word,), enclosing_section))
            if name.text in SECTION_NAMES:
                enclosing_section = (tuple(word.text for word in line_words),)
            line_words = []
        position = token.end()
    return tuple(directives)
