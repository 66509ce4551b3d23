"""Parse Puma's configuration file, which is Ruby code, without running it: calls, arguments and
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotune.services.config_files import (
    Config,
    Directive,
    Word,
    build_syntax_error,
    strip_word,
)
from autotune.strict_parsing import is_uint

# A quote after a backslash starts no string, because such a quote is already inside a string.
_QUOTED_PATTERN = r"""(?<!\\)"(?:\\.|[^"\\])*"|(?<!\\)'(?:\\.|[^'\\])*'"""
_COMMENT_PATTERN = re.compile(rf"({_QUOTED_PATTERN})|(?:^|(?<=\s))#.*")
_STATEMENT_PATTERN = re.compile(
    r"[ \t]*(?:self\.)?(?P<name>[a-z_]\w*[!?]?)"
    r"(?:(?P<sign>[ \t]*=(?![=~>]))|[ \t]*\(|[ \t]+|$)(?P<rest>.*)"
)
_CONDITION_PATTERN = re.compile(r"[ \t](?:if|unless|while|until|rescue)[ \t].*")
_BLOCK_WORDS = "if|unless|case|while|until|for|begin|def|class|module|do|end"
_KEYWORD_PATTERN = re.compile(
    rf"""{_QUOTED_PATTERN}|(?<![\w.:@$])(?P<word>{_BLOCK_WORDS})(?![\w:?!=])|"""
    r"""(?P<bracket>[(\[{)\]}])|."""
)
# Most lines open and close no block, and this pattern is much faster than tokens.
_BLOCK_MARK_PATTERN = re.compile(rf"[(\[{{)\]}}]|\b(?:{_BLOCK_WORDS})\b")
_CLOSING_BRACKETS = {")": "(", "]": "[", "}": "{"}
_ENDLESS_METHOD_PATTERN = re.compile(r"\s*def\s++[\w.]++[?!]?\s*+(?:\([^)]*+\)\s*+)?+=(?![=~])")
_HEREDOC_PATTERN = re.compile(r"""<<[~-]?(["'`]?)(?P<mark>[A-Z_]\w*)\1""")
# Calls in the configuration whose effect only Ruby can determine.
_OPAQUE_PATTERN = re.compile(
    rf"""{_QUOTED_PATTERN}|(?P<call>(?:(?<![\w.])|(?<=self\.))"""
    r"""(?:instance_eval|instance_exec|eval|send|public_send|__send__)\b)"""
)
_OPERATOR_ASSIGNMENT_PATTERN = re.compile(
    r"[ \t]*(?P<name>[a-z_]\w*)[ \t]*(?:[-+*/%|&^]|\*\*|\|\||&&|<<|>>)=(?![=~])"
)
_TOKEN_PATTERN = re.compile(rf"{_QUOTED_PATTERN}|[(\[{{]|[)\]}}]|,|.")
_ENV_LOOKUP_PATTERN = re.compile(
    r"""\(?(?:Integer\()?\s*+ENV(?:
        \.fetch\(\s*+(["'])(?P<fetched>\w+)\1\s*+(?:,(?P<or>[^()]*+))?\)(?:\s*+\{(?P<block>[^{}]*+)\})?
        |\[\s*+(["'])(?P<key>\w+)\5\s*+\](?:\s*+\|\|(?P<else>[^()]*+))?+
    )\s*+\)?(?:\.to_i)?\s*+\)?""",
    re.VERBOSE,
)
_BACKLOG_PATTERN = re.compile(r"[?&]backlog=(\d+)")
# A call within a statement: in a block or branch on one line, or after an operator.
_INNER_CALL_PATTERN = re.compile(
    rf"{_QUOTED_PATTERN}|(?:[;{{|]|\b(?:then|else|do|and|or)\b|&&)\s*"
    r"(?P<name>[a-z_]+!?)(?:[ \t]+(?=[\w\"'\[])|\()"
)
_MAX_VARIABLE_DEPTH = 4  # maximum depth of variables that refer to other variables


