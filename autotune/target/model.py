"""Models of the values in a target file, which are immutable and in base units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from autotune.home_directory import expand_home
from autotune.target import runtimes
from autotune.target.declared_service import (
    Answers,
    Counters,
    ServiceFile,
    ServiceNeeds,
    ServiceParameter,
    ServiceSpec,
    ServiceSpecs,
)
from autotune.target.expected_answer import Expect
from autotune.target.field_types import (
    ADDRESS_PATTERN,
    COMPOSE_FILE_PATTERN,
    COMPOSE_NAME_PATTERN,
    HEADER_PATTERN,
    METHOD_PATTERN,
    NAME_PATTERN,
    PATH_PATTERN,
    TIER_PATTERN,
    URL_PATTERN,
    USER_PATTERN,
    Bytes,
    CommandArgument,
    FiniteNumber,
    Fraction,
    HintedError,
    NonEmptyTextList,
    Port,
    PositiveValidator,
    RatePerSecond,
    RequestBody,
    Scalar,
    Seconds,
    StrictBoolean,
    TargetModel,
    Text,
    TextList,
    WholeNumber,
    error_at_key,
    max_duration_validator,
    min_duration_validator,
    wrap_in_list,
)
from autotune.target.messages import format_value
from autotune.target.parameter_rule import ParameterRule
from autotune.target.runtimes import RuntimeName
from autotune.target.slo_spec import SloSpec

__all__ = [
    "Answers", "Bed", "Budget", "Counters", "Data", "Expect", "Host", "Load", "ParameterRule", "Scalar",
    "Search", "ServiceFile", "ServiceNeeds", "ServiceParameter", "ServiceSpec", "Simulated", "SloSpec",
    "Ssh", "Target", "Tier",
]  # fmt: skip


_ADDRESS_SCHEMA: JsonDict = {
    "anyOf": [
        {"required": ["address"]},
        {"required": ["transport"], "properties": {"transport": {"const": "local"}}},
    ]
}


# A mapping with at least one name. The schema also rejects invalid names.
_NAMED_MAPPING_FIELD = Field(min_length=1, json_schema_extra={"additionalProperties": False})


class Host(TargetModel):
    """A host. ``cpus`` and ``memory`` limit the resources that the stack may use."""

    model_config = ConfigDict(json_schema_extra=_ADDRESS_SCHEMA)

    address: Annotated[str, Field(pattern=ADDRESS_PATTERN)] = "127.0.0.1"
    """Host name or address. Required unless the transport is `local`."""
    transport: Literal["local", "ssh"] = "ssh"
    """`ssh`, or `local` for the machine that autotune runs on."""
    user: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    """Login name. Default: from ~/.ssh/config."""
    port: Port | None = None
    """SSH port. Default: from ~/.ssh/config."""
    cpus: Annotated[FiniteNumber, Field(gt=0)] | None = None
    """CPUs that the stack may use on this host, such as 1.5."""
    memory: Annotated[Bytes, PositiveValidator] | None = None
    """Memory that the stack may use on this host."""
    lab_only: StrictBoolean = False
    """Start the host with a lab although no tier uses it, such as a backend that the site calls."""

    @model_validator(mode="after")
    def _require_address(self) -> Host:
        # Otherwise, a host without an address would silently be this machine.
        if self.transport != "local" and "address" not in self.model_fields_set:
            raise HintedError(
                "'address' is missing; only a host with `transport: local` needs none",
                "such as `address: web1.example.org`",
            )
        host_part, _, port_part = self.address.rpartition(":")
        if port_part.isdigit() and host_part and ":" not in host_part:
            hint = f"write `address: {host_part}, port: {port_part}`"
            raise error_at_key("address", "the address contains a port", hint)
        _check_ip_address("address", self.address)
        return self


def _check_ip_address(key: str, address: str) -> None:
    """Raise an error at ``key`` for an address that looks like an IP address but is not valid."""
    if not re.fullmatch(r"[0-9.]+|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*", address):
        return
    try:
        ip_address(address)
    except ValueError:
        example = "2001:db8::1" if ":" in address else "10.0.0.11"
        message = f"{key}: {address} is not a valid IP address, such as {example}"
        raise error_at_key(key, message) from None


class Ssh(TargetModel):
    """SSH settings. Default: the same as for the `ssh` command."""

    config: Text | None = None
    """File to use instead of ~/.ssh/config, as with `ssh -F`. The path is relative to the target file."""

    def locate_config(self, target_directory: Path) -> Path | None:
        """Return the path of the file for a target file in ``target_directory``."""
        return target_directory / expand_home(self.config) if self.config else None


class Tier(TargetModel):
    """Hosts with the same role and the same settings."""

    hosts: NonEmptyTextList
    """Names of the hosts in this tier, as under `hosts:`."""
    service: NonEmptyTextList
    """Service that runs on these hosts. From a list, the search chooses one service."""
    forwards_to: str | None = None
    """Tier to which this tier forwards requests."""
    uses: TextList = ()
    """Tiers that the application calls, such as a cache and a store."""
    app: Text | None = None
    """Application that the tier serves: `reference` for the reference application."""
    local_cache: StrictBoolean = False
    """Allow the search to add a small cache on each host, in front of the cache tier."""
    runtime: RuntimeName = runtimes.DEFAULT_RUNTIME
    """`systemd`: units of the distribution. `containers`: a Docker or Podman Compose project.
    `embedded`: private processes that belong to the study."""
    container: Annotated[str, Field(pattern=COMPOSE_NAME_PATTERN)] | None = None
    """Service in the Compose project. Default: the name of the tier."""
    port: Port | None = None
    """Port on which the service listens. Default: the port of the service, or a free port
    (`embedded`)."""
    templates: Text | None = None
    """Directory of templates that override autotune's templates. The path is relative to the target
    file."""
    replace: StrictBoolean = False
    """Replace whole configuration files instead of editing them."""
    allow_data_loss: StrictBoolean = False
    """Allow restarts that lose data kept only in memory."""

    @property
    def required_tiers(self) -> tuple[str, ...]:
        """Return the tiers that this tier depends on."""
        return (*self.uses, *((self.forwards_to,) if self.forwards_to else ()))

    @property
    def installed(self) -> bool:
        """True if the tier's services are installed on the hosts, not private to a study."""
        return runtimes.RUNTIMES[self.runtime].installed

    @property
    def isolated(self) -> bool:
        """True if the tier's services have their own file systems and limits."""
        return runtimes.RUNTIMES[self.runtime].isolated


