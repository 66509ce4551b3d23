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
    old_numbers = [number for number, line in enumerate(hunk.removed) if find_placeholders(line)]
    new_numbers = [number for number, line in enumerate(hunk.added) if find_placeholders(line)]
    if [find_placeholders(hunk.removed[number]) for number in old_numbers] != [
        find_placeholders(hunk.added[number]) for number in new_numbers
    ]:
        raise ValueError("moves masked values")
    hunks, first, start = list[Hunk](), 0, 0
    for number, replacement in [
        *zip(old_numbers, new_numbers, strict=True),
        (len(hunk.removed), len(hunk.added)),
    ]:
        plain_lines = (hunk.removed[first:number], hunk.added[start:replacement])
        if any(plain_lines):
            hunks.append(Hunk(hunk.start_line + first, *plain_lines))
        if number < len(hunk.removed) or replacement < len(hunk.added):
            replacement_hunk = Hunk(
                hunk.start_line + number, (hunk.removed[number],), (hunk.added[replacement],)
            )
            _check_masked_exchange(replacement_hunk)
            hunks.append(replacement_hunk)
        first, start = number + 1, replacement + 1
    return tuple(hunks)


def find_masked_parts(hunk: Hunk) -> tuple[str, ...]:
    """Return the parts of a replaced line that the host fills in; empty if no value is masked.

    A part spans several placeholders if the removed and the added line contain the same text between
    these placeholders.
    """
    if len(hunk.removed) != 1 or len(hunk.added) != 1:
        return ()
    removed, added = hunk.removed[0], hunk.added[0]
    old_spans = [match.span() for match in PLACEHOLDER_PATTERN.finditer(removed)]
    new_spans = [match.span() for match in PLACEHOLDER_PATTERN.finditer(added)]
    parts, start = list[str](), 0
    for number, ((_, end), (_, new_end)) in enumerate(zip(old_spans, new_spans, strict=True), 1):
        is_last = number == len(old_spans)
        if is_last or removed[end : old_spans[number][0]] != added[new_end : new_spans[number][0]]:
            parts.append(removed[old_spans[start][0] : end])
            start = number
    return tuple(parts)


def _check_masked_exchange(hunk: Hunk) -> None:
    """Raise ValueError if the masked values in the host's line cannot be located unambiguously."""
    removed, added = hunk.removed[0], hunk.added[0]
    placeholders = find_placeholders(removed)
    numbers = {placeholder.split("-")[2] for placeholder in placeholders}
    if len(numbers) < len(placeholders):
        raise ValueError("repeats masked values")
    if not removed.endswith("\n") or not added.endswith("\n"):
        raise ValueError("contains masked values, and does not end with a newline")
    masked_texts = find_masked_parts(hunk)
    if not all(character.isprintable() or character == "\t" for character in "".join(masked_texts)):
        raise ValueError("contains control characters between masked values")
    if any(f"{part}{following_part}" in removed for part, following_part in pairwise(masked_texts)):
        raise ValueError("contains no text between masked values")
