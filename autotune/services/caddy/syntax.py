"""Syntax of Caddyfiles: one directive per line, and blocks in braces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.services.config_files import Directive, Word, build_syntax_error, tokenize

# A comment starts where a word could start, and only a whole word can be quoted. A backslash at the
# end of a line continues the line.
_TOKEN_PATTERN = re.compile(
    r"""(?P<space>(?:[^\S\n]|\\\r?\n|\ufeff)+)|(?P<end>\n)|(?P<comment>\#[^\n]*)"""
    r"""|(?P<word>"(?:\\.|[^"\\])*"|`[^`]*`|<<(?P<mark>[\w-]+)\r?\n(?:.*?\n)??[^\S\n]*(?P=mark)"""
    r"""|(?!["`]|<<[\w-])(?:\\(?!\r?\n)|[^\s\\])+)""",
    re.DOTALL,
)
# Names of the blocks at the top level of a file. A site counts as a directive whose arguments are the
# site's addresses.
OPTIONS, SITE, SNIPPET = "options", "site", "snippet"
# Directives that an imported file may contain outside of blocks, and names of snippets. All other
# words in these positions are addresses.
SITE_DIRECTIVE_PATTERN = re.compile(
    r"abort|acme_server|basic_?auth|bind|encode|error|file_server|forward_auth|fs|handle|handle_errors"
    r"|handle_path|header|import|intercept|invoke|log|log_append|log_name|log_skip|map|method|metrics"
    r"|php_fastcgi|push|redir|request_body|request_header|respond|reverse_proxy|rewrite|root|route"
    r"|skip_log|templates|tls|tracing|try_files|uri|vars|\(.*"
)
MAX_BLOCK_DEPTH = 100  # each directive stores the words of all blocks around it


def parse_directives(file_text: str) -> Iterator[Directive]:
    """Yield every directive, with each block before the directives inside it. Raises
    ConfigSyntaxError.
    """
    blocks: list[tuple[str, ...]] = []
    lacks_braces = False  # a file's only site needs no braces
    for line_words in _list_lines(file_text):
        opens_block = line_words[-1].text == "{"
        if line_words[0].text == "}" and len(blocks) > lacks_braces:
            blocks.pop()
            continue
        arguments = tuple(line_words[1 : len(line_words) - opens_block])
        directive = Directive(line_words[0], arguments, tuple(blocks))
        if not blocks and not SITE_DIRECTIVE_PATTERN.fullmatch(line_words[0].text):
            is_site = line_words[0].text != "{"
            name = Word(SITE if is_site else OPTIONS, line_words[0].start)
            directive = Directive(name, (line_words[0], *arguments) if is_site else ())
            lacks_braces = not opens_block
        word_texts = [word.text for word in (directive.name, *directive.arguments)]
        if "{" in word_texts or "}" in word_texts or len(blocks) > MAX_BLOCK_DEPTH:
            raise build_syntax_error(file_text, line_words[0].start, "an unexpected brace")
        yield directive
        if opens_block or (lacks_braces and not blocks):
            blocks.append(
                (SNIPPET if word_texts[0].startswith("(") else word_texts[0], *word_texts[1:])
            )
    if len(blocks) > lacks_braces:
        raise build_syntax_error(file_text, len(file_text), "the file ends within a block")


def _list_lines(file_text: str) -> Iterator[list[Word]]:
    """Yield the words of each line, without empty lines. Raises ConfigSyntaxError.

    A comma at the end of a line continues a list of addresses.
    """
    line_words: list[Word] = []
    for token in tokenize(file_text, _TOKEN_PATTERN, "an unclosed quote"):
        if token["word"]:
            line_words.append(Word(token["word"].rstrip(",") or ",", token.start()))
        elif token["end"] and line_words and not file_text.startswith(",", line_words[-1].end):
            yield line_words
            line_words = []
    if line_words:
        yield line_words
