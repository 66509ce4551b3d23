"""What each record of a study contains, by its kind: other people may have written it.

A shape is a type, a tuple of types, a list with the shape of its items, or a mapping. A mapping has a
shape for each key; a key that ends in "?" may be missing or null, and ``ANY`` stands for every key.
Keys that no shape names are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

SCHEMA = 1  # of the records of a study
CALL = "call"  # purpose of a reading that is a call of a benchmark command
ANY = "*"
NUMBER = (int, float)
TEXTS = {ANY: str}
VALUES = {ANY: (str, int, float, bool)}
NUMBERS = {ANY: NUMBER}
COUNTS = {ANY: int}
NOTHING: Any = type(None)
PER_TRIAL = {"trial": int}

READING = {
    "trial": int, "at": str, "purpose": str, "seconds": NUMBER, "rate?": NUMBER, "intended?": int,
    "violations?": int, "errors?": COUNTS, "histogram?": COUNTS, "truncated?": bool, "limited?": str,
    "disturbed?": str, "stolen?": NUMBER, "hosts?": {ANY: {ANY: (int, float, str, dict, list, NOTHING)}},
}  # fmt: skip
# A call of a benchmark command is recorded as a reading; every other reading has these too.
LOADED = {"rate": NUMBER, "intended": int, "violations": int, "histogram": COUNTS}

# A host under a deployment; an export reads what is in it.
HOST = {"units": dict, "sysctls": dict, "files": dict, "original": dict}

RECORDS: Mapping[str, Any] = {
    "study": {
        "schema?": int, "name?": str, "started": str, "autotune?": str, "source?": str,
        "facts?": {ANY: dict}, "overrides?": [[str]], "adopted?": dict, "asked?": TEXTS,
        "beds?": {ANY: dict}, "purpose?": str, "shared?": bool, "space?": dict,
    },
    "session": {"at?": str, "versions?": TEXTS, "beds?": [str]},
    "joined": {"at?": str, "bed": str, "adopted?": dict, "versions?": TEXTS},
    "bed": {"bed": str, "set_aside": str},
    "beds": {"offsets": {ANY: NUMBERS}},
    "trial": {
        **PER_TRIAL, "phase": str, "of?": int, "asked?": int, "at?": str, "settings": VALUES,
        "suggested": VALUES, "bindings": [str], "bed?": str, "repeats?": int, "capped?": [str],
    },
    "deployed": {
        **PER_TRIAL, "effective": VALUES, "differences": [str], "files?": TEXTS, "actions?": TEXTS,
        "hosts?": {ANY: HOST},
    },
    "warm-up": {
        **PER_TRIAL, "settled": bool, "windows": int, "hits?": NUMBER,
        "carried?": (bool, int, float),
    },
    "measured": {
        **PER_TRIAL, "at?": str, "readings": int, "load_seconds": NUMBER, "peak": NUMBER, "low": NUMBER,
        "high": NUMBER, "sd": NUMBER, "verdict": str, "p99?": NUMBER,
    },
    "answered": {**PER_TRIAL, "values": [NUMBER]},
    "failed": {**PER_TRIAL, "at?": str, "why": str, "fault?": bool},
    "sweep": {
        "plan": {
            "title": str, "axes": [{"name": str, "choices": [{"label": (str, int, float, bool),
                                                              "settings": VALUES}]}],
            "hosts": {ANY: [int]}, "settings": VALUES, "rates": [NUMBER], "repeat": int,
            "seconds": NUMBER, "seed": int, "keys": int,
        }
    },
    "swept": {**PER_TRIAL, "at?": str, "point": int, "turn": int},
    "noise": {"weights": [NUMBER], "readings": int, "effects?": [NUMBER]},
    "bottleneck": {
        **PER_TRIAL, "tier": str, "service": str, "host": str, "resource": str, "evidence": str,
        "confidence": NUMBER,
    },
    "capacities": {**PER_TRIAL, "parts": {ANY: list}},
    "memory": {**PER_TRIAL, "rss": COUNTS},
    "spent": {"seconds": NUMBERS, "bed?": str},
    "standings": {"peaks": {ANY: [NUMBER]}, "noise": NUMBER},
    "transferred": {"of": str, "configurations": [VALUES]},
    "model": {"view": dict},
    "settled": {"at?": str, "why": str},
    "simplified": {"at?": str},
    "explained": {"at?": str},
    "ceilings": {"at?": str, "of": str, "ceilings": [dict]},
    "verdict": {"at?": str, "verdict": str, "best?": int, "gain?": dict},
}  # fmt: skip


def check_record(record: Mapping[str, Any]) -> None:
    """Raise ValueError for a record of an event without what its kind contains."""
    event = record["event"]
    if not isinstance(event, str):
        raise TypeError("event: text is expected")
    if problem := mismatch(record, RECORDS.get(event, {})):
        raise ValueError(problem)
    if event == "study" and (schema := record.get("schema", SCHEMA)) != SCHEMA:
        raise ValueError(f"schema {schema}, and this version reads {SCHEMA}")


def check_reading(record: Mapping[str, Any]) -> None:
    """The same for a record of a reading."""
    of_load = record.get("purpose") != CALL
    if problem := mismatch(record, {**READING, **LOADED} if of_load else READING):
        raise ValueError(problem)


def mismatch(value: Any, shape: Any, place: str = "") -> str:
    """Where and how a value does not have a shape; empty if it has."""
    if isinstance(shape, dict):
        return _in_mapping(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place}: a list is expected"
        pairs = ((item, f"{place}[{index}]") for index, item in enumerate(value))
        return next(filter(None, (mismatch(item, shape[0], at) for item, at in pairs)), "")
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, bool) and bool not in kinds:
        return f"{place}: true and false are not expected"
    if not isinstance(value, kinds) or (isinstance(value, int | float) and not _is_usable(value)):
        return f"{place}: {' or '.join(_NAMES[kind] for kind in kinds)} is expected"
    return ""


def _in_mapping(value: Any, shape: Mapping[str, Any], place: str) -> str:
    if not isinstance(value, dict):
        return f"{place}: a mapping is expected"
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if key == ANY:
            each = (mismatch(item, inner, f"{place}.{k}"[:80]) for k, item in value.items())
            if problem := next(filter(None, each), ""):
                return problem
        elif name not in value:
            if not key.endswith("?"):
                return f"{place}.{name} is missing".lstrip(".")
        elif key.endswith("?") and value[name] is None:
            continue
        elif problem := mismatch(value[name], inner, f"{place}.{name}".lstrip(".")):
            return problem
    return ""


def _is_usable(number: float) -> bool:
    """True if it is finite as a float: JSON has whole numbers of any length."""
    try:
        return isfinite(number)
    except OverflowError:
        return False


_NAMES: Mapping[Any, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a mapping",
    list: "a list", NOTHING: "nothing",
}  # fmt: skip
