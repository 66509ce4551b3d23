"""Syntax of HAProxy's files: one directive per line, in sections that start with a keyword."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from autotune.services.config_files import Directive, Word, build_syntax_error, tokenize

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
OPTION_OWNERS = {
    "bind": "bind",
    "server": "server",
    "default-server": "server",
    "server-template": "server",
}
_SYNTAX_MESSAGE = "an unclosed quote, or a conditional block"
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
    section: tuple[tuple[str, ...], ...] = ()
    for words in _split_lines(file_text):
        name, rest = words[0], words[1:]
        if name.text.startswith("."):
            raise build_syntax_error(file_text, name.start, _SYNTAX_MESSAGE)
        if name.text in SECTION_NAMES:
            directives.append(Directive(name, tuple(rest)))
            section = (tuple(word.text for word in words),)
        elif not section or section[0][0] in TUNED_SECTIONS:
            if name.text in _TWO_WORD_DIRECTIVES and rest:
                name, rest = Word(f"{name.text} {rest[0].text}", name.start), rest[1:]
            directives.append(Directive(name, tuple(rest), section))
            option_owner = OPTION_OWNERS.get(name.text)
            directives += (
                Directive(Word(f"{option_owner} {option.text}", option.start), (value,), section)
                for option, value in (pairwise(rest) if option_owner else ())
            )
    return tuple(directives)


def _split_lines(file_text: str) -> Iterator[list[Word]]:
    """Yield the words of each line that contains any. Raises ConfigSyntaxError."""
    line_words: list[Word] = []
    for token in tokenize(f"{file_text}\n", _TOKEN_PATTERN, _SYNTAX_MESSAGE):
        if token["word"]:
            line_words.append(Word(token["word"], token.start()))
        elif line_words and not token["space"]:
            yield line_words
            line_words = []
