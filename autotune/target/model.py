"""What a user wrote in a target file, as frozen values in base units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from autotune.target import runtimes
from autotune.target.expect import Expect
from autotune.target.fields import (
    ADDRESS,
    COMPOSE_FILE,
    COMPOSED,
    HEADER,
    METHOD,
    NAME,
    PATH,
    TIER,
    URL,
    USER,
    Bytes,
    Fraction,
    Model,
    MoreThanNothing,
    Names,
    Number,
    PerSecond,
    Port,
    Scalar,
    Seconds,
    Some,
    Switch,
    Text,
    Whole,
    Word,
    at,
    at_least,
    one_or_many,
    unknown,
)
from autotune.target.rule import ParameterRule
from autotune.target.runtimes import RuntimeName
from autotune.target.service import (
    Answers,
    Counters,
    ServiceFile,
    ServiceNeeds,
    ServiceParameter,
    ServiceSpec,
    ServiceSpecs,
)
from autotune.target.slo import Slo
from autotune.target.units import duration

__all__ = [
    "Answers", "Bed", "Budget", "Counters", "Data", "Expect", "Host", "Load", "ParameterRule", "Scalar",
    "Search", "ServiceFile", "ServiceNeeds", "ServiceParameter", "ServiceSpec", "Simulated", "SloSpec",
    "Ssh", "Target", "Tier",
]  # fmt: skip


_NEEDS_ADDRESS: JsonDict = {
    "anyOf": [
        {"required": ["address"]},
        {"required": ["transport"], "properties": {"transport": {"const": "local"}}},
    ]
}


# At least one; the schema too refuses an entry whose key is not a valid name.
_NAMED = Field(min_length=1, json_schema_extra={"additionalProperties": False})


class Host(Model):
    """A machine. ``cpus`` and ``memory`` narrow what its own facts say."""

    model_config = ConfigDict(json_schema_extra=_NEEDS_ADDRESS)

    address: Annotated[str, Field(pattern=ADDRESS)] = "127.0.0.1"
    """Host name or address; needed unless the transport is local."""
    transport: Literal["local", "ssh"] = "ssh"
    """`ssh`, or `local` for the machine autotune runs on."""
    user: Annotated[str, Field(pattern=USER)] | None = None
    """Who to log in as; without it, what ~/.ssh/config says."""
    port: Port | None = None
    """SSH port; without it, what ~/.ssh/config says."""
    cpus: Annotated[Number, Field(gt=0)] | None = None
    """CPUs the stack may use there; may be a fraction."""
    memory: Annotated[Bytes, MoreThanNothing] | None = None
    """Memory the stack may use there."""

    @model_validator(mode="after")
    def _reachable(self) -> Host:
        # Without this a host that lacks its address would silently be this machine.
        if self.transport != "local" and "address" not in self.model_fields_set:
            raise ValueError("'address' is missing; only a host with `transport: local` needs none")
        name, _, port = self.address.rpartition(":")
        if port.isdigit() and name and ":" not in name:
            raise at("address", f"address: it has a port; write `address: {name}, port: {port}`")
        if re.fullmatch(r"[0-9.]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*", self.address):
            _check_ip(self.address)
        return self


def _check_ip(address: str) -> None:
    try:
        ip_address(address)
    except ValueError:
        example = "2001:db8::1" if ":" in address else "10.0.0.11"
        message = f"address: {address} is no IP address, such as {example}"
        raise at("address", message) from None


class Ssh(Model):
    """How hosts are reached over SSH; without it, as `ssh` itself does."""

    config: Text | None = None
    """An ssh_config(5) file in place of ~/.ssh/config, as `ssh -F` takes it; relative to this file."""


class Tier(Model):
    """Hosts that do the same job with the same settings; several services are a choice to make."""

    hosts: Names
    """The hosts of this tier, by their names under `hosts:`."""
    service: Names
    """What runs there; a list is a choice the search makes."""
    forwards_to: str | None = None
    """The tier that requests go on to."""
    uses: Some = ()
    """The tiers its application calls, such as a cache and a store."""
    app: Text | None = None
    """The application it serves."""
    local_cache: Switch = False
    """Whether the search may put a small cache on each host, in front of the cache tier."""
    runtime: RuntimeName = runtimes.DEFAULT
    """`systemd` reloads the distribution's units; `containers` are those of a Compose project, of
    Docker or Podman; `embedded` runs private processes."""
    container: Annotated[str, Field(pattern=COMPOSED)] | None = None
    """Its service in the Compose project; without it, the one with the tier's name."""
    port: Port | None = None
    """Where it listens; without it, a free port (embedded) or the service's own."""
    templates: Text | None = None
    """Directory of templates that override the shipped ones, relative to this file."""
    replace: Switch = False
    """Whether its hosts' configuration files are replaced whole by autotune's own, not edited."""
    allow_data_loss: Switch = False
    """Whether services that keep data in memory alone may be restarted, which loses it."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The tiers it depends on."""
        return (*self.uses, *((self.forwards_to,) if self.forwards_to else ()))

    @property
    def installed(self) -> bool:
        """Whether its services are those installed on its hosts, and not private ones of a study."""
        return runtimes.is_installed(self.runtime)

    @property
    def isolated(self) -> bool:
        """Whether its services have file systems and limits of their own, apart from their host's."""
        return runtimes.is_isolated(self.runtime)


