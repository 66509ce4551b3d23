"""A service that a target or a user's file declares, as plain data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from autotune.home_directory import expand_home
from autotune.target.field_types import (
    FILE_PATTERN,
    MODE_PATTERN,
    PARAMETER_PATTERN,
    TEXT_PATTERN,
    TIER_PATTERN,
    UNIT_PATTERN,
    CommandArgument,
    HintedError,
    Port,
    Scalar,
    StrictBoolean,
    TargetModel,
    Text,
    TextList,
    error_at,
    error_at_key,
)
from autotune.target.messages import (
    find_nearest_name,
    format_value,
    is_same_value,
    suggest_choice,
    suggest_name,
)
from autotune.target.parameter_rule import ConditionValues
from autotune.target.quantities import convert_to_unit, parse_magnitude

# Relative to the user's configuration directory.
USER_SERVICES_DIRECTORY = Path("autotune") / "services"

CommandArguments = Annotated[tuple[CommandArgument, ...], Field(min_length=1)]


def _validate_pattern(pattern_text: str) -> str:
    try:
        group_count = re.compile(pattern_text, re.MULTILINE).groups
    except re.error as error:
        message = f"{format_value(pattern_text)} is not a regular expression: {error}"
        raise HintedError(message, "such as '^threads: ([0-9]+)$'") from None
    if group_count != 1:
        message = f"{format_value(pattern_text)} needs exactly one group, not {group_count}"
        hint = "put parentheses around the value, such as '^threads: ([0-9]+)$', and use (?:…) elsewhere"
        raise HintedError(message, hint)
    return pattern_text


ValuePattern = Annotated[Text, AfterValidator(_validate_pattern)]


def _validate_file_text(text: str) -> str:
    if not re.fullmatch(TEXT_PATTERN, re.sub(r"[\n\t]", " ", text)):
        raise ValueError("contains invalid characters")
    return text


class ServiceFile(TargetModel):
    """File of a service. Without `text` and `template`, autotune only edits the existing file."""

    text: Annotated[str, Field(min_length=1), AfterValidator(_validate_file_text)] | None = None
    """Complete file, as a Jinja2 template that uses the parameters."""
    template: Text | None = None
    """Name of a template in the tier's `templates:` directory, instead of `text`."""
    mode: Annotated[str, Field(pattern=MODE_PATTERN)] = "0644"
    """File mode in octal, in quotes."""


