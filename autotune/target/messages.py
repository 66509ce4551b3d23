"""How messages word values and names: short, and in the words of the file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_VALUE_LENGTH = 40  # characters of a value
MAX_LISTED_NAMES = 25  # that a hint lists


def is_same_value(value: object, other: object) -> bool:
    """True if two values are the same in a configuration file, where 1 is not true."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def format_value(value: object) -> str:
    """``'many'``, ``true``, ``12``, ``nothing``, ``a list``, ``a mapping``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(
            value if len(value) <= MAX_VALUE_LENGTH else value[: MAX_VALUE_LENGTH - 1] + "…"
        )
    if isinstance(value, int | float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(str(value), str(value))
    return "a mapping" if isinstance(value, dict) else "a list"


def format_count(count: float, noun: str) -> str:
    """``1 trial``, ``3 trials``, ``1.5 minutes``."""
    return f"{count:.15g} {noun}" if count == 1 else f"{count:.15g} {noun}s"


def find_nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be."""
    by_folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def suggest_name(name: str, names: Iterable[str]) -> str:
    """The hint for a name that does not exist: the nearest one that does, or all of them."""
    names = list(names)
    if not names:
        return "none exist"
    if meant := find_nearest_name(name, names):
        return f"did you mean {meant!r}?"
    more = f", … ({len(names)} in all)" if len(names) > MAX_LISTED_NAMES else ""
    return f"expected one of: {', '.join(names[:MAX_LISTED_NAMES])}{more}"
