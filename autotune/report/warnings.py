"""Warnings about a verdict: a number, its threshold, and a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from statistics import stdev

from autotune.environments.peak import LIMITED
from autotune.loads.answers import ENOUGH
from autotune.measure.warmup import MOST_WINDOWS
from autotune.optimize.confirmation import LEAST_PAIRS
from autotune.report import format as fmt
from autotune.report.trials import unusable
from autotune.report.view import STOPPED, StudyView
from autotune.study.records import Trial
from autotune.target.messages import plural

SCATTER = 0.05  # sd of log peaks of one configuration on a quiet machine
DRIFT = 0.10  # relative change of the baseline during a study
IDLE = 0.20  # share of a run's time without load or warm-up
FAILED = 1 / 3  # share of the trials
TRIED = 1 / 2  # share of the trials in the budget
DISTURBED = 1 / 10  # share of the readings


@dataclass(frozen=True)
class StudyWarning:
    """A ``value`` beyond its ``threshold``: ``text`` explains it, ``remedy`` helps."""

    code: str
    value: float
    threshold: float
    text: str
    remedy: str


def warnings(view: StudyView) -> tuple[StudyWarning, ...]:
    """Return all warnings that apply, starting with those about the conclusion."""
    checks = (
        _model,
        _certificates,
        _answers,
        _proof,
        _noise,
        _drift,
        _settings,
        _readings,
        _trials,
        _time,
    )
    return tuple(warning for check in checks for warning in check(view))


def _model(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.simulated is not None:
        yield StudyWarning(
            "simulated", 1, 0,
            "the stack is simulated: all figures come from a model, and no host was touched",
            "remove `simulated:` from the target to measure real hosts",
        )  # fmt: skip


def _certificates(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.load.insecure:
        yield StudyWarning(
            "insecure", 1, 0,
            "TLS certificates were not verified (`insecure: true`): another server may have "
            "answered",
            "set the certificate authority: `load: {ca: FILE}`",
        )  # fmt: skip


def _answers(view: StudyView) -> Iterator[StudyWarning]:
    """Warn about wrong answers under load, and about trials with few checked answers."""
    counts = {number: of for number, of in view.study.counts.items() if of.looked_at}
    looked_at = sum(of.looked_at for of in counts.values())
    wrong = sum(of.wrong for of in counts.values())
    examples = [of.example for of in counts.values() if of.example]
    if examples:
        trials = [number for number, of in counts.items() if of.example]
        share = 100 * wrong / looked_at
        yield StudyWarning(
            "wrong-answers", wrong, 0,
            f"{share:.2g} % of {looked_at:,} checked answers under load are wrong, in "
            f"{plural(len(trials), 'trial')} ({fmt.listed(trials)}). Example: {examples[0]}",
            "wrong answers count as errors. If they are correct, set `load: {expect: {body: …}}`",
        )  # fmt: skip
    few = [number for number, of in counts.items() if of.readings and of.looked_at < ENOUGH]
    exact = view.state.answers == ()
    if few and not exact:
        fewest = min(counts[number].looked_at for number in few)
        unseen = 100 * (1 - 0.05 ** (1 / fewest))
        yield StudyWarning(
            "few-answers", fewest, ENOUGH,
            f"few answers were checked in {plural(len(few), 'trial')} ({fmt.listed(few)}), "
            f"only {fewest} in one of them. Up to {unseen:.2g} % wrong answers may be unnoticed",
            "raise budget.time, or use a generator that checks every answer",
        )  # fmt: skip


def _proof(view: StudyView) -> Iterator[StudyWarning]:
    """Warn if too few measurements after the selection support the gain."""
    best, gain, units = view.conclusion.best, view.conclusion.gain, view.units
    if best is not None and best.fresh is None and best.own is not None:
        yield StudyWarning(
            "not-remeasured", 0, 1,
            f"trial {best.trial.number}'s {units.amount(units.of(best.own.peak))} are a search result "
            "and were not reproduced. The best search result is about a tenth too high",
            f"run `autotune resume {view.name}` to measure it again" if view.verdict == STOPPED else
            "raise budget.time to leave time for the proof",
        )  # fmt: skip
    if gain is not None and gain.pairs < LEAST_PAIRS:
        yield StudyWarning(
            "few-pairs", gain.pairs, LEAST_PAIRS,
            f"the gain rests on {plural(gain.pairs, 'alternating pair')}. "
            f"A reliable interval needs at least {LEAST_PAIRS}",
            "raise budget.time, or lower budget.trials",
        )  # fmt: skip
    if (
        gain is None
        and view.verdict == "improved"
        and best
        and 0 < best.measured_again < LEAST_PAIRS
    ):
        yield StudyWarning(
            "few-repeats", best.measured_again, LEAST_PAIRS,
            f"only {plural(best.measured_again, 'later measurement')} confirmed that the best meets "
            "the SLO",
            f"export it, then run `autotune measure TARGET --config EXPORT --repeat {LEAST_PAIRS}`",
        )  # fmt: skip


def _behind_verdict(view: StudyView) -> list[Trial]:
    """Return the trials that the verdict rests on."""
    sides = view.conclusion.sides.values()
    return [trial for side in sides for trial in (side.repeats or (side.trial,))]


def _noise(view: StudyView) -> Iterator[StudyWarning]:
    """Warn about measurements behind the verdict that did not converge or do not agree."""
    trials = _behind_verdict(view)
    numbers = [trial.number for trial in trials if trial.peak and trial.peak.verdict == "unsettled"]
    if numbers:
        yield StudyWarning(
            "unsettled", len(numbers), 0,
            f"{len(numbers)} of the {len(trials)} measurements behind the verdict did "
            f"not converge (trials {fmt.listed(numbers)})",
            "reduce background load on the hosts; the interval is wider but still valid",
        )  # fmt: skip
    for label, side in view.conclusion.sides.items():
        peaks = [t.peak.peak for t in side.repeats if t.peak and t.peak.feasible]
        spread = stdev(map(log, peaks)) if len(peaks) >= LEAST_PAIRS else 0.0
        if spread > SCATTER:
            yield StudyWarning(
                "noisy", round(spread, 4), SCATTER,
                f"{len(peaks)} measurements of the {label} scatter by {100 * spread:.1f} %. "
                f"A quiet machine stays below {100 * SCATTER:g} %",
                "stop other work on the hosts, and keep the load generator off their CPUs",
            )  # fmt: skip


def _drift(view: StudyView) -> Iterator[StudyWarning]:
    side = view.conclusion.baseline
    if side is None or side.own is None or side.fresh is None or not side.own.feasible:
        return
    drift = side.fresh.peak / side.own.peak - 1
    if abs(drift) > DRIFT:
        yield StudyWarning(
            "drift", round(drift, 4), DRIFT,
            f"drift: the baseline {'gained' if drift > 0 else 'lost'} {100 * abs(drift):.0f} % during "
            "the study. The gain is still valid (alternating pairs), but the search may have been "
            "misled",
            "repeat the study on an idle machine",
        )  # fmt: skip


def _settings(view: StudyView) -> Iterator[StudyWarning]:
    """Warn if the best's effective settings differ from the requested settings."""
    best = view.conclusion.best
    if best is None:
        return
    if differences := best.latest.differences:
        yield StudyWarning(
            "took-effect-differently", len(differences), 0,
            f"effective value ≠ requested for {plural(len(differences), 'setting')} of the best: "
            + "; ".join(differences),
            "the capacity was measured with the effective values; check which limit caps them",
        )  # fmt: skip
    # Only the target's constraints can be relaxed; a service's own value order is fixed.
    constraints = view.target.constraints
    bound = [text for text in best.trial.bindings if any(rule in text for rule in constraints)]
    if bound:
        yield StudyWarning(
            "bound-by-rule", len(bound), 0,
            f"a constraint changed {plural(len(bound), 'value')} of the best: "
            + "; ".join(bound),
            "relax the constraint if it is too strict: the gain may rise",
        )  # fmt: skip


