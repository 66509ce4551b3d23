"""The required content of each kind of record, because other people may have written a study.

A shape is a type, a tuple of types, a list with the shape of its items, or a mapping from keys to
shapes. A key that ends in "?" may be missing or null. ``ANY_KEY`` applies to every key. Other keys
are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

SCHEMA_VERSION = 1  # version of a study's records
CALL_PURPOSE = "call"  # purpose of a reading from a benchmark command
ANY_KEY = "*"
NUMBER_TYPES = (int, float)
TEXT_MAPPING = {ANY_KEY: str}
VALUE_MAPPING = {ANY_KEY: (str, int, float, bool)}
NUMBER_MAPPING = {ANY_KEY: NUMBER_TYPES}
COUNT_MAPPING = {ANY_KEY: int}
NONE_TYPE: Any = type(None)
TRIAL_KEY_SHAPE = {"trial": int}

READING_SHAPE = {
    "trial": int,
    "at": str,
    "purpose": str,
    "seconds": NUMBER_TYPES,
    "rate?": NUMBER_TYPES,
    "intended?": int,
    "violations?": int,
    "errors?": COUNT_MAPPING,
    "histogram?": COUNT_MAPPING,
    "truncated?": bool,
    "limited?": str,
    "disturbed?": str,
    "stolen?": NUMBER_TYPES,
    "hosts?": {ANY_KEY: {ANY_KEY: (int, float, str, dict, list, NONE_TYPE)}},
}
# Additional keys of readings under load; calls of a benchmark command lack them.
LOAD_READING_SHAPE = {
    "rate": NUMBER_TYPES,
    "intended": int,
    "violations": int,
    "histogram": COUNT_MAPPING,
}

# A host in a deployment record; exports read these keys.
HOST_SHAPE = {"units": dict, "sysctls": dict, "files": dict, "original": dict}

RECORD_SHAPES: Mapping[str, Any] = {
    "study": {
        "schema?": int, "name?": str, "started": str, "autotune?": str, "source?": str,
        "facts?": {ANY_KEY: dict}, "overrides?": [[str]], "adopted?": dict, "asked?": TEXT_MAPPING,
        "beds?": {ANY_KEY: dict}, "purpose?": str, "shared?": bool, "space?": dict,
    },
    "session": {"at?": str, "versions?": TEXT_MAPPING, "beds?": [str]},
    "joined": {"at?": str, "bed": str, "adopted?": dict, "versions?": TEXT_MAPPING},
    "bed": {"bed": str, "set_aside": str},
    "beds": {"offsets": {ANY_KEY: NUMBER_MAPPING}},
    "trial": {
        **TRIAL_KEY_SHAPE, "phase": str, "of?": int, "asked?": int, "at?": str, "settings": VALUE_MAPPING,
        "suggested": VALUE_MAPPING, "bindings": [str], "bed?": str, "repeats?": int, "capped?": [str],
    },
    "deployed": {
        **TRIAL_KEY_SHAPE, "effective": VALUE_MAPPING, "differences": [str], "files?": TEXT_MAPPING,
        "actions?": TEXT_MAPPING,
        "hosts?": {ANY_KEY: HOST_SHAPE},
    },
    "warm-up": {
        **TRIAL_KEY_SHAPE, "settled": bool, "windows": int, "hits?": NUMBER_TYPES,
        "carried?": (bool, int, float),
    },
    "measured": {
        **TRIAL_KEY_SHAPE, "at?": str, "readings": int, "load_seconds": NUMBER_TYPES, "verdict": str,
        "peak": NUMBER_TYPES, "low": NUMBER_TYPES, "high": NUMBER_TYPES, "sd": NUMBER_TYPES,
        "p99?": NUMBER_TYPES,
    },
    "answered": {**TRIAL_KEY_SHAPE, "values": [NUMBER_TYPES]},
    "failed": {**TRIAL_KEY_SHAPE, "at?": str, "why": str, "fault?": bool},
    "sweep": {
        "plan": {
            "title": str, "axes": [{"name": str, "choices": [{"label": (str, int, float, bool),
                                                              "settings": VALUE_MAPPING}]}],
            "hosts": {ANY_KEY: [int]}, "settings": VALUE_MAPPING, "rates": [NUMBER_TYPES], "repeat": int,
            "seconds": NUMBER_TYPES, "seed": int, "keys": int,
        }
    },
    "swept": {**TRIAL_KEY_SHAPE, "at?": str, "point": int, "turn": int},
    "noise": {"weights": [NUMBER_TYPES], "readings": int, "effects?": [NUMBER_TYPES]},
    "bottleneck": {
        **TRIAL_KEY_SHAPE, "tier": str, "service": str, "host": str, "resource": str, "evidence": str,
        "confidence": NUMBER_TYPES, "gain?": NUMBER_TYPES, "related?": [[str]],
    },
    "capacities": {**TRIAL_KEY_SHAPE, "parts": {ANY_KEY: list}},
    "memory": {**TRIAL_KEY_SHAPE, "rss": COUNT_MAPPING},
    "spent": {"seconds": NUMBER_MAPPING, "bed?": str},
    "standings": {"peaks": {ANY_KEY: [NUMBER_TYPES]}, "noise": NUMBER_TYPES},
    "transferred": {"of": str, "configurations": [VALUE_MAPPING]},
    "model": {"view": dict},
    "reversal-costs": {
        **TRIAL_KEY_SHAPE,
        "costs": [{"parameter": str, "loss": NUMBER_TYPES, "sd": NUMBER_TYPES}],
    },
    "settled": {"at?": str, "why": str},
    "simplified": {"at?": str},
    "explained": {"at?": str, "losses?": NUMBER_MAPPING, "sds?": NUMBER_MAPPING},
    "ceilings": {"at?": str, "of": str, "ceilings": [dict]},
    "verdict": {"at?": str, "verdict": str, "best?": int, "gain?": dict},
}  # fmt: skip


def check_record(record: Mapping[str, Any]) -> None:
    """Raise ValueError for a record without the required content of its kind."""
    event = record["event"]
    if not isinstance(event, str):
        raise TypeError("event: expected text")
    if problem := find_mismatch(record, RECORD_SHAPES.get(event, {})):
        raise ValueError(problem)
    if event == "study" and (schema := record.get("schema", SCHEMA_VERSION)) != SCHEMA_VERSION:
        raise ValueError(f"unsupported schema {schema}; this version reads {SCHEMA_VERSION}")


def check_reading(record: Mapping[str, Any]) -> None:
    """Raise ValueError for a reading without the required content."""
    has_load = record.get("purpose") != CALL_PURPOSE
    if problem := find_mismatch(
        record, {**READING_SHAPE, **LOAD_READING_SHAPE} if has_load else READING_SHAPE
    ):
        raise ValueError(problem)


def find_mismatch(value: Any, shape: Any, location: str = "") -> str:
    """Return where and how a value differs from a shape; empty if it matches."""
    if isinstance(shape, dict):
        return _find_mapping_mismatch(value, shape, location)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{location}: expected a list"
        pairs = ((item, f"{location}[{index}]") for index, item in enumerate(value))
        return next(filter(None, (find_mismatch(item, shape[0], at) for item, at in pairs)), "")
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, bool) and bool not in kinds:
        return f"{location}: unexpected true or false"
    if not isinstance(value, kinds) or (isinstance(value, int | float) and not _is_usable(value)):
        return f"{location}: expected {' or '.join(_TYPE_NAMES[kind] for kind in kinds)}"
    return ""


def _find_mapping_mismatch(value: Any, shape: Mapping[str, Any], location: str) -> str:
    if not isinstance(value, dict):
        return f"{location}: expected a mapping"
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if key == ANY_KEY:
            mismatches = (
                find_mismatch(item, inner, f"{location}.{k}"[:80]) for k, item in value.items()
            )
            if problem := next(filter(None, mismatches), ""):
                return problem
        elif name not in value:
            if not key.endswith("?"):
                return f"{location}.{name} is missing".lstrip(".")
        elif key.endswith("?") and value[name] is None:
            continue
        elif problem := find_mismatch(value[name], inner, f"{location}.{name}".lstrip(".")):
            return problem
    return ""


def _is_usable(number: float) -> bool:
    """True if the number is finite as a float; JSON integers have any length."""
    try:
        return isfinite(number)
    except OverflowError:
        return False


_TYPE_NAMES: Mapping[Any, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a mapping",
    list: "a list", NONE_TYPE: "nothing",
}  # fmt: skip
