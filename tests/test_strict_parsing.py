"""Numbers, JSON and gzip data from other programs: all else than the accepted is a ValueError."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

import pytest

from autotune.strict_parsing import (
    decompress_gzip,
    is_decimal,
    is_ip_address,
    is_uint,
    parse_decimal,
    parse_file_mode,
    parse_json,
    parse_uint,
    split_lines,
)

# Digits that `int` and `float` accept, although no program prints them.
FOREIGN_DIGITS = ("１２", "٣", "1_000")
NO_NUMBERS = ("", " 1", "1 ", "1\n", "+", "0x10", "1,5", "nan", "inf", "1e", "..5", *FOREIGN_DIGITS)
NO_JSON: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "Expecting value"),
    "half": ("{", "Expecting property name"),
    "not a number": ("NaN", "NaN is not a number"),
    "infinity": ("-Infinity", "-Infinity is not a number"),
    "overflow": ("1e999", "1e999 is not a usable number"),
    "65 bits": (str(2**64), "is not a usable number"),
    "65 bits and a sign": (str(-(2**63) - 1), "is not a usable number"),
    "many digits": ("9" * 100_000, "9{40} is not a usable number"),
    "many brackets": ("[" * 100_000, "nested too deeply"),
    "half of a pair": (r'"\ud83d"', "surrogates not allowed"),
    "half of a pair in a key": (r'{"\uDE00": 1}', "surrogates not allowed"),
    "not UTF-8": (b'"\xff"', "invalid start byte"),
}


@pytest.mark.parametrize(
    ("text", "factor", "number"),
    [("0", 1, 0), ("007", 1, 7), (str(2**63 - 1), 1, 2**63 - 1), ("1023", 2**53, 1023 * 2**53)],
)
def test_a_whole_number(text: str, factor: int, number: int) -> None:
    assert parse_uint(text, factor) == number
    assert is_uint(text)


@pytest.mark.parametrize("text", [*NO_NUMBERS, "-1", "+1", "1.0", "1e3", str(2**63), "9" * 5000])
def test_what_is_no_whole_number(text: str) -> None:
    assert not is_uint(text)
    with pytest.raises(ValueError, match="is not a whole number"):
        parse_uint(text)


def test_a_product_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="'1024' is not a whole number"):
        parse_uint("1024", 2**53)


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0.0), ("-1.5", -1.5), ("+2.", 2.0), (".5", 0.5), ("1e3", 1000.0), ("1.8E+19", 1.8e19)],
)
def test_a_decimal_number(text: str, number: float) -> None:
    assert parse_decimal(text) == number
    assert is_decimal(text)


@pytest.mark.parametrize("text", [*NO_NUMBERS, "1.9e19", "-1.9e19", "1e999", "1e9999", "9" * 301])
def test_what_is_no_decimal_number(text: str) -> None:
    assert not is_decimal(text)
    with pytest.raises(ValueError, match=r"is not a number|is too large"):
        parse_decimal(text)


@pytest.mark.parametrize(
    ("text", "mode"), [("0644", 0o644), ("644", 0o644), ("04755", 0o4755), ("0", 0)]
)
def test_a_file_mode(text: str, mode: int) -> None:
    assert parse_file_mode(text) == mode


@pytest.mark.parametrize("text", ["", "0o644", "888", "-644", "100644", "0644\n", "٦٤٤"])
def test_what_is_no_file_mode(text: str) -> None:
    with pytest.raises(ValueError, match="is not a file mode"):
        parse_file_mode(text)


@pytest.mark.parametrize(
    ("text", "is_address"),
    [
        ("10.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("10.0.0", False),
        ("10.0.0.01", False),
        ("web1", False),
        ("", False),
    ],
)
def test_an_ip_address(text: str, is_address: bool) -> None:
    assert is_ip_address(text) is is_address


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a\nb\n", ["a", "b"]),
        ("a\r\n\r\nb", ["a", "", "b"]),
        ("a\n\n", ["a", ""]),
        ("a\x85b\u2028c\x0bd\x1ce\n", ["a\x85b\u2028c\x0bd\x1ce"]),  # `splitlines` makes five of it
    ],
)
def test_lines(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, -2.5, null, true, "é"]}', {"a": [1, -2.5, None, True, "é"]}),
        ('"é"'.encode(), "é"),
        (str(-(2**63)), -(2**63)),
        (str(2**64 - 1), 2**64 - 1),
        (r'"\ud83d\ude00"', "😀"),
    ],
)
def test_json(text: str | bytes, value: object) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(("text", "reason"), NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_gzip_data_up_to_a_size() -> None:
    content = b"x" * (1 << 20)
    assert decompress_gzip(gzip.compress(content), 1 << 20) == content
    with pytest.raises(ValueError, match="more than 1 MB"):
        decompress_gzip(gzip.compress(content + b"x"), 1 << 20)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-1], "incomplete compressed data"),
        (lambda data: b"", "incomplete compressed data"),
        (lambda data: b"plain" + data, "incorrect header"),
        (lambda data: data[:-8] + bytes(8), "incorrect data check"),
    ],
)
def test_damaged_gzip_data(damage: Callable[[bytes], bytes], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        decompress_gzip(damage(gzip.compress(b"content" * 100)), 1 << 20)
