"""The page of target keys, generated from the JSON Schema of targets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.target import field_types, quantities
from autotune.target.schema import build_schema
from scripts.reference.markdown import page, section, table

PATH = Path("docs") / "target-keys.md"
HEAD = """\
`autotune check TARGET` validates a target, and shows the file, line and column of each mistake.
It warns of hosts, keys and variables that have no effect.
Durations, sizes and percentages need a unit, such as `50ms`, `15m`, `512MB` and `0.1%`. Rates can be
written with or without `/s`."""
# Path of the mapping in a target, by the name of its model in the schema.
PLACES = {
    "Target": "",
    "SloSpec": "slo",
    "Host": "hosts.NAME",
    "Ssh": "ssh",
    "Tier": "tiers.NAME",
    "Project": "project",
    "ParameterRule": "parameters.NAME",
    "Load": "load",
    "Expect": "load.expect",
    "Data": "data",
    "Budget": "budget",
    "Search": "search",
    "Simulated": "simulated",
    "Bed": "beds.NAME",
    "ServiceSpec": "services.NAME",
    "ServiceFile": "services.NAME.files.PATH",
    "ServiceParameter": "services.NAME.parameters.NAME",
    "Answers": "services.NAME.read",
    "Counters": "services.NAME.counters",
    "ServiceNeeds": "services.NAME.needs",
}
AMOUNTS = {
    "a duration": "duration, such as `50ms`",
    "a size": "size, such as `512MB`",
    "a rate": "rate, such as `800/s`",
    "a fraction": "percentage, such as `0.1%`",
}


def pages() -> Mapping[Path, str]:
    """Return the content of the page by its path in a checkout.

    Raises ``KeyError`` for a model whose path in a target is unknown.
    """
    whole = build_schema()
    models = {"Target": whole, **whole["$defs"]}
    sections = [_section(name, PLACES[name], models) for name in PLACES]
    if unplaced := {name for name, model in models.items() if "properties" in model} - {*PLACES}:
        raise KeyError(f"models without a place in the page: {', '.join(sorted(unplaced))}")
    return {PATH: page("Keys of a target file", HEAD, *sections)}


def _section(name: str, place: str, models: Mapping[str, dict[str, Any]]) -> str:
    model = models[name]
    required = {*model.get("required", ())}
    if name == "Target":
        required |= {"slo", "hosts", "tiers"}
    rows = [
        (f"`{key}`", _type(part), _default(key, part, required), _meaning(part, models))
        for key, part in model["properties"].items()
    ]
    about = model.get("description", "").split("\n\n")[0]
    heads = ("Key", "Value", "Default", "Meaning")
    title = f"`{place}`" if place else "Top level"
    return section(title, "\n\n".join(filter(None, (about, table(heads, rows)))))


def _meaning(part: dict[str, Any], models: Mapping[str, dict[str, Any]]) -> str:
    """Return the description of a key, or else the description of the mapping's model."""
    model = models.get(part.get("$ref", "").rpartition("/")[2], {})
    return str(part.get("description", model.get("description", "")).split("\n\n")[0])


def _default(key: str, part: dict[str, Any], required: set[str]) -> str:
    if key in required:
        return "required"
    value = part.get("default")
    if value in (None, [], {}):
        return ""
    if isinstance(value, dict):
        return "see below"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(part: dict[str, Any]) -> str:
    *others, last = dict.fromkeys(_types(part))
    return f"{', '.join(others)} or {last}" if others else last


def _types(part: dict[str, Any]) -> Iterator[str]:
    if "$ref" in part:
        yield _of_model(part["$ref"].rpartition("/")[2])
    elif "anyOf" in part or "oneOf" in part:
        for each in part.get("anyOf", part.get("oneOf", ())):
            yield from _types(each)
    elif "enum" in part or "const" in part:
        yield from (f"`{_written(value)}`" for value in part.get("enum", [part.get("const")]))
    elif isinstance(part.get("type"), list):
        yield from (_named(each) for each in part["type"])
    elif part.get("type") == "array":
        items = part.get("items", {})
        yield f"list of {_plural(_type(items))}" if items else "list"
    elif part.get("type") == "object":
        yield _of_mapping(part)
    elif part.get("type") == "string":
        yield _text(part)
    elif part.get("type") != "null":
        yield _named(part.get("type", "any value")) + _bounds(part)


def _plural(kind: str) -> str:
    for noun in ("mapping", "whole number", "string"):
        kind = re.sub(rf"^(\[?{noun})\b", r"\1s", kind)
    return kind


def _of_model(name: str) -> str:
    place = PLACES[name]
    anchor = "".join(c for c in place.lower() if c.isalnum() or c in "-_")
    return f"[mapping](#{anchor})"


def _of_mapping(part: dict[str, Any]) -> str:
    inner = [*part.get("patternProperties", {}).values()]
    extra = part.get("additionalProperties")
    inner += [extra] if isinstance(extra, dict) else []
    return f"mapping of names to {_type(inner[0])}" if inner else "mapping"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(part: dict[str, Any]) -> str:
    pattern = part.get("pattern")
    for kind, text in AMOUNTS.items():
        names = "|".join(sorted(quantities.UNITS_BY_KIND[kind], key=len, reverse=True))
        if pattern == rf"^\s*{quantities.AMOUNT_REGEX}\s*({names})\s*$":
            return text
    if pattern in (None, field_types.TEXT_PATTERN, field_types.ARGUMENT_PATTERN):
        return "string"
    return field_types.PATTERN_DESCRIPTIONS.get(pattern, "string")


def _named(kind: str) -> str:
    return {
        "boolean": "`true` or `false`",
        "integer": "whole number",
    }.get(kind, kind)


def _bounds(part: dict[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    limits = {"at least": low, "above": above, "at most": high, "below": below}
    text = " and ".join(f"{word} {limit}" for word, limit in limits.items() if limit is not None)
    return f" {text}" if text else ""
