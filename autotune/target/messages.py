"""Format values and names for messages: short, and as users write them in files."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from itertools import islice

MAX_VALUE_LENGTH = 40
MAX_LISTED_NAMES = 25  # maximum number of names in a hint
# The time of a comparison grows with the square of the length of the names. Names may be from someone
# else.
MAX_COMPARED_LENGTH, MAX_COMPARED_NAMES = 100, 2000


def is_same_value(value: object, other: object) -> bool:
    """True if two values are the same in a configuration file, where 1 differs from true."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def format_value(value: object) -> str:
    """Return a value as text for a message: ``'many'``, ``true``, ``12``, ``nothing``, ``a list``, ``a
    mapping``.
    """
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


def format_scalars(value: object) -> str:
    """Return a scalar, or a list of scalars, as users write it in a target: ``[4, 64]``."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_scalars, value))}]"
    return format_value(value) if isinstance(value, bool) else str(value)


def format_count(count: float, noun: str) -> str:
    """Return a count with its noun: ``1 trial``, ``3 trials``, ``1.5 minutes``."""
    return f"{count:.15g} {noun}" if count == 1 else f"{count:.15g} {noun}s"


def find_nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that the user probably meant, or ``None``."""
    if len(name) > MAX_COMPARED_LENGTH:
        return None
    compared_names = (n for n in names if len(n) <= MAX_COMPARED_LENGTH)
    names_by_case = {n.casefold(): n for n in islice(compared_names, MAX_COMPARED_NAMES)}
    close_names = difflib.get_close_matches(name.casefold(), names_by_case, n=1, cutoff=0.6)
    return names_by_case[close_names[0]] if close_names else None


def suggest_choice(value: object, choices: Iterable[object]) -> str:
    """Return the hint for a value that is not among the choices of a parameter: the nearest choice,
    and the list of choices.
    """
    choices = tuple(dict.fromkeys(choices))
    same_text = (c for c in choices if str(c).casefold() == str(value).casefold())
    nearest_choice = next(
        same_text, find_nearest_name(str(value), (c for c in choices if isinstance(c, str)))
    )
    listed_choices = ", ".join(map(format_value, choices[:MAX_LISTED_NAMES]))
    more_text = ", …" if len(choices) > MAX_LISTED_NAMES else ""
    choices_text = f"it must be one of: {listed_choices}{more_text}"
    if nearest_choice is None:
        return choices_text
    return f"did you mean {format_value(nearest_choice)}? {choices_text}"


def suggest_list(text: str, names: Collection[str]) -> str | None:
    """Return the hint for several known names in one text, such as `web1, web2`, or ``None``."""
    words = re.split(r"[,;\s]+", text.strip())
    return f"write `[{', '.join(words)}]`" if words[1:] and all(w in names for w in words) else None


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return the hint for an unknown name: the nearest known name, or all known names."""
    names = list(names)
    if not names:
        return "none exist"
    if nearest_name := find_nearest_name(name, names):
        return f"did you mean {nearest_name!r}?"
    total_count_text = f", … ({len(names)} in all)" if len(names) > MAX_LISTED_NAMES else ""
    return f"expected one of: {', '.join(names[:MAX_LISTED_NAMES])}{total_count_text}"
