"""Execution of a sweep: every measurement is recorded before the next measurement starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from math import inf
from pathlib import Path

from autotune.deploy.deploy_result import DeployFailed
from autotune.environments.load_session import SETTLED_WINDOWS, LoadSession
from autotune.environments.preparation import prepare
from autotune.loads.load_commands import check_rate
from autotune.measure.reading import WARM_UP_PURPOSE, Reading
from autotune.measure.warm_up import run_warm_up
from autotune.report.format import format_share
from autotune.space.repair import InfeasibleRule
from autotune.study import trial as trials
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.study_state import Phase, Trial
from autotune.study.trial_context import (
    TrialContext,
    begin_study,
    collect_versions,
    open_session,
)
from autotune.sweep.plan import (
    SWEEP_PURPOSE,
    GridPoint,
    HostCounts,
    PointMeasurement,
    SweepPlan,
    order_measurements,
    order_rates,
    read_finished_measurements,
    read_plan,
)
from autotune.target.read_target import TargetFile

NO_FILES: Mapping[str, bytes] = {}


def run_sweep(
    target_file: TargetFile, plan: SweepPlan | None, directory: Path, progress: ProgressReporter
) -> None:
    """Start a sweep. Without ``plan``, continue the sweep whose plan is recorded in ``directory``.

    Recorded measurements are not repeated. An interrupted measurement starts again.
    """
    plan = plan or read_plan(directory)
    check_rate(max(plan.rates, default=0.0), target_file.target.load.max_rate)
    finished_measurements = read_finished_measurements(directory)
    points = plan.points
    is_continued = False
    # Successive repeats with the same host counts share one session.
    for hosts, measurement_blocks in groupby(order_measurements(plan), key=lambda block: block[0]):
        remaining_measurements = [
            measurement
            for _, block in measurement_blocks
            for measurement in block
            if measurement not in finished_measurements
        ]
        if not remaining_measurements:
            continue
        with open_session(
            prepare(limit_hosts(target_file, hosts)), directory, progress
        ) as session_context:
            context = replace(session_context, today_rate=None)  # a sweep has its own rates
            if context.store.state.started is None:
                begin_study(prepare(target_file), context, directory)
                context.store.record_sweep_plan(plan.to_record())
            elif not is_continued:
                context.store.record_session_start(collect_versions())
            is_continued = True
            for measurement in remaining_measurements:
                _measure_point(context, plan, points[measurement.point], measurement)


def limit_hosts(target_file: TargetFile, host_counts: HostCounts) -> TargetFile:
    """Return the target with each tier reduced to its number of hosts in ``host_counts``."""
    target = target_file.target
    used_hosts = {name: tier.hosts[: host_counts.get(name)] for name, tier in target.tiers.items()}
    reduced_tiers = {
        name: tier.model_copy(update={"hosts": used_hosts[name]})
        for name, tier in target.tiers.items()
    }
    return replace(
        target_file,
        target=target.model_copy(update={"tiers": reduced_tiers}),
        idle_hosts={n: tier.hosts[len(used_hosts[n]) :] for n, tier in target.tiers.items()},
    )


def _measure_point(
    context: TrialContext, plan: SweepPlan, point: GridPoint, measurement: PointMeasurement
) -> None:
    outcome_text = ""
    if plan.rates:
        trial, outcome_text = _measure_at_rates(context, plan, point, measurement)
    else:
        trial = _measure_capacity(context, point)
    if not trial.is_fault or _has_failed_before(context, trial):
        context.store.record_sweep_measurement(trial, measurement.point, measurement.repeat)
    point_labels = [f"{name} {value_label}" for name, value_label in point.labels.items()]
    point_labels += [f"{count} {tier}" for tier, count in point.hosts.items()]
    planned_measurements = [planned for _, block in order_measurements(plan) for planned in block]
    progress_text = f"[{planned_measurements.index(measurement) + 1}/{len(planned_measurements)}]"
    context.progress.note(
        f"{progress_text} {', '.join(point_labels)}: {_describe_outcome(trial) or outcome_text}"
    )
    context.record_time_spent()


def _describe_outcome(trial: Trial) -> str:
    """Return a trial's capacity or failure as text, which is empty for a point with fixed rates."""
    peak = trial.peak
    if peak is not None and peak.met_slo:
        bound_text = f"at least {peak.peak:.0f}/s (limited by {peak.limit})"
        return f"capacity {bound_text if peak.is_load_limited else f'{peak.peak:.0f}/s'}"
    return trial.failure or (trial.peak.verdict if trial.peak else "")


