"""Correct values that are written as in other programs: `5000 rps`, `4Gi`, `1h30m`, `1..9`, `100k`.

Each function returns the text to write, or ``None`` if the meaning of a value is unclear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

# Spellings of units in other programs, by the unit to write and the factor of the number.
_UNIT_SPELLINGS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "a duration": (
        ("us", "1", "usec usecs microsecond microseconds"),
        ("ms", "1", "msec msecs millis millisec millisecond milliseconds"),
        ("s", "1", "sec secs second seconds"),
        ("m", "1", "mins minute minutes"),
        ("h", "1", "hr hrs hour hours"),
        ("h", "24", "d day days"),
    ),
    "a size": (
        ("B", "1", "byte bytes"),
        ("KB", "1", "k ki kib kilobyte kilobytes"),
        ("MB", "1", "m mi mib megabyte megabytes"),
        ("GB", "1", "g gi gib gigabyte gigabytes"),
        ("TB", "1", "t ti tib terabyte terabytes"),
    ),
    "a rate": (
        ("/s", "1", "rps qps tps hz ps /sec /second persecond"),
        ("/s", "1000", "k k/s k/sec krps kqps"),
        ("/min", "1", "rpm /minute perminute"),
    ),
    "a fraction": (("%", "1", "percent pct"), ("%", "0.1", "‰ permille")),
}
MAX_LENGTH = 60  # longer text is not corrected, because matching is slow
_NUMBER = r"[0-9][0-9_,. ]*"
_QUANTITY = re.compile(rf"[<≤=~\s]*({_NUMBER}?)\s*([A-Za-zµ%‰/ ]*)\s*")
_REQUEST_WORD = re.compile(r"(?:requests?|reqs?|[rq])(?=/|per)")
_COUNT = re.compile(rf"({_NUMBER}?)\s*([A-Za-z%/].*)?")
_CLOCK = re.compile(r"([0-9]+):([0-5][0-9]):([0-5][0-9])")
_COMPOUND = re.compile(
    r"(?:([0-9]+)h(?:rs?|ours?)?)?(?:([0-9]+)m(?:ins?|inutes?)?)?(?:([0-9]+)s(?:ecs?|econds?)?)?"
)
_MULTIPLIERS = {"k": 1000, "m": 10**6, "g": 10**9}
_RANGE_SEPARATORS = r"\s*(?:-|–|—|\.{2,3}|…|:|,|;|\bto\b|\s)\s*"
_BOUND = r"[0-9][0-9.]*\s?[A-Za-z%]*?"
_RANGE = re.compile(rf"[\[(]?\s*({_BOUND}){_RANGE_SEPARATORS}({_BOUND})\s*[\])]?")
# The ports of a container as Compose writes them, or an address with its port
_PORTS = re.compile(
    r"(?:[0-9.]{7,15}:)?([0-9]{1,5}):[0-9]{1,5}(?:/[a-z]{3})?|(?:[0-9.]{7,15}|\*|):([0-9]{1,5})"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3}){0,4}")
_LOW_KEYS = ("min", "minimum", "low", "lower", "lowest", "from", "start", "gte")
_HIGH_KEYS = ("max", "maximum", "high", "upper", "highest", "to", "end", "stop", "lte")
_TRUE_WORDS, _FALSE_WORDS = (
    ("true", "yes", "y", "on", "1", "enabled"),
    ("false", "no", "n", "off", "0", "disabled"),
)


def correct_quantity(text: object, kind: str, units: Iterable[str]) -> str | None:
    """Return a quantity with a unit of ``units``: ``5000/s`` for `5000 rps`."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        return None
    match = _QUANTITY.fullmatch(text.strip())
    number = _parse_decimal(match[1]) if match else None
    if match is None or number is None:
        seconds = _parse_compound_duration(text) if kind == "a duration" else None
        return _format_seconds(seconds) if seconds else None
    spelling = _REQUEST_WORD.sub("", re.sub(r"\s", "", match[2]).lower())
    for unit, factor, spellings in _UNIT_SPELLINGS[kind]:
        if spelling in spellings.split():
            return f"{_format_decimal(number * Decimal(factor))}{unit}"
    unit_name = next((unit for unit in units if unit.lower() == spelling), None)
    return f"{_format_decimal(number)}{unit_name}" if unit_name else None


