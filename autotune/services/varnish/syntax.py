"""Syntax of varnishd's options, and of backends in VCL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename

from autotune.services.command_line import unquote_word
from autotune.services.config_files import Directive, Word

_FLAG_LETTERS = "CdFV"  # letters of options without a value
_COMMENT_PATTERN = re.compile(r"/\*.*?(?:\*/|\Z)|(?m:(?:^|(?<=\s))//[^\n]*|\#[^\n]*)", re.DOTALL)
_BACKEND_PATTERN = re.compile(
    r'\bbackend\s+\w+\s*\{(?P<backend>.*?)(?=\bbackend\s+\w+\s*\{|\bsub\s|\Z)|\binclude\s+(?P<file>"[^"\n]*")',
    re.DOTALL,
)


def is_program(word: Word) -> bool:
    """True if a word in a command is varnishd. Programs such as ``nice`` may precede varnishd."""
    return basename(unquote_word(word).text.lstrip("-@:+!")) == "varnishd"


def parse_options(command_words: tuple[Word, ...]) -> Iterator[Directive]:
    """Yield the program's name, then varnishd's options with their values: `-p NAME` and `-s
    KIND`.
    """
    remaining_words = map(unquote_word, command_words)
    program = next(filter(is_program, remaining_words), None)
    if program is None:
        return
    yield Directive(Word("varnishd", program.start))
    for word in remaining_words:
        if not word.text.startswith("-") or word.text[1:2] in _FLAG_LETTERS:
            yield Directive(word)
            continue
        option, value = word.text[:2], unquote_word(Word(word.text[2:], word.start + 2))
        if not value.text:
            value = unquote_word(next(remaining_words, value))
        separator = {"-p": "=", "-s": ","}.get(option, "")
        before, sign, after = value.text.partition(separator) if separator else ("", "", value.text)
        if separator:
            option = f"{option} {before}"
        yield Directive(
            Word(option, word.start),
            (Word(after, value.start + len(before) + len(sign)),) if after else (),
        )


def parse_vcl(vcl_text: str) -> tuple[Directive, ...]:
    """Return the backends in VCL text as ``backend host:port``, and its includes."""
    bare_text = _COMMENT_PATTERN.sub("", vcl_text)
    return tuple(_parse_backend(match) for match in _BACKEND_PATTERN.finditer(bare_text))


def _parse_backend(backend_match: re.Match[str]) -> Directive:
    if backend_match["file"]:
        return Directive(
            Word("include", backend_match.start()),
            (Word(backend_match["file"], backend_match.start("file")),),
        )
    host, port = (
        re.search(rf'\.{name}\s*=\s*"([^"]*)"', backend_match["backend"])
        for name in ("host", "port")
    )
    port_number = port[1] if port and port[1] != "http" else "80"
    backend_address = f"{host[1]}:{port_number}" if host else ""
    return Directive(
        Word("backend", backend_match.start()), (Word(backend_address, backend_match.start()),)
    )