def _parse_http_version(value: object) -> object:
    """Return the HTTP version as text, because YAML may read it as a number."""
    return str(value) if value in (1.1, 2) and not isinstance(value, bool) else value


def _parse_tuning(value: object) -> object:
    """Return the value of `tune:`: a list of patterns as a tuple, or `core` or `all`. Raises
    ValueError for other values.
    """
    if value in ("core", "all"):
        return value
    if not isinstance(value, list | tuple):
        raise HintedError(
            f"must be `core`, `all` or a list, not {format_value(value)}", _suggest_tuning(value)
        )
    if not value:
        raise ValueError("must not be empty; write `core` for the usual parameters")
    for pattern in value:
        if not isinstance(pattern, str):
            raise HintedError(
                f"{format_value(pattern)} is not the name of a parameter",
                "list tiers, services or parameters, such as `tune: [web.php_fpm]`",
            )
    return tuple(value)


def _suggest_tuning(value: object) -> str:
    """Return the hint for a value of `tune:` that is neither a word nor a list."""
    if not isinstance(value, str):
        return "such as `tune: [web.php_fpm, lb]`"
    if value.lower() in ("everything", "full", "any", "*"):
        return "write `tune: all`"
    words = re.split(r"[,;\s]+", value.strip())
    names = [word for word in words if word.lower() not in ("core", "all")]
    if value.lower() in ("none", "nothing", "off", "no", ""):
        return "write `tune: core`; `autotune measure TARGET` measures without tuning"
    return f"write `[{', '.join(names)}]`" if names else f"write `tune: {words[0].lower()}`"


def _refuse_nothing(value: object) -> object:
    """Raise ValueError for `simulated:` without a value, which would mean real hosts."""
    if value is None:
        raise ValueError(
            "has no value; write `{}` for the defaults, or remove the key for real hosts"
        )
    return value


class Project(TargetModel):
    """Compose project that contains the tiers with `runtime: containers`."""

    name: Annotated[str, Field(pattern=COMPOSE_NAME_PATTERN)]
    """Name of the project, as `docker compose ls` prints it."""
    files: Annotated[
        tuple[Annotated[str, Field(pattern=COMPOSE_FILE_PATTERN)], ...],
        BeforeValidator(wrap_in_list, json_schema_input_type=str | list[str]),
        Field(min_length=1),
    ]
    """Absolute paths of its Compose files on the hosts, in the order in which `-f` lists them."""
    engine: Literal["docker", "podman"] = "docker"
    """Container engine. Containers are created with `docker compose` or `podman-compose`."""
    account: Annotated[str, Field(pattern=USER_PATTERN)] | None = None
    """Account that owns the containers, if the engine runs without root."""


