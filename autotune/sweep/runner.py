"""Run a sweep: every measurement is recorded before the next one starts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from autotune.deploy.deployed import DeployFailed
from autotune.environments.base import prepare
from autotune.environments.load_session import LAST_WINDOWS, LoadSession
from autotune.loads.offer import check_rate
from autotune.measure.reading import Reading
from autotune.measure.warmup import warm_up
from autotune.report.format import share
from autotune.space.space import Infeasible
from autotune.study import trial as trials
from autotune.study.context import ProgressReporter, TrialContext, open_study, opened
from autotune.study.records import Phase, Trial
from autotune.study.schedule import Measure
from autotune.sweep.plan import PURPOSE, Hosts, Measurement, Plan, Point, blocks, measured, recorded
from autotune.target.read import TargetFile

NO_FILES: Mapping[str, bytes] = {}


def sweep(file: TargetFile, plan: Plan | None, directory: Path, progress: ProgressReporter) -> None:
    """Start a sweep, or continue the one in ``directory``, which contains its ``plan``.

    Recorded measurements are not repeated. An interrupted measurement starts again.
    """
    plan = plan or recorded(directory)
    check_rate(max(plan.rates, default=0.0), file.target.load.max_rate)
    done = measured(directory)
    points = plan.points
    # Repeats with the same hosts share one session.
    for hosts, together in groupby(blocks(plan), key=lambda block: block[0]):
        left = [measurement for _, block in together for measurement in block
                if measurement not in done]  # fmt: skip
        if not left:
            continue
        with opened(prepare(narrowed(file, hosts)), directory, progress) as context:
            if context.store.state.started is None:
                open_study(prepare(file), context, directory)
                context.store.sweep(plan.record())
            for measurement in left:
                _measure(context, plan, points[measurement.point], measurement)


def narrowed(file: TargetFile, hosts: Hosts) -> TargetFile:
    """Return the target with its tiers reduced to these numbers of hosts."""
    tiers = {
        name: tier.model_copy(update={"hosts": tier.hosts[: hosts.get(name, len(tier.hosts))]})
        for name, tier in file.target.tiers.items()
    }
    return replace(file, target=file.target.model_copy(update={"tiers": tiers}))


def _measure(context: TrialContext, plan: Plan, point: Point, measurement: Measurement) -> None:
    outcome = ""
    if plan.rates:
        trial, outcome = _offer_rates(context, plan, point, measurement)
    else:
        trial = trials.run(Measure(Phase.MEASURE, {**context.space.baseline, **point.settings}),
                           context, None, None)  # fmt: skip
    context.store.swept(trial, measurement.point, measurement.repeat)
    labels = [f"{name} {label}" for name, label in point.labels.items()]
    labels += [f"{count} {tier}" for tier, count in point.hosts.items()]
    order = [planned for _, block in blocks(plan) for planned in block]
    place = f"[{order.index(measurement) + 1}/{len(order)}]"
    context.progress.note(f"{place} {', '.join(labels)}: {_outcome(trial) or outcome}")
    context.spent()


def _outcome(trial: Trial) -> str:
    """Return a trial's capacity or failure; empty for a point with fixed rates."""
    peak = trial.peak
    if peak is not None and peak.met:
        bound = f"at least {peak.peak:.0f}/s (limited by {peak.limit})"
        return f"capacity {bound if peak.limited else f'{peak.peak:.0f}/s'}"
    return trial.failure or (trial.peak.verdict if trial.peak else "")


def _offer_rates(
    context: TrialContext, plan: Plan, point: Point, measurement: Measurement
) -> tuple[Trial, str]:
    """Deploy a point, offer it every rate in random order, and return the outcome of each."""
    store = context.store
    context.space.check(point.settings)  # they may come from a record
    try:
        candidate = context.space.candidate({**context.space.baseline, **point.settings})
        changed = [b for b in candidate.bindings if b.parameter in point.settings]
        failure = f"not possible: {changed[0]}" if changed else None
    except Infeasible as error:
        candidate, failure = context.space.candidate({}), f"not possible: {error}"
    trial = store.begin(Phase.MEASURE, candidate)
    outcome = ""
    if failure is None:
        if isinstance(context.session, LoadSession):
            context.session.check_answers(trials.TrialRecorder(context, trial), deployed=False)
        failure = _deploy(context, trial)
    if failure is not None:
        store.failed(trial, failure)
    else:
        outcome = _load(context, plan, trial, measurement)
    return store.state.by_number(trial.number), outcome


def _deploy(context: TrialContext, trial: Trial) -> str | None:
    """Return why the point cannot be deployed; ``None`` if it was deployed.

    A sweep keeps no files, because its settings render to the same files again.
    """
    try:
        with context.clock.on("deploy"):
            deployed = context.session.fleet.deploy(trial.settings)
    except DeployFailed as error:
        return error.message
    context.store.deployed(trial, replace(deployed, files=NO_FILES))
    return None


def _load(context: TrialContext, plan: Plan, trial: Trial, measurement: Measurement) -> str:
    """Return the outcomes: ``SLO met at 200/s, 12 % late or failed at 1000/s``."""
    session, recorder = context.session, trials.TrialRecorder(context, trial)
    assert isinstance(session, LoadSession), "only stacks support fixed rates"

    session.check_answers(recorder, deployed=True)

    def probe(rate: float, seconds: float) -> Reading:
        return session.read(rate, seconds, recorder, "warm-up").reading

    warm_up(probe, session.meter.lookups, max(plan.rates), max_rate=session.limits.max_rate)
    session.meter.end_warm_up(LAST_WINDOWS)
    session.meter.drain()
    seed = f"{plan.seed} {measurement.point} {measurement.repeat}"
    outcome: dict[float, str] = {}
    for rate in random.Random(seed).sample(plan.rates, len(plan.rates)):  # noqa: S311  # an order
        reading = session.read(rate, plan.seconds, recorder, PURPOSE).reading
        if session.slo.met(reading):
            outcome[rate] = f"SLO met at {rate:g}/s"
        else:
            outcome[rate] = f"{share(reading.fraction, 1)} late or failed at {rate:g}/s"
            session.meter.drain()
    return ", ".join(outcome[rate] for rate in plan.rates)
