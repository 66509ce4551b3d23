"""Search methods that do not use autotune's model, such as an engineer's recipe and FLAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from autotune.services.base import Settings, Value
from autotune.space.space import SearchSpace
from bench.stacks import Stack, _at, _drawn, _neighbours, _unit

ASKED_AGAIN = 100  # number of suggestions after which FLAML has no new configuration
QUARTER = 0.25
GAIN = 1.01  # ratio of peaks above which a change is an improvement
_MOVE = re.compile(r"([^=]+?)(?:([+-])|=(.*))")

Suggest = Callable[[Sequence[Settings], Sequence[float | None]], Settings]


def ofat(stack: Stack, seed: int) -> Suggest:
    """Change one parameter of the best configuration at a time, starting with important parameters.

    Each change is a quarter of the parameter's range up or down, or another choice.
    """
    rng = np.random.default_rng((seed, 7))
    space = stack.space
    queue: list[tuple[str, Value]] = []

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        leader = tried[_leading(peaks)]
        while True:
            if not queue:
                shuffled = [
                    space.tunable_dimensions[i]
                    for i in rng.permutation(len(space.tunable_dimensions))
                ]
                for d in sorted(shuffled, key=lambda d: not d.is_core):
                    values = _neighbours(d, leader[d.name], QUARTER)
                    queue.extend((d.name, value) for value in values if value != leader[d.name])
            name, value = queue.pop(0)
            if name in space.active_parameters(leader) and leader[name] != value:
                return {**leader, name: value}

    return suggest


def engineer(stack: Stack, seed: int) -> Suggest:
    """Follow the recommendations of diagnoses.

    One parameter at a time is changed by a quarter of its range. Each improvement is diagnosed again.
    After the last recommendation, the search continues as in ``ofat``.
    """
    one_at_a_time, made = ofat(stack, seed), set[str]()

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        at = _leading(peaks)
        for settings in _moves(stack.space, tried[at], stack.advise(tried[at], peaks[at] or 0.0)):
            key = str(sorted(settings.items()))
            if key not in made:
                made.add(key)
                return settings
        return one_at_a_time(tried, peaks)

    return suggest


def _leading(peaks: Sequence[float | None]) -> int:
    """Return the index of the best peak. A later peak is better if it is ``GAIN`` times as high."""
    best = 0
    for number, peak in enumerate(peaks):
        if (peak or 0.0) > GAIN * (peaks[best] or 0.0):
            best = number
    return best


def _moves(space: SearchSpace, leader: Settings, advised: Sequence[str]) -> Iterator[Settings]:
    dimensions, active = (
        {d.name: d for d in space.tunable_dimensions},
        space.active_parameters(leader),
    )
    for move in filter(None, map(_MOVE.fullmatch, advised)):
        name, sign, choice = move.groups()
        d = dimensions.get(name)
        if d is None or name not in active:
            continue
        if d.choices:
            value = choice if choice in d.choices else leader[name]
        else:
            step = QUARTER if sign == "+" else -QUARTER
            value = _at(d, float(np.clip(_unit(d, leader[name]) + step, 0, 1)))
        if value != leader[name]:
            yield {**leader, name: value}


def near(stack: Stack, seed: int) -> Suggest:
    """Change one to four parameters of the best configuration to random values."""
    rng = np.random.default_rng((seed, 8))
    space = stack.space

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        leader = tried[max(range(len(tried)), key=lambda i: peaks[i] or 0.0)]
        active = sorted(
            space.active_parameters(leader) & {d.name for d in space.tunable_dimensions}
        )
        names = rng.choice(active, int(rng.integers(1, 5)), replace=False)
        drawn = _drawn(replace(space, dimensions=space.tunable_dimensions), rng)
        return {**leader, **{name: drawn[name] for name in names}}

    return suggest


def flaml(stack: Stack, seed: int) -> Suggest:
    """Search from the best preset with FLAML's CFO, a local search with random directions."""
    from flaml import CFO, tune  # type: ignore[import-not-found]

    space = stack.space
    domains = {
        d.name: tune.choice(list(d.choices)) if d.choices
        else (tune.lograndint if d.is_logarithmic and d.bounds[0] > 0 else tune.randint)(
            int(d.bounds[0]), int(d.bounds[1]) + 1
        ) if d.is_integer
        else tune.uniform(*map(float, d.bounds))
        for d in space.tunable_dimensions
    }  # fmt: skip
    cfo: Any = None
    names = count()
    waiting: tuple[str, dict[str, Any]] | None = None

    def complete(peak: float) -> None:
        if waiting:
            name, config = waiting
            cfo.on_trial_complete(
                name, {"loss": -peak, **{f"config/{key}": value for key, value in config.items()}}
            )

    def suggested() -> tuple[str, dict[str, Any]] | None:
        """Return a new suggestion of CFO.

        CFO returns ``None`` instead of a configuration that was tried already. It is then called
        again, as FLAML itself does.
        """
        for name in map(str, islice(names, ASKED_AGAIN)):
            if config := cfo.suggest(name):
                return name, config
        return None

    def suggest(tried: Sequence[Settings], peaks: Sequence[float | None]) -> Settings:
        nonlocal cfo, waiting
        leader = tried[max(range(len(tried)), key=lambda i: peaks[i] or 0.0)]
        if cfo is None:
            start = {name: leader[name] for name in domains}
            cfo = CFO(metric="loss", mode="min", space=domains, low_cost_partial_config={},
                      points_to_evaluate=[start], seed=seed)  # fmt: skip
            waiting = suggested()
            complete(max(peak or 0.0 for peak in peaks))
        else:
            complete(peaks[-1] or 0.0)
        waiting = suggested()
        values = waiting[1] if waiting else {}
        clipped = {
            d.name: d.clip(values[d.name]) for d in space.tunable_dimensions if d.name in values
        }
        return {**(space.baseline if clipped else leader), **clipped}

    return suggest


OTHERS: dict[str, Callable[[Stack, int], Suggest]] = {
    "engineer": engineer, "ofat": ofat, "near": near, "flaml": flaml,
}  # fmt: skip