class Load(TargetModel):
    """Load to send. Load goes only to the hosts of the entry tier, or to `vip`."""

    generator: Text = "httperf"
    """Program that generates the load."""
    command: Annotated[tuple[CommandArgument, ...], Field(min_length=1)] | None = None
    """Your own generator, instead of `generator`: a program and its arguments."""
    hosts: TextList = ()
    """Hosts that run the generator. Default: this machine."""
    path: Annotated[str, Field(pattern=PATH_PATTERN)] = "/"
    """Path to request."""
    url: Annotated[str, Field(pattern=URL_PATTERN)] | None = None
    """URL to request, instead of `path`. Its host name is used for the Host header and TLS.
    Connections go to the addresses of the entry tier's hosts."""
    vip: Annotated[str, Field(pattern=ADDRESS_PATTERN)] | None = None
    """Shared address of the entry tier's hosts. Connections go to this address instead."""
    host: Annotated[str, Field(pattern=ADDRESS_PATTERN)] | None = None
    """Host name for the Host header and TLS, if `url` is not set."""
    method: Annotated[str, Field(pattern=METHOD_PATTERN)] = "GET"
    """Method of the request."""
    headers: dict[Annotated[str, Field(pattern=HEADER_PATTERN)], Text] = Field(
        default={}, json_schema_extra={"additionalProperties": False}
    )
    """Headers to send. `${NAME}` is replaced with this variable from autotune's environment."""
    body: RequestBody | None = None
    """Body of the request. Its default content type is that of a form."""
    insecure: StrictBoolean = False
    """Do not check certificates."""
    ca: Text | None = None
    """PEM file of the authority that signed the certificate. The path is relative to the target file."""
    http: Annotated[
        Literal["1.1", "2"],
        BeforeValidator(_parse_http_version, json_schema_input_type=Literal[1.1, 2, "1.1", "2"]),
    ] = "1.1"
    """HTTP version."""
    uris: Text | None = None
    """File with one path per line, instead of `path`. Paths are requested in order."""
    sessions: Text | None = None
    """File with httperf sessions, instead of `path`."""
    requests: Text | None = None
    """File with weighted requests, instead of `path`. `autotune workload from-log` writes one."""
    script: Text | None = None
    """Your own k6 script, instead of `path`. autotune runs its default function at a fixed rate."""
    requests_per_run: Annotated[WholeNumber, Field(ge=1, le=1000)] | None = None
    """Largest number of requests in one run of `script`, including redirects. Default: counted in
    slow runs."""
    max_rate: Annotated[RatePerSecond, PositiveValidator] = 20_000.0
    """Highest rate that autotune ever offers, in requests/s."""
    today: Annotated[RatePerSecond, PositiveValidator] | None = None
    """Rate of your users today, in requests/s. The proof measures the latency of the baseline and of
    the winner at this rate. Default: 40 % of the baseline's capacity."""
    unpaced: StrictBoolean = False
    """Allow ab and memcaslap, whose rate autotune cannot limit."""
    timeout: Annotated[Seconds, PositiveValidator, max_duration_validator("1h")] | None = None
    """Time after which a request fails, at least twice the latency limit. Default: twice the latency
    limit, at least 2s."""
    expect: Expect | None = None
    """Properties of a correct response. Default: as in the responses before the first trial."""

    @model_validator(mode="after")
    def _check_addresses(self) -> Load:
        for key in ("vip", "host"):
            if (address := getattr(self, key)) is not None:
                host_part, _, port_part = address.rpartition(":")
                if port_part.isdigit() and host_part and ":" not in host_part:
                    hint = (
                        f"write `{key}: {host_part}`; `url: http://NAME:{port_part}/` names a port"
                    )
                    raise error_at_key(key, "the address contains a port", hint)
                _check_ip_address(key, address)
        if match := re.match(r"https?://\[(.*?)\]", self.url or ""):
            _check_ip_address("url", match[1])
        return self

    @property
    def requests_one_page(self) -> bool:
        """True if all requests are the same, so only one response is correct."""
        return not self.has_request_file and self.method == "GET"

    @property
    def has_request_file(self) -> bool:
        """True if a file lists the requests, instead of `path`."""
        return bool(self.uris or self.sessions or self.requests or self.script)

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted with TLS."""
        return (self.url or "").startswith("https:")

    @property
    def page_text(self) -> str:
        """Return the requested URL or, without a URL, the host name and path."""
        return self.url or f"{self.host or ''}{self.path}"


class Data(TargetModel):
    """Data set of the reference application."""

    pairs: Annotated[WholeNumber, Field(ge=1000, le=10**10)] = 100_000
    """Number of keys in the store."""
    keys_per_request: Annotated[WholeNumber, Field(ge=1, le=1000)] = 100
    """Number of keys that one request reads."""
    skew: Annotated[FiniteNumber, Field(gt=0, lt=1)] = 0.9
    """Exponent of the popularity of keys: the key of rank r is read in proportion to r^-skew."""
    store_latency: Seconds = 0.003
    """Delay of each batch of misses, as from a slow disk."""


class Budget(TargetModel):
    """Limits of a study."""

    trials: Annotated[WholeNumber, Field(ge=3, le=10_000)] = 40
    """Number of configurations to measure before the finals, including baseline and presets."""
    time: Annotated[Seconds, min_duration_validator("30s", " (the baseline alone takes that)")] = (
        2700.0
    )
    """Longest duration of the whole study."""


class Search(TargetModel):
    """Settings of the search."""

    sampler: Text = "auto"
    """Sampler. `auto` is `gp` for up to 300 trials, and `tpe` for more trials."""
    seed: Annotated[WholeNumber, Field(ge=0, lt=2**32)] = 1
    """Seed of the random numbers for suggestions."""


class Simulated(TargetModel):
    """Queueing model that replaces the hosts, in virtual time. No host is contacted.

    Readings vary as on real hosts. All figures of a study come from the model.
    """

    seed: Annotated[WholeNumber, Field(ge=0, lt=2**32)] = 1
    """Seed of the random numbers for readings."""
    noise: Fraction = 0.03
    """Standard deviation of the capacity between readings."""
    drift: Fraction = 0.0
    """Amplitude of a slow change in the capacity."""
    outliers: Fraction = 0.03
    """Fraction of readings that are disturbed."""
    capacity: Annotated[FiniteNumber, Field(gt=0, le=100)] = 1.0
    """Capacity relative to the default of the model."""


class Bed(TargetModel):
    """Test bed: a copy of the stack on other hosts."""

    hosts: Annotated[
        dict[Annotated[str, Field(pattern=NAME_PATTERN)], Host],
        Field(json_schema_extra={"additionalProperties": False}),
    ] = Field(default={})
    """Hosts of the bed, which replace the target's hosts with the same names."""
    simulated: Annotated[Simulated | None, BeforeValidator(_refuse_nothing)] = None
    """Model of the bed, which replaces the target's `simulated:`."""


