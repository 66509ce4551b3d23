"""Parts of Markdown pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MADE = "Generated from the code by `python -m scripts.reference`."


def page(title: str, *parts: str) -> str:
    """Return a page with a title, the parts that are not empty, and a note that it is generated."""
    return "\n\n".join([f"# {title}", *filter(None, parts), MADE]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, or an empty string if there are no rows."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *lines])


def section(title: str, content: str) -> str:
    """Return a section with a heading, or an empty string if ``content`` is empty."""
    return f"## {title}\n\n{content}" if content else ""


def listed(items: Iterable[str]) -> str:
    """Return the items as inline code, separated by commas."""
    return ", ".join(f"`{item}`" for item in items)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
