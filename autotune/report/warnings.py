"""What to know before trusting a verdict: a number, its threshold, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from statistics import stdev

from autotune.environments.peak import LIMITED
from autotune.measure.warmup import MOST_WINDOWS
from autotune.optimize.confirmation import LEAST_PAIRS
from autotune.report import format as fmt
from autotune.report.trials import unusable
from autotune.report.view import STOPPED, StudyView
from autotune.study.records import Trial
from autotune.target.messages import plural

SCATTER = 0.05  # sd of log peaks of one configuration, as a quiet machine has it
DRIFT = 0.10  # the baseline then and now, as a fraction
IDLE = 0.20  # of a run's time, spent neither loading nor warming up
FAILED = 1 / 3  # of the trials
TRIED = 1 / 2  # of the trials that the budget allows
DISTURBED = 1 / 10  # of the readings


@dataclass(frozen=True)
class StudyWarning:
    """``value`` is beyond ``threshold``; ``text`` says what that means, ``remedy`` what to do."""

    code: str
    value: float
    threshold: float
    text: str
    remedy: str


def warnings(view: StudyView) -> tuple[StudyWarning, ...]:
    """All that apply, those that touch the conclusion first."""
    checks = (_model, _certificates, _proof, _noise, _drift, _settings, _readings, _trials, _time)
    return tuple(warning for check in checks for warning in check(view))


def _model(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.simulated is not None:
        yield StudyWarning(
            "simulated", 1, 0,
            "the stack is a model: its capacity, its gain and its bottleneck are the model's, and no "
            "host was touched",
            "take `simulated:` out of the target to measure real hosts",
        )  # fmt: skip


def _certificates(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.load.insecure:
        yield StudyWarning(
            "insecure", 1, 0,
            "any certificate was good enough (`insecure: true`): nothing proves that the answers were "
            "the site's own",
            "name the authority that signed it: `load: {ca: FILE}`",
        )  # fmt: skip


def _proof(view: StudyView) -> Iterator[StudyWarning]:
    """How often the gain was measured after the best had been selected."""
    best, gain, units = view.conclusion.best, view.conclusion.gain, view.units
    if best is not None and best.fresh is None and best.own is not None:
        yield StudyWarning(
            "not-remeasured", 0, 1,
            f"trial {best.trial.number}'s {units.amount(units.of(best.own.peak))} come from the "
            "search, whose best overstates itself by about a tenth; not reproduced",
            f"`autotune resume {view.name}` measures it again" if view.verdict == STOPPED else
            "raise budget.time, so that some is left for proof",
        )  # fmt: skip
    if gain is not None and gain.pairs < LEAST_PAIRS:
        yield StudyWarning(
            "few-pairs", gain.pairs, LEAST_PAIRS,
            f"the gain rests on {plural(gain.pairs, 'alternating pair')}; "
            f"{LEAST_PAIRS} or more make an interval that holds",
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
            "that the best meets the SLO rests on "
            f"{plural(best.measured_again, 'later measurement')}",
            f"export it, and `autotune measure TARGET --config EXPORT --repeat {LEAST_PAIRS}`",
        )  # fmt: skip


def _behind_verdict(view: StudyView) -> list[Trial]:
    """The trials that the verdict rests on."""
    sides = view.conclusion.sides.values()
    return [trial for side in sides for trial in (side.repeats or (side.trial,))]


def _noise(view: StudyView) -> Iterator[StudyWarning]:
    """Measurements behind the verdict that did not converge, or do not agree."""
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
                f"{len(peaks)} measurements of the {label} scatter by {100 * spread:.1f} %; "
                f"up to {100 * SCATTER:g} % is what a quiet machine does",
                "end other work on the hosts, and keep the load generator off their CPUs",
            )  # fmt: skip


def _drift(view: StudyView) -> Iterator[StudyWarning]:
    side = view.conclusion.baseline
    if side is None or side.own is None or side.fresh is None or not side.own.feasible:
        return
    drift = side.fresh.peak / side.own.peak - 1
    if abs(drift) > DRIFT:
        yield StudyWarning(
            "drift", round(drift, 4), DRIFT,
            f"the baseline carried {100 * abs(drift):.0f} % {'more' if drift > 0 else 'less'} when it "
            "was measured again at the end: the machine changed meanwhile. The gain, measured in "
            "alternation, does not suffer; the search may have",
            "repeat the study on a machine that is otherwise idle",
        )  # fmt: skip


def _settings(view: StudyView) -> Iterator[StudyWarning]:
    """Where the best's settings are not those that were asked for."""
    best = view.conclusion.best
    if best is None:
        return
    if differences := best.latest.differences:
        yield StudyWarning(
            "took-effect-differently", len(differences), 0,
            f"effective value ≠ requested for {plural(len(differences), 'setting')} of the best: "
            + "; ".join(differences),
            "the capacity was measured with the values in effect; look for what caps them on the host",
        )  # fmt: skip
    # Only the target's constraints count: a service's own order of its values (spare servers within
    # children) cannot be relaxed.
    constraints = view.target.constraints
    bound = [text for text in best.trial.bindings if any(rule in text for rule in constraints)]
    if bound:
        yield StudyWarning(
            "bound-by-rule", len(bound), 0,
            f"{plural(len(bound), 'value')} of the best had to give way to a constraint: "
            + "; ".join(bound),
            "if the constraint is stricter than it needs to be, there may be more to gain",
        )  # fmt: skip


