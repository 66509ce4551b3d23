"""Studies on many test beds, in virtual time: how much faster, and what is claimed.

python -m bench beds [STUDIES [BEDS …]]

Everything but the measurement is what runs: the order of a study, the search with what is under way
believed, offsets, the claim across beds. Beds are unequal (±20 %), slower and faster, and fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from time import process_time
from typing import Any

import numpy as np
import optuna

from autotune.optimize.beds import offsets
from autotune.optimize.searcher import Searcher
from autotune.optimize.simplify import simplified
from autotune.study.loop import STOP_BELOW, tell
from autotune.study.ranking import Verdict, bed_readings, conclude, drifted
from autotune.study.records import COUNTED, Phase, State, Trial, after
from autotune.study.schedule import Ask, Conclude, Measure, Rank, Simplify, Step, Wait, next_step
from autotune.target.model import Budget
from bench.claims import without_effect
from bench.stacks import Stack, best, random_stack
from bench.studies import SAID_SD, SECONDS

TRIALS = 40
COUNTS = (2, 8, 32)
UNEQUAL = 0.2


@dataclass
class Bed:
    """``level``: its peaks relative to the stack's; ``pace``: the seconds of a measurement relative to
    others'. It breaks down after ``fails`` measurements."""

    name: str
    level: float = 1.0
    pace: float = 1.0
    fails: int | None = None
    measured: int = 0
    now: float = 0.0


@dataclass(frozen=True)
class Study:
    """``curve``: the virtual time of each finished trial, with the best true peak tried by then."""

    state: State
    verdict: Verdict
    curve: tuple[tuple[float, float], ...]
    asking: float  # CPU seconds for a suggestion


class Simulation:
    """A study whose beds measure a formula; events in the order of virtual time."""

    def __init__(self, stack: Stack, beds: Sequence[Bed], *, kind: str, trials: int, seed: int):
        self.stack, self.rng = stack, np.random.default_rng((seed, 78))
        self.beds = {bed.name: bed for bed in beds}
        # Time is no limit: what is compared is how soon as much is tried.
        self.budget = Budget.model_construct(trials=trials, time=SECONDS * (trials + 40) * 4)
        self.searcher = Searcher(
            optuna.storages.InMemoryStorage(), "s", stack.space, kind, seed + 1, trials,
            several=len(beds) > 1,
        )  # fmt: skip
        self.state = State(beds=tuple(self.beds))
        self.asking: list[float] = []
        self.curve: list[tuple[float, float]] = []

    def run(self) -> Study:
        """To the end of the study."""
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
                return Study(self.state, conclude(self.state), tuple(self.curve), asking)
            at, name, trial = heapq.heappop(ends)
            if self._over(self.beds[name], trial, at):
                idle[name] = None
            for waiting in idle:
                self.beds[waiting].now = at

    def _next(self, bed: Bed) -> Trial | None:
        """What this bed begins to measure; ``None`` where it has nothing to, now or any more."""
        while True:
            step = next_step(self.state, self.stack.space, self.budget, bed.now, bed.name)
            if isinstance(step, Wait | Conclude):
                return None
            if (measure := self._decided(step)) is not None:
                number = len(self.state.trials)
                self._record(
                    "trial", trial=number, phase=measure.phase, settings=measure.settings,
                    of=measure.of, asked=measure.asked, suggested=measure.suggested, bindings=(),
                    bed=bed.name, repeats=measure.repeats,
                )  # fmt: skip
                return self.state.trials[-1]

    def _decided(self, step: Step) -> Measure | None:
        if isinstance(step, Measure):
            return step
        if isinstance(step, Rank):
            found = self.searcher.posterior(drifted(self.state))
            peaks = {number: (e.value, e.sd) for number, e in found.peaks.items()}
            self._record("standings", peaks=peaks, noise=found.noise)
        elif isinstance(step, Simplify):
            surrogate = self.searcher.surrogate(drifted(self.state))
            winner = self.state.by_number(step.trial).settings
            simple = simplified(surrogate, self.stack.space, winner)
            self._record(
                "simplified", of=step.trial, settings=simple.settings, reverted=simple.reverted
            )
        elif isinstance(step, Ask):
            return self._asked()
        return None

    def _asked(self) -> Measure | None:
        begun = process_time()
        asked = self.searcher.ask(drifted(self.state))
        self.asking.append(process_time() - begun)
        probability = asked.improvement_probability
        if probability is not None and probability < STOP_BELOW:
            self.searcher.discard(asked.number)
            self._record("settled", why="nothing left to win")
            return None
        settings = {**self.stack.space.baseline, **asked.values}
        return Measure(Phase.SEARCH, settings, asked=asked.number, suggested=asked.values)

    def _over(self, bed: Bed, trial: Trial, at: float) -> bool:
        """The outcome on record; whether the bed still takes part."""
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
        done = self.state.by_number(trial.number)
        if done.phase in (Phase.BASELINE, Phase.REFERENCE, Phase.FINALIST):
            learned = offsets(bed_readings(self.state), self.state.beds)
            self._record("beds", offsets={name: asdict(each) for name, each in learned.items()})
        if done.phase in COUNTED:
            tell(self.searcher, done)
            highest = max(
                [*(top for _, top in self.curve[-1:]), self.stack.peak(trial.settings) or 0]
            )
            self.curve.append((at, highest))
        return True

    def _record(self, event: str, **fields: Any) -> None:
        self.state = after(self.state, {"event": event, **fields})