def _readings(view: StudyView) -> Iterator[StudyWarning]:
    """Warn about readings with cold caches, with CPU steal or with limited load."""
    counts = view.study.counts
    cold = [number for number, of in counts.items() if of.warmed >= MOST_WINDOWS]
    if cold:
        affected = sorted({trial.number for trial in _behind_verdict(view)}.intersection(cold))
        yield StudyWarning(
            "warm-up-cut-short", len(cold), 0,
            f"the warm-up of {plural(len(cold), 'trial')} had not settled after "
            f"{MOST_WINDOWS} windows"
            + (f". This affects the verdict: trial {fmt.listed(affected)}" if affected else ""),
            "a cold cache lowers capacity: check that the data set matches `data:`",
        )  # fmt: skip
    discarded = sum(of.disturbed for of in counts.values())
    disturbed = discarded + sum(of.stolen for of in counts.values())
    total = sum(of.readings + of.warmed for of in counts.values()) + discarded
    if disturbed > DISTURBED * total:
        done = "discarded and repeated" if discarded else "corrected"
        yield StudyWarning(
            "cpu-total-away", disturbed, round(DISTURBED * total, 1),
            f"{disturbed} of {plural(total, 'reading')} {done}: CPU steal on the hosts",
            "measure at a quieter time, or use hosts with dedicated CPUs",
        )  # fmt: skip
    peaks = {trial.number: trial.peak for trial in view.state.trials}
    limited = [number for number, peak in peaks.items() if peak and peak.limited]
    if limited:
        yield StudyWarning(
            LIMITED, len(limited), 0,
            f"the load could not reach the capacity in {plural(len(limited), 'trial')} "
            f"({fmt.listed(limited)}); load.max_rate is {fmt.rate(view.target.load.max_rate)} requests/s",
            "raise load.max_rate, or add hosts to load.hosts: the true capacity is higher",
        )  # fmt: skip


def _trials(view: StudyView) -> Iterator[StudyWarning]:
    finished, allowed = view.state.counted(), view.target.budget.trials
    tried, failed = len(finished), sum(map(unusable, finished))
    # If every trial failed, the verdict reports it.
    if FAILED * tried < failed < tried:
        yield StudyWarning(
            "many-failed", failed, round(FAILED * tried, 1),
            f"{failed} of {plural(tried, 'trial')} failed and gave the search little information",
            "narrow the ranges in the failure causes, under `parameters:`",
        )  # fmt: skip
    if view.verdict != STOPPED and tried < TRIED * allowed:
        yield StudyWarning(
            "few-trials", tried, TRIED * allowed,
            f"time allowed only {tried} of {plural(allowed, 'trial')}; a higher gain may exist",
            "raise budget.time",
        )  # fmt: skip


def _time(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.goal is not None:
        return  # autotune cannot see how a command spends its time
    total = view.state.elapsed
    idle = total - view.state.average_seconds.get("load", 0.0)
    if total and idle / total > IDLE:
        yield StudyWarning(
            "time-not-loading", round(idle / total, 3), IDLE,
            f"{fmt.share(idle, total)} of wall-clock time was overhead (target ≤ {100 * IDLE:g} %); "
            'see "Time"',
            "restarts cost most: set parameters that need a restart under `fixed:`",
        )  # fmt: skip