class ServiceParameter(TargetModel):
    """Parameter of a declared service, and the line in a file that sets it."""

    meaning: Text
    """Meaning, for reports."""
    default: Scalar
    """Default value of the software, and the baseline if the files do not set the parameter."""
    range: tuple[Scalar, Scalar] | None = None
    """Lowest and highest value. Both may use values of the host: `2 * cpus`."""
    choices: Annotated[tuple[Scalar, ...], Field(min_length=2)] | None = None
    """Values to choose from, spelled as in the file."""
    unit: Text | None = None
    """Unit, such as `ms` or `MB`."""
    log: StrictBoolean = False
    """Search on a logarithmic scale."""
    action: Literal["none", "reload", "restart"] = "restart"
    """Action that a change needs."""
    directive: Text | None = None
    """Line with `{}` in place of the value: `keep-alive = {}`. `*` matches any words."""
    section: Text | None = None
    """Section that contains the line, such as `global`. Default: the whole file."""
    file: Annotated[str, Field(pattern=FILE_PATTERN)] | None = None
    """File that contains the line. Default: the first file under `files:`."""
    recommended: Scalar | None = None
    """Value recommended by tuning guides."""
    source: Text = "the target"
    """Source of the recommendation."""
    effect: Literal["capacity", "small", "cosmetic"] = "capacity"
    """Expected effect on the capacity. The search starts with parameters marked
    `capacity`, which have a large effect."""
    direction: Literal["", "+", "-"] = ""
    """Direction of the change that tuning guides recommend."""
    safe: tuple[Scalar, Scalar] | None = None
    """Range that guides consider safe."""
    on_demand: StrictBoolean = False
    """Tune the parameter only if `parameters:` sets its range or choices."""
    capped_by: Literal["net.core.somaxconn"] | None = None
    """Kernel setting that caps the value."""
    when: dict[Text, ConditionValues] = Field(default={})
    """Values that other parameters must have, or else this parameter has no effect."""

    @model_validator(mode="after")
    def _check_values(self) -> ServiceParameter:
        if (self.range is None) == (self.choices is None):
            hint = "`range: [LOWEST, HIGHEST]` for numbers, or `choices: [VALUE, …]` for words"
            raise HintedError("needs either `range` or `choices`", hint)
        if self.choices and not any(is_same_value(self.default, choice) for choice in self.choices):
            message = f"{format_value(self.default)} is not among the choices"
            raise error_at_key("default", message, suggest_choice(self.default, self.choices))
        if self.choices is None and isinstance(self.default, bool):
            message = f"{format_value(self.default)} is not a number"
            raise error_at_key(
                "default", message, "`choices: [true, false]` lists values of a switch"
            )
        self._check_bounds()
        if self.directive is not None and self.directive.count("{}") != 1:
            message = (
                f"{format_value(self.directive)} must contain `{{}}` once, in place of the value"
            )
            raise error_at_key("directive", message, "such as `directive: keep-alive = {}`")
        for key in ("default", "recommended", "range", "safe"):
            for value in _as_tuple(getattr(self, key)):
                try:
                    convert_to_unit(value, self.unit or "")
                except ValueError as error:
                    raise error_at_key(key, str(error)) from None
        return self

    def _check_bounds(self) -> None:
        """Raise an error for a range whose numbers are out of order, or a default outside of them.

        Bounds that depend on the host are not checked.
        """
        if self.range is None:
            return
        lowest, highest = self.range
        low, high, default = (parse_magnitude(v) for v in (lowest, highest, self.default))
        if low and high and low[0] == high[0] and low[1] >= high[1]:
            hint = f"write the lower value first: `range: [{highest}, {lowest}]`"
            raise error_at_key("range", f"the range from {lowest} to {highest} is empty", hint)
        is_low = default and low and default[0] == low[0] and default[1] < low[1]
        is_high = default and high and default[0] == high[0] and default[1] > high[1]
        if is_low or is_high:
            message = f"{self.default} is outside the range from {lowest} to {highest}"
            raise error_at_key("default", message, "widen the range to the default")


def _as_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


class Answers(TargetModel):
    """Command, and regular expressions that find values in its output."""

    command: CommandArguments
    """Program and arguments, without a shell. `{host}` and `{port}` are replaced."""
    values: Annotated[dict[Text, ValuePattern], Field(min_length=1)]
    """Names, each with a regular expression whose only group matches the value."""


class Counters(Answers):
    """Counters of the software, which autotune reads before and after each reading."""

    levels: TextList = ()
    """Counters that can rise and fall. All other counters only grow."""


class ServiceNeeds(TargetModel):
    """Resources that the service needs in the worst case, as expressions over parameters."""

    memory: Text | None = None
    """Memory in bytes: `connections * 64 KB + 20 MB`."""
    connections: Text | None = None
    """Number of concurrent clients."""
    descriptors: Text | None = None
    """Number of open files of one process."""
    workers: Text | None = None
    """Number of workers: processes or threads that serve one request at a time."""


HelpedResource = Literal[
    "cpu", "workers", "connections", "descriptors", "memory", "network", "cache"
]