def study(
    stack: Stack, beds: Sequence[Bed], *, kind: str = "gp", trials: int = TRIALS, seed: int = 0
) -> Study:
    return Simulation(stack, beds, kind=kind, trials=trials, seed=seed).run()


def alike(count: int) -> list[Bed]:
    return [Bed(f"b{n}") for n in range(count)]


def unequal(count: int, seed: int, *, failing: float = 0.0) -> list[Bed]:
    """Levels and paces up to a fifth off; so many of them break down."""
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


def reached(one: Study, peak: float) -> float | None:
    """The virtual time after which something as good had been tried."""
    return next((at for at, highest in one.curve if highest >= peak), None)


def efficiency(alone: Sequence[Study], several: Sequence[Study], count: int) -> float:
    """How much sooner ``count`` beds have tried what is as good as what one bed ends with, as a part of
    ``count``; studies that never do count with their whole time."""
    ratios = []
    for single, together in zip(alone, several, strict=True):
        goal = single.curve[-1][1]
        before = reached(single, goal) or single.curve[-1][0]
        ratios.append((reached(together, goal) or together.curve[-1][0], before))
    times = np.array(ratios)
    return float(times[:, 1].sum() / times[:, 0].sum() / count)


def regret(stack: Stack, one: Study) -> float:
    return 100 * (1 - one.curve[-1][1] / best(stack)[0])


def main(arguments: Sequence[str] = ()) -> None:
    count = int(arguments[0]) if arguments else 4
    counts = [int(word) for word in arguments[1:]] or list(COUNTS)
    stacks = [random_stack(seed) for seed in range(count)]
    alone = [study(stack, alike(1), seed=seed) for seed, stack in enumerate(stacks)]
    _row("1 bed", stacks, alone, alone, 1)
    for beds in counts:
        kinds: Mapping[str, Any] = {
            "equal": lambda _, beds=beds: alike(beds),
            "unequal": lambda seed, beds=beds: unequal(beds, seed),
            "failing": lambda seed, beds=beds: unequal(beds, seed, failing=0.25),
        }
        for kind, made in kinds.items() if beds > 1 else ():
            several = [study(s, made(seed), seed=seed) for seed, s in enumerate(stacks)]
            _row(f"{beds} {kind}", stacks, alone, several, beds)
    _claims(50 * count)


def _row(
    title: str, stacks: Sequence[Stack], alone: Sequence[Study], several: Sequence[Study], beds: int
) -> None:
    hours = np.mean([one.state.elapsed for one in several]) / 60
    tried = np.mean([len(one.state.counted()) / one.curve[-1][0] for one in several])
    single = np.mean([len(one.state.counted()) / one.curve[-1][0] for one in alone])
    missed = np.mean([regret(s, one) for s, one in zip(stacks, several, strict=True)])
    print(
        f"{title:14} {hours:6.1f} min  configurations {tried / single / beds:5.2f}  as good "
        f"{efficiency(alone, several, beds):5.2f} of {beds} ×  regret {missed:4.1f} %  "
        f"{1000 * np.mean([one.asking for one in several]):4.0f} ms a suggestion",
        flush=True,
    )


def _claims(count: int) -> None:
    """A/A and coverage over two unequal beds."""
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
        won = stack.peak(one.state.by_number(number).settings) or 0.0
        true = won / (stack.peak(stack.space.baseline) or 1.0)
        covered.append(gain.low <= true <= gain.high)
        disagree.append(one.verdict.disagree)
    print(
        f"effect, 2 unequal beds, {len(covered)} studies: the interval holds the true gain in "
        f"{np.mean(covered):.1%} (bar: 86–94 %); beds are said to disagree in {np.mean(disagree):.1%}"
    )
