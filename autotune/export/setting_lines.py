"""Check that the lines that an export changes in a host's own file contain only settings.

A study may come from someone else, and a configuration file can load code, run commands and grant
access. A service's edits consist of names of tunable settings, of numbers, and of choices of its
parameters. Each changed line is checked without the lines around it, because the recorded file may
differ from the host's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from autotune.config_text import is_utf8
from autotune.deploy.stack import ServiceInstance
from autotune.export.export_error import APPLY_HINT, ExportError
from autotune.export.masked_lines import find_placeholders
from autotune.report.studies import Study
from autotune.services.base import Service
from autotune.services.config_files import ConfigSyntaxError, Directive
from autotune.services.registry import find_visible_directives
from autotune.services.visible_directives import VisibleDirectives
from autotune.unified_diff import Hunk

MAX_LINE_LENGTH = 4096  # maximum number of characters in a changed line
MAX_HUNK_LINES = 200  # maximum number of lines in a hunk; a service changes only a few lines
# Aligning two lines takes cubic time in the worst case. With these limits, checking one file takes a few
# seconds at most.
MAX_TOKENS = 150  # maximum number of tokens in a line that is compared word by word
MAX_LINE_PAIRS = 400  # maximum number of line pairs that are compared in one file
_TOKEN_PATTERN = re.compile(
    r"""-[A-Za-z](?=\d)|(?P<quote>["'])-?\w[\w.-]*(?: ?[A-Za-z]{1,3})?(?P=quote)"""
    r"""|-{0,2}\w[\w.-]*!?|""|\s+|.""",
    re.DOTALL,
)
_WORD_PATTERN = re.compile(r"-{0,2}\w[\w.-]*!?")
_NUMBER_PATTERN = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})? ?[A-Za-z]{0,3}")
_CHOICE_PATTERN = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_SEPARATOR_TOKENS = frozenset(("=", ",", ";", ":", "?", "&", '""'))
# The search for a value's name stops at a character that can start a comment or a path, or end a
# directive.
_BOUNDARY_CHARACTERS = frozenset(";#/:")
_DIRECTIVE_ENDS = frozenset(";}")
_SWITCH_WORDS = frozenset(("on", "off", "yes", "no", "true", "false"))


def check_lines(study: Study, instance: ServiceInstance, path: str, hunks: Sequence[Hunk]) -> None:
    """Raise AutotuneError if removed or added lines contain more than the service's settings."""
    syntax = find_visible_directives(instance.service)
    vocabulary = _build_vocabulary(instance.service, syntax) if syntax else None
    if sum(len(hunk.removed) * len(hunk.added) for hunk in hunks) > MAX_LINE_PAIRS:
        raise ExportError(
            study, f"too many lines change in {path} on {instance.placement.host}", APPLY_HINT
        )
    for hunk in hunks:
        if vocabulary is None or not _is_safe_hunk(vocabulary, hunk):
            raise ExportError(
                study,
                f"line {hunk.start_line} of {path} on {instance.placement.host} changes something "
                f"other than settings of {instance.service.title}",
                APPLY_HINT,
            )


@dataclass(frozen=True)
class _Vocabulary:
    """The words that may occur in settings, in lower case, with `_` for `-`.

    The line of a setting starts with one of ``first_words``, and a value follows one of
    ``naming_words``. ``words`` contains every word that occurs in settings. Settings may be appended to
    lines that start with one of ``leading_words``. Lines in ``whole_lines`` are always allowed.
    """

    syntax: VisibleDirectives
    first_words: frozenset[str]
    naming_words: frozenset[str]
    words: frozenset[str]
    leading_words: frozenset[str]
    whole_lines: frozenset[str]


def _build_vocabulary(service: Service, syntax: VisibleDirectives) -> _Vocabulary:
    setting_names = [
        [*map(_strip_dashes, name.split())]
        for name in (syntax.names | syntax.writes) - syntax.reads
        if all(map(_WORD_PATTERN.fullmatch, name.split()))
    ]
    choices = {
        _strip_dashes(choice)
        for parameter in service.parameters
        for choice in parameter.choices
        if isinstance(choice, str) and _CHOICE_PATTERN.fullmatch(choice)
    }
    all_words = {word for name in setting_names for word in name} | choices | _SWITCH_WORDS
    return _Vocabulary(
        syntax,
        first_words=frozenset(name[0] for name in setting_names),
        naming_words=frozenset(name[-1] for name in setting_names),
        words=frozenset(all_words),
        leading_words=frozenset(
            {name[0] for name in setting_names} | {*map(_strip_dashes, syntax.reads)}
        ),
        whole_lines=frozenset(syntax.writes) | {""},
    )


