"""The correctness of studies' claims on stacks with and without effects, and under drift.

python -m bench claims [STUDIES [NOISE …]]

NOISE is `as expected`, `twice`, `storms`, `correlated` or `drift`. By default, all kinds are simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import exp, log

import numpy as np

from autotune.report.conclusion import list_repeats, pool_peaks
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from bench.stacks import NOISE, Stack, best, number, random_stack
from bench.studies import Study, study

TRIALS = 12
SMALL_GAINS = (0.03, 0.06, 0.12, 0.25)  # true gains; the smallest is about as large as the noise
UPPER_HALF = 32.0  # the middle of a parameter's logarithmic range from 1 to 1000
Weather = Callable[[np.random.Generator], Iterator[float]]


def without_effect() -> Stack:
    """Return a stack with eight parameters without effect."""
    space = SearchSpace(
        tuple(number(f"t.s.p{i}", 1, 1000, 10, 100) for i in range(8)), (), {}
    )  # fmt: skip

    def peak(_: Settings) -> float | None:
        return 1000.0

    return Stack("without effect", space, peak, frozenset())


def one_effect(gain: float) -> Stack:
    """Return a stack whose peak grows by ``gain`` if one parameter is in the upper half of its range."""
    idle = without_effect()
    name = idle.space.dimensions[0].name

    def peak(settings: Settings) -> float | None:
        return 1000.0 * (1.0 + gain * (float(settings[name]) >= UPPER_HALF))

    return replace(idle, name="one effect", peak=peak)


def twice(rng: np.random.Generator) -> Iterator[float]:
    """Yield additional noise, with which the sd of a measurement is twice as large as usual."""
    while True:
        yield rng.normal(0, NOISE * 3**0.5)


def storms(rng: np.random.Generator) -> Iterator[float]:
    """Yield changes of log peaks due to disturbances.

    A disturbance begins at a measurement with a probability of 10 %. It takes away a quarter of the
    peak in two to four consecutive measurements.
    """
    while True:
        if rng.random() < 0.1:
            yield from [log(0.75)] * int(rng.integers(2, 5))
        yield 0.0


def correlated(rng: np.random.Generator) -> Iterator[float]:
    """Yield values of an autoregressive process with the same sd as the noise."""
    level = 0.0
    while True:
        level = 0.7 * level + rng.normal(0, NOISE * (1 - 0.7**2) ** 0.5)
        yield level


DRIFT = "drift"
WEATHER = {"as expected": None, "twice": twice, "storms": storms, "correlated": correlated}


def main(arguments: Sequence[str] = ()) -> None:
    count = int(arguments[0]) if arguments else 200
    chosen = arguments[1:] or (*WEATHER, DRIFT)
    if unknown := sorted({*chosen} - {*WEATHER, DRIFT}):
        sys.exit(f"there is no noise {unknown[0]!r}; there is: {', '.join((*WEATHER, DRIFT))}")
    for name in chosen:
        if name == DRIFT:
            _drift(max(count // 20, 4))
        else:
            _claims(name, WEATHER[name], count)


def _claims(name: str, weather: Weather | None, count: int) -> None:
    """Print the share of false claims without any effect, and the accuracy of claims with effects."""

    def sky(seed: int) -> Iterator[float] | None:
        return weather(np.random.default_rng((seed, 9))) if weather else None

    print(f"noise {name}", flush=True)
    idle = without_effect()
    for kind in ("random", "gp"):
        said = [study(idle, kind=kind, trials=TRIALS, seed=seed, weather=sky(seed)).verdict
                for seed in range(count)]  # fmt: skip
        share = np.mean([one.verdict == "no-improvement" for one in said])
        print(
            f"no effect, {kind:6} {count} studies: no-improvement in {share:.1%} (bar: 95 %)",
            flush=True,
        )
    for gain in SMALL_GAINS:
        small = one_effect(gain)
        _small_gain(gain, [
            (small, study(small, kind="random", trials=TRIALS, seed=seed, weather=sky(seed)))
            for seed in range(count)
        ])  # fmt: skip
    stacks = [random_stack(seed) for seed in range(20)]
    _coverage([(s, study(s, kind="random", trials=TRIALS, seed=i, weather=sky(i)))
               for i in range(count) for s in (stacks[i % len(stacks)],)])  # fmt: skip


def _small_gain(gain: float, found: Sequence[tuple[Stack, Study]]) -> None:
    """Print by how much the gains that studies report exceed a small true gain."""
    errors = [
        100 * (one.verdict.gain.ratio - _true_gain(stack, one, one.verdict.best))
        for stack, one in found
        if one.verdict.verdict == "improved" and one.verdict.gain and one.verdict.best is not None
    ]
    if len(errors) < 2:
        print(f"effect {gain:+.0%}, {len(found)} studies: {len(errors)} improved", flush=True)
        return
    print(
        f"effect {gain:+.0%}, {len(found)} studies: improved in {len(errors) / len(found):.0%}; then "
        f"the gain is too high by {np.mean(errors):+.1f} ± "
        f"{1.65 * np.std(errors) / len(errors) ** 0.5:.1f} points, {np.median(errors):+.1f} at the "
        f"median (bar: 1 point)",
        flush=True,
    )


def _drift(count: int) -> None:
    """Print the regrets of winners without drift, and with drift by a fifth up or down per study."""
    for change in (0.0, log(1.2), log(0.8)):
        regrets = []
        for index in range(count):
            stack = random_stack(index % 20)
            one = study(stack, kind="gp", trials=30, seed=index, drift=change)
            regrets.append(regret(stack, one))
        print(
            f"drift {exp(change) - 1:+.0%}, {count} studies of 30 trials: regret "
            f"{np.median(regrets):.1f} % median, {np.mean(regrets):.1f} % mean (bar: within 1 point)"
        )


def _coverage(found: Sequence[tuple[Stack, Study]]) -> None:
    covered, errors, shown = [], [], []
    for stack, one in found:
        gain, number_ = one.verdict.gain, one.verdict.best
        if gain is None or number_ is None:
            continue
        true = _true_gain(stack, one, number_)
        covered.append(gain.low <= true <= gain.high)
        errors.append(log(gain.ratio / true))
        shown.append(_shown(stack, one, number_))
    print(
        f"effect, {len(covered)} studies: the interval holds the true gain in {np.mean(covered):.1%}"
        f" (bar: 86–94 %); bias {100 * np.mean(errors):+.2f} ± "
        f"{165 * np.std(errors) / len(errors) ** 0.5:.2f} % (bar: 0.5 %); the peak shown is off by "
        f"{100 * np.median(shown):+.1f} % median, {100 * np.mean(shown):+.1f} % mean (bar: 1 point)",
        flush=True,
    )


def _shown(stack: Stack, one: Study, winner: int) -> float:
    """Return the log error of the peak that a report shows for the winner."""
    state = replace(one.state, verdict=one.verdict)
    peak = pool_peaks([trial.peak for trial in list_repeats(state, winner) if trial.peak])
    true = stack.peak(state.find_trial(winner).settings)
    return log(peak.peak / true) if peak and true else 0.0


def _true_gain(stack: Stack, one: Study, winner: int) -> float:
    won = stack.peak(one.state.find_trial(winner).settings) or 0.0
    return won / (stack.peak(stack.space.baseline) or 1.0)


def regret(stack: Stack, one: Study) -> float:
    """Return the regret of a study's winner, in percent of the optimum."""
    number_ = one.verdict.best
    settings = stack.space.baseline if number_ is None else one.state.find_trial(number_).settings
    return 100 * (1 - (stack.peak(settings) or 0.0) / best(stack)[0])
