"""Complete studies of simulated stacks, in memory and without waiting.

The schedule, the sampler and the verdict are computed by autotune's own code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
import optuna

from autotune.optimize.gp.surrogate import CAPACITIES_KEY, CHANGES_KEY, SurrogateModel
from autotune.optimize.searcher import Searcher
from autotune.space.space import SearchSpace
from autotune.study.proof import decide_verdict
from autotune.study.record_codec import encode
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import (
    ConcludeStep,
    EstimateCostsStep,
    MeasureStep,
    RankStep,
    SimplifyStep,
    SuggestStep,
)
from autotune.study.search_history import MODELLED_PHASES, record_outcome
from autotune.study.simplification import select_next_block
from autotune.study.state_replay import apply_record
from autotune.study.study_drift import estimate_study_drift
from autotune.study.study_loop import STOP_PROBABILITY, predict_reversal_costs
from autotune.study.study_state import Phase, State, Trial
from autotune.study.verdict import Verdict
from autotune.target.model import Budget
from bench.search import Probes
from bench.stacks import Stack

SECONDS = 30.0  # seconds of load per measurement
SAID_SD = 0.03  # sd of the log peak that a measurement reports; the actual noise is larger


@dataclass(frozen=True)
class Study:
    """The final state of a study, and its verdict."""

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
    """Run a study of ``trials`` configurations.

    ``drift`` is the change of all log peaks during the study. ``probes`` observe the components of the
    stack. A value of ``weather`` is added to the log peak of each measurement.
    """
    rng = np.random.default_rng((seed, 77))
    budget = Budget.model_construct(trials=trials, time=time or SECONDS * trials * 2)
    searcher = Searcher(optuna.storages.InMemoryStorage(), "s", stack.space, kind, seed + 1, trials)
    state = State()
    while True:
        step = select_next_step(state, stack.space, budget, state.elapsed_seconds)
        if isinstance(step, ConcludeStep):
            return Study(state, decide_verdict(state))
        if isinstance(step, RankStep):
            found = searcher.compute_posterior_peaks(estimate_study_drift(state))
            state = apply_record(
                state,
                _record(
                    "standings",
                    peaks={number: (e.value, e.sd) for number, e in found.peaks.items()},
                    noise=found.noise,
                ),
            )
            continue
        if isinstance(step, SimplifyStep):
            surrogate = searcher.fit_surrogate(estimate_study_drift(state))
            record = select_next_block(state, surrogate, stack.space, step.trial_number)
            state = apply_record(state, _record("simplified", **encode(record)))
            continue
        if isinstance(step, EstimateCostsStep):
            surrogate = searcher.fit_surrogate(estimate_study_drift(state))
            costs = costs_record(surrogate, stack.space, state, step.trial_number)
            state = apply_record(state, costs)
            continue
        if isinstance(step, SuggestStep):
            asked = searcher.suggest(estimate_study_drift(state))
            probability = asked.improvement_probability
            if probability is not None and probability < STOP_PROBABILITY:
                searcher.discard_pending_suggestions()
                state = apply_record(state, _record("settled", why="nothing left to win"))
                continue
            settings = {**stack.space.baseline, **asked.values}
            step = MeasureStep(
                Phase.SEARCH, settings, suggestion_number=asked.number, suggested=asked.values
            )
        moved = drift * state.elapsed_seconds / (SECONDS * trials) + (
            next(weather) if weather else 0.0
        )
        state = _measured(state, step, stack.measure(step.settings, rng), exp(moved))
        if step.phase in MODELLED_PHASES:
            _tell(searcher, state.trials[-1], probes)


def costs_record(
    surrogate: SurrogateModel, space: SearchSpace, state: State, winner_number: int
) -> dict[str, Any]:
    """Return the record with the modelled costs of reverting the changes of a winner."""
    costs = predict_reversal_costs(surrogate, space, state, winner_number)
    return _record(
        "reversal-costs",
        trial=winner_number,
        costs=[{"parameter": n, "loss": cost.loss, "sd": cost.sd} for n, cost in costs.items()],
    )


def _tell(searcher: Searcher, done: Trial, probes: Probes | None) -> None:
    notes = probes.notes(done.settings, done.peak.peak) if probes and done.peak else {}
    record_outcome(
        searcher,
        done,
        notes.get(CHANGES_KEY, "").split(),
        json.loads(notes.get(CAPACITIES_KEY, "{}")),
    )


def _measured(state: State, step: MeasureStep, peak: float | None, moved: float) -> State:
    number = len(state.trials)
    state = apply_record(state, _record(
        "trial", trial=number, phase=step.phase, settings=step.settings, of=step.source_trial,
        asked=step.suggestion_number, suggested=step.suggested, bindings=(),
    ))  # fmt: skip
    if peak is None:
        state = apply_record(state, _record("failed", trial=number, why="it does not start"))
    else:
        seen = peak * moved
        state = apply_record(state, _record(
            "measured", trial=number, peak=seen, low=seen * exp(-1.645 * SAID_SD),
            high=seen * exp(1.645 * SAID_SD), sd=SAID_SD, verdict="measured", p99=None,
        ))  # fmt: skip
    return apply_record(state, _record("spent", seconds={"load": SECONDS}))


def _record(event: str, **fields: Any) -> dict[str, Any]:
    return {"event": event, **fields}