def _version(value: object) -> object:
    """HTTP's version, which YAML may take for a number."""
    return str(value) if value in (1.1, 2) and not isinstance(value, bool) else value


class Project(Model):
    """The Compose project that the services of tiers belong to, on each of their hosts."""

    name: Annotated[str, Field(pattern=COMPOSED)]
    """Its name, as `docker compose ls` has it."""
    files: Annotated[
        tuple[Annotated[str, Field(pattern=COMPOSE_FILE)], ...],
        BeforeValidator(one_or_many, json_schema_input_type=str | list[str]),
        Field(min_length=1),
    ]
    """Its Compose files on the hosts, by their whole paths, in the order that `-f` takes them."""
    engine: Literal["docker", "podman"] = "docker"
    """What runs its containers: `docker compose` or `podman-compose` makes them."""
    account: Annotated[str, Field(pattern=USER)] | None = None
    """Whose containers they are, where the engine runs without root."""


class Load(Model):
    """How load is made. It is only ever sent to the target's own entry hosts, or to `vip`."""

    generator: Text = "httperf"
    """The program that makes the load."""
    command: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    """In place of `generator`, a program of your own: told a rate, it answers with a reading."""
    hosts: Some = ()
    """The hosts it runs on; without any, this machine."""
    path: Annotated[str, Field(pattern=PATH)] = "/"
    """What is requested from the entry point."""
    url: Annotated[str, Field(pattern=URL)] | None = None
    """In place of `path`, as users write it: https, the site's name, a port. The name is only what is
    asked for: connections go to the hosts of the entry tier by their addresses, all alike."""
    vip: Annotated[str, Field(pattern=ADDRESS)] | None = None
    """Where connections go in place of the entry tier's hosts: the address that they share."""
    host: Annotated[str, Field(pattern=ADDRESS)] | None = None
    """The site's name where the URL has none: Host header, and the name in TLS."""
    method: Annotated[str, Field(pattern=METHOD)] = "GET"
    """How it is requested."""
    headers: dict[Annotated[str, Field(pattern=HEADER)], Text] = Field(
        default={}, json_schema_extra={"additionalProperties": False}
    )
    """What is sent along; `${NAME}` stands for a variable of autotune's environment."""
    body: Annotated[str, Field(min_length=1)] | None = None
    """What is sent with a method such as POST, as a form unless `headers` say otherwise."""
    insecure: Switch = False
    """Whether any certificate will do."""
    ca: Text | None = None
    """A file with the authority that signed the certificate, relative to this file."""
    http: Annotated[
        Literal["1.1", "2"],
        BeforeValidator(_version, json_schema_input_type=Literal[1.1, 2, "1.1", "2"]),
    ] = "1.1"
    """The version of HTTP."""
    uris: Text | None = None
    """In place of `path`, a file of paths, one a line: they are requested in turn."""
    sessions: Text | None = None
    """In place of `path`, a file of sessions as httperf reads them: requests with pauses."""
    requests: Text | None = None
    """In place of `path`, a file of weighted requests: `autotune workload from-log` writes one."""
    script: Text | None = None
    """In place of `path`, a script of your own for k6: each arrival runs its default function."""
    requests_per_run: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    """The most requests that a run of `script` makes, redirects included; without it, slow runs count."""
    max_rate: Annotated[PerSecond, MoreThanNothing] = 20_000.0
    """No more than this is ever offered, in requests/s."""
    unpaced: Switch = False
    """Whether ab and memcaslap may load the stack or its caches: `max_rate` cannot bound them."""
    timeout: Annotated[Seconds, MoreThanNothing] = 2.0
    """When a request is given up; at least twice the latency limit."""
    expect: Expect | None = None
    """What a right answer has; without it, answers are compared with reference answers."""

    @property
    def one_page(self) -> bool:
        """Whether every request asks for the same, so that there is one right answer."""
        return not self.listed and self.method == "GET"

    @property
    def listed(self) -> bool:
        """True if a file says what is requested, in place of `path`."""
        return bool(self.uris or self.sessions or self.requests or self.script)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return (self.url or "").startswith("https:")

    @property
    def page(self) -> str:
        """What is asked for, in a word."""
        return self.url or f"{self.host or ''}{self.path}"


