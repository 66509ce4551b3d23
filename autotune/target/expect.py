"""`expect:` of a load or of one request: what a right answer is like, whatever else it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from autotune.target.fields import (
    HEADER,
    Bytes,
    Model,
    MoreThanNothing,
    Some,
    Text,
    Whole,
    one_or_many,
)
from autotune.target.messages import format_value
from autotune.target.units import size_text

ANY_2XX = frozenset(range(200, 300))
# A failure of the server is never a right answer.
_Status = Annotated[Whole, Field(ge=200, le=499)]
_Statuses = Annotated[
    tuple[_Status, ...],
    BeforeValidator(one_or_many, json_schema_input_type=_Status | list[_Status]),
]


class Expect(Model):
    """What a right answer has. An answer that lacks any of it is a violation."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    status: _Statuses = ()
    """Its status, or a list of them; without it, any 2xx."""
    header: dict[Annotated[str, Field(pattern=HEADER)], Text] = Field(
        default={}, json_schema_extra={"additionalProperties": False}
    )
    """Headers it has, each with text that the value contains; upper and lower case are the same."""
    body: Some = ()
    """Text that the body contains; every one of a list. It decides in place of the reference answer."""
    not_body: Some = ()
    """Text that the body must not contain; none of a list."""
    min_bytes: Annotated[Bytes, MoreThanNothing] | None = None
    """The smallest body, such as `10KB`."""

    @model_validator(mode="after")
    def _says_something(self) -> Expect:
        if not (self.status or self.header or self.body or self.not_body or self.min_bytes):
            raise ValueError(
                "expect: says nothing; give `status`, `header`, `body`, `not_body` or `min_bytes`"
            )
        return self

    @property
    def statuses(self) -> frozenset[int]:
        """The right statuses."""
        return frozenset(self.status) or ANY_2XX

    @property
    def reads_body(self) -> bool:
        """True if the content of the body matters."""
        return bool(self.body or self.not_body)

    def unmet(
        self, status: int, headers: Mapping[str, str] | None, body: str, size: int
    ) -> str | None:
        """What an answer lacks, in words; ``None`` if it is right.

        ``headers`` have names in lower case (``None``: they are not known), ``size`` is that of the
        body in bytes.
        """
        return next(self._lacking(status, headers, body, size), None)

    def _lacking(
        self, status: int, headers: Mapping[str, str] | None, body: str, size: int
    ) -> Iterator[str]:
        if status not in self.statuses:
            yield f"status {status} instead of {_listed(self.status or ('2xx',))}"
        for name, text in self.header.items() if headers is not None else ():
            if text.lower() not in (headers or {}).get(name.lower(), "").lower():
                yield f"header {name} lacks {format_value(text)}"
        for text in self.body:
            if text not in body:
                yield f"body lacks {format_value(text)}"
        for text in self.not_body:
            if text in body:
                yield f"body contains {format_value(text)}"
        if self.min_bytes is not None and size < self.min_bytes:
            yield f"{size} bytes, fewer than {size_text(self.min_bytes)}"

    def __str__(self) -> str:
        """In words: ``status 200, body with 'Shop', at least 10KB``."""
        parts = [f"status {_listed(self.status or ('2xx',))}"]
        parts += [f"header {name} with {format_value(text)}" for name, text in self.header.items()]
        parts += [f"body with {format_value(text)}" for text in self.body]
        parts += [f"body without {format_value(text)}" for text in self.not_body]
        parts += [f"at least {size_text(self.min_bytes)}"] if self.min_bytes is not None else []
        return ", ".join(parts)


def _listed(statuses: Iterable[object]) -> str:
    return " or ".join(map(str, statuses))
