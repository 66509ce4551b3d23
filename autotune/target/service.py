"""A service that a target, or a file of the user's own, declares: plain data, as it is written."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from autotune.target.fields import (
    FILE,
    PARAMETER,
    TEXT,
    TIER,
    UNIT,
    Model,
    Port,
    Scalar,
    Some,
    Switch,
    Text,
    Word,
    at,
)
from autotune.target.messages import format_value, same
from autotune.target.rule import Conditions
from autotune.target.units import in_unit

USERS = Path("autotune") / "services"  # below the user's directory of settings

Argv = Annotated[tuple[Word, ...], Field(min_length=1)]


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text, re.MULTILINE).groups
    except re.error as error:
        raise ValueError(f"{format_value(text)} is no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"{format_value(text)} has {groups} groups: the value is the only one")
    return text


Pattern = Annotated[Text, AfterValidator(_pattern)]


def _lines(text: str) -> str:
    if not re.fullmatch(TEXT, re.sub(r"[\n\t]", " ", text)):
        raise ValueError("has characters that text cannot have")
    return text


class ServiceFile(Model):
    """A file of a service. Without `text` or `template` it is only ever edited as it lies there."""

    text: Annotated[str, Field(min_length=1), AfterValidator(_lines)] | None = None
    """The whole file, as a Jinja2 template of the parameters."""
    template: Text | None = None
    """Instead, the name of a template in the tier's `templates:` directory."""
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3}$")] = "0644"
    """Its permission bits, in octal, in quotes."""


class ServiceParameter(Model):
    """One setting of a declared service, and where it stands in its files."""

    meaning: Text
    """What it does, for people."""
    default: Scalar
    """What the software takes where its files say nothing, and the baseline where they are not read."""
    range: tuple[Scalar, Scalar] | None = None
    """Lowest and highest value, both included; either may be over the host, as `2 * cpus`."""
    choices: Annotated[tuple[Scalar, ...], Field(min_length=2)] | None = None
    """The values to choose from, as the file has them."""
    unit: Text | None = None
    """What it is counted in: `ms`, `MB` …"""
    log: Switch = False
    """Whether the search steps by ratios (true) or by differences (false)."""
    action: Literal["none", "reload", "restart"] = "restart"
    """What a change of it needs."""
    directive: Text | None = None
    """The words before and after its value `{}`, as `keep-alive = {}`; `*` stands for any words."""
    section: Text | None = None
    """The section it counts in: `global` or `mysqld`; without one, the whole file."""
    file: Annotated[str, Field(pattern=FILE)] | None = None
    """The file it is in; without it, the first of `files:`."""
    recommended: Scalar | None = None
    """What guides advise."""
    source: Text = "the target"
    """Who says so."""
    effect: Literal["capacity", "small", "cosmetic"] = "capacity"
    """How much it may matter: the search begins with those of `capacity`."""
    direction: Literal["", "+", "-"] = ""
    """Where guides move it."""
    safe: tuple[Scalar, Scalar] | None = None
    """Values between which no guide warns of it."""
    on_demand: Switch = False
    """Whether it keeps its default unless `parameters:` give it a range or choices."""
    capped_by: Literal["net.core.somaxconn"] | None = None
    """The kernel setting above which a value has no effect."""
    when: dict[Text, Conditions] = Field(default={})
    """Other parameters of the service, by their names, and the values with which it means something."""

    @model_validator(mode="after")
    def _has_values(self) -> ServiceParameter:
        if (self.range is None) == (self.choices is None):
            raise ValueError("what may it be? A `range` or `choices`, and not both")
        if self.choices and not any(same(self.default, choice) for choice in self.choices):
            raise at("default", f"{format_value(self.default)} is not among the choices")
        if self.choices is None and isinstance(self.default, bool):
            raise at("default", f"{format_value(self.default)} is not a number")
        if self.directive is not None and self.directive.count("{}") != 1:
            raise at(
                "directive", f"{format_value(self.directive)} says with `{{}}` where its value is"
            )
        for key in ("default", "recommended", "range", "safe"):
            for value in _several(getattr(self, key)):
                try:
                    in_unit(value, self.unit or "")
                except ValueError as error:
                    raise at(key, str(error)) from None
        return self


