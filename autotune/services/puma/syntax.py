"""Parse Puma's configuration file, which is Ruby, without executing it: calls, arguments, numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotune.services.config_files import Config, Directive, Word, strip_word
from autotune.strict_parsing import is_uint

_QUOTED_PATTERN = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
_COMMENT_PATTERN = re.compile(rf"({_QUOTED_PATTERN})|(?:^|(?<=\s))#.*")
_STATEMENT_PATTERN = re.compile(
    r"[ \t]*(?P<name>[a-z_]\w*[!?]?)(?:(?P<sign>[ \t]*=(?![=~>]))|[ \t]*\(|[ \t]+|$)(?P<rest>.*)"
)
_CONDITION_PATTERN = re.compile(r"[ \t](?:if|unless|while|until|rescue)[ \t].*")
_BLOCK_START_PATTERN = re.compile(
    r"(?:if|unless|case|while|until|for|begin|def|class|module)\b"
    r"|.*(?:=\s*(?:if|unless|case|begin)\b.*|(?:\bdo|\{)\s*(?:\|[^|]*\|)?|[\[(])$"
)
_BLOCK_END_PATTERN = re.compile(r"end\b|[}\])]")
_TOKEN_PATTERN = re.compile(rf"{_QUOTED_PATTERN}|[(\[{{]|[)\]}}]|,|.")
_ENV_LOOKUP_PATTERN = re.compile(
    r"""\(?(?:Integer\()?\s*ENV(?:
        \.fetch\(\s*(["'])(?P<fetched>\w+)\1\s*(?:,\s*(?P<or>[^()]*?)\s*)?\)(?:\s*\{\s*(?P<block>[^{}]*?)\s*\})?
        |\[\s*(["'])(?P<key>\w+)\5\s*\](?:\s*\|\|\s*(?P<else>[^()]*?))?
    )\s*\)?(?:\.to_i)?\s*\)?""",
    re.VERBOSE,
)
_BACKLOG_PATTERN = re.compile(r"[?&]backlog=(\d+)")
_MAX_VARIABLE_DEPTH = 4  # levels of variables that refer to variables


def parse_directives(text: str) -> tuple[Directive, ...]:
    """Return calls by name, ``threads`` as ``min_threads`` and ``max_threads``; assignments as
    ``name=``. ``within`` lists the blocks around a call, and a condition after it."""
    directives: list[Directive] = []
    within: list[tuple[str, ...]] = []
    is_comment = False
    for line in re.finditer(r"[^\n]+", text):
        code = _COMMENT_PATTERN.sub(lambda match: match[1] or "", line[0]).rstrip()
        words = code.split() or [""]
        if words[0] == "__END__":
            break
        is_comment = words[0] == "=begin" or (is_comment and words[0] != "=end")
        if is_comment:
            continue
        opens = _BLOCK_START_PATTERN.match(code.strip()) and words[-1] != "end"
        if _BLOCK_END_PATTERN.match(words[0]) and within:
            within.pop()
        if statement := _STATEMENT_PATTERN.fullmatch(code):
            directives += _parse_statement(statement, line.start(), tuple(within))
        if opens:
            within.append((words[0],))
    return tuple(directives)


def _parse_statement(
    statement: re.Match[str], start: int, within: tuple[tuple[str, ...], ...]
) -> Iterator[Directive]:
    name = Word(statement["name"], start + statement.start("name"))
    rest, location = statement["rest"], start + statement.start("rest")
    if condition := _CONDITION_PATTERN.search(f" {rest}"):
        rest, within = rest[: max(condition.start() - 1, 0)], (*within, ("if",))
    if statement["sign"]:
        yield Directive(Word(f"{name.text}=", name.start), (strip_word(rest, location),), within)
        return
    words = [] if rest.endswith(",") else [*_split_arguments(rest, location)]
    if name.text == "threads":
        for own, word in zip(("min_threads", "max_threads"), (*words, *words)[:2], strict=False):
            yield Directive(Word(own, name.start), (word,), within)
    elif name.text == "bind" and words and (size := _BACKLOG_PATTERN.search(words[0].text)):
        backlog = Word(size[1], words[0].start + size.start(1))
        yield Directive(Word("backlog", name.start), (backlog,), within)
    yield Directive(name, tuple(words) or (Word("", name.end),), within)


def _split_arguments(text: str, start: int) -> Iterator[Word]:
    """Yield a call's arguments, split at commas outside of brackets. Its own bracket ends them."""
    depth, begin, end = 0, 0, len(text)
    for token in _TOKEN_PATTERN.finditer(text):
        depth += (token[0] in "([{") - (token[0] in ")]}") if len(token[0]) == 1 else 0
        if depth < 0:
            end = token.start()
            break
        if token[0] == "," and depth == 0:
            yield strip_word(text[begin : token.start()], start + begin)
            begin = token.end()
    if text[begin:end].strip():
        yield strip_word(text[begin:end], start + begin)


def assigns_number(directive: Directive) -> bool:
    """True if a variable is assigned a number, or an environment variable with a numeric default."""
    return directive.name.text.endswith("=") and all(
        is_uint(word.text)
        or (
            (match := _ENV_LOOKUP_PATTERN.fullmatch(word.text))
            and re.fullmatch("[0-9]*", _default_text(match))
        )
        for word in directive.arguments
    )


def resolve_number(
    config: Config, word: Word, variables: Mapping[str, str], depth: int = _MAX_VARIABLE_DEPTH
) -> tuple[int, Word | str] | None:
    """Return the number that ``word`` stands for, and its source. The source is a word of the file,
    or the name of one of these environment ``variables``. Returns ``None`` for other
    expressions."""
    if is_uint(word.text):
        return int(word.text), word
    assigned = [placed.directive for placed in config.find_all(f"{word.text}=")]
    if len(assigned) == 1 and not assigned[0].blocks and depth:
        return resolve_number(config, assigned[0].arguments[0], variables, depth - 1)
    if match := _ENV_LOOKUP_PATTERN.fullmatch(word.text):
        name = match["fetched"] or match["key"]
        text = variables.get(name) or _default_text(match)
        value = (
            resolve_number(config, Word(text, word.start), variables, depth - 1) if depth else None
        )
        return (value[0], name) if value else None
    return None


def _default_text(match: re.Match[str]) -> str:
    """Return the default of an environment variable."""
    return (match["or"] or match["block"] or match["else"] or "").strip("\"'")
