"""What a user wrote in a target file, as frozen values in base units."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from autotune.target.slo import Slo
from autotune.target.units import Bytes, Fraction, PerSecond, Seconds, duration

NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
_PERCENTILE = re.compile(r"^p(\d{1,2}(?:\.\d+)?)$")
Scalar = bool | int | float | str


def _one_or_many(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_one_or_many),
    Field(min_length=1),
]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class SloSpec(Model):
    """``{p99: 50ms, errors: 0.1%}``: one percentile key of the user's choosing."""

    quantile: float
    limit: Seconds
    errors: Fraction = 0.001

    @model_validator(mode="before")
    @classmethod
    def _percentile_key(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found = [key for key in value if _PERCENTILE.match(str(key))]
        if len(found) != 1:
            raise ValueError("name one percentile and its limit, such as `p99: 50ms`")
        rest = {key: item for key, item in value.items() if key != found[0]}
        quantile = float(str(found[0])[1:]) / 100
        if not 0.5 <= quantile < 1:
            raise ValueError(f"{found[0]}: a percentile from p50 to below p100")
        if duration(value[found[0]]) <= 0:
            raise ValueError(f"{found[0]}: the limit must be more than nothing")
        return {"quantile": quantile, "limit": value[found[0]], **rest}

    @property
    def slo(self) -> Slo:
        return Slo(quantile=self.quantile, limit=self.limit, errors=self.errors)


class Host(Model):
    """A machine. ``cpus`` and ``memory`` narrow what its own facts say."""

    address: str = "127.0.0.1"
    transport: Literal["local", "ssh"] = "ssh"
    user: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")] | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory: Bytes | None = None

    @field_validator("address")
    @classmethod
    def _no_option(cls, value: str) -> str:
        if not re.match(r"^[A-Za-z0-9][A-Za-z0-9.:_-]*$", value):
            raise ValueError(f"{value!r} is not a host name or address")
        return value


class Tier(Model):
    """Hosts that do the same job with the same settings; several services are a choice to make."""

    hosts: Names
    service: Names
    forwards_to: str | None = None
    uses: Annotated[tuple[str, ...], BeforeValidator(_one_or_many)] = ()
    app: str | None = None
    runtime: Literal["embedded", "systemd"] = "systemd"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    templates: str | None = None


class ParameterRule(Model):
    """Adjusts one parameter of the catalogue: narrow it, fix it, drop it, move its baseline."""

    range: tuple[Scalar, Scalar] | None = None
    log: bool | None = None
    choices: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    fixed: Scalar | None = None
    default: Scalar | None = None
    drop: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> ParameterRule:
        given = [k for k in ("range", "choices", "fixed", "drop") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other")
        return self


class Load(Model):
    """How load is made. It is only ever sent to the target's own entry point."""

    generator: str = "httperf"
    hosts: Annotated[tuple[str, ...], BeforeValidator(_one_or_many)] = ()
    path: Annotated[str, Field(pattern=r"^/[!-~]*$")] = "/"
    max_rate: PerSecond = 20_000.0
    timeout: Seconds = 2.0


class Data(Model):
    """The data set behind the reference application (REFERENCE.md A)."""

    pairs: Annotated[int, Field(ge=1000, le=10**10)] = 100_000
    keys_per_request: Annotated[int, Field(ge=1, le=1000)] = 100
    skew: Annotated[float, Field(gt=0, lt=1)] = 0.9
    store_latency: Seconds = 0.003


class Budget(Model):
    """How long a study may take and how many configurations it may try, baseline included."""

    trials: Annotated[int, Field(ge=3, le=10_000)] = 40
    time: Seconds = 2700.0


class Search(Model):
    sampler: str = "auto"
    seed: int = 1


class Target(Model):
    """A stack, its latency objective, and what may be changed to meet it at a higher rate."""

    name: Annotated[str, Field(pattern=NAME)]
    slo: SloSpec
    hosts: Annotated[dict[Annotated[str, Field(pattern=NAME)], Host], Field(min_length=1)]
    tiers: Annotated[dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Tier],
                     Field(min_length=1)]  # fmt: skip
    parameters: dict[str, ParameterRule] = {}
    constraints: tuple[str, ...] = ()
    load: Load = Load()
    data: Data = Data()
    budget: Budget = Budget()
    search: Search = Search()
