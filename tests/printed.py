"""Validation of a command's ``--json`` output against its published schema."""

from __future__ import annotations

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator

from autotune.cli.json_schemas import build_schema


def printed(name: str, text: str) -> Any:
    """Return the object in ``text``, which must match the schema ``name`` and contain no other keys."""
    document = json.loads(text)
    _validator(name).validate(document)
    return document


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    published = build_schema(name)
    Draft202012Validator.check_schema(published)
    return Draft202012Validator(_forbid_other_keys(published))


def _forbid_other_keys(part: Any) -> Any:
    """Forbid additional keys. The published schema allows them, because keys may be added later."""
    if isinstance(part, list):
        return [_forbid_other_keys(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _forbid_other_keys(each) for key, each in part.items()}
    return {**closed, "additionalProperties": False} if "properties" in part else closed
