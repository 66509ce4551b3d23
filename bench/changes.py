"""The number of changes that complete studies confirm, and how many of them are necessary.

    python -m bench changes [--seeds 3] [--first 1000] [--stacks local/even,…] [--measurements 30,80]

Each study searches the space of a shipped target with all parameters (`bench.catalogue`). It measures
presets, searches, measures finalists, simplifies the winner and proves the gain, in the time of the given
number of measurements. A change is effective if the configuration loses at least a thousandth of its
capacity without the change. To count the needed changes, changes that cost less are reverted one after
the other. If two changes have the same effect, neither of them is effective, but one is needed. ``kept``
is the share of the winner's gain that is left after simplification. ``ahead`` is the confirmed
configuration's gain over the best preset or baseline.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from math import expm1, log

import numpy as np

from autotune.optimize.simplify import revert_changes
from autotune.services.base import Settings
from autotune.study.ranking import find_leader
from autotune.study.study_state import OPENING_PHASES
from bench.search import HARDWARE, SEEN, Case, Probes
from bench.stacks import Stack
from bench.studies import SECONDS, study

EFFECTIVE = 0.001
KEPT, PRECISION = 0.97, 0.9  # required share of kept gain, and required share of effective changes
WORSE = 0.01


@dataclass(frozen=True)
class Confirmed:
    """The result of a study.

    The winner has ``before`` changes before it is simplified, and ``changes`` afterwards, of which
    ``effective`` are effective and ``needed`` are needed. ``kept`` is the share of the winner's gain
    that is left, ``gain`` the confirmed log gain, and ``ahead`` the log gain over the best preset.
    """

    before: int
    changes: int
    effective: int
    needed: int
    kept: float
    gain: float
    ahead: float


def confirmed(case: Case, measurements: int) -> Confirmed | None:
    """Return the result of one study, or ``None`` if the baseline won."""
    stack = case.stack
    done = study(
        stack, trials=measurements, seed=case.seed, time=SECONDS * measurements,
        probes=Probes(case),
    )  # fmt: skip
    first, number = find_leader(done.state), done.verdict.best
    if first is None or number is None:
        return None
    winner, final = (done.state.find_trial(n).settings for n in (first, number))
    stock, height = _log(stack, stack.space.baseline), _log(stack, final)
    preset = max(
        _log(stack, trial.settings) for trial in done.state.list_finished_trials(*OPENING_PHASES)
    )
    losses = {name: height - _log(stack, revert_changes(stack.space, final, [name]))
              for name in changes(stack, final)}  # fmt: skip
    return Confirmed(
        len(changes(stack, winner)), len(losses),
        sum(loss >= EFFECTIVE for loss in losses.values()), needed(stack, final, losses),
        expm1(height - stock) / max(expm1(_log(stack, winner) - stock), 1e-9), height - stock,
        height - preset,
    )  # fmt: skip


def needed(stack: Stack, settings: Settings, losses: Mapping[str, float]) -> int:
    """Return the number of changes that remain if changes without a noticeable loss are reverted.

    Changes with small ``losses`` are reverted first.
    """
    left, height = len(losses), _log(stack, settings)
    for name in sorted(losses, key=lambda name: losses[name]):
        without = revert_changes(stack.space, settings, [name])
        if height - (lower := _log(stack, without)) < EFFECTIVE:
            left, height, settings = left - 1, lower, without
    return left


def changes(stack: Stack, settings: Settings) -> list[str]:
    """Return the active parameters whose values differ from the baseline."""
    active = stack.space.active_parameters(settings)
    return [n for n, v in stack.space.baseline.items() if n in active and settings[n] != v]


def _log(stack: Stack, settings: Settings) -> float:
    return log(stack.peak(settings) or 1.0)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="Changes of what is confirmed.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1000, help="the first of them")
    parser.add_argument("--stacks", default=",".join(HARDWARE))
    parser.add_argument("--measurements", default="30,80")
    parser.add_argument("--jobs", type=int, default=None, help="processes to share it")
    options = parser.parse_args(arguments)
    names, seeds = options.stacks.split(","), range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for target, measurements in product(
            ("local", "lab"), map(int, options.measurements.split(","))
        ):
            cases = [Case("catalogue", name, seed, SEEN)
                     for name, seed in product(names, seeds) if name.startswith(target)]  # fmt: skip
            jobs = [pool.submit(confirmed, case, measurements) for case in cases]
            studies = [one for job in jobs if (one := job.result()) is not None]
            if studies:
                _line(f"{target}, {measurements} measurements", studies)


def _line(name: str, studies: Sequence[Confirmed]) -> None:
    before, after, *which = (
        np.array([getattr(s, n) for s in studies])
        for n in ("before", "changes", "effective", "needed")
    )
    effective, necessary = (each.sum() / max(after.sum(), 1) for each in which)
    kept, gains, ahead = (
        np.array([getattr(s, n) for s in studies]) for n in ("kept", "gain", "ahead")
    )
    print(
        f"{name:24} changes {np.median(before):4.0f} → {np.median(after):4.0f} (most {after.max()}), "
        f"effective {effective:.0%} (bar {PRECISION:.0%}), needed {necessary:.0%}; gain "
        f"{100 * np.expm1(np.median(gains)):+.0f} %, kept {kept.mean():.1%} on average, at least "
        f"{KEPT:.0%} in {(kept >= KEPT).mean():.0%} of {len(studies)} studies; over the best preset "
        f"{100 * np.expm1(ahead.mean()):+.1f} % on average, below it by over {WORSE:.0%} in "
        f"{(ahead < -WORSE).mean():.0%}",
        flush=True,
    )
