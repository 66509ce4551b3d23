"""Write a target as a file, and list the differences between two targets.

A study records its target as a target file. When a study continues, autotune compares the target with
the recorded target, and decides whether the study's readings are still valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

from autotune.target.consistency_checks import COMMAND_KEYS, STACK_KEYS
from autotune.target.messages import format_value
from autotune.target.model import Target

_PLAIN_WORD_PATTERN = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./%+-]*")


# Keys of `load:`, with the keys that each key replaces. Defaults of replaced keys are not written.
_EXCLUDED_LOAD_KEYS = {
    "command": {"generator"},
    "url": {"path", "host"},
    "requests": {"path", "method"},
}


def target_to_tree(target: Target) -> dict[str, Any]:
    """Return the target as in its file: quantities with units, and every default included."""
    foreign_keys = COMMAND_KEYS if target.command is None else STACK_KEYS
    target_tree = target.model_dump(
        mode="json", exclude_none=True, exclude=set(foreign_keys), by_alias=True
    )
    load_tree = target_tree.get("load", {})
    excluded_keys = {
        excluded_key
        for key in _EXCLUDED_LOAD_KEYS
        if load_tree.get(key)
        for excluded_key in _EXCLUDED_LOAD_KEYS[key]
    }
    return (
        {**target_tree, "load": {k: v for k, v in load_tree.items() if k not in excluded_keys}}
        if load_tree
        else target_tree
    )


def dump_yaml(target: Target) -> str:
    """Return the target as YAML with all defaults, so that later versions with other defaults read an
    equal target.
    """
    from ruamel.yaml import YAML

    yaml_writer = YAML(typ="rt")
    yaml_writer.width = 10_000  # keeps each rule on one line
    yaml_writer.default_flow_style = None  # keeps lists and innermost mappings on one line
    output = StringIO()
    yaml_writer.dump(_quote_text(target_to_tree(target)), output)
    return output.getvalue()


def _quote_text(node: Any) -> Any:
    """Return the tree with all text in quotes, except plain words. The YAML library would not quote all
    ambiguous text.
    """
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(node, dict):
        return {_quote_text(key): _quote_text(item) for key, item in node.items()}
    if isinstance(node, list):
        return [_quote_text(item) for item in node]
    if isinstance(node, str) and not _PLAIN_WORD_PATTERN.fullmatch(node):
        return DoubleQuotedScalarString(node)
    return node


# Changes to these keys do not invalidate readings. All other keys affect the stack, the load or the
# search space.
ALLOWED_CHANGES = (
    ("name",),
    ("budget",),
    ("search",),
    ("try",),
    ("unit",),
    ("timeout",),  # time limit of a command, which does not affect the values that it prints
    ("hosts", "*", "user"),
    ("hosts", "*", "port"),
    ("hosts", "*", "lab_only"),
    ("ssh",),
)


@dataclass(frozen=True)
class TargetDifference:
    """A setting that differs between two targets, with both values as in the files. A value is ``None``
    if the setting is missing.

    ``invalidates_readings`` is true if readings with the old target are not valid for the new target.
    """

    path: str
    old: Any
    new: Any
    invalidates_readings: bool

    def __str__(self) -> str:
        return f"{self.path}: {_format_brief_value(self.old)} → {_format_brief_value(self.new)}"


def list_differences(old: Target, new: Target) -> tuple[TargetDifference, ...]:
    """Return every setting that differs, in the order of the new target's file, with removed settings
    last.
    """
    return tuple(
        TargetDifference(
            ".".join(path),
            before,
            after,
            invalidates_readings=not _keeps_readings_valid(path, old, new),
        )
        for path, before, after in _walk_differences((), target_to_tree(old), target_to_tree(new))
    )


def _walk_differences(
    path: tuple[str, ...], old: Any, new: Any
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*new, *(key for key in old if key not in new)):
            yield from _walk_differences((*path, key), old.get(key), new.get(key))
    elif old != new or type(old) is not type(new):
        yield path, old, new


def _keeps_readings_valid(path: tuple[str, ...], old: Target, new: Target) -> bool:
    if path == ("load", "max_rate"):
        # A higher maximum rate only permits a higher capacity, so existing readings remain valid.
        return new.load.max_rate > old.load.max_rate
    return any(
        len(path) >= len(pattern)
        and all(p in ("*", s) for p, s in zip(pattern, path, strict=False))
        for pattern in ALLOWED_CHANGES
    )


def _format_brief_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(_format_brief_value(item) for item in value)}]"
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{key}: {_format_brief_value(item)}' for key, item in value.items())}}}"
        )
    return format_value(value)
