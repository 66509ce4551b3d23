"""Compute differences between files or trees: hunks, and diffs for `patch -p1`."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autotune import config_text

FileContents = Mapping[str, bytes]
Line = TypeVar("Line", bound=Hashable)
# These take about a second. Two files of 1,000 different lines need only 2,000 comparisons.
MAX_COMPARISONS = 3_000_000
MIN_PRUNED_LINES = 200  # as in `difflib`
NO_NEWLINE_MARK = "\\ No newline at end of file\n"


@dataclass(frozen=True)
class Hunk:
    """Lines of a file, with the lines that replace them.

    ``start_line`` is the number of the first ``removed`` line. If no line is removed, ``added``
    lines are inserted before line ``start_line``. Lines include their ends, and contain no masked
    words.
    """

    start_line: int
    removed: tuple[str, ...]
    added: tuple[str, ...]


def format_file_diff(
    before: FileContents, after: FileContents, before_label: str, after_label: str
) -> str:
    """Return a unified diff of two trees, file by file in the order of their paths."""
    diff_parts: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        side_labels = (
            "/dev/null" if old is None else f"{before_label}/{path}",
            "/dev/null" if new is None else f"{after_label}/{path}",
        )
        diff_parts += map(_with_newline, _list_diff_lines(old or b"", new or b"", *side_labels))
    return "".join(diff_parts)


def _list_diff_lines(old: bytes, new: bytes, old_label: str, new_label: str) -> Iterator[str]:
    """Yield the lines of a unified diff of two files. Without a short comparison, the whole content
    counts as different.
    """
    old_lines, new_lines = split_lines(old), split_lines(new)
    if _BoundedMatcher(old_lines, new_lines).list_opcodes() is not None:
        yield from difflib.unified_diff(old_lines, new_lines, old_label, new_label)
        return
    yield from (f"--- {old_label}\n", f"+++ {new_label}\n")
    yield f"@@ -1,{len(old_lines)} +1,{len(new_lines)} @@\n"
    yield from (f"-{line}" for line in old_lines)
    yield from (f"+{line}" for line in new_lines)


def format_edit_diff(path: str, hunks: Iterable[Hunk]) -> str:
    """Return a unified diff of one file, without context lines."""
    diff_parts, line_shift = [f"--- a/{path}\n+++ b/{path}\n"], 0
    for hunk in hunks:
        removed_count, added_count = len(hunk.removed), len(hunk.added)
        # In a diff, the number of an empty range is the number of the line before the range.
        old_start, new_start = (
            hunk.start_line - (removed_count == 0),
            hunk.start_line + line_shift - (added_count == 0),
        )
        diff_parts.append(f"@@ -{old_start},{removed_count} +{new_start},{added_count} @@\n")
        diff_parts += [_with_newline(f"-{line}") for line in hunk.removed]
        diff_parts += [_with_newline(f"+{line}") for line in hunk.added]
        line_shift += added_count - removed_count
    return "".join(diff_parts) if len(diff_parts) > 1 else ""


def _with_newline(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n{NO_NEWLINE_MARK}"


def split_lines(content: bytes) -> list[str]:
    """Return the lines of a file, including line ends. Only a line feed ends a line, as in ``sed``."""
    return re.findall(r"[^\n]*\n|[^\n]+", config_text.decode(content))


def find_hunks(
    before: bytes, after: bytes, shown_before: bytes, shown_after: bytes
) -> tuple[Hunk, ...] | None:
    """Return the hunks that turn one file into another, with the text of the masked files.

    Returns ``None`` if masking changed the number of lines, or if changed lines contain bytes that are
    not UTF-8.
    """
    old, new_lines = split_lines(before), split_lines(after)
    shown_old, shown_new = split_lines(shown_before), split_lines(shown_after)
    if (len(old), len(new_lines)) != (len(shown_old), len(shown_new)):
        return None
    line_ids = {line: line_id for line_id, line in enumerate(dict.fromkeys((*old, *new_lines)))}
    old_ids, new_ids = ([line_ids[line] for line in file_lines] for file_lines in (old, new_lines))
    hunks = tuple(
        Hunk(old_start + 1, tuple(shown_old[old_start:old_end]), tuple(shown_new[start:new_end]))
        for old_start, old_end, start, new_end in _list_differences(old_ids, new_ids)
    )
    changed_lines = (line for hunk in hunks for line in (*hunk.removed, *hunk.added))
    return hunks if all(map(config_text.is_utf8, changed_lines)) else None


def _list_differences(
    old: Sequence[int], new: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the ranges of lines that differ: start and end in the old file and in the new file.

    Each line is represented by a number. Equal lines have equal numbers.
    """
    prefix_length = 0
    while prefix_length < min(len(old), len(new)) and old[prefix_length] == new[prefix_length]:
        prefix_length += 1
    suffix_length = 0
    while (
        suffix_length < min(len(old), len(new)) - prefix_length
        and old[-1 - suffix_length] == new[-1 - suffix_length]
    ):
        suffix_length += 1
    old_lines = old[prefix_length : len(old) - suffix_length]
    new_lines = new[prefix_length : len(new) - suffix_length]
    opcodes = _BoundedMatcher(old_lines, new_lines, autojunk=False).list_opcodes()
    if opcodes is None:
        opcodes = [("replace", 0, len(old_lines), 0, len(new_lines))]
    for opcode_tag, old_start, old_end, new_start, new_end in opcodes:
        if opcode_tag != "equal":
            yield (
                old_start + prefix_length,
                old_end + prefix_length,
                new_start + prefix_length,
                new_end + prefix_length,
            )


class _BoundedMatcher(difflib.SequenceMatcher[Line]):
    """A comparison that stops after `MAX_COMPARISONS` comparisons of lines.

    The time of a comparison may grow with the cube of the number of lines. Files that repeat the same
    lines thousands of times could take days.
    """

    def __init__(self, old: Sequence[Line], new: Sequence[Line], *, autojunk: bool = True) -> None:
        super().__init__(None, old, new, autojunk)
        self.comparison_count, self._old = 0, old
        # The base class ignores lines that make up more than 1 % of a long file.
        max_count = len(new) // 100 + 1 if autojunk and len(new) >= MIN_PRUNED_LINES else len(new)
        self._new_counts = {
            line: count for line, count in Counter(new).items() if count <= max_count
        }

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        lines = self._old[alo:ahi]
        self.comparison_count += len(lines) + sum(self._new_counts.get(line, 0) for line in lines)
        if self.comparison_count > MAX_COMPARISONS:
            raise _TooManyComparisonsError
        return super().find_longest_match(alo, ahi, blo, bhi)

    def list_opcodes(self) -> Sequence[tuple[str, int, int, int, int]] | None:
        """Return the operations that turn the old lines into the new lines, or ``None`` if the comparison
        takes too long.
        """
        try:
            return self.get_opcodes()
        except _TooManyComparisonsError:
            return None


class _TooManyComparisonsError(Exception):
    """The comparison of two files takes too long."""
