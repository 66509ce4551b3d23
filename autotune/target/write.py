"""A target as a file again: what a study keeps of the target it ran."""

from __future__ import annotations

from io import StringIO
from typing import Any

from autotune.target.model import Target


def written(target: Target) -> dict[str, Any]:
    """The target as its file would say it: quantities with units, every default spelt out."""
    return target.model_dump(mode="json", exclude_none=True)


def dump(target: Target) -> str:
    """YAML that reads as an equal target, here and where the defaults are other ones."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 100
    yaml.default_flow_style = None  # lists and the innermost mappings on one line
    text = StringIO()
    yaml.dump(written(target), text)
    return text.getvalue()
