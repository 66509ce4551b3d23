"""Mask files: show text that is safe, and replace all other text with placeholders.

In a file with a known syntax, only the words that its service understands are shown
(`TextOutline`). In other text, only text that looks like a secret is masked. A placeholder stands for
a piece of the file; a deployment replaces the placeholder with the piece from the host's file. A piece
never spans lines, so a masked file and its original consist of the same number of lines.
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
GAP_STATE, HIDDEN_STATE, SHOWN_STATE = 0, 1, 2  # states of a character in an outline
# No file contains the piece for this placeholder, because pieces are numbered from 1.
_UNRESOLVED_PLACEHOLDER = "autotune-masked-0-of-0"
# A word in a masked part of a file. Messages may repeat plain words, but no other words.
_SECRET_WORD_PATTERN = re.compile(r"[^\s\"'/:;,=@?&|{}()\[\]<>$#\\]{5,}")
# Possessive repetitions, because the number of ways to split a long word would be exponential.
_PLAIN_WORD_PATTERN = re.compile(r"(?:[A-Z]?[a-z]++[._-]?+){1,8}+|[A-Z_]+|[\d.]+[a-zA-Z]?")
_MIN_SECRET_LENGTH, _MAX_DIRECTORY_LENGTH, _WITHHELD_TEXT = 5, 10, "(masked)"
# maximum number of masking passes; if secrets are left, whole lines are masked
_MAX_PASSES = 6
# the punctuation and blanks before the first word of a line
_MARKS_PATTERN = re.compile(r"""[\s;{}()\[\]<>#/*=,"'!&|\\:%-]*""")
_SECTION_HEADER_PATTERN = re.compile(
    r"[ \t]*(?:\[[A-Za-z][\w.:@ -]{0,60}\]|</[A-Za-z]\w{0,40}>)[ \t\r]*"
)
_BRACKETS_PATTERN = re.compile(r"[ \t]*\[[^\]\n]*(?P<last>\])[ \t\r]*")
# A masked item of a YAML list is not skipped, because the next item would follow the option instead.
_MASKED_LINE_PATTERN = re.compile(
    rf"(?![ \t]*-[ \t])\W{{0,200}}(?:{PLACEHOLDER_PATTERN.pattern}\W{{0,40}}){{1,20}}"
)
_STATE_RUN_PATTERN = re.compile(rb"\x00+|\x01+|\x02+")


@dataclass(frozen=True)
class TextOutline:
    """The words of a text: ``visible`` words may be shown, and ``hidden`` words must be masked.

    ``owners`` contains the start, end and name of each directive. Words and directives in comments are
    not included.
    """

    visible: tuple[Span, ...] = ()
    hidden: tuple[Span, ...] = ()
    owners: tuple[tuple[int, int, str], ...] = ()

    def find_directive_name(self, position: int) -> str:
        """Return the name of the directive around a position; empty outside of directives."""
        owner_index = bisect_right(self.owners, position, key=lambda owner: owner[0]) - 1
        return (
            self.owners[owner_index][2]
            if owner_index >= 0 and position < self.owners[owner_index][1]
            else ""
        )


Outliner = Callable[[str], TextOutline]


def outline_unknown_syntax(_: str) -> TextOutline:
    """Return the outline of a file with an unknown syntax: no word may be shown."""
    return TextOutline()


@lru_cache(maxsize=1024)  # most files are the same in every trial
def find_masked_spans(text: str, outliner: Outliner | None = None) -> tuple[Span, ...]:
    """Return the spans of a text to mask, in order, without overlaps. The result is empty for text that
    is already masked.
    """
    masks = merge_spans(_find_hidden_spans(text, outliner))
    for _ in range(_MAX_PASSES):
        masked_text, original_positions = _insert_placeholders(text, masks)
        further_mask_spans = [
            original_positions.find_original_span(*masked_span)
            for masked_span in _find_hidden_spans(masked_text, outliner)
        ]
        if not further_mask_spans:
            return masks
        masks = merge_spans([*masks, *further_mask_spans])
    return tuple(m.span() for m in re.finditer(r"\S[^\n]*", text) if not _is_fully_masked(m[0]))


@lru_cache(maxsize=1024)
def list_placeholders(
    text: str, outliner: Outliner | None = None
) -> tuple[tuple[int, int, str], ...]:
    """Return each masked span with its placeholder."""
    masked_spans = find_masked_spans(text, outliner)
    is_original = PLACEHOLDER_PATTERN.search(text) is None
    return tuple(
        (
            *masked_span,
            f"autotune-masked-{span_number}-of-{len(masked_spans)}"
            if is_original
            else _UNRESOLVED_PLACEHOLDER,
        )
        for span_number, masked_span in enumerate(masked_spans, 1)
    )


@lru_cache(maxsize=1024)
def mask_secrets(text: str, outliner: Outliner | None = None) -> str:
    """Return the text with a placeholder for each piece to mask. Text that is already masked does
    not change.
    """
    pieces, last_end = [], 0
    for span_start, span_end, placeholder in list_placeholders(text, outliner):
        pieces += [text[last_end:span_start], placeholder]
        last_end = span_end
    return "".join([*pieces, text[last_end:]])


def mask_secret_bytes(content: bytes, outliner: Outliner | None = None) -> bytes:
    """Return the content with its secrets masked. All other bytes are preserved."""
    return encode(mask_secrets(decode(content), outliner))


def mask_changed_lines(content: bytes, baseline: bytes, outliner: Outliner | None = None) -> bytes:
    """Return the masked content. Lines that ``baseline`` also contains are not masked, because
    ``baseline`` is displayed as well.
    """
    text, shown_lines = decode(content), {*decode(baseline).split("\n")}
    lines = zip(text.split("\n"), mask_secrets(text, outliner).split("\n"), strict=True)
    return encode("\n".join(line if line in shown_lines else masked for line, masked in lines))


def find_secret_words(content: bytes, outliner: Outliner | None = None) -> frozenset[str]:
    """Return the words of masked pieces that a message must not repeat.

    Plain words, paths and numbers are not returned.
    """
    text = decode(content)
    masked_pieces = (text[start:span_end] for start, span_end in find_masked_spans(text, outliner))
    detected_secrets = {text[start:span_end] for start, span_end in find_secrets(text)}
    piece_words = {
        word[0]
        for piece in masked_pieces
        for word in _SECRET_WORD_PATTERN.finditer(piece)
        if not (piece[:1] == "/" and len(word[0]) <= _MAX_DIRECTORY_LENGTH)
    }
    return frozenset(
        secret for secret in detected_secrets if len(secret) >= _MIN_SECRET_LENGTH
    ) | frozenset(word for word in piece_words if not _PLAIN_WORD_PATTERN.fullmatch(word))


def remove_words(message: str, words: Iterable[str]) -> str:
    """Return a message in which ``words`` (see `find_secret_words`) and other secrets are masked."""
    longest_words_first = sorted({word for word in words if word in message}, key=len, reverse=True)
    for word in longest_words_first:
        message = message.replace(word, _WITHHELD_TEXT)
    return mask_secrets(message)


def has_placeholder(content: bytes) -> bool:
    """True if the content contains a placeholder."""
    return b"autotune-masked-" in content and bool(
        PLACEHOLDER_PATTERN.search(content.decode("latin-1"))
    )


def restore_secrets(
    content: bytes, original: bytes | None, file_name: str, outliner: Outliner | None = None
) -> bytes:
    """Return the content with each placeholder replaced by its piece of ``original``, the host's file.

    Raises AutotuneError if ``original`` does not contain the pieces that were masked.
    """
    if not has_placeholder(content):
        return content
    text, original_text = decode(content), decode(original or b"")
    text_by_placeholder = {
        placeholder: original_text[piece_start:piece_end]
        for piece_start, piece_end, placeholder in list_placeholders(original_text, outliner)
    }
    # The pattern ends with the exact number of pieces, because a digit may follow a placeholder.
    pattern = re.compile(f"autotune-masked-[0-9]+-of-{len(text_by_placeholder)}")
    restored_text = pattern.sub(lambda match: text_by_placeholder.get(match[0], match[0]), text)
    labels = _label_placeholders(mask_secrets(original_text, outliner), pattern, outliner)
    has_same_labels = _label_placeholders(text, pattern, outliner) <= labels
    if PLACEHOLDER_PATTERN.search(restored_text) or not has_same_labels:
        raise AutotuneError(
            f"the secrets in {file_name} differ from those in the file from which its template was made",
            hint="run `autotune init --from HOST,… --out NEW.yaml`, and copy your settings to it",
        )
    return encode(restored_text)


def merge_spans(spans_to_merge: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans in order. Overlapping spans are merged."""
    merged_spans: list[Span] = []
    for span_start, span_end in sorted(spans_to_merge):
        if merged_spans and span_start < merged_spans[-1][1]:
            merged_spans[-1] = (merged_spans[-1][0], max(span_end, merged_spans[-1][1]))
        else:
            merged_spans.append((span_start, span_end))
    return tuple(merged_spans)


def _label_placeholders(
    text: str, placeholder_pattern: re.Pattern[str], outliner: Outliner | None
) -> set[tuple[str, str]]:
    """Return each placeholder with its directive or, without an outliner, with the text before it."""
    if outliner is None:
        lines = (
            (match, text.rfind("\n", 0, match.start()) + 1)
            for match in placeholder_pattern.finditer(text)
        )
        return {(m[0], text[max(line, m.start() - 12) : m.start()]) for m, line in lines}
    outline = outliner(text)
    return {
        (match[0], outline.find_directive_name(match.start()))
        for match in placeholder_pattern.finditer(text)
    }


def _is_fully_masked(text: str) -> bool:
    """True if a text contains only placeholders and punctuation."""
    return PLACEHOLDER_PATTERN.search(text) is not None and not re.search(
        r"\w", PLACEHOLDER_PATTERN.sub("", text)
    )


def _find_hidden_spans(text: str, outliner: Outliner | None) -> Iterator[Span]:
    """Yield the spans that must be masked. Spans may overlap."""
    detected_spans = _detect_secrets(text)
    if outliner is None:
        yield from (span for span in detected_spans if not _is_fully_masked(text[slice(*span)]))
        return
    outline = outliner(text)
    states = bytearray(len(text))
    for character_state, state_spans in (
        (HIDDEN_STATE, outline.hidden),
        (SHOWN_STATE, outline.visible),
        (HIDDEN_STATE, detected_spans),
    ):
        for span_start, span_end in state_spans:
            states[span_start:span_end] = bytes([character_state]) * (span_end - span_start)
    for state_run in _STATE_RUN_PATTERN.finditer(bytes(states)):
        if state_run[0][0] != SHOWN_STATE:
            yield from _split_run_by_line(
                text, state_run.start(), state_run.end(), is_gap=state_run[0][0] == GAP_STATE
            )


def _detect_secrets(text: str) -> list[Span]:
    """Return spans that look like secrets. Lines that are already masked are skipped."""
    if PLACEHOLDER_PATTERN.search(text) is None:
        return [*find_secrets(text)]
    lines, line_starts, line_origins = [], list[int](), list[int]()
    kept_length = line_origin = 0
    for line in text.splitlines(keepends=True):
        if not _MASKED_LINE_PATTERN.fullmatch(line):
            lines.append(line)
            line_starts.append(kept_length)
            line_origins.append(line_origin)
            kept_length += len(line)
        line_origin += len(line)

    def find_origin(position: int) -> int:
        index = bisect_right(line_starts, position) - 1
        return line_origins[index] + position - line_starts[index]

    return [
        (find_origin(secret_start), find_origin(secret_end - 1) + 1)
        for secret_start, secret_end in find_secrets("".join(lines))
    ]


def _split_run_by_line(text: str, run_start: int, run_end: int, *, is_gap: bool) -> Iterator[Span]:
    """Split hidden words, or a gap between words, into lines. Yield the spans to mask in each line."""
    position = run_start
    while position < run_end:
        line_end = text.find("\n", position, run_end)
        line_end = run_end if line_end < 0 else line_end
        piece_start, piece_stop = position, line_end
        if is_gap:
            is_whole_line = position == 0 or text[position - 1] == "\n"
            if (
                is_whole_line
                and _SECTION_HEADER_PATTERN.fullmatch(text, position, line_end)
                and not find_secrets(text[position:line_end])
            ):
                piece_start = line_end
            else:
                piece_start = _MARKS_PATTERN.match(text, position, line_end).end()  # type: ignore[union-attr]  # matches ""
                brackets = (
                    _BRACKETS_PATTERN.fullmatch(text, position, line_end) if is_whole_line else None
                )
                piece_stop = brackets.start("last") if brackets else line_end
        elif piece_start == run_start and piece_start and text[piece_start] in "=,":
            piece_start += 1  # skip the "=" or "," after a visible name
        piece_start, piece_end = _strip_span(text, piece_start, piece_stop, is_gap=is_gap)
        if piece_start < piece_end and not _is_fully_masked(text[piece_start:piece_end]):
            yield piece_start, piece_end
        position = line_end + 1


def _strip_span(text: str, piece_start: int, piece_stop: int, *, is_gap: bool) -> Span:
    """Return a span without blanks and unpaired quotes at its ends."""
    piece = text[piece_start:piece_stop].rstrip(" \t\r\\" if is_gap else " \t\r")
    piece_stop, piece = piece_start + len(piece), piece.lstrip()
    piece_start = piece_stop - len(piece)
    for quote in () if is_gap else "\"'":
        if piece.count(quote) % 2 and piece.startswith(quote):
            piece_start, piece = piece_start + 1, piece[1:]
        elif piece.count(quote) % 2 and piece.endswith(quote):
            piece_stop, piece = piece_stop - 1, piece[:-1]
    return piece_start, piece_stop


@dataclass(frozen=True)
class _OriginalPositions:
    """A map from positions in masked text to positions in the original text."""

    starts: Sequence[int]
    places: Sequence[tuple[int, int, bool]]
    """Start and end of each part in the original text. The last value is true for a masked piece."""

    def find_original_span(self, start: int, end: int) -> Span:
        """Return the span of the original text for a span of the masked text."""
        return self._find_original_position(start, is_end=False), self._find_original_position(
            end - 1, is_end=True
        )

    def _find_original_position(self, position: int, *, is_end: bool) -> int:
        part_index = bisect_right(self.starts, position) - 1
        place_start, place_end, is_piece = self.places[part_index]
        if is_piece:
            return place_end if is_end else place_start
        return place_start + position - self.starts[part_index] + is_end


def _insert_placeholders(text: str, masks: Sequence[Span]) -> tuple[str, _OriginalPositions]:
    pieces: list[str] = []
    piece_starts, piece_places = list[int](), list[tuple[int, int, bool]]()
    masked_length, last_end = 0, 0
    for number, (mask_start, mask_end) in enumerate([*masks, (len(text), len(text))], 1):
        placeholder = f"autotune-masked-{number}-of-{len(masks)}" if number <= len(masks) else ""
        for piece, piece_place in (
            (text[last_end:mask_start], (last_end, mask_start, False)),
            (placeholder, (mask_start, mask_end, True)),
        ):
            if piece:
                pieces.append(piece)
                piece_starts.append(masked_length)
                piece_places.append(piece_place)
                masked_length += len(piece)
        last_end = mask_end
    return "".join(pieces), _OriginalPositions(piece_starts, piece_places)
