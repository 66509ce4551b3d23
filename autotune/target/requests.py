"""`load: {requests: FILE}`: what users ask for, by weight; YAML under `requests:`, or JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, model_validator

from autotune.errors import Mistakes
from autotune.strict import split_lines
from autotune.target.document import Document, load, read_text
from autotune.target.expect import Expect
from autotune.target.fields import METHOD, PATH, Model, MoreThanNothing, Number, Seconds
from autotune.target.read import validated

MOST = 1000  # different ones
JSON_LINES = (".jsonl", ".ndjson")
WHAT = "a file of requests"
START = (
    "write `requests: [{path: /}]`, or use `autotune workload from-log`; `uris:` takes plain paths"
)
Item = TypeVar("Item")
Path_ = Annotated[str, Field(pattern=PATH)]


def _some(items: tuple[Item, ...]) -> tuple[Item, ...]:
    if not 1 <= len(items) <= MOST:
        raise ValueError(f"needs 1 to {MOST} entries, not {len(items)}")
    return items


class Step(Model):
    """One request; ``think`` (seconds) is the pause after it, within a session."""

    path: Path_
    method: Annotated[str, Field(pattern=METHOD)] = "GET"
    body: Annotated[str, Field(min_length=1)] | None = None
    think: Seconds = 0.0
    expect: Expect | None = None
    """Properties of a correct response, instead of `load: {expect: …}`."""

    @model_validator(mode="after")
    def _body_of_its_method(self) -> Step:
        if self.body is not None and self.method in ("GET", "HEAD"):
            raise ValueError(f"a {self.method} request has no body; write `method: POST`")
        if self.method == "HEAD" and self.expect and self.expect.reads_body:
            raise ValueError("a response to HEAD has no body for `expect` to check")
        return self


class Visit(Model):
    """A request, or a session of several. ``weight`` is its relative frequency."""

    weight: Annotated[Number, MoreThanNothing] = 1.0
    path: Path_ | None = None
    method: Annotated[str, Field(pattern=METHOD)] = "GET"
    body: Annotated[str, Field(min_length=1)] | None = None
    session: Annotated[tuple[Step, ...], AfterValidator(_some)] | None = None
    expect: Expect | None = None
    """Properties of a correct response, instead of `load: {expect: …}`."""

    @model_validator(mode="after")
    def _either(self) -> Visit:
        if (self.path is None) == (self.session is None):
            raise ValueError("needs either `path` or `session`")
        if self.path is None and (self.body or self.expect or "method" in self.model_fields_set):
            raise ValueError("`method`, `body` and `expect` belong to the requests of the session")
        assert self.steps  # the rules of a `Step` hold for a single request too
        return self

    @property
    def steps(self) -> tuple[Step, ...]:
        if self.session is not None:
            return self.session
        assert self.path is not None
        return (Step(path=self.path, method=self.method, body=self.body, expect=self.expect),)


class Requests(Model):
    requests: Annotated[tuple[Visit, ...], AfterValidator(_some)]
    """The requests."""


def read(path: Path) -> tuple[Visit, ...]:
    """The visits in a file. Raises TargetError with the place of every mistake."""
    document = _json_lines(path) if path.suffix in JSON_LINES else load(path, WHAT, START)
    return validated(document, Requests).requests


def _json_lines(path: Path) -> Document:
    text = read_text(path, WHAT, START)
    lines = [(n, line) for n, line in enumerate(split_lines(text), 1) if line.strip()]
    places: dict[tuple[str | int, ...], tuple[int, int]] = {
        ("requests", index): (number, 1) for index, (number, _) in enumerate(lines)
    }
    visits: list[object] = []
    document = Document(path, {"requests": visits}, places, text)
    mistakes = Mistakes()
    for index, (_, line) in enumerate(lines):
        with mistakes.collected():
            try:
                visits.append(json.loads(line))
            except ValueError as error:
                why = f"not JSON: {getattr(error, 'msg', error)}"
                hint = 'write lines such as `{"path": "/a", "weight": 3}`'
                raise document.error(["requests", index], why, hint=hint) from None
    mistakes.raise_all()
    return document
