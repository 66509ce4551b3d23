from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.target import quantities
from autotune.target.quantities import (
    convert_to_unit,
    parse_duration,
    parse_fraction,
    parse_magnitude,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50ms", 0.05), ("3 s", 3.0), ("45m", 2700.0), ("45 min", 2700.0), ("2h", 7200.0),
     ("250us", 250e-6), ("250µs", 250e-6), ("1.5s", 1.5), (" 7ms ", 0.007), ("0s", 0.0),
     ("1e-3s", 0.001)],
)  # fmt: skip
def test_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("1B", 1), ("64MB", 64 * 2**20), ("30 MB", 30 * 2**20), ("2GB", 2**31), ("64k", 2**16),
     ("1MiB", 2**20), ("1.5KB", 1536), ("1TB", 2**40)],
)  # fmt: skip
def test_size_counts_in_powers_of_1024(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(("text", "per_second"), [("2000/s", 2000.0), ("600 /min", 10.0)])
def test_rate(text: str, per_second: float) -> None:
    assert parse_rate(text) == per_second


@pytest.mark.parametrize(
    ("text", "of_one"), [("0.1%", 0.001), ("0.7%", 0.007), ("100%", 1.0), ("0%", 0.0)]
)
def test_fraction(text: str, of_one: float) -> None:
    assert parse_fraction(text) == of_one


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (parse_duration, "50", "50 has no unit; write a duration as 50ms, 3s or 45m"),
        (parse_duration, 50, "50 has no unit; write a duration as 50ms, 3s or 45m"),
        (
            parse_duration,
            "50 parsecs",
            "unknown unit 'parsecs'; write a duration as 50ms, 3s or 45m",
        ),
        (parse_duration, "64MB", "unknown unit 'MB'; write a duration as 50ms, 3s or 45m"),
        (parse_duration, "-1s", "'-1s' is not a duration; write a duration as 50ms, 3s or 45m"),
        (parse_duration, "fast", "'fast' is not a duration; write a duration as 50ms, 3s or 45m"),
        (
            parse_duration,
            "1s\n2s",
            r"'1s\n2s' is not a duration; write a duration as 50ms, 3s or 45m",
        ),
        (parse_duration, None, "no value given; write a duration as 50ms, 3s or 45m"),
        (
            parse_duration,
            float("nan"),
            ".nan is not a duration; write a duration as 50ms, 3s or 45m",
        ),
        (
            parse_duration,
            float("inf"),
            ".inf is not a duration; write a duration as 50ms, 3s or 45m",
        ),
        (parse_duration, "9" * 400 + "s", "9" * 400 + " is too large"),
        (parse_duration, "1e999s", "1e999 is too large"),
        (parse_size, True, "true is not a size; write a size as 64MB or 2GB"),
        (parse_size, ["64MB"], "a list is not a size; write a size as 64MB or 2GB"),
        (parse_rate, "2000 rps", "unknown unit 'rps'; write 2000/s"),
        (parse_rate, True, "true is not a rate; write a rate as 2000/s"),
        (parse_fraction, "0.001", "0.001 has no unit; write a fraction as 0.1%"),
        (parse_fraction, "101%", "101% is more than 100%; write 100% or less"),
    ],
)
def test_refused(read: Callable[[object], object], text: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole message is compared
        read(text)
    assert str(caught.value) == message


@given(st.floats(min_value=0, max_value=1e12))
def test_duration_round_trip(seconds: float) -> None:
    assert parse_duration(quantities.format_duration(seconds)) == seconds


@given(st.floats(min_value=0, max_value=1e12))
def test_rate_round_trip(per_second: float) -> None:
    assert parse_rate(quantities.format_rate(per_second)) == per_second


@given(st.floats(min_value=0, max_value=1))
def test_fraction_round_trip(of_one: float) -> None:
    assert parse_fraction(quantities.format_fraction(of_one)) == of_one


@given(st.integers(min_value=0, max_value=2**50))
def test_size_round_trip(count: int) -> None:
    assert parse_size(quantities.format_size(count)) == count


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [(quantities.format_duration, 0.05, "50ms"), (quantities.format_duration, 660.0, "11m"),
     (quantities.format_duration, 7200.0, "2h"), (quantities.format_duration, 90.0, "90s"),
     (quantities.format_duration, 0.0, "0ms"), (quantities.format_size, 2**26, "64MB"),
     (quantities.format_size, 1000, "1000B"), (quantities.format_rate, 20_000.0, "20000/s"),
     (quantities.format_fraction, 0.001, "0.1%")],
)  # fmt: skip
def test_written_as_people_do(write: quantities.QuantityWriter, value: float, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize(
    ("value", "kind", "amount"),
    [(3, "a number", 3.0), (0.5, "a number", 0.5), ("8MB", "a size", 8 * 2**20),
     ("10s", "a duration", 10.0), ("5/s", "a rate", 5.0), ("1%", "a fraction", 0.01)],
)  # fmt: skip
def test_magnitude(value: object, kind: str, amount: float) -> None:
    assert parse_magnitude(value) == (kind, amount)


@pytest.mark.parametrize("value", [True, "dynamic", "12", "12 parsecs", None, [1]])
def test_no_magnitude(value: object) -> None:
    assert parse_magnitude(value) is None


@pytest.mark.parametrize(
    ("value", "unit", "number"),
    [("8MB", "MB", 8), ("1GB", "MB", 1024), ("1.5KB", "B", 1536), ("512KB", "MB", 0.5),
     ("2m", "s", 120), ("500ms", "s", 0.5), (12, "MB", 12), ("dynamic", "", "dynamic"),
     (True, "", True), ("12", "MB", "12")],
)  # fmt: skip
def test_in_unit(value: object, unit: str, number: object) -> None:
    converted = convert_to_unit(value, unit)
    assert converted == number
    assert type(converted) is type(number)


@pytest.mark.parametrize(
    ("value", "unit", "message"),
    [("8MB", "s", "'8MB': this parameter is counted in s, such as 8s"),
     ("5m", "MB", "'5m': this parameter is counted in MB, such as 5MB"),
     ("8MB", "", "'8MB': this parameter has no unit: write only the number"),
     ("8k", "", "'8k': this parameter has no unit: write only the number, such as 8000"),
     ("4Gi", "MB", "'4Gi': this parameter is counted in MB, such as 4GB")],
)  # fmt: skip
def test_in_another_kind_of_unit(value: str, unit: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        convert_to_unit(value, unit)