class Data(Model):
    """The data set behind the reference application."""

    pairs: Annotated[Whole, Field(ge=1000, le=10**10)] = 100_000
    """Keys in the store."""
    keys_per_request: Annotated[Whole, Field(ge=1, le=1000)] = 100
    """Keys one request asks for."""
    skew: Annotated[Number, Field(gt=0, lt=1)] = 0.9
    """Popularity of the key of rank r falls as r to minus this."""
    store_latency: Seconds = 0.003
    """Pause for a batch of misses: the disk behind the store."""


class Budget(Model):
    """How long a study may take and how many configurations it may try, baseline included."""

    trials: Annotated[Whole, Field(ge=3, le=10_000)] = 40
    """Configurations to measure: baseline, at least one candidate, the confirmation."""
    time: Annotated[Seconds, at_least("30s", " (the baseline alone takes that)")] = 2700.0
    """Time for the whole study."""


class Search(Model):
    """How the next configuration is chosen."""

    sampler: Text = "auto"
    """The method; `auto` chooses by the size of the space and the budget."""
    seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 1
    """Makes the suggestions repeatable."""


class Simulated(Model):
    """A queueing model in place of the hosts: none is touched, and time is virtual.

    Readings scatter as on real machines; every number of a study is the model's.
    """

    seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 1
    """Makes the readings repeatable."""
    noise: Fraction = 0.03
    """Scatter of the capacity from reading to reading, as a standard deviation."""
    drift: Fraction = 0.0
    """How far the capacity slowly swings, up and down."""
    outliers: Fraction = 0.03
    """Part of the readings that something else disturbs."""
    capacity: Annotated[Number, Field(gt=0, le=100)] = 1.0
    """What all of it carries, relative to what the model says."""


class Bed(Model):
    """A test bed: a copy of the stack on hosts of its own."""

    hosts: Annotated[
        dict[Annotated[str, Field(pattern=NAME)], Host],
        Field(json_schema_extra={"additionalProperties": False}),
    ] = Field(default={})
    """Its hosts, in place of the target's of the same names."""
    simulated: Simulated | None = None
    """Its model, in place of the target's `simulated:`."""


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
            # These two are named so that an editor can complete them; any other percentile is as good.
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