class ServiceSpec(TargetModel):
    """Service that you declare: its unit, files and parameters."""

    title: Text | None = None
    """Title of the service, for reports."""
    role: Literal["proxy", "http_cache", "web", "app", "cache", "store", "database"]
    """Role of the service in its tier."""
    port: Port
    """Default port."""
    unit: Annotated[str, Field(pattern=UNIT_PATTERN)]
    """systemd unit, such as `lighttpd.service`."""
    listens: StrictBoolean = True
    """False for a unit that only applies settings and does not listen."""
    packages: TextList = ()
    """Packages of the distribution that contain the service."""
    reload: StrictBoolean = False
    """True if the unit supports a reload, for parameters with `action: reload`."""
    keeps_data: StrictBoolean = False
    """True if the service stores user data, like a database."""
    forgets_on_restart: StrictBoolean = False
    """True if a restart deletes the data, as in a cache."""
    files: Annotated[
        dict[Annotated[str, Field(pattern=FILE_PATTERN)], ServiceFile],
        Field(min_length=1, json_schema_extra={"additionalProperties": False}),
    ]
    """Configuration files and drop-ins, with their paths on the hosts as keys."""
    check: CommandArguments | None = None
    """Command that validates the files, without a shell."""
    read: tuple[Answers, ...] = ()
    """Commands that print effective values."""
    counters: Counters | None = None
    """Counters for the diagnosis."""
    needs: ServiceNeeds = ServiceNeeds()
    """Resource usage, for the limits of memory, connections and files."""
    helps: dict[HelpedResource, TextList] = Field(default={})
    """Parameters that help if a resource is exhausted: `connections: [maxconn+]`."""
    parameters: Annotated[
        dict[Annotated[str, Field(pattern=PARAMETER_PATTERN)], ServiceParameter],
        Field(min_length=1, json_schema_extra={"additionalProperties": False}),
    ]
    """Parameters, with names that you choose as keys."""

    @model_validator(mode="after")
    def _check_references(self) -> ServiceSpec:
        for location, name in self._iterate_references():
            if name not in self.parameters:
                message = f"unknown parameter {name!r}"
                raise error_at(location, message, suggest_name(name, self.parameters))
        for parameter_name, parameter in self.parameters.items():
            if parameter.file is not None and parameter.file not in self.files:
                location = ("parameters", parameter_name, "file")
                message = f"{parameter.file} is not among the `files:`"
                nearest_name = find_nearest_name(Path(parameter.file).name, self._list_file_names())
                hint = f"add `{parameter.file}: {{}}` below `files:`"
                if nearest_name is not None:
                    hint += f", or did you mean {self._list_file_names()[nearest_name]!r}?"
                raise error_at(location, message, hint)
            self._check_conditions(parameter_name, parameter)
        return self

    def _list_file_names(self) -> dict[str, str]:
        """Return the paths of the files by their last component."""
        return {Path(path).name: path for path in self.files}

    def _iterate_references(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the names of parameters in other keys, each with its location."""
        for index, answers in enumerate(self.read):
            yield from ((("read", index, "values", name), name) for name in answers.values)
        for resource, words in self.helps.items():
            for index, word in enumerate(words):
                yield ("helps", resource, index), word.rstrip("+-")
        for name, parameter in self.parameters.items():
            yield from ((("parameters", name, "when", key), key) for key in parameter.when)

    def _check_conditions(self, parameter_name: str, parameter: ServiceParameter) -> None:
        """Raise an error for a condition on a value that the other parameter cannot have."""
        for other_name, values in parameter.when.items():
            choices = self.parameters[other_name].choices
            for value in values if choices else ():
                if not any(is_same_value(value, choice) for choice in choices or ()):
                    raise error_at(
                        ("parameters", parameter_name, "when", other_name),
                        f"{other_name} cannot be {format_value(value)}",
                        suggest_choice(value, choices or ()),
                    )


ServiceSpecs = Annotated[
    dict[Annotated[str, Field(pattern=TIER_PATTERN)], ServiceSpec],
    Field(json_schema_extra={"additionalProperties": False}),
]


def find_user_files() -> dict[str, Path]:
    """Return the user's service declaration files, by service name."""
    # `Path.home` raises an error for an account without a home directory.
    settings_directory = os.environ.get("XDG_CONFIG_HOME") or expand_home("~/.config")
    return {
        path.stem: path
        for path in sorted((Path(settings_directory) / USER_SERVICES_DIRECTORY).glob("*.yaml"))
    }