def _strip_dashes(word: str) -> str:
    return word.lower().replace("-", "_")


def _is_safe_hunk(vocabulary: _Vocabulary, hunk: Hunk) -> bool:
    """True if each added or removed line is a setting, or differs only in settings from the line
    that it replaces.
    """
    lines = (*hunk.removed, *hunk.added)
    if len(lines) > MAX_HUNK_LINES or any(
        len(line) > MAX_LINE_LENGTH or not is_utf8(line) for line in lines
    ):
        return False
    removed_lines, added_lines = hunk.removed, hunk.added
    # ``match_positions`` contains (i, j) if the first i removed lines and the first j added lines
    # differ only in settings.
    match_positions = {(0, 0)}
    for removed_count in range(len(removed_lines) + 1):
        for added_count in range(len(added_lines) + 1):
            if (
                (
                    (removed_count - 1, added_count) in match_positions
                    and _is_whole_setting(vocabulary, removed_lines[removed_count - 1])
                )
                or (
                    (removed_count, added_count - 1) in match_positions
                    and _is_whole_setting(vocabulary, added_lines[added_count - 1])
                )
                or (
                    (removed_count - 1, added_count - 1) in match_positions
                    and _is_setting_exchange(
                        vocabulary, removed_lines[removed_count - 1], added_lines[added_count - 1]
                    )
                )
            ):
                match_positions.add((removed_count, added_count))
    return (len(removed_lines), len(added_lines)) in match_positions


def _is_whole_setting(vocabulary: _Vocabulary, line: str) -> bool:
    """True if a line is exactly one setting: its name and values."""
    line_text = line.removesuffix("\n").removesuffix("\r").strip(" \t")
    if line_text in vocabulary.whole_lines:
        return True
    tokens = [token for token in _split_tokens(line_text.removesuffix(";")) if not token.isspace()]
    return (
        _is_printable(line_text)
        and ";" not in tokens
        and _strip_dashes(tokens[0]) in vocabulary.first_words
        and all(_is_known_token(vocabulary, token, vocabulary.words) for token in tokens)
    )


def _is_setting_exchange(vocabulary: _Vocabulary, old_line: str, new_line: str) -> bool:
    """True if two lines differ only in settings."""
    old_tokens, new_tokens = (
        _split_tokens(line.removesuffix("\n").removesuffix("\r")) for line in (old_line, new_line)
    )
    if max(len(old_tokens), len(new_tokens)) > MAX_TOKENS:
        return False
    matcher = SequenceMatcher(None, old_tokens, new_tokens, autojunk=False)
    setting_names = {*_list_names(vocabulary, old_line), *_list_names(vocabulary, new_line)}
    return _keeps_masked_words(vocabulary, old_tokens, new_tokens) and all(
        _is_setting_run(
            vocabulary, setting_names, old_tokens[:old_start], old_tokens[old_start:old_end]
        )
        and _is_setting_run(
            vocabulary, setting_names, new_tokens[:new_start], new_tokens[new_start:new_end]
        )
        and _keeps_directives(old_tokens[:old_end], new_tokens[:new_end], old_tokens[old_end:])
        for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes()
        if tag != "equal"
    )


def _keeps_masked_words(
    vocabulary: _Vocabulary, old_tokens: Sequence[str], new_tokens: Sequence[str]
) -> bool:
    """True if masked values keep their positions: up to the last masked value, only values may
    differ.
    """
    leading_tokens = [
        tokens[: _find_last_masked(tokens) + 1] for tokens in (old_tokens, new_tokens)
    ]
    return len(leading_tokens[0]) == len(leading_tokens[1]) and all(
        old == new_token or (_is_value(vocabulary, old) and _is_value(vocabulary, new_token))
        for old, new_token in zip(*leading_tokens, strict=True)
    )


def _find_last_masked(tokens: Sequence[str]) -> int:
    return max((n for n, token in enumerate(tokens) if find_placeholders(token)), default=-1)


def _keeps_directives(
    old_tokens: Sequence[str], new_tokens: Sequence[str], following_tokens: Sequence[str]
) -> bool:
    """True if an edit does not change whether ``following_tokens`` starts a new directive."""
    following_token = next((token for token in following_tokens if not token.isspace()), ";")
    return following_token in _DIRECTIVE_ENDS or (
        _ends_directive(old_tokens) == _ends_directive(new_tokens)
    )


