"""Rules that determine which parts of a service's files may be shown.

The names of directives may be shown, and so may the arguments of directives that autotune tunes or
reads. All other text in a host's file never leaves the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from autotune.masking import Outliner, Span, TextOutline
from autotune.services import unit_files
from autotune.services.command_line import unquote_word
from autotune.services.config_files import ConfigSyntaxError, Directive, DirectiveParser, Word

# Parses the words of a command in a unit.
OptionParser = Callable[[tuple[Word, ...]], Iterable[Directive]]
# Matches the name of a directive. A name with digits is shown only if arguments follow, because such a
# name may be a key in a table.
_NAME_PATTERN = re.compile(
    r"[!<]?[A-Za-z@_-][\w.-]{0,62}[!?]?(?:\[[\w.-]{0,60}\])?|\[[\w.-]{1,60}\]"
)
_WORD_PATTERN = re.compile(r"[^\s={};(>,:]+")
_BLANKS_PATTERN = re.compile(r"[ \t]+")
_SEPARATOR_PATTERN = re.compile(r"[ \t\"']*")  # may separate the words of a name
_ASSIGNMENT_PATTERN = re.compile(r"""["']?(?P<name>[A-Za-z_]\w{0,60})=""")
_OPTION_PATTERN = re.compile(r"(?P<option>--[\w-]+)=(?P<number>\d{1,15})(?=$|[\s\"'])")
_PROGRAM_PATTERN = re.compile(r"[-@:+!]*(?:/[\w.-]{1,40}){0,8}/?[a-z][a-z0-9.-]{1,24}")
_PROGRAM_DIRECTIVE, _VARIABLE_DIRECTIVE = "a program", "a variable"  # no directive has these names
_MATCH_NOTHING = re.compile(r"(?!)")
MAX_VISIBLE_LENGTH = 100  # arguments with more characters are hidden


def is_never_visible(_: Directive) -> bool:
    return False


def _parse_no_options(_: tuple[Word, ...]) -> Iterable[Directive]:
    return ()


@dataclass(frozen=True)
class VisibleDirectives:
    """The directives of a service whose arguments may be shown.

    ``parse_directives`` parses the service's files. ``names`` are the names of visible directives,
    and ``is_visible`` returns true for other directives that are visible too. ``blocks`` are the blocks
    that contain directives; if ``blocks`` is empty, all blocks contain directives. Any other block
    contains a table, whose keys are data and stay hidden. If ``ignores_case`` is true, names are
    compared without regard to case. If ``hides_unknown_names`` is true, the names of other directives
    are hidden too, because the file contains code or its syntax is unknown. ``reads`` are directives
    that are read but never edited, such as addresses. ``writes`` are names and whole lines that edits
    of other directives add. In units, ``parse_options`` parses the words of a command, and
    ``visible_variables`` matches the environment variables that are visible.
    """

    parse_directives: DirectiveParser
    names: frozenset[str] = frozenset()
    is_visible: Callable[[Directive], bool] = is_never_visible
    blocks: frozenset[str] = frozenset()
    ignores_case: bool = False
    hides_unknown_names: bool = False
    parse_options: OptionParser = _parse_no_options
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    visible_variables: re.Pattern[str] = _MATCH_NOTHING

    def build_outliner(self, path: str) -> Outliner:
        """Return the function that finds the visible parts of the file at ``path``."""
        return _build_outliner(
            self, is_unit=path.startswith(unit_files.UNIT_DIRECTORIES) or ".d/zz-autotune" in path
        )

    def build_outline(self, file_text: str, *, is_unit: bool) -> TextOutline:
        """Return the parts of a text that need no masking, or an empty result if the text cannot be
        parsed.
        """
        try:
            directives = [
                *(self._parse_unit(file_text) if is_unit else self.parse_directives(file_text))
            ]
        except (ConfigSyntaxError, UnicodeError, RecursionError):
            return TextOutline()
        visible_spans, hidden_spans = list[Span](), list[Span]()
        for directive in directives:
            is_known = self._is_visible_directive(directive)
            if self._is_in_table(directive):
                hidden_spans += _find_word_spans(file_text, (directive.name, *directive.arguments))
                continue
            name_spans = (
                []
                if self.hides_unknown_names and not is_unit and not is_known
                else _find_name_spans(file_text, directive, is_known=is_known)
            )
            visible_spans += name_spans
            if not name_spans:
                hidden_spans += _find_word_spans(file_text, (directive.name,))
            if is_known:
                visible_spans += (
                    _get_span(word)
                    for word in directive.arguments
                    if len(word.text) <= MAX_VISIBLE_LENGTH
                )
            hidden_spans += _find_word_spans(file_text, directive.arguments)
        return TextOutline(tuple(visible_spans), tuple(hidden_spans), _find_owners(directives))

    def _is_visible_directive(self, directive: Directive) -> bool:
        directive_name = directive.name.text
        visible_names = self.names | {_PROGRAM_DIRECTIVE, _VARIABLE_DIRECTIVE}
        return (
            directive_name.lower() if self.ignores_case else directive_name
        ) in visible_names or self.is_visible(directive)

    def _is_in_table(self, directive: Directive) -> bool:
        block_names = (block[0] if block else "" for block in directive.blocks)
        return bool(self.blocks) and any(
            (block_name.lower() if self.ignores_case else block_name) not in self.blocks
            for block_name in block_names
        )

    def _parse_unit(self, file_text: str) -> Iterator[Directive]:
        """Yield the lines of a unit, the options in its commands, and visible variables."""
        for line in unit_files.parse_directives(file_text):
            yield Directive(line.name, line.arguments)
            if line.name.text.startswith("Exec"):
                yield from self._parse_command(line.arguments)
            elif line.name.text == "Environment":
                for word in line.arguments:
                    yield from self._parse_variable(word)

    def _parse_command(self, command_words: tuple[Word, ...]) -> Iterator[Directive]:
        """Yield the program name and the options in a command. The program name is visible, because
        the masked command could not be parsed without it.
        """
        words = tuple(map(unquote_word, command_words))
        words_by_start = {word.start: word for word in words}
        for option in self.parse_options(words):
            program_word = words_by_start.get(option.name.start)
            if (
                program_word
                and not option.arguments
                and _PROGRAM_PATTERN.fullmatch(program_word.text)
            ):
                yield Directive(Word(_PROGRAM_DIRECTIVE, program_word.start), (program_word,))
            else:
                yield option

    def _parse_variable(self, word: Word) -> Iterator[Directive]:
        if not (assignment_match := _ASSIGNMENT_PATTERN.match(word.text)):
            return
        name_word = Word(assignment_match["name"], word.start + assignment_match.start("name"))
        value_text = word.text[assignment_match.end() :].rstrip("\"'")
        value_start = word.start + assignment_match.end()
        yield Directive(name_word, ())
        if not self.visible_variables.fullmatch(name_word.text):
            return
        value_start += word.text[assignment_match.end() :].startswith(("'", '"'))
        value_text = value_text.lstrip("\"'")
        if value_text.isdecimal():
            yield Directive(
                Word(_VARIABLE_DIRECTIVE, name_word.start), (Word(value_text, value_start),)
            )
        for option in _OPTION_PATTERN.finditer(value_text):
            if (option_name := option["option"].replace("_", "-")) in self.names:
                number_word = Word(option["number"], value_start + option.start("number"))
                yield Directive(Word(option_name, value_start + option.start()), (number_word,))


