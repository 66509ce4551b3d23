"""The latency objective as a user writes it: ``{p99: 50ms, errors: 0.1%}``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from pydantic import (
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from autotune.target.fields import Fraction, Model, Seconds, at, unknown
from autotune.target.slo import Slo
from autotune.target.units import duration

_PERCENTILE = r"p[0-9]{1,2}(\.[0-9]+)?"


class SloSpec(Model):
    """At most this latency at one percentile of the user's choosing, and at most these errors."""

    quantile: float
    limit: Seconds
    errors: Fraction = 0.001
    """Largest part of the requests that may fail outright; no more than may be late."""

    @model_validator(mode="before")
    @classmethod
    def _percentile_key(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("name one percentile and its limit, such as `{p99: 50ms}`")  # noqa: TRY004  # pydantic collects ValueErrors
        percentiles = [key for key in value if re.fullmatch(_PERCENTILE, key)]
        for key in value:
            if key not in percentiles and key != "errors":
                raise unknown(key)
        if not percentiles:
            raise ValueError("name one percentile and its limit, such as `p99: 50ms`")
        first, *more = percentiles
        if more:
            raise at(more[0], f"one percentile is the objective, and {first} is given already")
        percent = Decimal(first[1:])
        quantile = float(percent / 100)
        if not 0.5 <= quantile < 1:
            raise at(first, "the objective is a percentile from p50 to below p100")
        try:
            limit = duration(value[first])
        except ValueError as error:
            raise at(first, f"{first}: {error}") from None
        if limit <= 0:
            raise at(first, f"{first}: the limit must be more than nothing")
        # Failed requests are late ones too, so no more may fail than may be late.
        errors = value.get("errors", f"{min(Decimal('0.1'), 100 - percent)}%")
        return {"quantile": quantile, "limit": value[first], "errors": errors}

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written = handler(self)
        percent = Decimal(repr(self.quantile)) * 100
        return {f"p{percent.normalize():f}": written["limit"], "errors": written["errors"]}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        properties = schema["properties"]
        del properties["quantile"]
        limit = {**properties.pop("limit"), "description": "Latency limit at this percentile."}
        limit.pop("title", None)
        del schema["required"]
        return {
            **schema,
            # Named ones, so that an editor can complete them; any other is as good.
            "properties": {"p99": limit, "p95": limit, **properties},
            "patternProperties": {f"^{_PERCENTILE}$": limit},
            "maxProperties": 2,
            "not": {"propertyNames": {"const": "errors"}},  # a percentile is needed
        }

    @classmethod
    def keys(cls) -> list[str]:
        return ["p99", "p95", "p90", "errors"]

    @property
    def slo(self) -> Slo:
        return Slo(quantile=self.quantile, limit=self.limit, errors=self.errors)
