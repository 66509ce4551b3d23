"""Options of a run in place of what its target says: `--time 15m`, `--set web.nginx.backlog=511`."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from autotune.errors import AutotuneError
from autotune.target.document import Document, scalar

SET = "--set"
# Options and the key of a target that each stands for.
KEYS: dict[str, tuple[str, ...]] = {
    "--name": ("name",),
    "--time": ("budget", "time"),
    "--trials": ("budget", "trials"),
}
# Keys of a parameter's rule; the fixed value replaces all others.
KEPT = ("when", "unit", "meaning")

Override = tuple[str, str]
"""An option and its value, as typed and as recorded by a study."""


def overridden(document: Document, overrides: Iterable[Override]) -> Document:
    """The document with the values of options. Errors about these values name the option.

    Raises AutotuneError for a `--set` without an assignment.
    """
    root, origins = copy.deepcopy(document.root), dict(document.origins)
    for option, text in overrides:
        location, value = _assignment(text) if option == SET else _of_key(option, text)
        *sections, key = location
        section: Any = root
        for name in sections:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        if option == SET:
            rule = section.get(key)
            kept = {k: rule[k] for k in KEPT if k in rule} if isinstance(rule, dict) else {}
            value = {**kept, "fixed": value}
        section[key] = value
        origins[tuple(location)] = f"{option} {text}"
    return replace(document, root=root, origins=origins)


def _of_key(option: str, text: str) -> tuple[tuple[str, ...], Any]:
    return KEYS[option], int(text) if option == "--trials" else text


def _assignment(text: str) -> tuple[tuple[str, str], Any]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise AutotuneError(
            f"{SET} {text}: not an assignment",
            hint=f"write {SET} TIER.SERVICE.PARAMETER=VALUE; `autotune params` lists parameters",
        )
    return ("parameters", name.strip()), scalar(value.strip())
