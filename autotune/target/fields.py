"""The types of a target's values: names, texts, numbers and amounts; errors at a key."""

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

from autotune.target.messages import format_value
from autotune.target.units import (
    AMOUNT,
    KINDS,
    Writer,
    duration,
    duration_text,
    fraction,
    fraction_text,
    rate,
    rate_text,
    size,
    size_text,
)

NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
TIER = r"^[a-z][a-z0-9_]{0,62}$"
USER = r"^[A-Za-z_][A-Za-z0-9_.-]*$"
# It does not start with "-", or it would be an option. `{bed}` stands for the name of a test bed.
ADDRESS = r"^([A-Za-z0-9:]|\{bed\})([A-Za-z0-9.:_-]|\{bed\})*$"
PATH = r"^/[!-~]*$"
URL = r"^https?://[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?(/[!-~]*)?$"
HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
METHOD = r"^[A-Z]+$"
TEXT = r"^[^\x00-\x1f\x7f]+$"
WORD = r"^[^\x00]*$"
# Below `/`; nothing that a command would take for an option, no `..`, no glob pattern.
FILE = r"^(/\.?[A-Za-z0-9_@+:][A-Za-z0-9_.@+:-]*)+$"
# No ":" or ",": they separate the files where several are listed.
COMPOSE_FILE = r"^(/\.?[A-Za-z0-9_@+][A-Za-z0-9_.@+-]*)+$"
COMPOSED = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
UNIT = r"^[A-Za-z0-9_][A-Za-z0-9_.@:-]*\.service$"
PARAMETER = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"

# Each pattern in words.
EXPECTED = {
    NAME: "a name: letters, digits, '-' and '_', a letter first",
    TIER: "a tier's name: small letters, digits and '_', a letter first",
    USER: "a user name",
    ADDRESS: "a host name or address",
    PATH: "a path on the site: '/' first, no spaces",
    URL: "a site's URL, such as https://shop.example/",
    HEADER: "the name of a header",
    METHOD: "a method, such as POST",
    TEXT: "text on one line",
    WORD: "an argument of a command",
    FILE: "the whole path of a file on the host",
    COMPOSE_FILE: "the whole path of a Compose file on the host",
    COMPOSED: "a name in a Compose project: letters, digits, '_', '.' and '-'",
    UNIT: "the name of a unit, such as shop.service",
    PARAMETER: "a parameter's name: letters, digits and '_', a letter first",
}


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def keys(cls) -> list[str]:
        """The keys that are valid here."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def one_or_many(value: object) -> object:
    return value if isinstance(value, list | tuple) else [value]


def _scalar(value: object) -> bool | int | float | str:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"{format_value(value)} is not a usable number")
    if isinstance(value, str) and not re.fullmatch(TEXT, value):
        raise ValueError(f"{format_value(value)} is not {EXPECTED[TEXT]}")
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"must be one number, word or true/false, not {format_value(value)}")


# Strict, or `true` would count as 1 and '2' as 2.
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(pattern=TEXT)]
Word = Annotated[str, Field(pattern=WORD)]
Port = Annotated[Whole, Field(ge=1, le=65535)]
Scalar = Annotated[
    bool | int | float | str,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["boolean", "number", "string"]}),
]
# A single value needs no brackets.
_NOT_EMPTY = Field(min_length=1)
Some = Annotated[
    tuple[Text, ...], BeforeValidator(one_or_many, json_schema_input_type=Text | list[Text])
]
Names = Annotated[
    Annotated[tuple[Text, ...], _NOT_EMPTY],
    BeforeValidator(one_or_many, json_schema_input_type=Text | Annotated[list[Text], _NOT_EMPTY]),
]


def at(key: str, message: str, value: object = None) -> ValidationError:
    """An error at one key of the mapping that is validated."""
    finding = InitErrorDetails(
        type=PydanticCustomError("finding", "{message}", {"message": message}),
        loc=(key,),
        input=value,
    )
    return ValidationError.from_exception_data("target", [finding])


def unknown(key: str) -> ValidationError:
    """The error for an unknown key."""
    finding = cast("InitErrorDetails", {"type": "extra_forbidden", "loc": (key,), "input": None})
    return ValidationError.from_exception_data("target", [finding])


def at_least(text: str, why: str = "") -> AfterValidator:
    """Refuses a duration below the one written in ``text``."""
    least = duration(text)

    def check(value: float) -> float:
        if value < least:
            raise ValueError(f"must be at least {text}{why}, not {duration_text(value)}")
        return value

    return AfterValidator(check)


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError("must be above 0")
    return value


MoreThanNothing = AfterValidator(_positive)


def _schema(kind: str) -> WithJsonSchema:
    names = "|".join(sorted(KINDS[kind], key=len, reverse=True))
    return WithJsonSchema({"type": "string", "pattern": rf"^\s*{AMOUNT}\s*({names})\s*$"})


def _text(written: Writer) -> PlainSerializer:
    return PlainSerializer(written, return_type=str)


Seconds = Annotated[float, BeforeValidator(duration), _text(duration_text), _schema("a duration")]
Bytes = Annotated[int, BeforeValidator(size), _text(size_text), _schema("a size")]
PerSecond = Annotated[float, BeforeValidator(rate), _text(rate_text), _schema("a rate")]
Fraction = Annotated[float, BeforeValidator(fraction), _text(fraction_text), _schema("a fraction")]
