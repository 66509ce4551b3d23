"""Syntax of nginx's files: a directive consists of words, and ends with ``;`` or with a block in
braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.services.config_files import Directive, Word, build_syntax_error, tokenize

# nginx's lexical rules: a comment starts where a word could start. Within a word, `#`, `}`, quotes
# and the brace in `${` are ordinary characters. Other literal braces must be quoted.
_TOKEN_PATTERN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>\#[^\n]*)|(?P<mark>[;{}])"""
    r"""|(?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
    r"""|(?:\\.|\$\{|[^\s;{}\\"'])(?:\\.|\$\{|[^\s;{\\])*)""",
    re.DOTALL,
)
# Blocks with these names contain Lua code, in which strings and comments may contain braces. A string
# or comment without an end is matched up to the end of the line or file: Lua refuses such code.
_LUA_BLOCK_PATTERN = re.compile(r"\w+_by_lua_block")
_LUA_TOKEN_PATTERN = re.compile(
    r"""--\[(?P<comment>=*)\[.*?(?:\](?P=comment)\]|\Z)|--[^\n]*"""
    r"""|\[(?P<long>=*)\[.*?(?:\](?P=long)\]|\Z)"""
    r"""|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|(?P<mark>[{}])|.""",
    re.DOTALL,
)
# maximum nesting depth of blocks; each directive stores the words of all blocks around it
MAX_BLOCK_DEPTH = 100


def parse_directives(file_text: str) -> Iterator[Directive]:
    """Yield every directive, with each block before the directives inside it. Raises
    ConfigSyntaxError.
    """
    blocks: list[tuple[str, ...]] = []
    directive_words: list[Word] = []
    for token in _list_tokens(file_text):
        position = token.start()
        if token["word"]:
            directive_words.append(Word(token["word"], position))
        elif token["mark"] == "}":
            if directive_words or not blocks:
                raise build_syntax_error(file_text, position, "unexpected `}`")
            blocks.pop()
        elif token["mark"]:
            if not directive_words:
                raise build_syntax_error(
                    file_text, position, f"`{token['mark']}` without a directive before it"
                )
            yield Directive(directive_words[0], tuple(directive_words[1:]), tuple(blocks))
            if token["mark"] == "{":
                blocks.append(tuple(word.text for word in directive_words))
            directive_words = []
            if len(blocks) > MAX_BLOCK_DEPTH:
                raise build_syntax_error(
                    file_text, position, f"more than {MAX_BLOCK_DEPTH} nested blocks"
                )
    if directive_words or blocks:
        raise build_syntax_error(
            file_text, len(file_text), "the file ends within a directive or a block"
        )


def _list_tokens(file_text: str) -> Iterator[re.Match[str]]:
    """Yield nginx's tokens. The code in Lua blocks is skipped. Raises ConfigSyntaxError."""
    position, name = 0, ""
    while position < len(file_text):
        for token in tokenize(file_text, _TOKEN_PATTERN, "an unclosed quote or escape", position):
            yield token
            position = token.end()
            if token["mark"] == "{" and _LUA_BLOCK_PATTERN.fullmatch(name):
                position = _find_lua_end(file_text, position)
                break
            name = "" if token["mark"] else name or token["word"] or ""


def _find_lua_end(file_text: str, start: int) -> int:
    """Return the position of the brace that closes Lua code. Raises ConfigSyntaxError."""
    depth = 0
    for token in _LUA_TOKEN_PATTERN.finditer(file_text, start):
        if token["mark"] == "}" and not depth:
            return token.start()
        depth += {"{": 1, "}": -1}.get(token["mark"] or "", 0)
    raise build_syntax_error(file_text, start, "a Lua block without its `}`")
