"""Fields that are plain numbers in the model and text with a unit in the file and its schema."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

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


def at_least(text: str, why: str = "") -> AfterValidator:
    """Refuses a duration below the one written in ``text``."""
    least = duration(text)

    def check(value: float) -> float:
        if value < least:
            raise ValueError(f"must be at least {text}{why}, this is {duration_text(value)}")
        return value

    return AfterValidator(check)


def _some(value: float) -> float:
    if value <= 0:
        raise ValueError("must be more than nothing")
    return value


MoreThanNothing = AfterValidator(_some)


def _schema(kind: str) -> WithJsonSchema:
    names = "|".join(sorted(KINDS[kind], key=len, reverse=True))
    return WithJsonSchema({"type": "string", "pattern": rf"^\s*{AMOUNT}\s*({names})\s*$"})


def _text(written: Writer) -> PlainSerializer:
    return PlainSerializer(written, return_type=str)


Seconds = Annotated[float, BeforeValidator(duration), _text(duration_text), _schema("a duration")]
Bytes = Annotated[int, BeforeValidator(size), _text(size_text), _schema("a size")]
PerSecond = Annotated[float, BeforeValidator(rate), _text(rate_text), _schema("a rate")]
Fraction = Annotated[float, BeforeValidator(fraction), _text(fraction_text), _schema("a fraction")]