DEFAULT_TIMEOUT_SECONDS = (
    2.0  # timeout of a request, unless the latency limit requires a longer one
)
MIN_TIMEOUT_LIMITS = 2.0  # shortest timeout, as a multiple of the latency limit
# Keys that a stack requires (see `consistency_checks`). A target with a command gets defaults, so that
# code for stacks need not check for None.
REQUIRED_STACK_KEYS = ("slo", "hosts", "tiers")
_STACK_OR_COMMAND_SCHEMA: JsonDict = {
    "anyOf": [{"required": list(REQUIRED_STACK_KEYS)}, {"required": ["command"]}],
}


@dataclass(frozen=True)
class CommandGoal:
    """Direction, name and unit of a benchmark's value."""

    maximize: bool
    name: str
    unit: str


Tuning = Annotated[
    Literal["core", "all"] | tuple[Text, ...],
    BeforeValidator(
        _parse_tuning,
        json_schema_input_type=Literal["core", "all"] | Annotated[list[Text], Field(min_length=1)],
    ),
]

CommandValueName = Annotated[Text | Literal[True] | None, Field(union_mode="left_to_right")]


def _allow_false_parameters(schema: JsonDict) -> None:
    """Allow `false` as a value in a mapping of rules."""
    patterns = cast("dict[str, JsonDict]", schema["patternProperties"])
    schema["patternProperties"] = {
        pattern: {"anyOf": [value, {"const": False}]} for pattern, value in patterns.items()
    }


