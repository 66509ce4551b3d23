"""The precision and the recall with which the ablation finds the changes that cause a winner's gain.

    python -m bench minimal [SEEDS] [MEASUREMENTS]

A winner is a stack's optimum, in which parameters without effect have random values. The true changes
are found with the exact peaks: the changes with the smallest losses are reverted, one after the other, as
long as 95 % of the gain is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log

import numpy as np

from autotune.cli.study_commands import DEFAULT_MAXIMUM
from autotune.optimize.ablation import KEPT_GAIN_SHARE, Ablation, PredictedEffect, RevertedChanges
from autotune.services.base import Value
from autotune.simulate.topology import is_modelled
from bench.stacks import NOISE, Stack, best, random_stack, web_stack
from bench.variants import VARIANTS

NOTHING = -9.0


def main(arguments: Sequence[str] = ()) -> None:
    seeds = int(arguments[0]) if arguments else 5
    most = int(arguments[1]) if len(arguments) > 1 else DEFAULT_MAXIMUM
    families = {
        "model": [modelled(name) for name in VARIANTS],
        "web": [web_stack(n) for n in ("small", "wide", "slow-db", "cached")],
        "random": [random_stack(i) for i in range(4)],
    }
    print(
        f"{'stack':11} {'changes':>7} {'active':>6} {'precision':>9} {'recall':>6} {'measured':>8}"
    )
    for family, stacks in families.items():
        every = []
        for stack in stacks:
            found = [reduced(stack, seed, most) for seed in range(seeds)]
            every += found
            _line(stack.name, found)
        _line(f"all {family}", every)


def _line(name: str, found: Sequence[tuple[int, int, float, float, int]]) -> None:
    changes, active, precision, recall, spent = np.mean(np.array(found), axis=0)
    print(f"{name:11} {changes:7.1f} {active:6.1f} {precision:9.2f} {recall:6.2f} {spent:8.0f}")


def modelled(name: str) -> Stack:
    """Return a variant of the simulated stack, with its active parameters."""
    variant = VARIANTS[name]
    names = (d.name for d in variant.space.dimensions)
    active = frozenset(n for n in names if is_modelled(variant.topology, n))
    return Stack(name, variant.space, lambda s: variant.true_peak(s) or None, active)


def reduced(
    stack: Stack, seed: int, most: int = DEFAULT_MAXIMUM
) -> tuple[int, int, float, float, int]:
    """Run an ablation of at most ``most`` measurements.

    Return the numbers of changes and of true changes, precision, recall, and number of measurements.
    """
    rng = np.random.default_rng((seed, 5))
    baseline, winner = stack.space.baseline, _moved(stack, rng)
    changes = [
        n for n in winner if winner[n] != baseline[n] and n in stack.space.active_parameters(winner)
    ]

    def settings(reverted: frozenset[str]) -> dict[str, Value]:
        return {n: baseline[n] if n in reverted else v for n, v in winner.items()}

    def height(reverted: frozenset[str]) -> float | None:
        peak = stack.peak(settings(reverted))
        return None if peak is None else log(peak)

    def measure(reverted: frozenset[str]) -> float | None:
        peak = stack.measure(settings(reverted), rng)
        return None if peak is None else log(peak)

    gain = log((stack.peak(winner) or 1.0) / (stack.peak(baseline) or 1.0))
    full = height(frozenset()) or 0.0
    exact = {n: full - _or_nothing(height(frozenset({n}))) for n in changes}
    truth = set(changes) - _needless(changes, full - (1.0 - KEPT_GAIN_SHARE) * gain, height)
    # Predictions as from a model: the exact losses with errors of about a tenth of the gain.
    guess = {
        n: PredictedEffect(p + rng.normal(0, 0.1 * gain), 0.1 * gain) for n, p in exact.items()
    }
    found = Ablation(guess, gain, NOISE, measure, most).run()
    kept = set(found.kept)
    hit = len(kept & truth)
    return (
        len(changes), len(truth), hit / max(len(kept), 1), hit / max(len(truth), 1),
        found.measurements,
    )  # fmt: skip


def _needless(
    changes: Sequence[str], least: float, height: Callable[[RevertedChanges], float | None]
) -> RevertedChanges:
    """Return the changes that can be reverted without a log peak below ``least``.

    The change with the smallest loss is reverted first.
    """
    reverted: RevertedChanges = frozenset()
    while left := [reverted | {name} for name in changes if name not in reverted]:
        following = max(left, key=lambda wider: _or_nothing(height(wider)))
        if _or_nothing(height(following)) < least:
            break
        reverted = following
    return reverted


def _or_nothing(height: float | None) -> float:
    """Return ``height``, or a very low log peak for settings that fail."""
    return NOTHING if height is None else height


def _moved(stack: Stack, rng: np.random.Generator) -> dict[str, Value]:
    """Return the optimum of a stack with random values for parameters that have no effect."""
    _, winner = best(stack)
    moved = dict(winner)
    for dimension in stack.space.dimensions:
        if dimension.name in stack.active:
            continue
        if dimension.choices:
            moved[dimension.name] = dimension.choices[int(rng.integers(len(dimension.choices)))]
        else:
            low, high = float(dimension.low or 0), float(dimension.high or 0)
            moved[dimension.name] = dimension.clip(low + rng.random() * (high - low))
    # A parameter without effect on the peak may still prevent the stack from starting.
    return moved if stack.peak(moved) else dict(winner)


__all__ = ["KEPT_GAIN_SHARE", "main", "reduced"]