def _ends_directive(tokens: Sequence[str]) -> bool:
    return next((t for t in reversed(tokens) if not t.isspace()), ";") in {*_DIRECTIVE_ENDS, "{"}


def _is_setting_run(
    vocabulary: _Vocabulary,
    setting_names: set[str],
    preceding_tokens: Sequence[str],
    changed_tokens: Sequence[str],
) -> bool:
    """True if ``changed_tokens`` are a value after the setting's name, or names and values in a line of
    settings.

    ``setting_names`` are further names of settings in the same line.
    """
    tokens = [token for token in changed_tokens if not token.isspace()]
    allowed_words, naming_words = (
        vocabulary.words | setting_names,
        vocabulary.naming_words | setting_names,
    )
    if not _is_printable("".join(changed_tokens)):
        return False
    if not all(_is_known_token(vocabulary, token, allowed_words) for token in tokens):
        return False
    value_tokens = [token for token in tokens if token not in _SEPARATOR_TOKENS]
    if not value_tokens:
        return not tokens or tokens == ['""']
    if not _is_value(vocabulary, value_tokens[0]) or _strip_dashes(value_tokens[0]) in naming_words:
        return _find_first_word(preceding_tokens) in vocabulary.leading_words | setting_names
    return _find_last_name(vocabulary, preceding_tokens, naming_words) in naming_words


def _find_first_word(preceding_tokens: Sequence[str]) -> str:
    """Return the first word of the last directive in ``preceding_tokens``, or an empty string."""
    first_word = ""
    for token in preceding_tokens:
        if token in ("{", "}", ";"):
            first_word = ""
        elif not first_word and _WORD_PATTERN.fullmatch(token):
            first_word = _strip_dashes(token)
    return first_word


def _find_last_name(
    vocabulary: _Vocabulary,
    preceding_tokens: Sequence[str],
    naming_words: frozenset[str] | set[str],
) -> str:
    """Return the name of the setting that a value after the tokens ``preceding_tokens`` belongs to, or
    an empty string.
    """
    for token in reversed(preceding_tokens):
        if token in _BOUNDARY_CHARACTERS:
            return ""
        if _WORD_PATTERN.fullmatch(token) and (
            _strip_dashes(token) in naming_words or not _is_value(vocabulary, token)
        ):
            return _strip_dashes(token)
        if vocabulary.syntax.visible_variables.fullmatch(token):
            return _strip_dashes(token)
    return ""


def _split_tokens(line: str) -> list[str]:
    return [token[0] for token in _TOKEN_PATTERN.finditer(line)]


def _is_known_token(
    vocabulary: _Vocabulary, token: str, allowed_words: frozenset[str] | set[str]
) -> bool:
    return (
        token in _SEPARATOR_TOKENS
        or _is_value(vocabulary, token)
        or _strip_dashes(token) in allowed_words
    )


def _is_value(vocabulary: _Vocabulary, token: str) -> bool:
    """True if a token is a number or a choice, with or without quotes."""
    token = token.strip("\"'") if token[:1] in "\"'" else token
    return _NUMBER_PATTERN.fullmatch(token) is not None or (
        _strip_dashes(token) in vocabulary.words
        and _strip_dashes(token) not in vocabulary.naming_words
    )


def _is_printable(text: str) -> bool:
    return all(character.isprintable() or character == "\t" for character in text)


def _list_names(vocabulary: _Vocabulary, line: str) -> Iterator[str]:
    """Yield the names of settings in a line. In some syntaxes, a setting has several names."""
    try:
        directives = [*vocabulary.syntax.parse_directives(line)]
    except (ConfigSyntaxError, UnicodeError, RecursionError):
        return
    for directive in directives:
        if _is_setting(vocabulary.syntax, directive) and (
            name := _WORD_PATTERN.match(line, directive.name.start)
        ):
            yield _strip_dashes(name[0])
    yield from (
        _strip_dashes(name[0]) for name in vocabulary.syntax.visible_variables.finditer(line)
    )


def _is_setting(syntax: VisibleDirectives, directive: Directive) -> bool:
    name = directive.name.text
    directive_name = name.lower() if syntax.ignores_case else name
    return directive_name in syntax.names - syntax.reads or syntax.is_visible(directive)
