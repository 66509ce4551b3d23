"""Types of values in a target, such as names, strings and quantities, and errors at a key."""

from __future__ import annotations

import re
from math import isfinite
from typing import Annotated, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from autotune.config_text import is_utf8
from autotune.target.messages import format_value
from autotune.target.quantities import (
    AMOUNT_REGEX,
    UNITS_BY_KIND,
    QuantityWriter,
    format_duration,
    format_fraction,
    format_rate,
    format_size,
    parse_duration,
    parse_fraction,
    parse_rate,
    parse_size,
)

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
TIER_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
USER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.-]*$"
# An address must not start with "-", because programs would read it as an option. `{bed}` is replaced by
# the name of a test bed.
ADDRESS_PATTERN = r"^([A-Za-z0-9:]|\{bed\})([A-Za-z0-9.:_-]|\{bed\})*$"
PATH_PATTERN = r"^/[!-~]*$"
# In a URL, an IPv6 address is in brackets.
URL_PATTERN = (
    r"^https?://([A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\])"
    r"(:[0-9]{1,5})?(/[!-~]*)?$"
)
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
METHOD_PATTERN = r"^[A-Z]+$"
TEXT_PATTERN = r"^[^\x00-\x1f\x7f]+$"
ARGUMENT_PATTERN = r"^[^\x00]*$"
# An absolute path that cannot be an option and contains neither `..` nor glob patterns.
FILE_PATTERN = r"^(/\.?[A-Za-z0-9_@+:][A-Za-z0-9_.@+:-]*)+$"
# Colons and commas separate several files, so a file name must not contain them.
COMPOSE_FILE_PATTERN = r"^(/\.?[A-Za-z0-9_@+][A-Za-z0-9_.@+-]*)+$"
COMPOSE_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
UNIT_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.@:-]*\.service$"
PARAMETER_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
MODE_PATTERN = r"^0[0-7]{3}$"

# Descriptions of the patterns, for messages.
PATTERN_DESCRIPTIONS = {
    NAME_PATTERN: "a name: letters, digits, '-' and '_', starting with a letter, at most 63 characters",
    TIER_PATTERN: "a tier's name: lower-case letters, digits and '_', starting with a letter",
    USER_PATTERN: "a user name",
    ADDRESS_PATTERN: "a host name or address",
    PATH_PATTERN: "a path on the site: it starts with '/' and contains no spaces",
    URL_PATTERN: "a site's URL, such as https://shop.example/",
    HEADER_PATTERN: "the name of a header",
    METHOD_PATTERN: "a method, such as POST",
    TEXT_PATTERN: "text on one line",
    ARGUMENT_PATTERN: "an argument of a command",
    FILE_PATTERN: "the absolute path of a file on the host",
    COMPOSE_FILE_PATTERN: "the absolute path of a Compose file on the host",
    COMPOSE_NAME_PATTERN: "a name in a Compose project: letters, digits, '_', '.' and '-'",
    UNIT_PATTERN: "the name of a unit, such as shop.service",
    PARAMETER_PATTERN: "a parameter's name: letters, digits and '_', starting with a letter",
    MODE_PATTERN: "a file mode: four octal digits in quotes, such as '0644'",
}


class HintedError(ValueError):
    """An invalid value, with a hint about the fix."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


class TargetModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def user_keys(cls) -> list[str]:
        """Return the keys that a user may write in this mapping."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def wrap_in_list(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


def _validate_scalar(value: object) -> bool | int | float | str:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{format_value(value)} is not a usable number")
    if isinstance(value, str) and not (re.fullmatch(TEXT_PATTERN, value) and is_utf8(value)):
        raise ValueError(f"{format_value(value)} is not {PATTERN_DESCRIPTIONS[TEXT_PATTERN]}")
    if isinstance(value, bool | int | float | str):
        return value
    message = f"must be one number, word or true/false, not {format_value(value)}"
    raise HintedError(message, "write one value; `choices: [VALUE, …]` lists several values")


def _reject_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character")
    return text


