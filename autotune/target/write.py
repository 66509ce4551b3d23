"""A target as a file again: what a study keeps of the target it ran."""

from __future__ import annotations

import re
from io import StringIO
from typing import Any

from autotune.target.coherence import COMMAND, STACK
from autotune.target.model import Target

_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./%+-]*")


def written(target: Target) -> dict[str, Any]:
    """The target as its file would say it: quantities with units, every default spelt out."""
    of_others = COMMAND if target.command is None else STACK
    return target.model_dump(mode="json", exclude_none=True, exclude=set(of_others), by_alias=True)


def dump(target: Target) -> str:
    """YAML that reads as an equal target, here and where the defaults are other ones."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 10_000  # a rule stays on one line
    yaml.default_flow_style = None  # lists and the innermost mappings on one line
    text = StringIO()
    yaml.dump(_quoted(written(target)), text)
    return text.getvalue()


def _quoted(node: Any) -> Any:
    """Text that is no plain word in quotes: the library leaves some bare that it cannot read."""
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(node, dict):
        return {_quoted(key): _quoted(item) for key, item in node.items()}
    if isinstance(node, list):
        return [_quoted(item) for item in node]
    if isinstance(node, str) and not _WORD.fullmatch(node):
        return DoubleQuotedScalarString(node)
    return node
