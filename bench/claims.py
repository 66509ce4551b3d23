"""What a study claims, against what is true: parameters without effect, with effect, under drift.

python -m bench claims [STUDIES]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np

from autotune.services.base import Settings
from autotune.space.space import Space
from bench.stacks import Stack, best, number, random_stack
from bench.studies import Study, study

TRIALS = 12


def without_effect() -> Stack:
    """Eight parameters, none of which changes anything."""
    space = Space(
        tuple(number(f"t.s.p{i}", 1, 1000, 10, 100) for i in range(8)), (), {}
    )  # fmt: skip

    def peak(_: Settings) -> float | None:
        return 1000.0

    return Stack("without effect", space, peak, frozenset())


def main(arguments: Sequence[str] = ()) -> None:
    count = int(arguments[0]) if arguments else 200
    idle = without_effect()
    for kind in ("random", "gp"):
        said = [study(idle, kind=kind, trials=TRIALS, seed=seed).verdict for seed in range(count)]
        share = np.mean([one.verdict == "no-improvement" for one in said])
        print(f"no effect, {kind:6} {count} studies: no-improvement in {share:.1%} (bar: 95 %)")
    stacks = [random_stack(seed) for seed in range(20)]
    found = [(s, study(s, kind="random", trials=TRIALS, seed=i))
             for i in range(count) for s in (stacks[i % len(stacks)],)]  # fmt: skip
    _coverage(found)
    _drift(max(count // 20, 4))


def _drift(count: int) -> None:
    """Regret of the winner without drift, and with a fifth more or less over the study."""
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
    covered, errors = [], []
    for stack, one in found:
        gain, number_ = one.verdict.gain, one.verdict.best
        if gain is None or number_ is None:
            continue
        true = _true_gain(stack, one, number_)
        covered.append(gain.low <= true <= gain.high)
        errors.append(log(gain.ratio / true))
    print(
        f"effect, {len(covered)} studies: the interval holds the true gain in {np.mean(covered):.1%}"
        f" (bar: 86–94 %); bias {100 * np.mean(errors):+.2f} ± "
        f"{165 * np.std(errors) / len(errors) ** 0.5:.2f} % (bar: 0.5 %)"
    )


def _true_gain(stack: Stack, one: Study, winner: int) -> float:
    won = stack.peak(one.state.by_number(winner).settings) or 0.0
    return won / (stack.peak(stack.space.baseline) or 1.0)


def regret(stack: Stack, one: Study) -> float:
    """Of the winner, in percent of the best there is."""
    number_ = one.verdict.best
    settings = stack.space.baseline if number_ is None else one.state.by_number(number_).settings
    return 100 * (1 - (stack.peak(settings) or 0.0) / best(stack)[0])
