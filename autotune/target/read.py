"""From a path to a target that makes sense as a whole, or to one message that says what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from autotune.errors import TargetError
from autotune.target.document import Document, load, nearest
from autotune.target.model import Target


@dataclass(frozen=True)
class TargetFile:
    """A valid target and the document to point into when something later does not fit it."""

    target: Target
    document: Document

    @property
    def path(self) -> Path:
        return self.document.path


def read(path: Path) -> TargetFile:
    """Read and check a target file.

    Raises TargetError with ``file:line:column`` and, for a misspelt name, the nearest known one.
    """
    document = load(path)
    try:
        target = Target.model_validate(_plain(document.root))
    except ValidationError as error:
        raise _first_error(document, error) from None
    _check_references(document, target)
    return TargetFile(target, document)


def _plain(node: Any) -> Any:
    """Without ruamel's node classes, which pydantic would carry into the model."""
    if isinstance(node, Mapping):
        return {str(key): _plain(item) for key, item in node.items()}
    if isinstance(node, list):
        return [_plain(item) for item in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _first_error(document: Document, error: ValidationError) -> TargetError:
    # The first in the file is the one to mend first: later ones are often its consequence.
    problems = sorted(error.errors(), key=lambda item: document.position(item["loc"]))
    problem = problems[0]
    location = [step for step in problem["loc"] if step != "[key]"]
    if problem["type"] == "extra_forbidden":
        return document.unknown(location, "key", _fields_at(Target, location[:-1]))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        message = f"{location[-1]!r} is missing"
        location = location[:-1]
    elif location and not message.startswith(str(location[-1])):
        message = f"{_last_name(location)}: {message[0].lower()}{message[1:]}"
    more = f"{len(problems) - 1} more below it" if len(problems) > 1 else None
    return document.error(location, message, hint=more)


def _last_name(location: list[str | int]) -> str:
    names = [step for step in location if isinstance(step, str)]
    return names[-1] if names else "item"


def _fields_at(model: Any, location: list[str | int]) -> list[str]:
    """Names of the fields the model has at ``location``."""
    here: Any = model
    for step in location:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(str(step))
            here = field.annotation if field else None
        else:
            here = get_args(here)[-1] if get_args(here) else None
        while here is not None and not isinstance(here, type) and _model_in(here):
            if getattr(here, "__origin__", None) is dict:
                break
            here = _model_in(here)
    if isinstance(here, type) and issubclass(here, BaseModel):
        names = list(here.model_fields)
        return [n for n in names if n not in ("quantile", "limit")] + (
            ["p99", "p95", "p90"] if "quantile" in names else []
        )
    return []


def _model_in(annotation: Any) -> Any:
    for part in get_args(annotation):
        if (isinstance(part, type) and issubclass(part, BaseModel)) or get_args(part):
            return part
    return None


def _check_references(document: Document, target: Target) -> None:
    for name, tier in target.tiers.items():
        for index, host in enumerate(tier.hosts):
            if host not in target.hosts:
                raise _missing(document, ["tiers", name, "hosts"], index, host, target.hosts)
        others = [other for other in target.tiers if other != name]
        if tier.forwards_to is not None and tier.forwards_to not in others:
            raise _missing(document, ["tiers", name, "forwards_to"], None, tier.forwards_to, others)
        for index, other in enumerate(tier.uses):
            if other not in others:
                raise _missing(document, ["tiers", name, "uses"], index, other, others)
    for index, host in enumerate(target.load.hosts):
        if host not in target.hosts:
            raise _missing(document, ["load", "hosts"], index, host, target.hosts)
    if loop := _loop(target):
        raise document.error(["tiers"], f"tiers forward to each other in a circle: {loop}")


def _missing(
    document: Document, location: list[str | int], index: int | None, name: str, known: Any
) -> TargetError:
    what = "host" if location[-1] == "hosts" else "tier"
    meant = nearest(name, known)
    hint = f"did you mean {meant!r}?" if meant else f"there is: {', '.join(known) or 'none'}"
    place = [*location, index] if index is not None else location
    return document.error(place, f"there is no {what} {name!r}", hint=hint)


def _loop(target: Target) -> str | None:
    for start in target.tiers:
        path = [start]
        while (after := target.tiers[path[-1]].forwards_to) is not None:
            path.append(after)
            if after in path[:-1]:
                return " → ".join(path)
    return None
