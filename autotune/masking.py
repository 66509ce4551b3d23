"""Masking: what may be shown of a file, with placeholders for everything else.

Of a file that a service reads, only the words that the service understands are shown (`TextOutline`).
Of any
other text, everything but what looks like a secret. A placeholder tells which piece of the file it stands
for; a deployment fills in the piece that the file on the host has. A piece never spans lines, so that a
masked file has the lines of the real one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotune.config_text import decode, encode
from autotune.errors import AutotuneError
from autotune.secret_detection import PLACEHOLDER_PATTERN, find_secrets

Span = tuple[int, int]
GAP_STATE, HIDDEN_STATE, SHOWN_STATE = 0, 1, 2  # what a character of an outline is in
# A piece that no host's file can fill in: its number is of none.
_UNRESOLVED_PLACEHOLDER = "autotune-masked-0-of-0"
# A word of a masked piece, and one that a message may repeat: it is no key.
_SECRET_WORD_PATTERN = re.compile(r"[^\s\"'/:;,=@?&|{}()\[\]<>$#\\]{5,}")
_PLAIN_WORD_PATTERN = re.compile(r"(?:[A-Za-z]?[a-z]+[._-]?){1,8}|[A-Z_]+|[\d.]+[a-zA-Z]?")
_MIN_SECRET_LENGTH, _MAX_DIRECTORY_LENGTH, _WITHHELD_TEXT = 5, 10, "(masked)"
_MAX_PASSES = 6  # until masked text has nothing more to mask; then whole lines are masked
# What a line of comments, blanks and marks has in front of its first word.
_MARKS_PATTERN = re.compile(r"""[\s;{}()\[\]<>#/*=,"'!&|\\:%-]*""")
_SECTION_HEADER_PATTERN = re.compile(
    r"[ \t]*(?:\[[A-Za-z][\w.:@ -]{0,60}\]|</[A-Za-z]\w{0,40}>)[ \t\r]*"
)
_BRACKETS_PATTERN = re.compile(r"[ \t]*\[[^\]\n]*(?P<last>\])[ \t\r]*")
_MASKED_LINE_PATTERN = re.compile(
    rf"\W{{0,200}}(?:{PLACEHOLDER_PATTERN.pattern}\W{{0,40}}){{1,20}}"
)
_STATE_RUN_PATTERN = re.compile(rb"\x00+|\x01+|\x02+")


@dataclass(frozen=True)
class TextOutline:
    """``visible`` are the words of a text that may be shown, ``hidden`` those that may not. ``owners``:
    each directive from its name to its last word, with its name. Comments are in neither."""

    visible: tuple[Span, ...] = ()
    hidden: tuple[Span, ...] = ()
    owners: tuple[tuple[int, int, str], ...] = ()

    def find_owner(self, position: int) -> str:
        """The name of the directive around a place; empty outside of any, as in a comment."""
        at = bisect_right(self.owners, position, key=lambda owner: owner[0]) - 1
        return self.owners[at][2] if at >= 0 and position < self.owners[at][1] else ""


Outliner = Callable[[str], TextOutline]


def mask_nothing(_: str) -> TextOutline:
    """The outline of a file with an unknown syntax: nothing of it is shown."""
    return TextOutline()


@lru_cache(maxsize=1024)  # most files are the same in every trial
def find_masked_spans(text: str, outliner: Outliner | None = None) -> tuple[Span, ...]:
    """The places that are masked, in their order; none overlap, and masked text has no more of them."""
    masks = merge_spans(_find_hidden_spans(text, outliner))
    for _ in range(_MAX_PASSES):
        masked, origins = _insert_placeholders(text, masks)
        more = [origins.original_span(*span) for span in _find_hidden_spans(masked, outliner)]
        if not more:
            return masks
        masks = merge_spans([*masks, *more])
    return tuple(m.span() for m in re.finditer(r"\S[^\n]*", text) if not _is_fully_masked(m[0]))


@lru_cache(maxsize=1024)
def list_placeholders(
    text: str, outliner: Outliner | None = None
) -> tuple[tuple[int, int, str], ...]:
    """Each masked place, and what stands for it."""
    locations = find_masked_spans(text, outliner)
    own = PLACEHOLDER_PATTERN.search(text) is None
    return tuple(
        (
            *location,
            f"autotune-masked-{number}-of-{len(locations)}" if own else _UNRESOLVED_PLACEHOLDER,
        )
        for number, location in enumerate(locations, 1)
    )


@lru_cache(maxsize=1024)
def mask_secrets(text: str, outliner: Outliner | None = None) -> str:
    """The text with a placeholder for each piece; what is masked already stays as it is."""
    parts, last = [], 0
    for start, end, placeholder in list_placeholders(text, outliner):
        parts += [text[last:start], placeholder]
        last = end
    return "".join([*parts, text[last:]])


def mask_secret_bytes(content: bytes, outliner: Outliner | None = None) -> bytes:
    """The same for bytes; those that are no text pass through."""
    return encode(mask_secrets(decode(content), outliner))


def mask_changed_lines(content: bytes, other: bytes, outliner: Outliner | None = None) -> bytes:
    """The content masked, but for the lines that ``other``, which is shown with it, has as well."""
    text, theirs = decode(content), {*decode(other).split("\n")}
    lines = zip(text.split("\n"), mask_secrets(text, outliner).split("\n"), strict=True)
    return encode("\n".join(line if line in theirs else other for line, other in lines))


def find_secret_words(content: bytes, outliner: Outliner | None = None) -> frozenset[str]:
    """Words of masked pieces that a message must not repeat: all but plain words, paths and numbers."""
    text = decode(content)
    pieces_of_text = (text[start:end] for start, end in find_masked_spans(text, outliner))
    secrets = {text[start:end] for start, end in find_secrets(text)}
    words = {word[0] for piece in pieces_of_text for word in _SECRET_WORD_PATTERN.finditer(piece)
             if not (piece[:1] == "/" and len(word[0]) <= _MAX_DIRECTORY_LENGTH)}  # fmt: skip
    return frozenset(secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH) | frozenset(
        word for word in words if not _PLAIN_WORD_PATTERN.fullmatch(word)
    )


def remove_words(message: str, words: Iterable[str]) -> str:
    """A message without these words, such as those of `find_secret_words`, and without secrets by
    their looks."""
    longest_first = sorted({word for word in words if word in message}, key=len, reverse=True)
    for word in longest_first:
        message = message.replace(word, _WITHHELD_TEXT)
    return mask_secrets(message)


def has_placeholder(content: bytes) -> bool:
    """Whether the content has a placeholder."""
    return b"autotune-masked-" in content and bool(
        PLACEHOLDER_PATTERN.search(content.decode("latin-1"))
    )


def restore_secrets(
    content: bytes, original: bytes | None, file_name: str, outliner: Outliner | None = None
) -> bytes:
    """The content with the pieces filled in from ``original``, the file on the host.

    Raises AutotuneError where ``original`` has other pieces than those that were masked.
    """
    if not has_placeholder(content):
        return content
    text, own = decode(content), decode(original or b"")
    values = {placeholder: own[start:end]
              for start, end, placeholder in list_placeholders(own, outliner)}  # fmt: skip
    # What follows a placeholder may be a digit, so its last number has to be known.
    ours = re.compile(f"autotune-masked-[0-9]+-of-{len(values)}")
    whole = ours.sub(lambda match: values.get(match[0], match[0]), text)
    labels = _label_placeholders(mask_secrets(own, outliner), ours, outliner)
    if PLACEHOLDER_PATTERN.search(whole) or not _label_placeholders(text, ours, outliner) <= labels:
        raise AutotuneError(
            f"{file_name} has other secrets than the file that its template was made from",
            hint="`autotune init --from` reads the host again",
        )
    return encode(whole)


def merge_spans(spans_to_merge: Iterable[Span]) -> tuple[Span, ...]:
    """The places in their order, those that overlap as one."""
    joined: list[Span] = []
    for start, end in sorted(spans_to_merge):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _label_placeholders(
    text: str, placeholder_pattern: re.Pattern[str], outliner: Outliner | None
) -> set[tuple[str, str]]:
    """Each placeholder with the directive that it is in, or with the words before it in its line."""
    if outliner is None:
        lines = (
            (match, text.rfind("\n", 0, match.start()) + 1)
            for match in placeholder_pattern.finditer(text)
        )
        return {(m[0], text[max(line, m.start() - 12) : m.start()]) for m, line in lines}
    outline = outliner(text)
    return {
        (match[0], outline.find_owner(match.start()))
        for match in placeholder_pattern.finditer(text)
    }


def _is_fully_masked(text: str) -> bool:
    """Whether nothing but placeholders and marks is in a text."""
    return PLACEHOLDER_PATTERN.search(text) is not None and not re.search(
        r"\w", PLACEHOLDER_PATTERN.sub("", text)
    )


def _find_hidden_spans(text: str, outliner: Outliner | None) -> Iterator[Span]:
    """What has to be masked, some of it more than once."""
    detected = _detect_secrets(text)
    if outliner is None:
        yield from (span for span in detected if not _is_fully_masked(text[slice(*span)]))
        return
    outline = outliner(text)
    states = bytearray(len(text))
    for state, locations in (
        (HIDDEN_STATE, outline.hidden),
        (SHOWN_STATE, outline.visible),
        (HIDDEN_STATE, detected),
    ):
        for start, end in locations:
            states[start:end] = bytes([state]) * (end - start)
    for run in _STATE_RUN_PATTERN.finditer(bytes(states)):
        if run[0][0] != SHOWN_STATE:
            yield from _split_run_by_line(
                text, run.start(), run.end(), is_gap=run[0][0] == GAP_STATE
            )


def _detect_secrets(text: str) -> list[Span]:
    """What looks like a secret, without looking at lines that are masked already: most are."""
    if PLACEHOLDER_PATTERN.search(text) is None:
        return [*find_secrets(text)]
    lines, starts, locations = [], list[int](), list[int]()
    length = location = 0
    for line in text.splitlines(keepends=True):
        if not _MASKED_LINE_PATTERN.fullmatch(line):
            lines.append(line)
            starts.append(length)
            locations.append(location)
            length += len(line)
        location += len(line)

    def origin(at: int) -> int:
        number = bisect_right(starts, at) - 1
        return locations[number] + at - starts[number]

    return [(origin(start), origin(end - 1) + 1) for start, end in find_secrets("".join(lines))]


def _split_run_by_line(text: str, start: int, end: int, *, is_gap: bool) -> Iterator[Span]:
    """What has to be masked of hidden words, or of a gap between words, line by line."""
    location = start
    while location < end:
        stop = text.find("\n", location, end)
        stop = end if stop < 0 else stop
        begin, stop_of_piece = location, stop
        if is_gap:
            whole = location == 0 or text[location - 1] == "\n"
            if (
                whole
                and _SECTION_HEADER_PATTERN.fullmatch(text, location, stop)
                and not find_secrets(text[location:stop])
            ):
                begin = stop
            else:
                begin = _MARKS_PATTERN.match(text, location, stop).end()  # type: ignore[union-attr]  # matches ""
                brackets = _BRACKETS_PATTERN.fullmatch(text, location, stop) if whole else None
                stop_of_piece = brackets.start("last") if brackets else stop
        elif begin == start and begin and text[begin] in "=,":
            begin += 1  # behind a name that is shown
        begin, end_of_piece = _strip_span(text, begin, stop_of_piece, is_gap=is_gap)
        if begin < end_of_piece and not _is_fully_masked(text[begin:end_of_piece]):
            yield begin, end_of_piece
        location = stop + 1


def _strip_span(text: str, begin: int, stop: int, *, is_gap: bool) -> Span:
    """A piece without blanks and without half of a pair of quotes at its ends."""
    piece = text[begin:stop].rstrip(" \t\r\\" if is_gap else " \t\r")
    stop, piece = begin + len(piece), piece.lstrip()
    begin = stop - len(piece)
    for quote in () if is_gap else "\"'":
        if piece.count(quote) % 2 and piece.startswith(quote):
            begin, piece = begin + 1, piece[1:]
        elif piece.count(quote) % 2 and piece.endswith(quote):
            stop, piece = stop - 1, piece[:-1]
    return begin, stop


@dataclass(frozen=True)
class _OriginalPositions:
    """Where the characters of masked text come from: literal parts, each by its start there and here."""

    starts: Sequence[int]
    # In the text before: start, end, and whether it is a piece.
    places: Sequence[tuple[int, int, bool]]

    def original_span(self, start: int, end: int) -> Span:
        """The part of the text before that a part of the masked text stands for."""
        return self._original_position(start, is_end=False), self._original_position(
            end - 1, is_end=True
        )

    def _original_position(self, position: int, *, is_end: bool) -> int:
        number = bisect_right(self.starts, position) - 1
        start, end, is_piece = self.places[number]
        if is_piece:
            return end if is_end else start
        return start + position - self.starts[number] + is_end


def _insert_placeholders(text: str, masks: Sequence[Span]) -> tuple[str, _OriginalPositions]:
    parts: list[str] = []
    starts, locations = list[int](), list[tuple[int, int, bool]]()
    length, last = 0, 0
    for number, (start, end) in enumerate([*masks, (len(text), len(text))], 1):
        placeholder = f"autotune-masked-{number}-of-{len(masks)}" if number <= len(masks) else ""
        for part, location in (
            (text[last:start], (last, start, False)),
            (placeholder, (start, end, True)),
        ):
            if part:
                parts.append(part)
                starts.append(length)
                locations.append(location)
                length += len(part)
        last = end
    return "".join(parts), _OriginalPositions(starts, locations)