class Target(TargetModel):
    """A stack with its latency objective and parameters, or a command with its parameters."""

    model_config = ConfigDict(json_schema_extra=_STACK_OR_COMMAND_SCHEMA)

    name: Annotated[str, Field(pattern=NAME_PATTERN)]
    """Name of the study."""
    slo: SloSpec = SloSpec.model_validate({"p99": "50ms"})
    """Latency objective, such as `{p99: 50ms, errors: 0.1%}`."""
    hosts: Annotated[
        dict[Annotated[str, Field(pattern=NAME_PATTERN)], Host], _NAMED_MAPPING_FIELD
    ] = Field(default={})
    """Hosts, by names that you choose."""
    ssh: Ssh = Ssh()
    tiers: Annotated[
        dict[Annotated[str, Field(pattern=TIER_PATTERN)], Tier], _NAMED_MAPPING_FIELD
    ] = Field(default={})
    """Tiers of the stack, from the load balancer to the store."""
    project: Project | None = None
    """Compose project that contains the tiers that run in containers."""
    services: ServiceSpecs = Field(default={})
    """Services that you declare, by the names that `service:` uses."""
    replace: StrictBoolean = False
    """Replace whole configuration files in all tiers instead of editing them."""
    parameters: dict[Text, ParameterRule] = Field(
        default={}, json_schema_extra=_allow_false_parameters
    )
    """Rules for parameters. Names have the form `tier.service.parameter`. With `command`: the
    parameters of the command. `"lb.*": false` excludes all parameters whose names match."""
    constraints: tuple[Text, ...] = ()
    """Rules that every trial must satisfy, such as
    `web.php_fpm.max_children * 30 MB <= 70% of web.memory`."""
    try_first: tuple[dict[Text, Scalar], ...] = Field(default=(), alias="try")
    """Configurations to measure before the search. Settings that are not listed keep their baseline
    values."""
    load: Load = Load()
    data: Data = Data()
    budget: Budget = Budget()
    tune: Tuning = "core"
    """`core`: start with the parameters that have a large effect. `all`: search all at once. A list
    such as `[web.php_fpm]`: search only these tiers, services or parameters, in the order of `core`."""
    search: Search = Search()
    simulated: Annotated[Simulated | None, BeforeValidator(_refuse_nothing)] = None
    """Use a model instead of the hosts."""
    beds: Annotated[
        dict[Annotated[str, Field(pattern=NAME_PATTERN)], Bed],
        Field(json_schema_extra={"additionalProperties": False}),
    ] = Field(default={})
    """Copies of the stack that one study measures concurrently: `autotune run --beds all`."""
    command: Annotated[tuple[CommandArgument, ...], Field(min_length=1)] | None = None
    """Program and arguments to run for each trial, instead of tiers. The program starts in
    the directory of the target file."""
    maximize: CommandValueName = None
    """Name of the value that the command prints, such as `throughput`. Larger is better."""
    minimize: CommandValueName = None
    """Name of the value that the command prints, such as `seconds per run`. Smaller is better."""
    unit: Text | None = None
    """Unit of the value that the command prints, for reports."""
    timeout: Annotated[Seconds, PositiveValidator] = 600.0
    """Time after which a run of the command is stopped."""

    ready: Annotated[Seconds, PositiveValidator, max_duration_validator("1h")] | None = None
    """Longest time until a restarted stack is ready, such as `2m`. Default: based on measured boot
    times."""

    @property
    def request_timeout(self) -> float:
        """Return the time in seconds after which a request fails."""
        shortest_timeout = MIN_TIMEOUT_LIMITS * self.slo.objective.limit
        return self.load.timeout or max(DEFAULT_TIMEOUT_SECONDS, shortest_timeout)

    def edits_host_files(self, tier: str) -> bool:
        """True if autotune edits the files of a tier's hosts instead of replacing whole files."""
        tier_model = self.tiers[tier]
        return tier_model.installed and not (
            self.replace or tier_model.replace or tier_model.templates or self.simulated
        )

    @property
    def command_goal(self) -> CommandGoal | None:
        """Return the objective of the command; ``None`` for a stack."""
        if self.command is None:
            return None
        stated_name = self.minimize or self.maximize
        value_name = stated_name if isinstance(stated_name, str) else "value"
        return CommandGoal(maximize=self.minimize is None, name=value_name, unit=self.unit or "")
