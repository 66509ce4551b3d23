"""A value as a message shows it: as YAML would, short, and never a whole tree."""

from __future__ import annotations

LONGEST = 40


def same(one: object, other: object) -> bool:
    """Whether two values are the same in a configuration file, where 1 is not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def shown(value: object) -> str:
    """``'many'``, ``true``, ``12``, ``nothing``, ``a list``, ``a mapping``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST else value[: LONGEST - 1] + "…")
    if isinstance(value, int | float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(str(value), str(value))
    return "a mapping" if isinstance(value, dict) else "a list"