def parse_directives(file_text: str, *, strict: bool = True) -> tuple[Directive, ...]:
    """Return each call as a directive with the call's name, and each assignment as ``name=``. A call of
    ``threads`` becomes ``min_threads`` and ``max_threads``.

    A directive's ``blocks`` are the blocks around the call, and a condition that follows the call.

    With ``strict``, raises ConfigSyntaxError for code whose blocks or calls cannot be analysed. Without
    ``strict``, blocks may lack an end, as in text with masked parts.
    """
    directives: list[Directive] = []
    block_stack = _BlockStack(file_text, strict=strict)
    for code, code_start in _list_statements(file_text):
        if strict and (
            opaque_call := next((m for m in _OPAQUE_PATTERN.finditer(code) if m["call"]), None)
        ):
            raise build_syntax_error(file_text, code_start, f"`{opaque_call['call']}` runs code")
        first_word = (code.split() or [""])[0]
        if first_word == "end" or first_word[:1] in _CLOSING_BRACKETS:
            block_stack.read_line(code, code_start, first_word)
            continue
        enclosing_blocks = block_stack.enclosing_blocks
        if change_match := _OPERATOR_ASSIGNMENT_PATTERN.match(code):
            # An operator such as `+=` assigns a second value, so the variable's value is uncertain.
            directives.append(
                Directive(
                    Word(f"{change_match['name']}=", code_start + change_match.start("name")),
                    (Word("", code_start + change_match.end()),),
                    enclosing_blocks,
                )
            )
        elif statement_match := _STATEMENT_PATTERN.fullmatch(code):
            directives += _parse_statement(statement_match, code_start, enclosing_blocks)
        directives += _list_inner_calls(code, code_start, enclosing_blocks)
        block_stack.read_line(code, code_start, first_word)
    block_stack.check_closed()
    return tuple(directives)


def _list_inner_calls(
    code: str, code_start: int, within: tuple[tuple[str, ...], ...]
) -> Iterator[Directive]:
    """Yield the calls within a statement, as calls under a condition. Their arguments are not read."""
    for call in _INNER_CALL_PATTERN.finditer(code):
        names = ("min_threads", "max_threads") if call["name"] == "threads" else (call["name"],)
        for name in filter(None, names):
            name_word = Word(name, code_start + call.start("name"))
            yield Directive(name_word, (Word("", name_word.end),), (*within, ("if",)))


class _BlockStack:
    """The open blocks and brackets in a file. Raises ConfigSyntaxError for a block or bracket without
    its counterpart.
    """

    def __init__(self, file_text: str, *, strict: bool) -> None:
        self._text, self._strict = file_text, strict
        self._open: list[tuple[str, str, int]] = []  # kind, first word of the statement, position

    @property
    def enclosing_blocks(self) -> tuple[tuple[str, ...], ...]:
        return tuple((word,) for _, word, _ in self._open)

    def read_line(self, code: str, start: int, first_word: str) -> None:
        """Update the stack of open blocks for one statement, which may open and close blocks."""
        endless_match = _ENDLESS_METHOD_PATTERN.match(code)
        open_loops, is_start = 0, True
        for token in _KEYWORD_PATTERN.finditer(code) if _BLOCK_MARK_PATTERN.search(code) else ():
            word, bracket_text = token["word"], token["bracket"]
            if bracket_text in _CLOSING_BRACKETS:
                self._close_block(_CLOSING_BRACKETS[bracket_text], start + token.start())
            elif bracket_text:
                self._open.append((bracket_text, first_word, start))
            elif word == "end":
                self._close_block("end", start + token.start())
            elif word == "do" and open_loops:
                open_loops -= 1  # the `do` of a loop does not open another block
            elif word == "do" or (word and is_start and not (word == "def" and endless_match)):
                self._open.append(("end", first_word, start))
                open_loops += word in ("while", "until", "for")
            if word or not token[0].isspace():
                # At the start of an expression, a keyword opens a block. Elsewhere, the keyword is a
                # condition.
                is_start = token[0] in ("=", "(", "[", "{", ",", "|") or word in ("begin", "do")

    def _close_block(self, block_kind: str, position: int) -> None:
        if self._open and self._open[-1][0] == block_kind:
            self._open.pop()
        elif self._strict:
            raise build_syntax_error(self._text, position, "a block that autotune cannot follow")

    def check_closed(self) -> None:
        if self._open and self._strict:
            raise build_syntax_error(self._text, self._open[-1][2], "a block without its end")


def _list_statements(file_text: str) -> Iterator[tuple[str, int]]:
    """Yield statements with their positions, without comments and heredocs."""
    is_comment, heredoc_marks = False, list[str]()
    for line_match in re.finditer(r"[^\n]+", file_text):
        stripped_line = line_match[0].strip()
        if heredoc_marks:
            heredoc_marks = heredoc_marks[stripped_line == heredoc_marks[0] :]
            continue
        code = _COMMENT_PATTERN.sub(lambda match: match[1] or "", line_match[0]).rstrip()
        first_word = (code.split() or [""])[0]
        if first_word == "__END__":
            return
        is_comment = first_word == "=begin" or (is_comment and first_word != "=end")
        if is_comment or first_word == "=end":
            continue
        heredoc_marks = [match["mark"] for match in _HEREDOC_PATTERN.finditer(code)]
        statement_offset = 0
        for statement in _split_statements(code):
            yield statement, line_match.start() + statement_offset
            statement_offset += len(statement) + 1