# Strict types, because pydantic would otherwise accept `true` as 1 and '2' as 2.
WholeNumber = Annotated[int, Field(strict=True)]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
StrictBoolean = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(pattern=TEXT_PATTERN)]
CommandArgument = Annotated[str, Field(pattern=ARGUMENT_PATTERN)]
RequestBody = Annotated[str, Field(min_length=1), AfterValidator(_reject_nul)]
Port = Annotated[WholeNumber, Field(ge=1, le=65535)]
Scalar = Annotated[
    bool | int | float | str,
    PlainValidator(_validate_scalar),
    WithJsonSchema({"type": ["boolean", "number", "string"]}),
]
# A list with a single value may be written without brackets.
_NON_EMPTY_FIELD = Field(min_length=1)
TextList = Annotated[
    tuple[Text, ...], BeforeValidator(wrap_in_list, json_schema_input_type=Text | list[Text])
]
NonEmptyTextList = Annotated[
    Annotated[tuple[Text, ...], _NON_EMPTY_FIELD],
    BeforeValidator(
        wrap_in_list, json_schema_input_type=Text | Annotated[list[Text], _NON_EMPTY_FIELD]
    ),
]


def error_at_key(key: str, message: str, hint: str | None = None) -> ValidationError:
    """Return an error at a key of the mapping that is being validated."""
    return error_at((key,), message, hint)


def error_at(location: tuple[str | int, ...], message: str, hint: str | None) -> ValidationError:
    """Return an error at a location in the mapping that is being validated."""
    error_details = InitErrorDetails(
        type=PydanticCustomError("finding", "{message}", {"message": message, "hint": hint}),
        loc=location,
        input=None,
    )
    return ValidationError.from_exception_data("target", [error_details])


def unknown_key_error(key: str) -> ValidationError:
    """Return the error for the unknown key ``key``."""
    details = cast("InitErrorDetails", {"type": "extra_forbidden", "loc": (key,), "input": None})
    return ValidationError.from_exception_data("target", [details])


def min_duration_validator(text: str, reason: str = "") -> AfterValidator:
    """Return a validator that refuses durations below the duration in ``text``."""
    min_seconds = parse_duration(text)

    def check(value: float) -> float:
        if value < min_seconds:
            raise ValueError(f"must be at least {text}{reason}, not {format_duration(value)}")
        return value

    return AfterValidator(check)


def max_duration_validator(text: str) -> AfterValidator:
    """Return a validator that refuses durations above the duration in ``text``."""
    max_seconds = parse_duration(text)

    def check(value: float) -> float:
        if value > max_seconds:
            raise ValueError(f"must be at most {text}, not {format_duration(value)}")
        return value

    return AfterValidator(check)


def _validate_positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be above 0")
    return value


PositiveValidator = AfterValidator(_validate_positive)


def _build_quantity_schema(kind: str, *, is_unit_optional: bool = False) -> WithJsonSchema:
    unit_names = "|".join(sorted(UNITS_BY_KIND[kind], key=len, reverse=True))
    text_schema = {"type": "string", "pattern": rf"^\s*{AMOUNT_REGEX}\s*({unit_names})\s*$"}
    number_schema = {"type": "number", "exclusiveMinimum": 0}
    return WithJsonSchema(
        {"anyOf": [text_schema, number_schema]} if is_unit_optional else text_schema
    )


def _build_quantity_serializer(write_quantity: QuantityWriter) -> PlainSerializer:
    return PlainSerializer(write_quantity, return_type=str)


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    _build_quantity_serializer(format_duration),
    _build_quantity_schema("a duration"),
]
Bytes = Annotated[
    int,
    BeforeValidator(parse_size),
    _build_quantity_serializer(format_size),
    _build_quantity_schema("a size"),
]
RatePerSecond = Annotated[
    float,
    BeforeValidator(parse_rate),
    _build_quantity_serializer(format_rate),
    _build_quantity_schema("a rate", is_unit_optional=True),
]
Fraction = Annotated[
    float,
    BeforeValidator(parse_fraction),
    _build_quantity_serializer(format_fraction),
    _build_quantity_schema("a fraction"),
]
