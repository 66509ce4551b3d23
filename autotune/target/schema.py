"""JSON Schema of the target file as users write it, for editors.

``python -m autotune.target.schema`` writes it to ``build_schema.json`` beside this file.
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
    """The schema: quantities are text with a unit, ``p99``-style keys are allowed in ``slo``."""
    # Docstrings quote names with two backticks, editors with one.
    generated = json.loads(json.dumps(Target.model_json_schema()).replace("``", "`"))
    for name, part in {**generated["$defs"], "Target": generated}.items():
        _set_defaults(getattr(model, name), part["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **generated,
        "title": "autotune target",
    }


def _set_defaults(model_class: type[BaseModel], properties: dict[str, Any]) -> None:
    """Defaults as they would be written, with their unit, and no made-up titles."""
    for name, field in model_class.model_fields.items():
        key = field.alias or name
        if key not in properties:
            continue
        properties[key].pop("title", None)
        properties[key].pop("default", None)
        of_a_stack = model_class is Target and name in model.REQUIRED_STACK_KEYS
        if not (field.is_required() or of_a_stack) and field.default is not None:
            # "field" stands for no metadata at all, which Annotated refuses.
            kind: Any = Annotated[field.annotation, "field", *field.metadata]
            written: TypeAdapter[Any] = TypeAdapter(kind)
            default = written.dump_python(field.default, mode="json", exclude_none=True)
            properties[key]["default"] = default


def format_schema() -> str:
    """What ``build_schema.json`` contains."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(format_schema(), encoding="utf-8")
