"""Conversion between JSON records and frozen dataclasses. Decoding checks the records, because a study
may come from other people.

The fields of a dataclass define the keys, the types and the optional keys of a record. A field with a
default may be missing or null. Other keys are ignored.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
KEY, OMIT_IF_EMPTY = "key", "omit_if_empty"
MAX_LOCATION_LENGTH = 80
TYPE_NAMES: Mapping[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "nothing",
}


def define_omittable_field(default: object = None, key: str | None = None) -> Any:
    """Return a field whose key is not written for ``None`` or an empty value."""
    return dataclasses.field(default=default, metadata={OMIT_IF_EMPTY: True, KEY: key})


def define_named_field(key: str, default: object = dataclasses.MISSING) -> Any:
    """Return a field whose key in a record differs from its name."""
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={KEY: key})
    return dataclasses.field(default=default, metadata={KEY: key})


def encode(record: Any) -> dict[str, Any]:
    """Return the JSON object of a dataclass instance."""
    encoded_record = {}
    for record_field in dataclasses.fields(record):
        value = getattr(record, record_field.name)
        if not _is_omitted(record_field, value):
            encoded_record[record_field.metadata.get(KEY) or record_field.name] = _encode_value(
                value
            )
    return encoded_record


def _is_omitted(record_field: dataclasses.Field[Any], value: object) -> bool:
    return bool(record_field.metadata.get(OMIT_IF_EMPTY)) and value in (None, (), {})


def _encode_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return encode(value)
    if isinstance(value, Mapping):
        return {key: _encode_value(contained_value) for key, contained_value in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_value(contained_value) for contained_value in value]
    return value


def decode(record_type: type[T], record: Mapping[str, Any]) -> T:
    """Return an instance of dataclass ``record_type`` for a JSON object.

    Raises ValueError, with the location in the object, if required content is missing or invalid.
    """
    type_hint: Any = record_type
    decoded_record: T = _select_decoder(type_hint)(record, "")
    return decoded_record


@cache
def _select_decoder(type_hint: Any) -> Decoder:
    generic_type, type_arguments = get_origin(type_hint), get_args(type_hint)
    if generic_type is not None:
        return _build_generic_decoder(generic_type, type_arguments)
    if dataclasses.is_dataclass(type_hint):
        return _build_record_decoder(type_hint)
    return _build_plain_decoder(type_hint)


def _build_generic_decoder(generic_type: Any, type_arguments: tuple[Any, ...]) -> Decoder:
    if generic_type in (Union, UnionType):
        return _build_union_decoder(type_arguments)
    if generic_type is tuple:
        return _build_tuple_decoder(type_arguments)
    return _build_mapping_decoder(*type_arguments)


def _build_plain_decoder(plain_type: Any) -> Decoder:
    if plain_type is object:
        return lambda value, _: value
    if issubclass(plain_type, tuple):
        return _build_named_tuple_decoder(plain_type)
    if issubclass(plain_type, enum.Enum):
        return lambda value, _: plain_type(value)
    return _build_scalar_decoder((plain_type,))


def _build_scalar_decoder(scalar_types: tuple[type, ...]) -> Decoder:
    accepted_types = (*scalar_types, int) if float in scalar_types else scalar_types
    type_names = " or ".join(TYPE_NAMES[scalar_type] for scalar_type in scalar_types)

    def decode_scalar(value: Any, location: str) -> Any:
        if isinstance(value, bool):
            if bool in accepted_types:
                return value
            raise ValueError(f"{location}: unexpected true or false")
        if not isinstance(value, accepted_types) or (
            isinstance(value, int | float) and not _is_finite_float(value)
        ):
            raise ValueError(f"{location}: expected {type_names}")
        return value

    return decode_scalar


def _build_union_decoder(member_types: tuple[Any, ...]) -> Decoder:
    """Return a decoder for a union of scalar types, or for one other type that may be ``None``."""
    if all(member in TYPE_NAMES for member in member_types):
        return _build_scalar_decoder(member_types)
    (inner_decoder,) = (
        _select_decoder(member) for member in member_types if member is not NoneType
    )
    return lambda value, location: None if value is None else inner_decoder(value, location)


def _build_tuple_decoder(type_arguments: tuple[Any, ...]) -> Decoder:
    if type_arguments[-1] is Ellipsis:
        item_decoder = _select_decoder(type_arguments[0])
        return lambda value, location: tuple(
            item_decoder(item, f"{location}[{index}]")
            for index, item in enumerate(_check_list(value, location))
        )
    return _build_fixed_tuple_decoder(type_arguments, tuple)


def _build_named_tuple_decoder(tuple_type: Any) -> Decoder:
    return _build_fixed_tuple_decoder(
        tuple(get_type_hints(tuple_type).values()), lambda v: tuple_type(*v)
    )


def _build_fixed_tuple_decoder(
    type_hints: tuple[Any, ...], build_tuple: Callable[[Any], Any]
) -> Decoder:
    decoders = [_select_decoder(hint) for hint in type_hints]

    def decode_items(value: Any, location: str) -> Any:
        if len(_check_list(value, location)) != len(decoders):
            raise ValueError(f"{location}: expected {len(decoders)} values")
        decoders_with_items = zip(decoders, value, strict=True)
        return build_tuple(
            [
                decoder(item, f"{location}[{n}]")
                for n, (decoder, item) in enumerate(decoders_with_items)
            ]
        )

    return decode_items


def _build_mapping_decoder(key_hint: Any, value_hint: Any) -> Decoder:
    """Return the decoder of a mapping. JSON keys are text, so integer keys are converted."""
    item_decoder, convert = _select_decoder(value_hint), int if key_hint is int else str

    def decode_mapping(value: Any, location: str) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{location}: expected a mapping")  # noqa: TRY004  records raise ValueError
        return {
            convert(key): item_decoder(item, f"{location}.{key}"[:MAX_LOCATION_LENGTH])
            for key, item in value.items()
        }

    return decode_mapping


def _build_record_decoder(record_type: Any) -> Decoder:
    type_hints = get_type_hints(record_type)
    field_decoders = [
        (
            f.name,
            f.metadata.get(KEY) or f.name,
            _select_decoder(type_hints[f.name]),
            _is_required(f),
        )
        for f in dataclasses.fields(record_type)
        if f.init
    ]

    def decode_record(value: Any, location: str) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{location}: expected a mapping")  # noqa: TRY004  records raise ValueError
        decoded_fields = {}
        for field_name, key, decoder, is_required in field_decoders:
            if is_required and key not in value:
                raise ValueError(f"{location}.{key} is missing".lstrip("."))
            if is_required or value.get(key) is not None:
                decoded_fields[field_name] = decoder(value[key], f"{location}.{key}".lstrip("."))
        return record_type(**decoded_fields)

    return decode_record


def _is_required(record_field: dataclasses.Field[Any]) -> bool:
    return (
        record_field.default is dataclasses.MISSING
        and record_field.default_factory is dataclasses.MISSING
    )


def _check_list(value: Any, location: str) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{location}: expected a list")  # noqa: TRY004  records raise ValueError
    return value


def _is_finite_float(number: float) -> bool:
    """True if the number is finite as a float; a JSON integer may be too large for a float."""
    try:
        return isfinite(number)
    except OverflowError:
        return False