def _has_failed_before(context: TrialContext, trial: Trial) -> bool:
    """True if the values of a faulty trial also caused a fault in an earlier session. After a first
    fault, `resume` repeats the measurement, because the cause may have been fixed.
    """
    return any(
        earlier_trial.settings == trial.settings
        for earlier_trial in context.store.state.list_finished_trials()
        if context.store.state.is_outdated_fault(earlier_trial)
    )


def _begin_trial(context: TrialContext, point: GridPoint) -> Trial:
    """Record the trial of a point. It fails immediately if a rule would change the point's values."""
    context.space.validate_settings(point.settings)  # settings from a record may be invalid
    space = context.space.with_measured_memory(context.store.state.rss)
    try:
        candidate = space.build_candidate({**space.baseline, **point.settings})
        changed_bindings = [b for b in candidate.repairs if b.parameter in point.settings]
        failure = f"not possible: {changed_bindings[0]}" if changed_bindings else None
    except InfeasibleRule as error:
        candidate, failure = space.build_candidate({}), f"not possible: {error}"
    trial = context.store.begin_trial(Phase.MEASURE, candidate)
    if failure is not None:
        context.store.record_failure(trial, failure)
    return context.store.state.find_trial(trial.number)


def _measure_capacity(context: TrialContext, point: GridPoint) -> Trial:
    """Measure the capacity of a point, and return the trial."""
    trial = _begin_trial(context, point)
    if trial.is_finished:
        return trial
    context.progress.on_trial_start(trial)
    return trials.measure_trial(trial, context, None, None, inf, inf)


def _measure_at_rates(
    context: TrialContext, plan: SweepPlan, point: GridPoint, measurement: PointMeasurement
) -> tuple[Trial, str]:
    """Deploy a point, offer every rate in random order, and return the trial and the outcomes."""
    store, trial = context.store, _begin_trial(context, point)
    if trial.is_finished:
        return trial, ""
    if isinstance(context.session, LoadSession):
        context.session.check_answers(trials.TrialRecorder(context, trial), is_deployed=False)
    failure, outcome_text = _deploy_point(context, trial), ""
    if failure is None:
        try:
            outcome_text = _offer_load_at_rates(context, plan, trial, measurement)
        except DeployFailed as error:  # servers are not running again yet after an overload
            failure = error.message
    if failure is not None:
        store.record_failure(trial, failure)
    return store.state.find_trial(trial.number), outcome_text


def _deploy_point(context: TrialContext, trial: Trial) -> str | None:
    """Deploy a point. Return ``None``, or the reason why the deployment failed.

    A sweep stores no rendered files, because the same settings render the same files again.
    """
    try:
        with context.clock.time_activity("deploy"):
            deploy_result = context.session.fleet.deploy(trial.settings)
    except DeployFailed as error:
        return error.message
    context.store.record_deployment(trial, replace(deploy_result, files=NO_FILES))
    return None


def _offer_load_at_rates(
    context: TrialContext, plan: SweepPlan, trial: Trial, measurement: PointMeasurement
) -> str:
    """Put load on a deployed point at every rate, and return the outcomes, such as ``SLO met at 200/s,
    12 % late or failed at 1000/s``.
    """
    session, recorder = context.session, trials.TrialRecorder(context, trial)
    assert isinstance(session, LoadSession), "only stacks support fixed rates"

    session.check_answers(recorder, is_deployed=True)

    def probe(rate: float, seconds: float) -> Reading:
        return session.take_reading(rate, seconds, recorder, WARM_UP_PURPOSE).reading

    run_warm_up(
        probe, session.meter.count_cache_lookups, max(plan.rates), max_rate=session.limits.max_rate
    )
    session.meter.end_warm_up(SETTLED_WINDOWS)
    session.meter.wait_until_drained()
    outcome_by_rate: dict[float, str] = {}
    for rate in order_rates(plan, measurement):
        reading = session.take_reading(rate, plan.seconds, recorder, SWEEP_PURPOSE).reading
        meets_slo = session.slo.is_met(reading)
        outcome_by_rate[rate] = f"{_describe_reading(reading, meets_slo=meets_slo)} at {rate:g}/s"
        if not meets_slo:
            session.meter.wait_until_drained()
    return ", ".join(outcome_by_rate[rate] for rate in plan.rates)


def _describe_reading(reading: Reading, *, meets_slo: bool) -> str:
    if meets_slo:
        return "SLO met"
    if not reading.is_valid:
        return f"no result ({reading.limited})"
    return f"{format_share(reading.violation_fraction, 1)} late or failed"
