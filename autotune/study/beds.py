"""A study on several test beds at once: a thread for each, one search, one journal.

Each bed locks, backs up and restores its own hosts. What comes next is decided for one bed at a time,
from all that is on record; a bed never waits for a slower one while there is something to measure. A
bed that fails is set aside, and what it was measuring is measured on another one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from autotune.deploy.deployed import Deployed
from autotune.environments.base import Environment
from autotune.environments.beds import Beds
from autotune.errors import AutotuneError
from autotune.measure.reading import Reading
from autotune.measure.warmup import WarmUpResult
from autotune.optimize.beds import offsets
from autotune.optimize.searcher import Searcher
from autotune.space.space import Space
from autotune.study import trial as trials
from autotune.study.context import ProgressReporter, TrialContext, history
from autotune.study.loop import Proposal, catch_up, concluded, following, learn, prepared, propose
from autotune.study.ranking import bed_readings
from autotune.study.records import COUNTED, Phase, Trial
from autotune.study.schedule import Ask, Conclude, Measure, Step
from autotune.study.store import Store
from autotune.study.turns import Turns
from autotune.target.beds import directory_of
from autotune.target.model import Budget

COMPARING = (Phase.BASELINE, Phase.REFERENCE, Phase.FINALIST)  # trials that tell beds apart
# In a shared study with at least so many active test beds, each asks the model for its next
# configuration while it still measures. The model then lacks only one of the many outcomes under way.
AHEAD = 16
NEWS = 0.5  # seconds between looks at what other processes have recorded
Next = tuple[Step, Trial | None]
GLANCE = 0.2  # seconds between looks at whether the study is to stop


def tune(
    environment: Beds,
    store: Store,
    searcher: Searcher,
    budget: Budget,
    progress: ProgressReporter,
    turns: Turns | None = None,
) -> None:
    """Run the study to its end, from wherever it stands, on every bed that can be used.

    ``turns``: an order that beds of other processes share too, in place of one for this process. Raises
    AutotuneError where no bed is left, with the error of each.
    """
    news = NEWS if store.shared else None
    turns = turns or Turns(tuple(environment.environments), news)
    Crew(environment.environments, store, searcher, budget, progress, turns).run()


@dataclass
class Crew:
    """The beds of one session, and what they share. One bed at a time asks the order of the study, of
    this process and of others that share the study; each process has a search of its own."""

    environments: Mapping[str, Environment]
    store: Store
    searcher: Searcher
    budget: Budget
    progress: ProgressReporter
    turns: Turns
    errors: dict[str, BaseException] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._caught_up = False
        self._searching = threading.Lock()
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="asked ahead")
        self._asked: dict[str, Future[Proposal]] = {}
        lock = threading.RLock()
        self._reporters = {bed: OfBed(self.progress, bed, lock) for bed in self.environments}

    def run(self) -> None:
        """Run every bed to its end. KeyboardInterrupt is raised again once all hosts are restored."""
        threads = [threading.Thread(target=self._bed, args=(bed,), name=f"bed {bed}")
                   for bed in self.environments]  # fmt: skip
        interrupted, waiting = False, list(threads)
        while waiting or any(thread.is_alive() for thread in threads):
            try:
                while waiting:
                    waiting.pop().start()
                next((t for t in threads if t.is_alive()), threads[0]).join(GLANCE)
            except KeyboardInterrupt:
                interrupted = True
                waiting.clear()
                self.turns.stop()
        self._ahead.shutdown(cancel_futures=True)
        if interrupted:
            raise KeyboardInterrupt
        self._raise_errors()

    def _bed(self, bed: str) -> None:
        """The body of a bed's thread: its errors are kept for the main thread."""
        try:
            self._session(bed)
        except AutotuneError as error:
            self.errors[bed] = error
            self.store.set_aside(bed, error.message)
            self._reporters[bed].note(f"set aside: {error.message}")
        except BaseException as error:  # noqa: BLE001  a bug in one must not leave the others running
            self.errors[bed] = error
            self.turns.stop()
        finally:
            self.store.leave(bed)
            self.turns.leave(bed)

    def _session(self, bed: str) -> None:
        environment, directory = self.environments[bed], directory_of(self.store.directory, bed)
        progress = self._reporters[bed]
        with environment.session(directory, progress.note, history(self.store, bed)) as session:
            clock = session.clock

            def turn() -> None:
                self.turns.turn(bed, clock)

            self._work(TrialContext(self._space, session, self.store, progress, bed, turn), bed)

    @property
    def _space(self) -> Space:
        return next(iter(self.environments.values())).space

    def _work(self, context: TrialContext, bed: str) -> None:
        """Trials, one after the other, until nothing is left to measure."""
        while True:
            context.turn()
            step, trial = self._next(context)
            if isinstance(step, Conclude):
                return
            if trial is None or not isinstance(step, Measure):
                self.turns.wait(bed, context.clock)
                continue
            many = self.store.shared and len(self.store.state.active_beds) >= AHEAD
            if many and trial.phase in COUNTED:
                self._asked[bed] = self._ahead.submit(self._propose)
            expected = prepared(step, context, self.budget)
            done = trial if trial.over else trials.measure(trial, context, *expected)
            self._learn(context, done)
            self.turns.over(bed, context.clock)

    def _next(self, context: TrialContext) -> Next:
        """The next step, on record. In a shared study no worker waits for the model of another one."""
        asked = self._asked.pop(context.bed or "", None)
        with context.clock.on("search"):
            proposal = asked.result() if asked else None
        decided = self.store.decide(partial(self._decide, context, proposal))
        while isinstance(decided[0], Ask):
            with context.clock.on("search"):
                proposal = self._propose()
            decided = self.store.decide(partial(self._decide, context, proposal))
        return decided

    def _propose(self) -> Proposal:
        with self._searching:
            return propose(self.store.state, self.searcher, self._space)

    def _decide(self, context: TrialContext, proposal: Proposal | None) -> Next:
        """The next step, and the trial that was begun for it, if any."""
        if self.store.state.verdict is not None:
            return Conclude(), None
        if not (self._caught_up or self.store.shared):
            catch_up(self.searcher, self.store.state)
            self._caught_up = True
        step = following(context, self.searcher, self.budget, proposal)
        if isinstance(step, Conclude):
            concluded(context)
        return step, trials.begin(step, context) if isinstance(step, Measure) else None

    def _learn(self, context: TrialContext, done: Trial) -> None:
        """Tell the search the outcome. In a shared study it reads all outcomes, its own worker's too,
        from the record when it is next asked."""
        if not self.store.shared:
            self.store.decide(partial(self._learn_here, context, done))
            return
        if done.phase in COMPARING and done.peak is not None:
            self.store.decide(partial(self._compare, done))
        context.spent()

    def _learn_here(self, context: TrialContext, done: Trial) -> None:
        self._compare(done)
        learn(context, self.searcher, done)

    def _compare(self, done: Trial) -> None:
        """Put on record how the beds differ, when a trial has shown more of it. Not after the finals:
        the offsets must not change while measurements are compared."""
        if done.phase in COMPARING and done.peak is not None:
            state = self.store.state
            self.store.offsets(offsets(bed_readings(state), state.beds))

    def _raise_errors(self) -> None:
        bugs = [error for error in self.errors.values() if not isinstance(error, AutotuneError)]
        if bugs:
            raise next((bug for bug in bugs if not isinstance(bug, KeyboardInterrupt)), bugs[0])
        if self.store.state.verdict is None:
            lines = "\n".join(f"  bed {bed}: {error}" for bed, error in self.errors.items())
            raise AutotuneError(
                f"no test bed can be used:\n{lines}",
                hint="mend one, then `autotune resume` goes on with the study",
            )


@dataclass(frozen=True)
class OfBed:
    """The progress of one bed, in a reporter that the threads of all beds use one at a time."""

    progress: ProgressReporter
    bed: str
    lock: threading.RLock

    def trial_begins(self, trial: Trial) -> None:
        with self.lock:
            self.progress.trial_begins(trial)

    def deployed(self, trial: Trial, deployed: Deployed) -> None:
        with self.lock:
            self.progress.deployed(trial, deployed)

    def warm(self, trial: Trial, warm_up: WarmUpResult) -> None:
        with self.lock:
            self.progress.warm(trial, warm_up)

    def reading(self, trial: Trial, reading: Reading, purpose: str) -> None:
        with self.lock:
            self.progress.reading(trial, reading, purpose)

    def trial_ends(self, trial: Trial) -> None:
        with self.lock:
            self.progress.trial_ends(trial)

    def note(self, text: str) -> None:
        with self.lock:
            self.progress.note(f"bed {self.bed}: {text}")
