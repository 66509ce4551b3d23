"""Numbers formatted for readers: requests/s, latencies, changes, durations."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.services.base import Value
from autotune.target.slo import Slo

MIN_FACTOR_RATIO = 11.0  # larger ratios are unreadable as percentages and shown as factors
MIN_WHOLE_SECONDS = 9.95  # longer latencies are shown in whole seconds


def format_rate(value: float | None) -> str:
    """Return requests/s as text, rounded to significant digits: ``1,706``, ``84.2``."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_request_count(count: int) -> str:
    """Return a number of requests as text: ``1 request``, ``1,234 requests``."""
    return f"{count:,} request{'' if count == 1 else 's'}"


def format_value(number: float | None) -> str:
    """Return a benchmark's value as text: ``12,345``, ``41.27``, ``0.003104``, ``-3.2e+09``."""
    if number is None:
        return "–"
    return f"{number:,.0f}" if 10_000 <= abs(number) < 1e9 else f"{number:.4g}"


def format_latency(seconds: float | None) -> str:
    """Return text such as ``38 ms`` or ``1.2 s``; a dash for ``None``."""
    if seconds is None:
        return "–"
    if seconds >= MIN_WHOLE_SECONDS:
        return f"{seconds:,.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.9995 else f"{seconds * 1000:.3g} ms"


def format_duration(seconds: float) -> str:
    """Return text such as ``48 s``, ``15 min``, ``7 min 40 s`` or ``2 h 5 min``."""
    whole_seconds = round(seconds)
    if whole_seconds < 60:
        return f"{whole_seconds} s"
    minutes, remaining_seconds = divmod(whole_seconds, 60)
    units = (
        ((minutes, "min"), (remaining_seconds, "s"))
        if minutes < 60
        else ((minutes // 60, "h"), (minutes % 60, "min"))
    )
    return " ".join(f"{unit_count} {unit}" for unit_count, unit in units if unit_count)


def format_change(ratio: float) -> str:
    """Return a ratio as text: ``+41 %`` for 1.41, ``×132`` for 132."""
    if ratio >= MIN_FACTOR_RATIO:
        return f"×{_format_factor(ratio)}"
    change_text = f"{100 * (ratio - 1):+.{_count_decimals(ratio)}f} %"
    return change_text.replace("-", "+") if not float(change_text[:-2]) else change_text


def format_change_interval(ratio: float, low: float, high: float) -> str:
    """Return a ratio and its interval as text: ``+41 % [36, 47]``, ``×132 [29, 595]``."""
    if ratio >= MIN_FACTOR_RATIO:
        return f"{format_change(ratio)} [{_format_factor(low)}, {_format_factor(high)}]"
    end_texts = [f"{100 * (end - 1):.{_count_decimals(ratio)}f}" for end in (low, high)]
    unsigned_ends = [end if float(end) else end.removeprefix("-") for end in end_texts]
    return f"{format_change(ratio)} [{', '.join(unsigned_ends)}]"


def _format_factor(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 1000 else f"{factor:.3g}"


def _count_decimals(ratio: float) -> int:
    """Return the number of decimals of a change in per cent: one for a small change."""
    return 0 if abs(ratio - 1) >= 0.0995 else 1


def format_share(part: float, whole: float) -> str:
    """Return a share such as ``84 %``, or ``0 %`` if ``whole`` is zero."""
    return f"{100 * part / whole if whole else 0:.0f} %"


def format_objective(slo: Slo) -> str:
    """Return text such as ``p99 ≤ 50 ms``, with the exact limit of the target."""
    limit_text = f"{slo.limit:g} s" if slo.limit >= 1 else f"{1000 * slo.limit:g} ms"
    return f"{format_percentile(slo)} ≤ {limit_text}"


def format_percentile(slo: Slo) -> str:
    return f"p{100 * slo.quantile:g}"


def format_setting(value: Value, unit: str = "") -> str:
    """Return a parameter's value with its unit; booleans as ``on`` and ``off``."""
    if isinstance(value, bool):
        return "on" if value else "off"
    value_text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{value_text} {unit}" if unit else value_text


def format_first_numbers(numbers: Sequence[int]) -> str:
    """Return the first eight numbers as text: ``1, 2, 3``."""
    first_numbers = ", ".join(map(str, numbers[:8]))
    return f"{first_numbers}, …" if len(numbers) > 8 else first_numbers
