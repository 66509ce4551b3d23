"""One trial, in the order that keeps hosts and readings safe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from autotune.deploy.deployed import DeployFailed
from autotune.diagnose.diagnosis import WatchedReading, worst_rss
from autotune.environments import command_objective
from autotune.environments.base import Equipment
from autotune.environments.clock import Clock
from autotune.environments.command_objective import Benchmark
from autotune.estimate import Estimate
from autotune.measure import Capacity, Reading, search
from autotune.measure.calm import Calm
from autotune.measure.noise import Noise
from autotune.measure.warmup import Warmth, carried, warm_up
from autotune.services.registry import named
from autotune.space.space import Infeasible, Space
from autotune.study.progress import Narrator
from autotune.study.records import Phase, Trial
from autotune.study.retry import take
from autotune.study.schedule import Measure
from autotune.study.store import Store
from autotune.target.slo import Slo

# A confirmation knows where to look: a few readings around the peak already measured.
CONFIRM_SD = 0.03
# A configuration that cannot carry this share of the expected peak need not be measured lower down.
HOPELESS = 0.02
TRIAL_SD = 0.03
# A warm-up that ends below this share of its first rate was held back by the stack, whose peak is
# taken to be so much higher than what it carried.
HELD_BACK = 0.9
BEYOND = 1.5
# How far a configuration nobody has measured may be from what is expected: sd of the log peak.
UNKNOWN_SD = 0.5
SCREENED = frozenset({Phase.SEARCH, Phase.RECOMMENDED, Phase.PUBLISHED, Phase.KNOWN})


@dataclass
class Bench:
    """All that a trial works with; its effects are behind ``equipment`` and ``store``."""

    space: Space
    slo: Slo
    equipment: Equipment
    store: Store
    narrator: Narrator
    noise: Noise = field(default_factory=Noise)
    # Whether the caches hold what they can, by what this session saw.
    warm: bool = False
    calm: Calm = field(default_factory=Calm)

    @property
    def clock(self) -> Clock:
        return self.equipment.clock


def run(step: Measure, bench: Bench, prior: Estimate | None, incumbent: float | None) -> Trial:
    """Settings → constraints → deploy (render, validate, apply, ready, read back) → warm-up → peak.

    The trial is on record before anything changes, each reading before anything is concluded from
    it. A configuration that cannot be deployed or used is a recorded, infeasible trial.
    """
    store = bench.store
    space = bench.space.knowing(store.state.rss)
    try:
        # What was measured before is measured as it was, even if more is known of its needs now.
        known = step.of is not None or step.phase is Phase.BASELINE
        candidate = (space.as_given if known else space.candidate)(step.settings)
    except Infeasible as error:
        candidate = bench.space.candidate({})
        trial = store.begin(step.phase, candidate, asked=step.asked, suggested=step.suggested)
        return _failed(bench, trial, f"no values keep the rule {error}")
    trial = store.begin(
        step.phase, candidate, of=step.of, asked=step.asked, suggested=step.suggested
    )
    bench.narrator.trial_begins(trial)
    try:
        with bench.clock.on("deploy"):
            deployed = bench.equipment.fleet.deploy(trial.settings)
    except DeployFailed as error:
        bench.warm = False  # what was put back may have been restarted
        return _failed(bench, trial, error.message)
    store.deployed(trial, deployed)
    bench.narrator.deployed(trial, deployed)
    if bench.equipment.benchmark is not None:
        return _called(bench, trial, bench.equipment.benchmark)
    bench.warm = bench.warm and not any(_forgets(name) for name in deployed.restarted)
    warmth = _warm_up(bench, trial, prior)
    capacity = _peak(bench, trial, prior, warmth, incumbent)
    return _measured(bench, trial, capacity)


def _called(bench: Bench, trial: Trial, benchmark: Benchmark) -> Trial:
    """The user's own benchmark says how good the configuration is."""
    with bench.clock.on("load"):
        done = command_objective.measured(trial, benchmark, bench.space, bench.store)
    bench.narrator.trial_ends(done)
    command_objective.give_up_on_faults(bench.store.state)
    return done


def _warm_up(bench: Bench, trial: Trial, prior: Estimate | None) -> Warmth:
    def probe(rate: float, seconds: float) -> Reading:
        return take(bench, trial, "warm-up", rate, seconds, passes=carried).reading

    expected = prior.value if prior else None
    # A hit rate takes many windows to settle; caches that kept what they held need not be awaited.
    lookups = (lambda: None) if bench.warm else bench.equipment.lookups
    warmth = warm_up(probe, lookups, expected, max_rate=bench.equipment.limits.max_rate)
    bench.warm = bench.warm or warmth.settled
    bench.store.warmed(trial, warmth)
    bench.narrator.warm(trial, warmth)
    bench.equipment.drain()
    return warmth


def _forgets(part: str) -> bool:
    """Whether a part, by its name, is a service that forgets what it held when it is restarted."""
    return any(service.forgets_on_restart for service in named(part.rpartition(".")[2]))


def _guess(prior: Estimate | None, warmth: Warmth) -> Estimate | None:
    """What to expect now that the stack has been warmed up.

    One that nobody has measured, or that did not keep up with what is expected of it, peaks somewhat
    above what it carried: a search that begins there says how good it is, and not only that it is
    worse than the best.
    """
    carried, most = warmth.carried, max((window.rate for window in warmth.windows), default=0.0)
    if carried is not None and (prior is None or carried < HELD_BACK * most):
        return Estimate.of(BEYOND * carried, UNKNOWN_SD)
    return prior


def _peak(
    bench: Bench, trial: Trial, prior: Estimate | None, warmth: Warmth, incumbent: float | None
) -> Capacity:
    watched: list[WatchedReading] = []

    def probe(rate: float, seconds: float) -> Reading:
        watched.append(take(bench, trial, "peak", rate, seconds, passes=bench.slo.met))
        reading = watched[-1].reading
        if not bench.slo.met(reading):
            bench.equipment.drain()
        return reading

    limits = bench.equipment.limits
    capacity = search(
        probe,
        bench.slo,
        _guess(prior, warmth),
        target_sd=CONFIRM_SD if trial.phase is Phase.CONFIRM else TRIAL_SD,
        incumbent=incumbent if trial.phase in SCREENED else None,
        noise=bench.noise,
        limits=replace(limits, min_rate=max(1.0, prior.value * HOPELESS)) if prior else limits,
    )
    found = bench.equipment.diagnose(trial.settings, watched)
    if found is not None:
        bench.store.bottleneck(trial, found)
    bench.store.memory(trial, worst_rss(watched))
    return capacity


def _measured(bench: Bench, trial: Trial, capacity: Capacity) -> Trial:
    bench.noise = capacity.noise
    bench.store.noise(capacity.noise)
    bench.store.measured(trial, capacity, p99_at_peak(capacity, bench.slo))
    done = bench.store.state.by_number(trial.number)
    bench.narrator.trial_ends(done)
    return done


def _failed(bench: Bench, trial: Trial, why: str) -> Trial:
    bench.store.failed(trial, why)
    done = bench.store.state.by_number(trial.number)
    bench.narrator.trial_ends(done)
    return done


def p99_at_peak(capacity: Capacity, slo: Slo) -> float | None:
    """The 99th percentile, in seconds, of the highest reading up to the peak that met the SLO:
    what is broken below the peak was disturbed."""
    kept = [r for r in capacity.readings if r.rate <= capacity.peak and slo.met(r)]
    return max(kept, key=lambda r: r.rate).percentile(0.99) if kept else None
