"""Doubts about the two configurations that the verdict compares."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from statistics import stdev

from autotune.report import figures
from autotune.report.claim import STOPPED
from autotune.report.evidence import Caveat, Evidence, listed
from autotune.report.yardstick import yardstick
from autotune.search.confirmation import LEAST_PAIRS

SCATTER = 0.05  # sd of log peaks of one configuration: MEASUREMENT.md's "quiet machine"
DRIFT = 0.10  # the baseline then and now, as a fraction


def _modelled(e: Evidence) -> Iterator[Caveat]:
    if e.target.simulated is not None:
        yield Caveat(
            "simulated", 1, 0,
            "the stack is a model: its peaks, its gain and its bottleneck are the model's, and no "
            "host was touched",
            "take `simulated:` out of the target to measure real hosts",
        )  # fmt: skip


def _not_repeated(e: Evidence) -> Iterator[Caveat]:
    best, by = e.claim.best, yardstick(e.target, e.state)
    if best is not None and best.fresh is None and best.own is not None:
        yield Caveat(
            "not-remeasured", 0, 1,
            f"trial {best.trial.number}'s {by.amount(by.of(best.own.peak))} come from the "
            "search, whose best overstates itself by about a tenth; nothing measured later bears "
            "it out",
            f"`autotune resume {e.name}` measures it again"
            if e.claim.verdict == STOPPED else "raise budget.time, so that some is left for proof",
        )  # fmt: skip


def _few_pairs(e: Evidence) -> Iterator[Caveat]:
    pairs = e.claim.gain.pairs if e.claim.gain else None
    if pairs is not None and pairs < LEAST_PAIRS:
        yield Caveat(
            "few-pairs", pairs, LEAST_PAIRS,
            f"the gain rests on {figures.plural(pairs, 'alternating pair')}; "
            f"{LEAST_PAIRS} or more make an interval that holds",
            "raise budget.time, or lower budget.trials",
        )  # fmt: skip


def _few_repeats(e: Evidence) -> Iterator[Caveat]:
    fresh = e.claim.best_known
    if e.claim.verdict == "improved" and e.claim.gain is None and fresh is not None:
        if fresh.measurements >= LEAST_PAIRS:
            return
        yield Caveat(
            "few-repeats", fresh.measurements, LEAST_PAIRS,
            "that the best meets the objective rests on "
            f"{figures.plural(fresh.measurements, 'later measurement')}",
            f"export it, and `autotune measure TARGET --config EXPORT --repeat {LEAST_PAIRS}`",
        )  # fmt: skip


def _unsettled(e: Evidence) -> Iterator[Caveat]:
    found = [t.number for t in e.behind_the_claim if t.peak and t.peak.verdict == "unsettled"]
    if found:
        yield Caveat(
            "unsettled", len(found), 0,
            f"{len(found)} of the {len(e.behind_the_claim)} measurements behind the verdict ended "
            f"before their peak was pinned down (trials {listed(found)})",
            "quieten the machine; intervals are wider for it, not wrong",
        )  # fmt: skip


def _scatter(e: Evidence) -> Iterator[Caveat]:
    for label, side in (("baseline", e.claim.baseline), ("best", e.claim.best)):
        peaks = [t.peak.peak for t in side.repeats if t.peak and t.peak.feasible] if side else []
        spread = stdev(map(log, peaks)) if len(peaks) >= LEAST_PAIRS else 0.0
        if spread > SCATTER:
            yield Caveat(
                "noisy", round(spread, 4), SCATTER,
                f"{len(peaks)} measurements of the {label} scatter by {100 * spread:.1f} %; "
                f"up to {100 * SCATTER:g} % is what a quiet machine does",
                "end other work on the hosts, and keep the load generator off their CPUs",
            )  # fmt: skip


def _drift(e: Evidence) -> Iterator[Caveat]:
    side = e.claim.baseline
    if side is None or side.own is None or side.fresh is None or not side.own.feasible:
        return
    moved = side.fresh.peak / side.own.peak - 1
    if abs(moved) > DRIFT:
        yield Caveat(
            "drift", round(moved, 4), DRIFT,
            f"the baseline carried {figures.change(1 + moved)} when it was measured again at the "
            "end: the machine changed meanwhile. The gain, measured in alternation, does not "
            "suffer; the search may have",
            "repeat the study on a machine that is otherwise idle",
        )  # fmt: skip


def _differences(e: Evidence) -> Iterator[Caveat]:
    found = e.claim.best.latest.differences if e.claim.best else ()
    if found:
        yield Caveat(
            "took-effect-differently", len(found), 0,
            f"{figures.plural(len(found), 'setting')} of the best took effect otherwise than "
            "asked: "
            + "; ".join(found),
            "the peak was measured with the values in effect; look for what caps them on the host",
        )  # fmt: skip


def _bound(e: Evidence) -> Iterator[Caveat]:
    # A service's own order of its values (spare servers within children) cannot be relaxed.
    bindings = e.claim.best.trial.bindings if e.claim.best else ()
    found = [text for text in bindings if any(rule in text for rule in e.target.constraints)]
    if found:
        yield Caveat(
            "bound-by-rule", len(found), 0,
            f"{figures.plural(len(found), 'value')} of the best had to give way to a constraint: "
            + "; ".join(found),
            "if the constraint is stricter than it needs to be, there may be more to gain",
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
)