# Keys that a stack needs. They have values even if a command takes their place, so that code for
# stacks need not check for them; `coherence` sees to it that they are given.
OF_A_STACK = ("slo", "hosts", "tiers")
_STACK_OR_COMMAND: JsonDict = {
    "anyOf": [{"required": list(OF_A_STACK)}, {"required": ["command"]}],
}


@dataclass(frozen=True)
class Goal:
    """Whether a benchmark's value is to be made large or small, what it is and its unit."""

    maximize: bool
    name: str
    unit: str


Named = Annotated[Text | Literal[True] | None, Field(union_mode="left_to_right")]


class Target(Model):
    """A stack, its latency objective, and what may be changed to meet it at a higher rate.

    Or a command that tells how good a configuration is, and the parameters that it takes.
    """

    model_config = ConfigDict(json_schema_extra=_STACK_OR_COMMAND)

    name: Annotated[str, Field(pattern=NAME)]
    """Names the study."""
    slo: SloSpec = SloSpec.model_validate({"p99": "50ms"})
    """The objective: a latency limit at a percentile, such as `{p99: 50ms, errors: 0.1%}`."""
    hosts: Annotated[dict[Annotated[str, Field(pattern=NAME)], Host], _NAMED] = Field(default={})
    """The machines, by names of your choosing."""
    ssh: Ssh = Ssh()
    tiers: Annotated[dict[Annotated[str, Field(pattern=TIER)], Tier], _NAMED] = Field(default={})
    """What runs on them, from the load balancer to the store."""
    project: Project | None = None
    """The Compose project that tiers run in."""
    services: ServiceSpecs = Field(default={})
    """Software that autotune does not ship, by the name that a tier's `service:` has for it."""
    replace: Switch = False
    """`replace: true` for every tier: configuration files are replaced whole, not edited."""
    parameters: dict[Text, ParameterRule] = Field(default={})
    """Adjusts the catalogue, by `tier.service.parameter`; or declares what `command` takes."""
    constraints: tuple[Text, ...] = ()
    """Rules every trial keeps, such as `web.php_fpm.max_children * 30 MB <= 70% of web.memory`."""
    try_first: tuple[dict[Text, Scalar], ...] = Field(default=(), alias="try")
    """Configurations to try before the search; what one leaves out is as in the baseline."""
    load: Load = Load()
    data: Data = Data()
    budget: Budget = Budget()
    tune: Literal["core", "all"] = "core"
    """Which parameters the search changes: those known to matter, before any others, or `all`."""
    search: Search = Search()
    simulated: Simulated | None = None
    """Makes the stack a model: no host is touched, and every figure is the model's."""
    beds: Annotated[
        dict[Annotated[str, Field(pattern=NAME)], Bed],
        Field(json_schema_extra={"additionalProperties": False}),
    ] = Field(default={})
    """Copies of the stack that one study may measure on at once: `autotune run --beds all`."""
    command: Annotated[tuple[Word, ...], Field(min_length=1)] | None = None
    """In place of tiers: a program and its arguments, called for each trial in this directory."""
    maximize: Named = None
    """What the command's value is, such as `throughput`; the more of it the better."""
    minimize: Named = None
    """What the command's value is, such as `seconds per run`; the less of it the better."""
    unit: Text | None = None
    """What the command's value is counted in, for reports."""
    timeout: Annotated[Seconds, MoreThanNothing] = 600.0
    """When a call of the command is given up."""

    def edits(self, tier: str) -> bool:
        """Whether the files that lie on a tier's hosts are edited, for lack of others to write."""
        described = self.tiers[tier]
        return described.installed and not (
            self.replace or described.replace or described.templates or self.simulated
        )

    @property
    def goal(self) -> Goal | None:
        """What the command's value is to become; ``None`` for a stack."""
        if self.command is None:
            return None
        word = self.minimize or self.maximize
        name = word if isinstance(word, str) else "value"
        return Goal(maximize=self.minimize is None, name=name, unit=self.unit or "")