def _split_statements(code_line: str) -> Iterator[str]:
    """Yield the statements in a line, which are separated by semicolons outside of quotes."""
    start_position = 0
    for token in _TOKEN_PATTERN.finditer(code_line) if ";" in code_line else ():
        if token[0] == ";":
            yield code_line[start_position : token.start()]
            start_position = token.end()
    yield code_line[start_position:]


def _parse_statement(
    statement_match: re.Match[str], statement_start: int, within: tuple[tuple[str, ...], ...]
) -> Iterator[Directive]:
    name_word = Word(statement_match["name"], statement_start + statement_match.start("name"))
    rest, argument_start = statement_match["rest"], statement_start + statement_match.start("rest")
    if condition_match := _CONDITION_PATTERN.search(f" {rest}"):
        rest, within = rest[: max(condition_match.start() - 1, 0)], (*within, ("if",))
    if statement_match["sign"]:
        yield Directive(
            Word(f"{name_word.text}=", name_word.start),
            (strip_word(rest, argument_start),),
            within,
        )
        return
    argument_words = [] if rest.endswith(",") else [*_split_arguments(rest, argument_start)]
    if name_word.text == "threads":
        parameters = ("min_threads", "max_threads")
        for parameter, word in zip(
            parameters, (*argument_words, *argument_words)[:2], strict=False
        ):
            yield Directive(Word(parameter, name_word.start), (word,), within)
    elif (
        name_word.text == "bind"
        and argument_words
        and (backlog_match := _BACKLOG_PATTERN.search(argument_words[0].text))
    ):
        backlog = Word(backlog_match[1], argument_words[0].start + backlog_match.start(1))
        yield Directive(Word("backlog", name_word.start), (backlog,), within)
    yield Directive(name_word, tuple(argument_words) or (Word("", name_word.end),), within)


def _split_arguments(argument_text: str, start: int) -> Iterator[Word]:
    """Yield a call's arguments, which are separated by commas outside of brackets. The call's
    closing bracket ends the arguments.
    """
    depth, start_position, arguments_end = 0, 0, len(argument_text)
    for token in _TOKEN_PATTERN.finditer(argument_text):
        depth += (token[0] in "([{") - (token[0] in ")]}") if len(token[0]) == 1 else 0
        if depth < 0:
            arguments_end = token.start()
            break
        if token[0] == "," and depth == 0:
            yield strip_word(argument_text[start_position : token.start()], start + start_position)
            start_position = token.end()
    if argument_text[start_position:arguments_end].strip():
        yield strip_word(argument_text[start_position:arguments_end], start + start_position)


def assigns_number(directive: Directive) -> bool:
    """True if a variable is assigned a number, or an environment variable with a number as its
    default.
    """
    return directive.name.text.endswith("=") and all(
        is_uint(word.text)
        or (
            (match := _ENV_LOOKUP_PATTERN.fullmatch(word.text))
            and re.fullmatch("[0-9]*", _get_default_text(match))
        )
        for word in directive.arguments
    )


def resolve_number(
    config: Config,
    word: Word,
    variables: Mapping[str, str],
    remaining_depth: int = _MAX_VARIABLE_DEPTH,
) -> tuple[int, Word | str] | None:
    """Return the number to which ``word`` evaluates, and its source.

    The source is a word in the file, or the name of one of the environment ``variables``. Returns
    ``None`` for any other expression.
    """
    if is_uint(word.text):
        return int(word.text), word
    assignments = [placed.directive for placed in config.find_all(f"{word.text}=")]
    if len(assignments) == 1 and not assignments[0].blocks and remaining_depth:
        return resolve_number(config, assignments[0].arguments[0], variables, remaining_depth - 1)
    if lookup_match := _ENV_LOOKUP_PATTERN.fullmatch(word.text):
        name = lookup_match["fetched"] or lookup_match["key"]
        value_text = variables.get(name) or _get_default_text(lookup_match)
        resolved_number = (
            resolve_number(config, Word(value_text, word.start), variables, remaining_depth - 1)
            if remaining_depth
            else None
        )
        return (resolved_number[0], name) if resolved_number else None
    return None


def _get_default_text(lookup_match: re.Match[str]) -> str:
    """Return the default text for an environment variable in matched Ruby code."""
    return (
        (
            lookup_match["or"]
            or lookup_match["block"]
            or (lookup_match["else"] or "").strip().removesuffix(".to_i")
        )
        .strip()
        .strip("\"'")
    )
