"""The speed of studies on several test beds, and the correctness of their claims, in virtual time.

python -m bench beds [STUDIES [BEDS …]]

Only the measurements are simulated. The schedule, the search (with predictions for running trials), the
offsets and the claim over all beds are computed by autotune's own code. Beds differ in peak and speed by
up to 20 %, and some beds fail.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from time import process_time
from typing import Any

import numpy as np
import optuna

from autotune.optimize.bed_differences import estimate_offsets
from autotune.optimize.searcher import Searcher
from autotune.study.proof import decide_verdict
from autotune.study.record_codec import encode
from autotune.study.schedule import select_next_step
from autotune.study.schedule_steps import (
    ConcludeStep,
    EstimateCostsStep,
    MeasureStep,
    RankStep,
    ScheduleStep,
    SimplifyStep,
    SuggestStep,
    WaitStep,
)
from autotune.study.search_history import record_outcome
from autotune.study.simplification import select_next_block
from autotune.study.state_replay import apply_record
from autotune.study.study_drift import estimate_study_drift, list_bed_readings
from autotune.study.study_loop import STOP_PROBABILITY
from autotune.study.study_state import COUNTED_PHASES, Phase, State, Trial
from autotune.study.verdict import Verdict
from autotune.target.model import Budget
from bench.claims import without_effect
from bench.stacks import Stack, best, random_stack
from bench.studies import SAID_SD, SECONDS, costs_record

TRIALS = 40
# Several beds may try more configurations. The comparison is the time until they find an equally
# good one.
MORE = 1.25
DRAWS = 200
COUNTS = (2, 8, 32)
UNEQUAL = 0.2


@dataclass
class Bed:
    """A test bed, whose peaks are ``level`` times those of the stack.

    Its measurements take ``pace`` times as long as usual. The bed fails after ``fails`` measurements.
    """

    name: str
    level: float = 1.0
    pace: float = 1.0
    fails: int | None = None
    measured: int = 0
    now: float = 0.0


@dataclass(frozen=True)
class Study:
    """A finished study. ``curve`` contains the virtual time at the end of each trial, in seconds, and
    the best true peak until then.
    """

    state: State
    verdict: Verdict
    curve: tuple[tuple[float, float], ...]
    asking: float  # mean CPU seconds per suggestion


class Simulation:
    """A study in virtual time, whose beds measure a formula."""

    def __init__(self, stack: Stack, beds: Sequence[Bed], *, kind: str, trials: int, seed: int):
        self.stack, self.rng = stack, np.random.default_rng((seed, 78))
        self.beds = {bed.name: bed for bed in beds}
        # Studies end after a number of trials, and their durations are compared. So the time budget is
        # large enough for any study.
        self.budget = Budget.model_construct(trials=trials, time=SECONDS * (trials + 40) * 4)
        self.searcher = Searcher(
            optuna.storages.InMemoryStorage(), "s", stack.space, kind, seed + 1, trials,
            has_several_beds=len(beds) > 1,
        )  # fmt: skip
        self.state = State(beds=tuple(self.beds))
        self.asking: list[float] = []
        self.curve: list[tuple[float, float]] = []

    def run(self) -> Study:
        """Run the study until it is complete, and return it."""
        ends: list[tuple[float, str, Trial]] = []
        idle = dict.fromkeys(self.beds)
        while True:
            for name in list(idle):
                if (trial := self._next(self.beds[name])) is not None:
                    idle.pop(name)
                    took = SECONDS * self.beds[name].pace * self.rng.uniform(0.7, 1.3)
                    heapq.heappush(ends, (self.beds[name].now + took, name, trial))
            if not ends:
                asking = float(np.mean(self.asking)) if self.asking else 0.0
                return Study(self.state, decide_verdict(self.state), tuple(self.curve), asking)
            at, name, trial = heapq.heappop(ends)
            if self._over(self.beds[name], trial, at):
                idle[name] = None
            for waiting in idle:
                self.beds[waiting].now = at

    def _next(self, bed: Bed) -> Trial | None:
        """Return the next trial of ``bed``, or ``None`` if the bed must wait or the study is complete."""
        while True:
            step = select_next_step(self.state, self.stack.space, self.budget, bed.now, bed.name)
            if isinstance(step, WaitStep | ConcludeStep):
                return None
            if (measure := self._decided(step)) is not None:
                number = len(self.state.trials)
                self._record(
                    "trial",
                    trial=number,
                    phase=measure.phase,
                    settings=measure.settings,
                    of=measure.source_trial,
                    asked=measure.suggestion_number,
                    suggested=measure.suggested,
                    bindings=(),
                    bed=bed.name,
                    repeats=measure.replaced_trial,
                )
                return self.state.trials[-1]

    def _decided(self, step: ScheduleStep) -> MeasureStep | None:
        if isinstance(step, MeasureStep):
            return step
        if isinstance(step, RankStep):
            found = self.searcher.compute_posterior_peaks(estimate_study_drift(self.state))
            peaks = {number: (e.value, e.sd) for number, e in found.peaks.items()}
            self._record("standings", peaks=peaks, noise=found.noise)
        elif isinstance(step, SimplifyStep):
            surrogate = self.searcher.fit_surrogate(estimate_study_drift(self.state))
            record = select_next_block(self.state, surrogate, self.stack.space, step.trial_number)
            self._record("simplified", **encode(record))
        elif isinstance(step, EstimateCostsStep):
            surrogate = self.searcher.fit_surrogate(estimate_study_drift(self.state))
            costs = costs_record(surrogate, self.stack.space, self.state, step.trial_number)
            self.state = apply_record(self.state, costs)
        elif isinstance(step, SuggestStep):
            return self._asked()
        return None

    def _asked(self) -> MeasureStep | None:
        begun = process_time()
        asked = self.searcher.suggest(estimate_study_drift(self.state))
        self.asking.append(process_time() - begun)
        probability = asked.improvement_probability
        if probability is not None and probability < STOP_PROBABILITY:
            self.searcher.discard_trial(asked.number)
            self._record("settled", why="nothing left to win")
            return None
        settings = {**self.stack.space.baseline, **asked.values}
        return MeasureStep(
            Phase.SEARCH, settings, suggestion_number=asked.number, suggested=asked.values
        )

    def _over(self, bed: Bed, trial: Trial, at: float) -> bool:
        """Record the outcome of a trial. Return true if the bed remains in the study."""
        spent, bed.now = at - bed.now, at
        self._record("spent", seconds={"load": spent}, bed=bed.name)
        bed.measured += 1
        if bed.fails is not None and bed.measured > bed.fails:
            self._record("bed", bed=bed.name, set_aside="it broke down")
            return False
        peak = self.stack.measure(trial.settings, self.rng)
        if peak is None:
            self._record("failed", trial=trial.number, why="it does not start")
        else:
            seen = peak * bed.level
            self._record(
                "measured", trial=trial.number, peak=seen, low=seen * exp(-1.645 * SAID_SD),
                high=seen * exp(1.645 * SAID_SD), sd=SAID_SD, verdict="measured", p99=None,
            )  # fmt: skip
        done = self.state.find_trial(trial.number)
        if done.phase in (Phase.BASELINE, Phase.REFERENCE, Phase.FINALIST):
            learned = estimate_offsets(list_bed_readings(self.state), self.state.beds)
            self._record("beds", offsets={name: asdict(each) for name, each in learned.items()})
        if done.phase in COUNTED_PHASES:
            record_outcome(self.searcher, done)
            highest = max(
                [*(top for _, top in self.curve[-1:]), self.stack.peak(trial.settings) or 0]
            )
            self.curve.append((at, highest))
        return True

    def _record(self, event: str, **fields: Any) -> None:
        self.state = apply_record(self.state, {"event": event, **fields})


def study(
    stack: Stack, beds: Sequence[Bed], *, kind: str = "gp", trials: int = TRIALS, seed: int = 0
) -> Study:
    return Simulation(stack, beds, kind=kind, trials=trials, seed=seed).run()


def alike(count: int) -> list[Bed]:
    return [Bed(f"b{n}") for n in range(count)]


def unequal(count: int, seed: int, *, failing: float = 0.0) -> list[Bed]:
    """Return ``count`` beds whose levels and paces are between 0.8 and 1.2.

    The first bed never fails. Each other bed fails with the probability ``failing``.
    """
    rng = np.random.default_rng((seed, 79))
    return [
        Bed(
            f"b{n}",
            exp(rng.uniform(log(1 - UNEQUAL), log(1 + UNEQUAL))),
            rng.uniform(1 - UNEQUAL, 1 + UNEQUAL),
            int(rng.integers(1, 10)) if rng.random() < failing and n else None,
        )
        for n in range(count)
    ]


def tried(studies: Sequence[Study], seconds: float) -> float:
    """Return the mean log of the best true peak that was tried within ``seconds``.

    For a study that finished no trial within ``seconds``, the first peak is used.
    """
    bests = [[peak for at, peak in one.curve if at <= seconds] or [one.curve[0][1]]
             for one in studies]  # fmt: skip
    return float(np.mean([log(peaks[-1]) for peaks in bests]))


def time_of_one(alone: Sequence[Study]) -> float:
    """Return the mean duration of a search on one bed, in seconds."""
    return float(np.mean([one.curve[-1][0] for one in alone]))


def efficiency(alone: Sequence[Study], several: Sequence[Study], count: int) -> float | None:
    """Return the speed-up of ``count`` beds over one bed, divided by ``count``.

    The speed-up is the ratio of the times that one bed and several beds need for the final result of
    one bed. Results are means over studies, because a single study may find a good configuration by
    luck. If several beds never reach the result, ``None`` is returned.
    """
    seconds = time_of_one(alone)
    goal = tried(alone, seconds)
    times = sorted(at for one in several for at, _ in one.curve)
    first = bisect_left(times, goal, key=lambda at: tried(several, at))
    return seconds / times[first] / count if first < len(times) else None


def between(alone: Sequence[Study], several: Sequence[Study], count: int) -> str:
    """Return the efficiency of several beds as text, with an 80 % bootstrap interval over studies."""
    rng, drawn = np.random.default_rng(1), []
    for _ in range(DRAWS):
        rows = rng.integers(len(alone), size=len(alone))
        ratio = efficiency([alone[r] for r in rows], [several[r] for r in rows], count)
        drawn.append(ratio or 0.0)
    low, high = np.quantile(drawn, (0.1, 0.9))
    found = efficiency(alone, several, count)
    return f"{'none' if found is None else f'{found:.2f}'} [{low:.2f}, {high:.2f}]"


def regret(stacks: Sequence[Stack], studies: Sequence[Study], seconds: float) -> float:
    """Return the mean regret of the studies after ``seconds``, in percent."""
    highest = np.mean([log(best(stack)[0]) for stack in stacks])
    return float(100 * (1 - exp(tried(studies, seconds) - highest)))


def main(arguments: Sequence[str] = ()) -> None:
    count = int(arguments[0]) if arguments else 4
    counts = [int(word) for word in arguments[1:]] or list(COUNTS)
    stacks = [random_stack(seed) for seed in range(count)]
    alone = [study(stack, alike(1), seed=seed) for seed, stack in enumerate(stacks)]
    most = round(MORE * TRIALS)
    _row("1 bed", stacks, alone, alone, 1)
    for beds in counts:
        kinds: Mapping[str, Any] = {
            "equal": lambda _, beds=beds: alike(beds),
            "unequal": lambda seed, beds=beds: unequal(beds, seed),
            "failing": lambda seed, beds=beds: unequal(beds, seed, failing=0.25),
        }
        for kind, made in kinds.items() if beds > 1 else ():
            several = [
                study(s, made(seed), trials=most, seed=seed) for seed, s in enumerate(stacks)
            ]
            _row(f"{beds} {kind}", stacks, alone, several, beds)
    _claims(50 * count)


def _row(
    title: str, stacks: Sequence[Stack], alone: Sequence[Study], several: Sequence[Study], beds: int
) -> None:
    seconds = time_of_one(alone) / beds
    pace = np.mean([len(one.state.list_counted_trials()) / one.curve[-1][0] for one in several])
    single = np.mean([len(one.state.list_counted_trials()) / one.curve[-1][0] for one in alone])
    print(
        f"{title:14} configurations {pace / single / beds:5.2f}  as good "
        f"{between(alone, several, beds)} of {beds} ×  regret {regret(stacks, several, seconds):4.1f} % "
        f"after {seconds / 60:.0f} min  "
        f"{1000 * np.mean([one.asking for one in several]):4.0f} ms a suggestion",
        flush=True,
    )


def _claims(count: int) -> None:
    """Print the share of false claims and the coverage of intervals in studies on two unequal beds."""
    idle = without_effect()
    said = [study(idle, unequal(2, seed), kind="random", trials=12, seed=seed).verdict
            for seed in range(count)]  # fmt: skip
    none = np.mean([one.verdict == "no-improvement" for one in said])
    print(f"no effect, 2 unequal beds, {count} studies: no claim in {none:.1%} (bar: 95 %)")
    covered, disagree = [], []
    stacks = [random_stack(seed) for seed in range(20)]
    for seed in range(count):
        stack = stacks[seed % len(stacks)]
        one = study(stack, unequal(2, seed), kind="random", trials=12, seed=seed)
        gain, number = one.verdict.gain, one.verdict.best
        if gain is None or number is None:
            continue
        won = stack.peak(one.state.find_trial(number).settings) or 0.0
        true = won / (stack.peak(stack.space.baseline) or 1.0)
        covered.append(gain.low <= true <= gain.high)
        disagree.append(one.verdict.disagree)
    print(
        f"effect, 2 unequal beds, {len(covered)} studies: the interval holds the true gain in "
        f"{np.mean(covered):.1%} (bar: 86–94 %); beds are said to disagree in {np.mean(disagree):.1%}"
    )