def _readings(view: StudyView) -> Iterator[StudyWarning]:
    """Load that was sent to caches still cold, under CPU steal, or not sent."""
    counts = view.study.counts
    cold = [number for number, of in counts.items() if of.warmed >= MOST_WINDOWS]
    if cold:
        affected = sorted({trial.number for trial in _behind_verdict(view)}.intersection(cold))
        yield StudyWarning(
            "warm-up-cut-short", len(cold), 0,
            f"the warm-up of {plural(len(cold), 'trial')} was still moving after "
            f"{MOST_WINDOWS} windows"
            + (f"; behind the verdict: trial {fmt.listed(affected)}" if affected else ""),
            "a cold cache lowers capacity: check that the data set fits what `data:` says",
        )  # fmt: skip
    discarded = sum(of.disturbed for of in counts.values())
    disturbed = discarded + sum(of.stolen for of in counts.values())
    total = sum(of.readings + of.warmed for of in counts.values()) + discarded
    if disturbed > DISTURBED * total:
        done = "discarded and repeated" if discarded else "corrected"
        yield StudyWarning(
            "cpu-total-away", disturbed, round(DISTURBED * total, 1),
            f"{disturbed} of {plural(total, 'reading')} {done}: CPU steal on the hosts",
            "choose a quieter hour, or hosts with CPUs of their own",
        )  # fmt: skip
    peaks = {trial.number: trial.peak for trial in view.state.trials}
    limited = [number for number, peak in peaks.items() if peak and peak.limited]
    if limited:
        yield StudyWarning(
            LIMITED, len(limited), 0,
            f"in {plural(len(limited), 'trial')} ({fmt.listed(limited)}) the load could not be raised to "
            f"the capacity (load.max_rate is {fmt.rate(view.target.load.max_rate)} requests/s)",
            "raise load.max_rate, or add hosts to load.hosts: the true capacity is higher",
        )  # fmt: skip


def _trials(view: StudyView) -> Iterator[StudyWarning]:
    finished, allowed = view.state.counted(), view.target.budget.trials
    tried, failed = len(finished), sum(map(unusable, finished))
    # Where nothing at all worked, the verdict says so.
    if FAILED * tried < failed < tried:
        yield StudyWarning(
            "many-failed", failed, round(FAILED * tried, 1),
            f"{failed} of {plural(tried, 'trial')} failed and taught the search little",
            "narrow the ranges that the causes name, under `parameters:`",
        )  # fmt: skip
    if view.verdict != STOPPED and tried < TRIED * allowed:
        yield StudyWarning(
            "few-trials", tried, TRIED * allowed,
            f"the time was enough for {tried} of {plural(allowed, 'trial')}; there may be more to gain",
            "raise budget.time",
        )  # fmt: skip


def _time(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.goal is not None:
        return  # what a command does with its time is its own affair
    total = view.state.elapsed
    idle = total - view.state.average_seconds.get("load", 0.0)
    if total and idle / total > IDLE:
        yield StudyWarning(
            "time-not-loading", round(idle / total, 3), IDLE,
            f"{fmt.share(idle, total)} of wall-clock time was overhead (target ≤ {100 * IDLE:g} %); "
            'see "Time"',
            "restarts cost most: `fixed:` parameters that need them save time",
        )  # fmt: skip
