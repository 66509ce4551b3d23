"""A sweep as it is asked for on the command line, on top of what a sweep file says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.space.space import Space
from autotune.sweep import axes, read
from autotune.sweep.plan import Plan
from autotune.sweep.read import Wanted
from autotune.target.read import TargetFile


def wanted(
    path: Path,
    over: Sequence[str] | None,
    hosts: Sequence[str] | None,
    with_: Sequence[str] | None,
    rates: Sequence[float] | None,
    repeat: int | None,
    *,
    peak: bool,
) -> tuple[TargetFile, Wanted]:
    """The target and what to sweep; options replace what the file says under the same name.

    Raises TargetError for the file and AutotuneError for options that make no sense.
    """
    file, kept = read.sweep_file(path)
    base = kept or Wanted(title="", over=(), hosts={}, settings={})
    found = replace(
        base,
        over=_over(base, over or ()),
        hosts=base.hosts | dict(_counts(text) for text in hosts or ()),
        settings=base.settings | dict(_setting(text) for text in with_ or ()),
        rates=tuple(rates) if rates else base.rates,
        repeat=repeat or base.repeat,
    )
    if peak:
        if rates:
            raise AutotuneError("--rate and --peak exclude each other")
        found = replace(found, rates=())
    elif not found.rates and kept is None:
        raise AutotuneError("what to measure is not said", hint="give --rate R, or --peak")
    if any(rate <= 0 for rate in found.rates):
        raise AutotuneError("a rate must be more than nothing")
    return file, found if found.title else replace(found, title=_title(found))


def plan(file: TargetFile, found: Wanted, space: Space) -> Plan:
    """The grid. Raises AutotuneError for names and values that the target does not have."""
    return read.plan(file, found, space)


def name(path: Path, file: TargetFile) -> str:
    """What the sweep's directory is called."""
    return f"{file.target.name}-sweep" if path.resolve() == file.path.resolve() else path.stem


def said(plan: Plan) -> str:
    """The size of it, before it begins."""
    visits = len(plan.points) * plan.repeat
    what = (
        f"{len(plan.rates)} readings of {plan.seconds:g} s"
        if plan.rates
        else "a search for its peak"
    )
    return f"{len(plan.points)} points, each measured {plan.repeat} times: {visits} × {what}."


def _over(base: Wanted, texts: Iterable[str]) -> tuple[tuple[str, tuple[object, ...]], ...]:
    chosen = dict(base.over)
    for text in texts:
        key, _, values = text.partition("=")
        if not values:
            raise AutotuneError(
                f"--over {text}: no values", hint="write NAME=LOW:HIGH:STEP or NAME=A,B,C"
            )
        chosen[key] = tuple(axes.spread(values))
    return tuple(chosen.items())


def _counts(text: str) -> tuple[str, tuple[int, ...]]:
    tier, _, numbers = text.partition("=")
    try:
        return tier, tuple(int(number) for number in numbers.split(","))
    except ValueError:
        raise AutotuneError(f"--hosts {text}: no numbers", hint="write TIER=1,2,3") from None


def _setting(text: str) -> tuple[str, object]:
    key, _, given = text.partition("=")
    if not given:
        raise AutotuneError(f"--with {text}: no value", hint="write NAME=VALUE")
    return key, given


def _title(found: Wanted) -> str:
    varied = [*(key for key, _ in found.over), *(f"hosts of {tier}" for tier in found.hosts)]
    return f"{'Response time' if found.rates else 'Peak'} over {' and '.join(varied)}"
