"""`expect:` of a load or of one request: the properties of a correct response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from autotune.target.field_types import (
    HEADER_PATTERN,
    Bytes,
    PositiveValidator,
    TargetModel,
    Text,
    TextList,
    WholeNumber,
    wrap_in_list,
)
from autotune.target.messages import format_value
from autotune.target.quantities import format_size

ANY_2XX = frozenset(range(200, 300))
# A server error is never a correct response.
_Status = Annotated[WholeNumber, Field(ge=200, le=499)]
_Statuses = Annotated[
    tuple[_Status, ...],
    BeforeValidator(wrap_in_list, json_schema_input_type=_Status | list[_Status]),
]


class Expect(TargetModel):
    """Properties of a correct response. A response that lacks one of these properties is a violation."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    status: _Statuses = ()
    """Expected HTTP status, or a list of them. Default: any 2xx."""
    header: dict[Annotated[str, Field(pattern=HEADER_PATTERN)], Text] = Field(
        default={}, json_schema_extra={"additionalProperties": False}
    )
    """Headers, each with text that its value must contain. Case does not matter."""
    body: TextList = ()
    """String, or a list of strings, that the body must contain. If set, responses are not compared with
    reference responses.
    """
    not_body: TextList = ()
    """String, or a list of strings, that the body must not contain."""
    min_bytes: Annotated[Bytes, PositiveValidator] | None = None
    """Smallest size of the body, such as `10KB`."""

    @model_validator(mode="after")
    def _require_any_key(self) -> Expect:
        if not (self.status or self.header or self.body or self.not_body or self.min_bytes):
            raise ValueError("expect: needs `status`, `header`, `body`, `not_body` or `min_bytes`")
        return self

    @property
    def expected_statuses(self) -> frozenset[int]:
        """Return the statuses of correct responses."""
        return frozenset(self.status) or ANY_2XX

    @property
    def reads_body(self) -> bool:
        """True if the content of the body is checked."""
        return bool(self.body or self.not_body)

    def describe_mismatch(
        self, status: int, headers: Mapping[str, str] | None, body: str, size: int
    ) -> str | None:
        """Return the first missing property as text, or ``None`` for a correct response.

        ``headers`` have lower-case names, or are ``None`` if unknown. ``size`` is the size of the body
        in bytes.
        """
        return next(self._list_mismatches(status, headers, body, size), None)

    def _list_mismatches(
        self, status: int, headers: Mapping[str, str] | None, body: str, size: int
    ) -> Iterator[str]:
        if status not in self.expected_statuses:
            yield f"status {status} instead of {_join_statuses(self.status or ('2xx',))}"
        for header_name, expected_text in self.header.items() if headers is not None else ():
            if expected_text.lower() not in (headers or {}).get(header_name.lower(), "").lower():
                yield f"header {header_name} lacks {format_value(expected_text)}"
        for expected_text in self.body:
            if expected_text not in body:
                yield f"body lacks {format_value(expected_text)}"
        for expected_text in self.not_body:
            if expected_text in body:
                yield f"body contains {format_value(expected_text)}"
        if self.min_bytes is not None and size < self.min_bytes:
            yield f"{size} bytes, fewer than {format_size(self.min_bytes)}"

    def __str__(self) -> str:
        """Return the properties as text, such as ``status 200, body with 'Shop', at least 10KB``."""
        phrases = [f"status {_join_statuses(self.status or ('2xx',))}"]
        phrases += [
            f"header {name} with {format_value(text)}" for name, text in self.header.items()
        ]
        phrases += [f"body with {format_value(text)}" for text in self.body]
        phrases += [f"body without {format_value(text)}" for text in self.not_body]
        phrases += [f"at least {format_size(self.min_bytes)}"] if self.min_bytes is not None else []
        return ", ".join(phrases)


def _join_statuses(statuses: Iterable[object]) -> str:
    return " or ".join(map(str, statuses))
