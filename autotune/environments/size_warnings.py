"""Warnings of quantities of an unusual size, such as 45h instead of 45m."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from autotune.target.consistency_checks import TargetMistake
from autotune.target.model import Target
from autotune.target.quantities import (
    QuantityWriter,
    format_duration,
    format_fraction,
    format_rate,
    format_size,
)
from autotune.target.yaml_document import Location

LONG_LIMIT_SECONDS = 10.0
MIN_TRIAL_SECONDS = 10.0  # a trial consists of several readings of 3 to 10 s
MIN_TRIALS = 5  # the baseline and the presets take several of them
MAX_PLAUSIBLE_QUANTILE = 0.9995  # a reading contains too few requests for a higher percentile
PEAK_SHARE = 0.9
MB, GB = 2**20, 2**30


@dataclass(frozen=True)
class UsualSize:
    """The bounds within which a quantity usually lies, and a hint for each side."""

    write: QuantityWriter
    low: float = 0.0
    high: float = inf
    low_hint: str = ""
    high_hint: str = ""

    def find_doubt(self, location: Location, value: float | None) -> Iterator[TargetMistake]:
        """Yield a mistake if ``value`` is outside the bounds."""
        if value is None or self.low <= value <= self.high:
            return
        is_low = value < self.low
        message = (
            f"`{location[-1]}: {self.write(value)}` is unusually {'low' if is_low else 'high'}"
        )
        yield TargetMistake(location, message, self.low_hint if is_low else self.high_hint)


def _write_rate(value: float) -> str:
    return f"{value:.3g}/s"


def _write_number(value: float) -> str:
    return f"{value:g}"


# Sizes of a stack by section and key
STACK_SIZES = {
    ("load", "max_rate"): UsualSize(
        format_rate,
        10.0,
        200_000.0,
        "percentiles need many requests: write about three times the capacity, such as 2000/s",
        "write about three times the capacity that you expect, such as 2000/s",
    ),
    ("load", "today"): UsualSize(
        _write_rate, 1.0, inf, "`today:` is in requests per second: write `today: 400/s`"
    ),
    ("data", "store_latency"): UsualSize(
        format_duration, 0.0, 1.0, "", "write the delay of a slow disk, such as 3ms"
    ),
    ("simulated", "noise"): UsualSize(
        format_fraction, 0.0, 0.3, "", "write the noise of a usual host, such as 3%"
    ),
    ("simulated", "drift"): UsualSize(format_fraction, 0.0, 0.5, "", "write a drift such as 5%"),
    ("simulated", "outliers"): UsualSize(
        format_fraction, 0.0, 0.3, "", "write a fraction such as 3%"
    ),
    ("simulated", "capacity"): UsualSize(
        _write_number, 0.01, inf, "1.0 is the capacity of the model"
    ),
}
HOST_SIZES = {
    "cpus": UsualSize(
        _write_number,
        0.05,
        1024.0,
        "`cpus:` counts CPUs: write `cpus: 0.5` for half a CPU",
        "`cpus:` counts CPUs, not millicores: write `cpus: 4`",
    ),
    "memory": UsualSize(
        format_size,
        64 * MB,
        4096 * GB,
        "write the memory of the host, such as 8GB",
        "write the memory of the host, such as 8GB",
    ),
}
TIMEOUT_SIZE = UsualSize(
    format_duration,
    0.0,
    60.0,
    "",
    "requests that hang keep connections open: write a timeout such as 2s, or remove it",
)
READY_SIZE = UsualSize(
    format_duration,
    5.0,
    1800.0,
    "it replaces every limit of a restart: write a time such as 2m, or remove it",
    "`m` are minutes: write a time such as 2m, or remove it",
)
TIME_SIZE = UsualSize(
    format_duration,
    180.0,
    24 * 3600.0,
    "the baseline and the proof alone take minutes: write `time: 45m`",
    "`h` are hours and `m` minutes: write `time: 45m`, or ignore this for a long study",
)


def find_unusual_sizes(target: Target) -> Iterator[TargetMistake]:
    """Yield quantities that are valid, but so small or large that the unit is probably wrong."""
    yield from _find_unusual_budget(target)
    if target.command is not None:
        if target.timeout < 1:
            message = (
                f"`timeout: {format_duration(target.timeout)}` is short for a run of a program"
            )
            yield TargetMistake(
                ("timeout",), message, "`ms` are milliseconds: write `timeout: 30s`"
            )
        return
    yield from _find_unusual_objective(target)
    for (section, key), size in STACK_SIZES.items():
        model = getattr(target, section)
        if model is not None and key in model.model_fields_set:
            yield from size.find_doubt((section, key), getattr(model, key))
    for name, host in target.hosts.items():
        for key, size in HOST_SIZES.items():
            yield from size.find_doubt(("hosts", name, key), getattr(host, key))
    timeout = target.load.timeout
    if timeout is not None and timeout > 10 * target.slo.objective.limit:
        yield from TIMEOUT_SIZE.find_doubt(("load", "timeout"), timeout)
    yield from READY_SIZE.find_doubt(("ready",), target.ready)
    yield from _find_unusual_rates(target)


def _find_unusual_budget(target: Target) -> Iterator[TargetMistake]:
    budget = target.budget
    if "trials" in budget.model_fields_set and budget.trials < MIN_TRIALS:
        message = f"`trials: {budget.trials}` leaves hardly any trial for the search"
        hint = "the baseline and the presets need trials too: write `trials: 40`"
        yield TargetMistake(("budget", "trials"), message, hint)
    if target.command is not None or "time" not in budget.model_fields_set:
        return
    if target.simulated is None or budget.time > TIME_SIZE.high:
        yield from TIME_SIZE.find_doubt(("budget", "time"), budget.time)
    is_crowded = budget.time < MIN_TRIAL_SECONDS * budget.trials
    if "trials" in budget.model_fields_set and target.simulated is None and is_crowded:
        message = (
            f"{budget.trials} trials in {format_duration(budget.time)} leave "
            f"{budget.time / budget.trials:.2g} s for each"
        )
        hint = "a trial takes at least 10 s: lower `trials:`, or raise `time:`"
        yield TargetMistake(("budget", "trials"), message, hint)


def _find_unusual_objective(target: Target) -> Iterator[TargetMistake]:
    slo = target.slo.objective
    if slo.limit >= LONG_LIMIT_SECONDS:
        message = f"{format_duration(slo.limit)} is a long time for a response of a site"
        hint = (
            "`ms` are milliseconds, such as `p99: 50ms`; ignore this for slow reports and exports"
        )
        yield TargetMistake(("slo",), message, hint)
    if slo.limit <= 0.001:
        message = f"{format_duration(slo.limit)} is a short time for a response of a site"
        hint = "`us` are microseconds and `ms` milliseconds: write a limit such as `p99: 50ms`"
        yield TargetMistake(("slo",), message, hint)
    if slo.quantile > MAX_PLAUSIBLE_QUANTILE:
        message = f"a reading has too few requests to measure p{slo.quantile * 100:.6g}"
        yield TargetMistake(("slo",), message, "use a lower percentile, such as p99.9 or p99")
    if slo.errors == 0:
        message = "`errors: 0%` allows no failed request, so a single failure misses the SLO"
        yield TargetMistake(("slo", "errors"), message, "write a small share, such as 0.1%")


def _find_unusual_rates(target: Target) -> Iterator[TargetMistake]:
    load, data, limit = target.load, target.data, target.slo.objective.limit
    if load.today is not None and load.today > PEAK_SHARE * load.max_rate:
        message = f"`max_rate` is hardly above `today` ({format_rate(load.today)})"
        hint = "raise `max_rate:`: the search needs rates far above the rate of your users"
        yield TargetMistake(("load", "max_rate"), message, hint)
    if "store_latency" in data.model_fields_set and limit <= data.store_latency <= 1.0:
        message = (
            f"`store_latency: {format_duration(data.store_latency)}` reaches the latency limit of "
            f"{format_duration(limit)}"
        )
        hint = "lower it, such as 3ms: a request with a miss could not meet the SLO"
        yield TargetMistake(("data", "store_latency"), message, hint)
    if data.keys_per_request * 2 > data.pairs:
        message = "one request reads most of the keys in the store"
        yield TargetMistake(("data", "pairs"), message, "raise `pairs:`, such as 100000")