def _parse_compound_duration(text: str) -> int | None:
    """Return the seconds of `1h30m`, `PT45M` or `00:45:00`; ``None`` for other text."""
    words = re.sub(r"\s|,|^P(?=T)|(?<=P)T|^PT", "", text).lower()
    match = _CLOCK.fullmatch(words) or _COMPOUND.fullmatch(words)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (int(number or 0) for number in match.groups())
    return 3600 * hours + 60 * minutes + seconds


def _format_seconds(seconds: int) -> str:
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _parse_decimal(text: str) -> Decimal | None:
    """Return the number in `1,000`, `1_000`, `1 000` or `1,5`; ``None`` for other text."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,3}([,_ .])[0-9]{3}(\1[0-9]{3})*", text) and "." not in text:
        return Decimal(re.sub(r"[,_ ]", "", text))
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{3}){2,}", text):
        return Decimal(text.replace(".", ""))
    if re.fullmatch(r"[0-9]+([.,][0-9]+)?", text):
        return Decimal(text.replace(",", "."))
    return None


def _format_decimal(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def correct_number(text: object, key: str) -> str | None:
    """Return the number in text such as `100k`, `100,000`, `8 cores` or `6379/tcp`.

    For ``cpus``, `m` is a thousandth, as in Kubernetes.
    """
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        return None
    match = _COUNT.fullmatch(text.strip())
    number = _parse_decimal(match[1]) if match else None
    if match is None or number is None:
        return None
    suffix = (match[2] or "").lower()
    if suffix == "m" and key == "cpus":
        return _format_decimal(number / 1000)
    if suffix == "%":
        return _format_decimal(number / 100)
    return _format_decimal(number * _MULTIPLIERS.get(suffix, 1))


def correct_port(text: object) -> str | None:
    """Return the port that receives requests: ``8080`` for `8080:80`, `127.0.0.1:8080:80` or `:8080`."""
    match = _PORTS.fullmatch(text.strip()) if isinstance(text, str) else None
    return match[1] or match[2] if match else None


def join_thousands(text: str) -> str | None:
    """Return a list of numbers without the commas between thousands: ``[1024, 4096]`` for
    `[1,024, 4,096]`. Return ``None`` if spaces do not show which commas separate values.
    """
    numbers = re.split(r",\s+", text.strip(" []"))
    has_thousands = any("," in number for number in numbers)
    if len(numbers) < 2 or not has_thousands or not all(map(_THOUSANDS.fullmatch, numbers)):
        return None
    return f"[{', '.join(number.replace(',', '') for number in numbers)}]"


def correct_boolean(value: object) -> str | None:
    """Return ``true`` or ``false`` for the words of other programs: `yes`, `Off`, 1."""
    word = str(value).strip().lower()
    if word in _TRUE_WORDS:
        return "true"
    return "false" if word in _FALSE_WORDS else None


def correct_range(value: object) -> str | None:
    """Return a range as a list: ``[1, 9]`` for `{min: 1, max: 9}`, `1-9`, `1..9` or `1 to 9`."""
    if isinstance(value, Mapping):
        return _join_bounds(
            next((value[key] for key in value if str(key).lower() in keys), None)
            for keys in (_LOW_KEYS, _HIGH_KEYS)
        )
    if not isinstance(value, str) or len(value) > MAX_LENGTH:
        return None
    match = _RANGE.fullmatch(value.strip())
    return _join_bounds(match.groups()) if match else None


def _join_bounds(bounds: Iterable[object]) -> str | None:
    texts = [str(bound).strip() for bound in bounds if isinstance(bound, int | float | str)]
    return f"[{', '.join(texts)}]" if len(texts) == 2 else None
