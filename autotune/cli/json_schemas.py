"""Types of the output of commands under ``--json``. `autotune schema` prints their JSON Schemas.

Reports and plans define their own types: `report.documents` and `study.plan_documents`.

While ``schema`` is 1, keys may be added, but no key changes its meaning. Rates are in requests/s, or in
the unit of a command's value. Times are in seconds, and shares are fractions of one. Intervals
cover 90 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from autotune.report import documents
from autotune.services.base import Value
from autotune.study import plan_documents
from autotune.study.plan_documents import Settings, VersionedObject
from autotune.sweep.results import Mean

JSON_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Mistake(TypedDict):
    message: str
    hint: str | None


class Check(VersionedObject):
    held: Sequence[str]
    left_out: Sequence[str]
    not_checked: Sequence[str]
    headroom: str | None
    warnings: Sequence[Mistake]


class SweepPoint(TypedDict):
    """The result of a sweep's point at one ``rate``, or the capacity ``peak`` if ``rate`` is null."""

    at: Settings
    hosts: Mapping[str, int]
    rate: float | None
    response: Mean | None
    throughput: Mean | None
    peak: Mean | None
    p50: float | None
    p99: float | None
    violations: float | None
    met: bool
    load: Mapping[str, Mean]
    cpu: Mapping[str, Mean]
    failure: str | None
    limit: str | None


# A class cannot contain a field called `with`.
SweepResult = TypedDict(
    "SweepResult",
    {
        "schema": Literal[1],
        "sweep": str,
        "title": str,
        "simulated": bool,
        "axes": Mapping[str, Sequence[Value]],
        "hosts": Mapping[str, Sequence[int]],
        "with": Settings,
        "rates": Sequence[float],
        "repeat": int,
        "left": int,
        "best": SweepPoint | None,
        "points": Sequence[SweepPoint],
        "differences": Sequence[str],
    },
)


class ApplyResult(VersionedObject):
    """An applied configuration. ``actions`` maps each service to reload, restart or none.
    ``differences`` lists settings whose effective values differ.
    """

    study: str
    actions: Mapping[str, str]
    differences: Sequence[str]


class Initialized(VersionedObject):
    """The new target file. The other keys describe adopted hosts, so they are missing for an
    example.
    """

    target: str
    templates: NotRequired[str]
    tiers: NotRequired[Sequence[str]]
    not_tuned: NotRequired[Sequence[str]]
    parameters: NotRequired[int]


class ConfigurationDiff(VersionedObject):
    """A unified diff from ``a`` to ``b``, or changed settings; empty if both are equal."""

    study: str
    a: str
    b: str
    diff: str


class Exported(VersionedObject):
    study: str
    format: str
    files: Sequence[str]


class Restored(VersionedObject):
    """A description of each action; empty if there was nothing to restore."""

    restored: Sequence[str]


class LabHostObject(TypedDict):
    name: str
    address: str
    pid: int | None
    ssh: bool
    running: bool


class LabObject(VersionedObject):
    lab: str
    directory: str
    ssh_config: str
    hosts: Sequence[LabHostObject]
    started: NotRequired[Sequence[str]]
    seconds: NotRequired[float]
    named_by_target: NotRequired[bool]
    site: NotRequired[bool]


class Workload(VersionedObject):
    """Requests from access logs. ``coverage`` is the share of ``requests`` whose page is among
    ``pages``.
    """

    requests: int
    pages: int
    coverage: float
    masked: int
    left_out: Mapping[str, int]
    out: str | None


class ErrorDetails(Mistake):
    """An error. ``code`` is the exit status; ``mistakes`` lists all mistakes in a target."""

    code: int
    mistakes: NotRequired[Sequence[Mistake]]


class ErrorOutput(VersionedObject):
    error: ErrorDetails


OUTPUT_OBJECTS: Mapping[str, tuple[Any, str]] = {
    "study": (documents.StudyObject, "run, worker, resume and report"),
    "status": (documents.Status, "status"),
    "check": (Check, "check"),
    "plan": (plan_documents.Plan, "plan"),
    "parameters": (documents.ParameterCatalogue, "params"),
    "explanation": (documents.ExplanationObject, "explain"),
    "measurement": (documents.MeasurementObject, "measure"),
    "ceilings": (
        documents.MeasuredStackCeilings | documents.MeasuredCacheCeilings,
        "measure --closed and --tier",
    ),
    "sweep": (SweepResult, "sweep; report or resume, for a sweep"),
    "applied": (ApplyResult, "apply"),
    "initialized": (Initialized, "init"),
    "diff": (ConfigurationDiff, "diff"),
    "exported": (Exported, "export"),
    "restored": (Restored, "restore"),
    "lab": (LabObject, "lab up, down and status"),
    "workload": (Workload, "workload from-log"),
    "error": (ErrorOutput, "any command that fails"),
}
"""Names of schemas, each with its type and the commands that print objects of the type."""


def build_schema(schema_name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of ``OUTPUT_OBJECTS``."""
    generated_schema = TypeAdapter(OUTPUT_OBJECTS[schema_name][0]).json_schema()
    # Docstrings use double backticks, but schemas use single backticks. Generated titles only repeat
    # names.
    document = _remove_titles(json.loads(json.dumps(generated_schema).replace("``", "`")))
    comment = f"Output of autotune with --json: {OUTPUT_OBJECTS[schema_name][1]}."
    return {
        "$schema": JSON_SCHEMA_DIALECT,
        "title": f"autotune {schema_name}",
        "$comment": comment,
        **document,
    }


def _remove_titles(document: Any) -> Any:
    if isinstance(document, list):
        return [_remove_titles(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {
        key: _remove_titles(value)
        for key, value in document.items()
        if not (key == "title" and isinstance(value, str))
    }
