"""A list of all texts that users can read, so that reviewers see each change of wording as a diff.

``python -m scripts.user_messages`` writes the list to ``tests/messages.txt`` of a checkout. Docstrings
of models and commands are listed, because `--help` and the reference pages show them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import groupby

from scripts.prose import surfaces

FILE = surfaces.ROOT / "tests" / "messages.txt"
HEAD = "# Texts that users read, by file. `python -m scripts.user_messages` writes this list.\n"
SHOWN = ("help", "errors", "messages", "templates")


def _entries() -> Iterator[tuple[str, str, str]]:
    """Yield the file, the surface and the content of each text."""
    for text in surfaces.texts_of_code():
        if text.surface in SHOWN:
            yield text.path, text.surface, text.text
    for path, block in surfaces.blocks_of_templates():
        yield path, "templates", block.text


def text() -> str:
    """Return the list, with a section for each file, whose texts are in the order of their lines."""
    parts = [HEAD]
    for path, entries in groupby(_entries(), key=lambda entry: entry[0]):
        parts.append(f"\n{path}\n")
        for surface, message in dict.fromkeys(
            (surface, message) for _, surface, message in entries
        ):
            lines = textwrap.dedent(message).strip("\n").splitlines()
            parts.append(f"  {surface:9} {lines[0] if lines else ''}\n")
            parts += [f"  {'':9} {line}".rstrip() + "\n" for line in lines[1:]]
    return "".join(parts)


def write() -> None:
    FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    write()