@lru_cache(maxsize=256)
def _build_outliner(visible_directives: VisibleDirectives, *, is_unit: bool) -> Outliner:
    return partial(visible_directives.build_outline, is_unit=is_unit)


def _get_span(word: Word) -> Span:
    return word.start, word.end


def _find_name_spans(file_text: str, directive: Directive, *, is_known: bool) -> list[Span]:
    """Return the positions of the words in a directive's name, even if the parser renamed the
    directive.
    """
    spans, search_start = list[Span](), directive.name.start
    words = directive.name.text.split() or [""]
    for word_number, word in enumerate(words):
        search_start = _SEPARATOR_PATTERN.match(file_text, search_start).end()  # type: ignore[union-attr]  # always matches
        if file_text[search_start : search_start + len(word)].lower() == word.lower() and word:
            end = search_start + len(word)
        elif word_number == len(words) - 1 or len(words) == 1:
            word_match = _WORD_PATTERN.match(file_text, search_start)
            end = word_match.end() if word_match else search_start
            if directive.arguments and directive.arguments[0].start >= search_start:
                end = min(end, directive.arguments[0].start)
        else:
            if word_number == 0 and not is_known:
                return []  # this word is also an argument
            continue
        is_name = is_known or _NAME_PATTERN.fullmatch(file_text, search_start, end)
        is_ordinary = (
            is_known or directive.arguments or not re.search(r"\d", file_text[search_start:end])
        )
        if not (is_name and is_ordinary):
            return []
        spans.append((search_start, end))
        search_start = end
    return spans


def _find_word_spans(file_text: str, words: Iterable[Word]) -> Iterator[Span]:
    """Yield the start and end of each word, without quotes. Adjacent unquoted words are joined."""
    joined_span: Span | None = None
    for word in words:
        start, word_end = word.start, min(word.end, len(file_text))
        word_text = file_text[start:word_end]
        is_quoted = len(word_text) > 1 and word_text[0] == word_text[-1] and word_text[0] in "\"'"
        is_plain = not is_quoted and "\n" not in word_text
        if joined_span and is_plain and _BLANKS_PATTERN.fullmatch(file_text, joined_span[1], start):
            joined_span = (joined_span[0], word_end)
            continue
        if joined_span:
            yield joined_span
        joined_span = (start, word_end) if is_plain else None
        if is_quoted:
            yield start + 1, word_end - 1
        elif not is_plain:
            yield start, word_end
    if joined_span:
        yield joined_span


def _find_owners(directives: Iterable[Directive]) -> tuple[tuple[int, int, str], ...]:
    """Return the start, end and lower-case name of each outermost directive, from its name to its
    last word.
    """
    owner_spans: list[tuple[int, int, str]] = []
    for directive in sorted(directives, key=lambda directive: directive.name.start):
        directive_end = max(word.end for word in (directive.name, *directive.arguments))
        if not owner_spans or directive.name.start >= owner_spans[-1][1]:
            owner_spans.append((directive.name.start, directive_end, directive.name.text.lower()))
    return tuple(owner_spans)
