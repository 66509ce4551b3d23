"""`load: {requests: FILE}`: weighted requests, as YAML under `requests:` or as JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, model_validator

from autotune.errors import TargetErrorCollector
from autotune.strict_parsing import parse_json, split_lines
from autotune.target.expected_answer import Expect
from autotune.target.field_types import (
    METHOD_PATTERN,
    PATH_PATTERN,
    FiniteNumber,
    HintedError,
    PositiveValidator,
    RequestBody,
    Seconds,
    TargetModel,
)
from autotune.target.other_files import TARGET_KEYS
from autotune.target.read_target import validate_document
from autotune.target.yaml_document import YamlDocument, load_yaml, read_text

MAX_REQUESTS = 1000  # maximum number of distinct requests
JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")
FILE_DESCRIPTION = "a file of requests"
EXAMPLE_HINT = (
    "such a file contains `requests: [{path: /}]`, and `autotune workload from-log` writes one; "
    "`uris:` takes plain paths"
)
Item = TypeVar("Item")
RequestPath = Annotated[str, Field(pattern=PATH_PATTERN)]


def _validate_count(items: tuple[Item, ...]) -> tuple[Item, ...]:
    if not 1 <= len(items) <= MAX_REQUESTS:
        raise ValueError(f"needs 1 to {MAX_REQUESTS} entries, not {len(items)}")
    return items


class SessionStep(TargetModel):
    """One request of a session. ``think`` is the pause after the request, in seconds."""

    path: RequestPath
    method: Annotated[str, Field(pattern=METHOD_PATTERN)] = "GET"
    body: RequestBody | None = None
    think: Seconds = 0.0
    expect: Expect | None = None
    """Properties of a correct response, instead of `load: {expect: …}`."""

    @model_validator(mode="after")
    def _check_body_method(self) -> SessionStep:
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise ValueError(f"a {self.method} request has no body; write `method: POST`")
        if self.method == "HEAD" and self.expect and self.expect.reads_body:
            raise ValueError("a response to HEAD has no body for `expect` to check")
        return self


class WeightedVisit(TargetModel):
    """A request, or a session of several requests. ``weight`` is its relative frequency."""

    weight: Annotated[FiniteNumber, PositiveValidator] = 1.0
    path: RequestPath | None = None
    method: Annotated[str, Field(pattern=METHOD_PATTERN)] = "GET"
    body: RequestBody | None = None
    session: Annotated[tuple[SessionStep, ...], AfterValidator(_validate_count)] | None = None
    expect: Expect | None = None
    """Properties of a correct response, instead of `load: {expect: …}`."""

    @model_validator(mode="after")
    def _check_path_or_session(self) -> WeightedVisit:
        if (self.path is None) == (self.session is None):
            hint = "remove one of them" if self.path else "such as `{path: /, weight: 3}`"
            if self.model_fields_set == {"weight"}:
                hint = "remove the '- ' before `weight:`, and indent it as `path:` above"
            raise HintedError("needs either `path` or `session`", hint)
        if self.path is None and (self.body or self.expect or "method" in self.model_fields_set):
            raise ValueError("write `method`, `body` and `expect` in the requests of the session")
        assert self.session_steps  # a single request is also validated as a `SessionStep`
        return self

    @property
    def session_steps(self) -> tuple[SessionStep, ...]:
        if self.session is not None:
            return self.session
        assert self.path is not None
        return (
            SessionStep(path=self.path, method=self.method, body=self.body, expect=self.expect),
        )


class RequestsDocument(TargetModel):
    requests: Annotated[tuple[WeightedVisit, ...], AfterValidator(_validate_count)]
    """The requests."""


def read_visits(path: Path) -> tuple[WeightedVisit, ...]:
    """Return the visits in a file. Raises TargetError with the position of every mistake."""
    document = _read_document(path)
    if TARGET_KEYS & document.root.keys() and "requests" not in document.root:
        message = "this is a target, not a list of requests"
        raise document.build_error((), message, hint=EXAMPLE_HINT)
    return validate_document(document, RequestsDocument).requests


def find_line(path: Path, index: int) -> int:
    """Return the line of the visit ``index`` in a file."""
    return _read_document(path).find_position(("requests", index))[0]


def _read_document(path: Path) -> YamlDocument:
    if path.suffix in JSON_LINES_SUFFIXES:
        return _read_json_lines(path)
    return load_yaml(path, FILE_DESCRIPTION, EXAMPLE_HINT)


def _read_json_lines(path: Path) -> YamlDocument:
    text = read_text(path, EXAMPLE_HINT)
    numbered_lines = [(n, line) for n, line in enumerate(split_lines(text), 1) if line.strip()]
    locations: dict[tuple[str | int, ...], tuple[int, int]] = {
        ("requests", index): (number, 1) for index, (number, _) in enumerate(numbered_lines)
    }
    visits: list[object] = []
    document = YamlDocument(path, {"requests": visits}, locations, text)
    mistakes = TargetErrorCollector()
    for index, (_, line) in enumerate(numbered_lines):
        with mistakes.collect():
            try:
                visits.append(parse_json(line))
            except ValueError as error:
                reason = f"not JSON: {getattr(error, 'msg', error)}"
                hint = 'write lines such as `{"path": "/a", "weight": 3}`'
                raise document.build_error(["requests", index], reason, hint=hint) from None
    mistakes.raise_all()
    return document
