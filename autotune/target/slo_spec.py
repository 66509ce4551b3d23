"""The model of `slo:` in a target file: one percentile with its latency limit, and the error limit."""

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

from autotune.target.field_types import (
    Fraction,
    HintedError,
    Seconds,
    TargetModel,
    error_at_key,
    unknown_key_error,
)
from autotune.target.quantities import parse_duration
from autotune.target.slo import Slo

_PERCENTILE_PATTERN = r"p[0-9]{1,2}(\.[0-9]+)?"
MAX_LATENCY_LIMIT = "10m"  # larger values are mistakes, such as 50m (minutes) instead of 50ms


def _suggest_slo(value: object) -> str:
    """Return an objective with the percentile and limit in text such as `p95 < 200 ms`."""
    words = re.sub(r"[<=:,()]+", " ", value).split() if isinstance(value, str) else []
    percentile = next((w for w in words if re.fullmatch(_PERCENTILE_PATTERN, w)), "p99")
    limit = re.search(r"([0-9.]+) ?(ms|s)\b", " ".join(words))
    return f"{{{percentile}: {''.join(limit.groups()) if limit else '50ms'}}}"


def _build_slo_error(value: Any) -> ValueError:
    """Return the error for a `slo:` that is not a mapping. pydantic collects ValueErrors."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        keys = ", ".join(f"{key}: {item[key] or '…'}" for item in value for key in item)
        return HintedError("must be a mapping, not a list", f"write `slo: {{{keys}}}`")
    return ValueError(f"name one percentile and its limit, such as `{_suggest_slo(value)}`")


class SloSpec(TargetModel):
    """Latency limit at one percentile, such as p95 or p99.9, and the error limit."""

    quantile: float
    limit: Seconds
    errors: Fraction = 0.001
    """Largest fraction of requests that may fail, at most the fraction that may be late."""

    @model_validator(mode="before")
    @classmethod
    def _parse_percentile_key(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _build_slo_error(value)
        percentiles = [key for key in value if re.fullmatch(f"{_PERCENTILE_PATTERN}|p100", key)]
        for key in value:
            if key not in percentiles and key != "errors":
                raise unknown_key_error(key)
        if not percentiles:
            raise ValueError("name one percentile and its limit, such as `p99: 50ms`")
        percentile_key, *further_percentiles = percentiles
        if further_percentiles:
            message = f"only one percentile is allowed, and {percentile_key} is already given"
            hint = f"remove {percentile_key} or {further_percentiles[0]}"
            raise error_at_key(further_percentiles[0], message, hint)
        percent = Decimal(percentile_key[1:])
        quantile = float(percent / 100)
        if not 0.5 <= quantile < 1:
            message = "the percentile must be at least p50 and below p100"
            raise error_at_key(percentile_key, message, "such as p95, p99 or p99.9")
        try:
            limit_seconds = parse_duration(value[percentile_key])
        except ValueError as error:
            raise error_at_key(percentile_key, f"{percentile_key}: {error}") from None
        if limit_seconds <= 0:
            message = f"{percentile_key}: the limit must be above 0"
            raise error_at_key(percentile_key, message, f"such as `{percentile_key}: 50ms`")
        if limit_seconds > parse_duration(MAX_LATENCY_LIMIT):
            message = (
                f"{percentile_key}: must be at most {MAX_LATENCY_LIMIT} (minutes), not "
                f"{value[percentile_key]}"
            )
            raise error_at_key(percentile_key, message, "`ms` are milliseconds: `50ms`")
        # Failed requests also count as late, so the fraction that may fail cannot exceed the fraction
        # that may be late.
        error_share = value.get("errors", f"{min(Decimal('0.1'), 100 - percent)}%")
        return {"quantile": quantile, "limit": value[percentile_key], "errors": error_share}

    @model_serializer(mode="wrap")
    def _serialize_percentile(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        slo_fields = handler(self)
        percent = Decimal(repr(self.quantile)) * 100
        return {f"p{percent.normalize():f}": slo_fields["limit"], "errors": slo_fields["errors"]}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        properties = schema["properties"]
        del properties["quantile"]
        limit_schema = {
            **properties.pop("limit"),
            "description": "Latency limit at this percentile.",
        }
        limit_schema.pop("title", None)
        del schema["required"]
        return {
            **schema,
            # Editors suggest these two percentiles, but any other percentile is valid too.
            "properties": {"p99": limit_schema, "p95": limit_schema, **properties},
            "patternProperties": {f"^{_PERCENTILE_PATTERN}$": limit_schema},
            "maxProperties": 2,
            "not": {"propertyNames": {"const": "errors"}},  # requires a percentile
        }

    @classmethod
    def user_keys(cls) -> list[str]:
        return ["p99", "p95", "p90", "errors"]

    @property
    def objective(self) -> Slo:
        return Slo(quantile=self.quantile, limit=self.limit, errors=self.errors)
