"""JSON Schema of the target file as users write it, for editors.

``python -m autotune.target.schema`` writes the schema to ``schema.json`` next to this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter

from autotune.target import model
from autotune.target.model import Target

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def build_schema() -> dict[str, Any]:
    """Return the schema, in which quantities are text with a unit, and ``slo`` accepts keys such as
    ``p99``.
    """
    # Docstrings use double backticks, but editors show single backticks.
    generated_schema = json.loads(json.dumps(Target.model_json_schema()).replace("``", "`"))
    for model_name, definition in {**generated_schema["$defs"], "Target": generated_schema}.items():
        _set_defaults(getattr(model, model_name), definition["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **generated_schema,
        "title": "autotune target",
    }


def _set_defaults(model_class: type[BaseModel], properties: dict[str, Any]) -> None:
    """Set defaults as users write them, with their units, and remove generated titles."""
    for field_name, field in model_class.model_fields.items():
        key = field.alias or field_name
        if key not in properties:
            continue
        properties[key].pop("title", None)
        properties[key].pop("default", None)
        is_stack_key = model_class is Target and field_name in model.REQUIRED_STACK_KEYS
        if not (field.is_required() or is_stack_key) and field.default is not None:
            # `Annotated` requires at least one metadata item, so "field" is a placeholder.
            annotated_type: Any = Annotated[field.annotation, "field", *field.metadata]
            adapter: TypeAdapter[Any] = TypeAdapter(annotated_type)
            default = adapter.dump_python(field.default, mode="json", exclude_none=True)
            properties[key]["default"] = default


def format_schema() -> str:
    """Return the content of ``schema.json``."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(format_schema(), encoding="utf-8")
