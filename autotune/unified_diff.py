"""What differs between two trees of files, as `patch -p1` takes it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

Files = Mapping[str, bytes]
NO_END = "\\ No newline at end of file\n"


def file_diff(before: Files, after: Files, a: str, b: str) -> str:
    """A unified diff of two trees, file by file in the order of their paths."""
    diff: list[str] = []
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        labels = (
            "/dev/null" if old is None else f"{a}/{path}",
            "/dev/null" if new is None else f"{b}/{path}",
        )
        diff += [
            line if line.endswith("\n") else f"{line}\n{NO_END}"
            for line in difflib.unified_diff(_lines(old), _lines(new), *labels)
        ]
    return "".join(diff)


def _lines(content: bytes | None) -> list[str]:
    # Bytes that are no text pass through unharmed; only "\n" ends a line, as `patch` sees it.
    text = (content or b"").decode("utf-8", "surrogateescape")
    return [line for line in text.replace("\n", "\n\0").split("\0") if line]
