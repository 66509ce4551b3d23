"""What to know before trusting a verdict: a number, its threshold, a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from statistics import stdev

from autotune.measure.warmup import MOST_WINDOWS
from autotune.optimize.confirmation import LEAST_PAIRS
from autotune.report import format as fmt
from autotune.report.conclusion import STOPPED
from autotune.report.trials import unusable
from autotune.report.view import StudyView
from autotune.study.records import COUNTED, Trial

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
    return tuple(warning for check in CHECKS for warning in check(view))


def _measured_again(view: StudyView) -> list[Trial]:
    """The trials that the verdict rests on."""
    sides = view.conclusion.sides.values()
    return [trial for side in sides for trial in (side.repeats or (side.trial,))]


def _modelled(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.simulated is not None:
        yield StudyWarning(
            "simulated", 1, 0,
            "the stack is a model: its capacity, its gain and its bottleneck are the model's, and no "
            "host was touched",
            "take `simulated:` out of the target to measure real hosts",
        )  # fmt: skip


def _not_repeated(view: StudyView) -> Iterator[StudyWarning]:
    best, units = view.conclusion.best, view.units
    if best is not None and best.fresh is None and best.own is not None:
        yield StudyWarning(
            "not-remeasured", 0, 1,
            f"trial {best.trial.number}'s {units.amount(units.of(best.own.peak))} come from the "
            "search, whose best overstates itself by about a tenth; not reproduced",
            f"`autotune resume {view.name}` measures it again" if view.verdict == STOPPED else
            "raise budget.time, so that some is left for proof",
        )  # fmt: skip


def _few_pairs(view: StudyView) -> Iterator[StudyWarning]:
    pairs = view.conclusion.gain.pairs if view.conclusion.gain else None
    if pairs is not None and pairs < LEAST_PAIRS:
        yield StudyWarning(
            "few-pairs", pairs, LEAST_PAIRS,
            f"the gain rests on {fmt.plural(pairs, 'alternating pair')}; "
            f"{LEAST_PAIRS} or more make an interval that holds",
            "raise budget.time, or lower budget.trials",
        )  # fmt: skip


def _few_repeats(view: StudyView) -> Iterator[StudyWarning]:
    best = view.conclusion.best
    if view.verdict == "improved" and view.conclusion.gain is None and best and best.fresh:
        again = best.measured_again
        if again >= LEAST_PAIRS:
            return
        yield StudyWarning(
            "few-repeats", again, LEAST_PAIRS,
            "that the best meets the SLO rests on "
            f"{fmt.plural(again, 'later measurement')}",
            f"export it, and `autotune measure TARGET --config EXPORT --repeat {LEAST_PAIRS}`",
        )  # fmt: skip


def _unsettled(view: StudyView) -> Iterator[StudyWarning]:
    numbers = [t.number for t in _measured_again(view) if t.peak and t.peak.verdict == "unsettled"]
    if numbers:
        yield StudyWarning(
            "unsettled", len(numbers), 0,
            f"{len(numbers)} of the {len(_measured_again(view))} measurements behind the verdict did "
            f"not converge (trials {fmt.listed(numbers)})",
            "reduce background load on the hosts; the interval is wider but still valid",
        )  # fmt: skip


def _scatter(view: StudyView) -> Iterator[StudyWarning]:
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
    moved = side.fresh.peak / side.own.peak - 1
    if abs(moved) > DRIFT:
        yield StudyWarning(
            "drift", round(moved, 4), DRIFT,
            f"the baseline carried {fmt.change(1 + moved)} when it was measured again at the "
            "end: the machine changed meanwhile. The gain, measured in alternation, does not "
            "suffer; the search may have",
            "repeat the study on a machine that is otherwise idle",
        )  # fmt: skip


def _differences(view: StudyView) -> Iterator[StudyWarning]:
    differences = view.conclusion.best.latest.differences if view.conclusion.best else ()
    if differences:
        yield StudyWarning(
            "took-effect-differently", len(differences), 0,
            f"effective value ≠ requested for {fmt.plural(len(differences), 'setting')} of the best: "
            + "; ".join(differences),
            "the capacity was measured with the values in effect; look for what caps them on the host",
        )  # fmt: skip


def _bound(view: StudyView) -> Iterator[StudyWarning]:
    # A service's own order of its values (spare servers within children) cannot be relaxed.
    bindings = view.conclusion.best.trial.bindings if view.conclusion.best else ()
    bound = [text for text in bindings if any(rule in text for rule in view.target.constraints)]
    if bound:
        yield StudyWarning(
            "bound-by-rule", len(bound), 0,
            f"{fmt.plural(len(bound), 'value')} of the best had to give way to a constraint: "
            + "; ".join(bound),
            "if the constraint is stricter than it needs to be, there may be more to gain",
        )  # fmt: skip


def _cold(view: StudyView) -> Iterator[StudyWarning]:
    numbers = [n for n, counts in view.study.counts.items() if counts.warmed >= MOST_WINDOWS]
    behind_verdict = {trial.number for trial in _measured_again(view)}
    if numbers:
        affected = sorted(behind_verdict.intersection(numbers))
        yield StudyWarning(
            "warm-up-cut-short", len(numbers), 0,
            f"the warm-up of {fmt.plural(len(numbers), 'trial')} was still moving after "
            f"{MOST_WINDOWS} windows"
            + (f"; behind the verdict: trial {fmt.listed(affected)}" if affected else ""),
            "a cold cache lowers capacity: check that the data set fits what `data:` says",
        )  # fmt: skip


def _disturbed(view: StudyView) -> Iterator[StudyWarning]:
    disturbed = sum(counts.disturbed for counts in view.study.counts.values())
    total = (
        sum(counts.readings + counts.warmed for counts in view.study.counts.values()) + disturbed
    )
    if disturbed > DISTURBED * total:
        yield StudyWarning(
            "cpu-total-away", disturbed, round(DISTURBED * total, 1),
            f"{disturbed} of {total} readings were discarded and repeated: CPU steal on the hosts",
            "choose a quieter hour, or hosts with CPUs of their own",
        )  # fmt: skip


def _generator(view: StudyView) -> Iterator[StudyWarning]:
    numbers = [
        t.number for t in view.state.trials if t.peak and t.peak.verdict == "generator-limited"
    ]
    if numbers:
        yield StudyWarning(
            "generator-limited", len(numbers), 0,
            f"in {fmt.plural(len(numbers), 'trial')} ({fmt.listed(numbers)}) the load generator gave "
            f"out before the stack did (load.max_rate is "
            f"{fmt.rate(view.target.load.max_rate)} requests/s)",
            "raise load.max_rate, or add hosts to load.hosts: the true capacity is higher",
        )  # fmt: skip


def _many_failed(view: StudyView) -> Iterator[StudyWarning]:
    over = view.state.finished(*COUNTED)
    failed = sum(map(unusable, over))
    # Where nothing at all worked, the verdict says so.
    if FAILED * len(over) < failed < len(over):
        yield StudyWarning(
            "many-failed", failed, round(FAILED * len(over), 1),
            f"{failed} of {len(over)} trials failed and taught the search little",
            "narrow the ranges that the causes name, under `parameters:`",
        )  # fmt: skip


def _few_tried(view: StudyView) -> Iterator[StudyWarning]:
    tried, allowed = len(view.state.finished(*COUNTED)), view.target.budget.trials
    if view.verdict != STOPPED and tried < TRIED * allowed:
        yield StudyWarning(
            "few-trials", tried, TRIED * allowed,
            f"the time was enough for {tried} of {allowed} trials; there may be more to gain",
            "raise budget.time",
        )  # fmt: skip


def _idle(view: StudyView) -> Iterator[StudyWarning]:
    if view.target.goal is not None:
        return  # what a command does with its time is its own affair
    total = view.state.elapsed
    idle = total - view.state.seconds.get("load", 0.0)
    if total and idle / total > IDLE:
        yield StudyWarning(
            "time-not-loading", round(idle / total, 3), IDLE,
            f"{fmt.share(idle, total)} of wall-clock time was overhead (target ≤ {100 * IDLE:g} %); "
            'see "Time"',
            "restarts cost most: `fixed:` parameters that need them save time",
        )  # fmt: skip


CHECKS = (
    _modelled,
    _not_repeated,
    _few_pairs,
    _few_repeats,
    _unsettled,
    _scatter,
    _drift,
    _differences,
    _bound,
    _cold,
    _disturbed,
    _generator,
    _many_failed,
    _few_tried,
    _idle,
)
