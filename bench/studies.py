"""Whole studies on a formula: the real order of a study, sampler and claim, in memory and in no time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
import optuna

from autotune.optimize.gp.surrogate import CAPACITIES, MOVES
from autotune.optimize.searcher import Searcher
from autotune.study.loop import LEARNED, STOP_BELOW, tell
from autotune.study.ranking import Verdict, conclude, drifted
from autotune.study.records import Phase, State, Trial, after
from autotune.study.schedule import Ask, Conclude, Measure, Rank, Simplify, next_step
from autotune.study.simplifying import next_block
from autotune.target.model import Budget
from bench.search import Probes
from bench.stacks import Stack

SECONDS = 30.0  # of load that one measurement takes
SAID_SD = 0.03  # the sd that a measurement reports: less than the actual noise


@dataclass(frozen=True)
class Study:
    """A study as it ended, and what it claims."""

    state: State
    verdict: Verdict


def study(
    stack: Stack,
    *,
    kind: str = "auto",
    trials: int = 30,
    seed: int = 0,
    drift: float = 0.0,
    time: float | None = None,
    probes: Probes | None = None,
    weather: Iterator[float] | None = None,
) -> Study:
    """A study of ``trials`` configurations; ``drift`` is the log change of all peaks over it.
    ``probes`` tell of the stack's parts, and ``weather`` is what is added to each log peak."""
    rng = np.random.default_rng((seed, 77))
    budget = Budget.model_construct(trials=trials, time=time or SECONDS * trials * 2)
    searcher = Searcher(optuna.storages.InMemoryStorage(), "s", stack.space, kind, seed + 1, trials)
    state = State()
    while True:
        step = next_step(state, stack.space, budget, state.elapsed)
        if isinstance(step, Conclude):
            return Study(state, conclude(state))
        if isinstance(step, Rank):
            found = searcher.posterior(drifted(state))
            state = after(
                state,
                _record(
                    "standings",
                    peaks={number: (e.value, e.sd) for number, e in found.peaks.items()},
                    noise=found.noise,
                ),
            )
            continue
        if isinstance(step, Simplify):
            surrogate = searcher.surrogate(drifted(state))
            record = next_block(state, surrogate, stack.space, step.trial)
            state = after(state, _record("simplified", **record))
            continue
        if isinstance(step, Ask):
            asked = searcher.ask(drifted(state))
            probability = asked.improvement_probability
            if probability is not None and probability < STOP_BELOW:
                searcher.discard_pending()
                state = after(state, _record("settled", why="nothing left to win"))
                continue
            settings = {**stack.space.baseline, **asked.values}
            step = Measure(Phase.SEARCH, settings, asked=asked.number, suggested=asked.values)
        moved = drift * state.elapsed / (SECONDS * trials) + (next(weather) if weather else 0.0)
        state = _measured(state, step, stack.measure(step.settings, rng), exp(moved))
        if step.phase in LEARNED:
            _tell(searcher, state.trials[-1], probes)


def _tell(searcher: Searcher, done: Trial, probes: Probes | None) -> None:
    notes = probes.notes(done.settings, done.peak.peak) if probes and done.peak else {}
    tell(searcher, done, notes.get(MOVES, "").split(), json.loads(notes.get(CAPACITIES, "{}")))


def _measured(state: State, step: Measure, peak: float | None, moved: float) -> State:
    number = len(state.trials)
    state = after(state, _record(
        "trial", trial=number, phase=step.phase, settings=step.settings, of=step.of,
        asked=step.asked, suggested=step.suggested, bindings=(),
    ))  # fmt: skip
    if peak is None:
        state = after(state, _record("failed", trial=number, why="it does not start"))
    else:
        seen = peak * moved
        state = after(state, _record(
            "measured", trial=number, peak=seen, low=seen * exp(-1.645 * SAID_SD),
            high=seen * exp(1.645 * SAID_SD), sd=SAID_SD, verdict="measured", p99=None,
        ))  # fmt: skip
    return after(state, _record("spent", seconds={"load": SECONDS}))


def _record(event: str, **fields: Any) -> dict[str, Any]:
    return {"event": event, **fields}