def _several(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


class Answers(Model):
    """A command that prints numbers and words, and where they are in what it prints."""

    command: Argv
    """The program and its arguments, no shell; `{host}` and `{port}` stand for where it listens."""
    values: Annotated[dict[Text, Pattern], Field(min_length=1)]
    """Names, each with a regular expression whose only group is the value."""


class Counters(Answers):
    """What the software counts of itself, asked for before and after each reading."""

    levels: Some = ()
    """Those that go up and down; others only ever grow."""


class ServiceNeeds(Model):
    """What it takes of its host at the worst, as expressions over its parameters."""

    memory: Text | None = None
    """Bytes: `connections * 64 KB + 20 MB`."""
    connections: Text | None = None
    """Clients at one time."""
    descriptors: Text | None = None
    """Descriptors that one of its processes opens."""
    workers: Text | None = None
    """Processes or threads that work on a request each."""


Resource = Literal["cpu", "workers", "connections", "descriptors", "memory", "network", "cache"]


class ServiceSpec(Model):
    """Software that autotune does not ship: a unit of its hosts, its files, its parameters."""

    title: Text | None = None
    """What people call it."""
    role: Literal["proxy", "http_cache", "web", "app", "cache", "store", "database"]
    """What it does in its tier."""
    port: Port
    """Where it listens, unless its tier says otherwise."""
    unit: Annotated[str, Field(pattern=UNIT)]
    """The unit that runs it: `lighttpd.service`."""
    listens: Switch = True
    """Whether its unit itself listens there; not so where it only applies settings elsewhere."""
    packages: Some = ()
    """The distribution's packages that bring it."""
    reload: Switch = False
    """Whether reloading the unit is enough for parameters with `action: reload`."""
    keeps_data: Switch = False
    """Whether what it holds is the user's, as with a database."""
    forgets_on_restart: Switch = False
    """Whether it begins with nothing after a restart, as a cache does."""
    files: Annotated[
        dict[Annotated[str, Field(pattern=FILE)], ServiceFile],
        Field(min_length=1, json_schema_extra={"additionalProperties": False}),
    ]
    """Its configuration files, by their paths on its hosts; drop-ins of its unit too."""
    check: Argv | None = None
    """How the software validates its files: a command with the path of one, no shell."""
    read: tuple[Answers, ...] = ()
    """Commands that show what is in effect, and the parameters in what they print."""
    counters: Counters | None = None
    """What it counts, for diagnosis."""
    needs: ServiceNeeds = ServiceNeeds()
    """What it takes of its host, for the rules of memory, connections and descriptors."""
    helps: dict[Resource, Some] = Field(default={})
    """Which parameters help where a resource ran out, and how: `connections: [maxconn+]`."""
    parameters: Annotated[
        dict[Annotated[str, Field(pattern=PARAMETER)], ServiceParameter],
        Field(min_length=1, json_schema_extra={"additionalProperties": False}),
    ]
    """Its settings, by names of your choosing."""

    @model_validator(mode="after")
    def _names_what_is_there(self) -> ServiceSpec:
        names = {name for answers in self.read for name in answers.values}
        names |= {word.rstrip("+-") for words in self.helps.values() for word in words}
        names |= {other for p in self.parameters.values() for other in p.when}
        if unknown := sorted(names - {*self.parameters}):
            raise at("parameters", f"there is no parameter {unknown[0]!r}")
        for name, parameter in self.parameters.items():
            if parameter.file is not None and parameter.file not in self.files:
                raise at("files", f"{name}: {parameter.file} is not among the `files:`")
        return self


ServiceSpecs = Annotated[
    dict[Annotated[str, Field(pattern=TIER)], ServiceSpec],
    Field(json_schema_extra={"additionalProperties": False}),
]


def user_files() -> dict[str, Path]:
    """The declarations of the user's own, by the names of the services."""
    settings = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return {path.stem: path for path in sorted((Path(settings) / USERS).glob("*.yaml"))}
