"""Changed lines with masked values. The export's script copies the secret values from the same line on
the host.

A study contains placeholders instead of secret values. On the host, the script finds each secret value
by the recorded text before and after its placeholder.
"""

from __future__ import annotations

from itertools import pairwise

from autotune.secret_detection import PLACEHOLDER_PATTERN
from autotune.unified_diff import Hunk


def find_placeholders(text: str) -> tuple[str, ...]:
    """Return the placeholders in a text, in order."""
    return tuple(match[0] for match in PLACEHOLDER_PATTERN.finditer(text))


def split_hunk(hunk: Hunk) -> tuple[Hunk, ...]:
    """Split a hunk so that each line with masked values and its replacement form a separate hunk.

    Raises ValueError if the host cannot fill in the masked values. The error's text is a clause that
    follows the line number.
    """
    removed_indices = [
        removed_index for removed_index, line in enumerate(hunk.removed) if find_placeholders(line)
    ]
    added_indices = [
        removed_index for removed_index, line in enumerate(hunk.added) if find_placeholders(line)
    ]
    if [find_placeholders(hunk.removed[removed_index]) for removed_index in removed_indices] != [
        find_placeholders(hunk.added[removed_index]) for removed_index in added_indices
    ]:
        raise ValueError("moves masked values")
    hunks, removed_start, added_start = list[Hunk](), 0, 0
    for removed_index, added_index in [
        *zip(removed_indices, added_indices, strict=True),
        (len(hunk.removed), len(hunk.added)),
    ]:
        plain_lines = (
            hunk.removed[removed_start:removed_index],
            hunk.added[added_start:added_index],
        )
        if any(plain_lines):
            hunks.append(Hunk(hunk.start_line + removed_start, *plain_lines))
        if removed_index < len(hunk.removed) or added_index < len(hunk.added):
            replacement_hunk = Hunk(
                hunk.start_line + removed_index,
                (hunk.removed[removed_index],),
                (hunk.added[added_index],),
            )
            _check_masked_exchange(replacement_hunk)
            hunks.append(replacement_hunk)
        removed_start, added_start = removed_index + 1, added_index + 1
    return tuple(hunks)


def find_masked_parts(hunk: Hunk) -> tuple[str, ...]:
    """Return the parts of a replaced line that the host fills in; empty if no value is masked.

    A part spans several placeholders if the removed and the added line contain the same text between
    these placeholders.
    """
    if len(hunk.removed) != 1 or len(hunk.added) != 1:
        return ()
    removed_line, added_line = hunk.removed[0], hunk.added[0]
    old_spans = [match.span() for match in PLACEHOLDER_PATTERN.finditer(removed_line)]
    new_spans = [match.span() for match in PLACEHOLDER_PATTERN.finditer(added_line)]
    masked_parts, part_start = list[str](), 0
    for span_number, ((_, old_end), (_, new_end)) in enumerate(
        zip(old_spans, new_spans, strict=True), 1
    ):
        is_last = span_number == len(old_spans)
        if (
            is_last
            or removed_line[old_end : old_spans[span_number][0]]
            != added_line[new_end : new_spans[span_number][0]]
        ):
            masked_parts.append(removed_line[old_spans[part_start][0] : old_end])
            part_start = span_number
    return tuple(masked_parts)


def _check_masked_exchange(hunk: Hunk) -> None:
    """Raise ValueError if the masked values in the host's line cannot be located unambiguously."""
    removed_line, added_line = hunk.removed[0], hunk.added[0]
    placeholders = find_placeholders(removed_line)
    placeholder_numbers = {placeholder.split("-")[2] for placeholder in placeholders}
    if len(placeholder_numbers) < len(placeholders):
        raise ValueError("repeats masked values")
    if not removed_line.endswith("\n") or not added_line.endswith("\n"):
        raise ValueError("contains masked values, and does not end with a newline")
    masked_texts = find_masked_parts(hunk)
    if not all(character.isprintable() or character == "\t" for character in "".join(masked_texts)):
        raise ValueError("contains control characters between masked values")
    if any(
        f"{part}{following_part}" in removed_line for part, following_part in pairwise(masked_texts)
    ):
        raise ValueError("contains no text between masked values")
