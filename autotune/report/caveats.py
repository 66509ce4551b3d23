"""What to know before trusting a verdict: a number, its threshold, a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from statistics import stdev

from autotune.measure.warmup import MOST_WINDOWS
from autotune.report import figures
from autotune.report.claim import STOPPED, Claim, Side
from autotune.report.failures import unusable
from autotune.report.tally import Tally
from autotune.search.confirmation import LEAST_PAIRS
from autotune.study.records import COUNTED, State, Trial
from autotune.target.model import Target

Tallies = Mapping[int, Tally]

SCATTER = 0.05  # sd of log peaks of one configuration: MEASUREMENT.md's "quiet machine"
DRIFT = 0.10  # the baseline then and now, as a fraction
IDLE = 0.20  # of a run's time, spent neither loading nor warming up
FAILED = 1 / 3  # of the trials
TRIED = 1 / 2  # of the trials that the budget allows


@dataclass(frozen=True)
class Caveat:
    """``value`` is beyond ``threshold``; ``text`` says what that means, ``remedy`` what to do."""

    code: str
    value: float
    threshold: float
    text: str
    remedy: str


@dataclass(frozen=True)
class Evidence:
    """All that caveats are worked out from."""

    name: str
    target: Target
    state: State
    tallies: Tallies
    claim: Claim

    @property
    def sides(self) -> tuple[Side, ...]:
        return tuple(side for side in (self.claim.baseline, self.claim.best) if side)

    @property
    def behind_the_claim(self) -> tuple[Trial, ...]:
        return tuple(t for side in self.sides for t in (side.repeats or (side.trial,)))


def caveats(evidence: Evidence) -> tuple[Caveat, ...]:
    """All that apply, those that touch the claim first."""
    return tuple(caveat for check in CHECKS for caveat in check(evidence))


def _not_repeated(e: Evidence) -> Iterator[Caveat]:
    best = e.claim.best
    if best is not None and best.fresh is None and best.own is not None:
        yield Caveat(
            "not-remeasured", 0, 1,
            f"trial {best.trial.number}'s {figures.rate(best.own.peak)} requests/s come from the "
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


def _unsettled(e: Evidence) -> Iterator[Caveat]:
    found = [t.number for t in e.behind_the_claim if t.peak and t.peak.verdict == "unsettled"]
    if found:
        yield Caveat(
            "unsettled", len(found), 0,
            f"{len(found)} of the {len(e.behind_the_claim)} measurements behind the verdict ended "
            f"before their peak was pinned down (trials {_listed(found)})",
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
    found = e.claim.best.trial.bindings if e.claim.best else ()
    if found:
        yield Caveat(
            "bound-by-rule", len(found), 0,
            f"{figures.plural(len(found), 'value')} of the best had to give way to a rule: "
            + "; ".join(found),
            "if the rule is stricter than it needs to be, there may be more to gain",
        )  # fmt: skip


def _cold(e: Evidence) -> Iterator[Caveat]:
    found = [n for n, seen in e.tallies.items() if seen.warmed >= MOST_WINDOWS]
    of_claim = {trial.number for trial in e.behind_the_claim}
    if found:
        touched = sorted(of_claim.intersection(found))
        yield Caveat(
            "warm-up-cut-short", len(found), 0,
            f"the warm-up of {figures.plural(len(found), 'trial')} was still moving after "
            f"{MOST_WINDOWS} windows"
            + (f", trials {_listed(touched)} behind the verdict among them" if touched else ""),
            "a cold cache makes peaks too low: check that the data set fits what `data:` says",
        )  # fmt: skip


def _generator(e: Evidence) -> Iterator[Caveat]:
    found = [t.number for t in e.state.trials if t.peak and t.peak.verdict == "generator-limited"]
    if found:
        yield Caveat(
            "generator-limited", len(found), 0,
            f"in {figures.plural(len(found), 'trial')} ({_listed(found)}) the load generator gave "
            f"out before the stack did (load.max_rate is "
            f"{figures.rate(e.target.load.max_rate)} requests/s)",
            "raise load.max_rate, or add hosts to load.hosts: the true peak is higher",
        )  # fmt: skip


def _many_failed(e: Evidence) -> Iterator[Caveat]:
    over = e.state.finished(*COUNTED)
    failed = sum(map(unusable, over))
    if over and failed / len(over) > FAILED:
        yield Caveat(
            "many-failed", failed, round(FAILED * len(over), 1),
            f"{failed} of {len(over)} trials failed and taught the search little",
            "narrow the ranges that the causes name, under `parameters:`",
        )  # fmt: skip


def _few_tried(e: Evidence) -> Iterator[Caveat]:
    tried, allowed = len(e.state.finished(*COUNTED)), e.target.budget.trials
    if e.claim.verdict != STOPPED and tried < TRIED * allowed:
        yield Caveat(
            "few-trials", tried, TRIED * allowed,
            f"the time was enough for {tried} of {allowed} trials; there may be more to gain",
            "raise budget.time",
        )  # fmt: skip


def _idle(e: Evidence) -> Iterator[Caveat]:
    total = e.state.elapsed
    idle = total - e.state.seconds.get("load", 0.0)
    if total and idle / total > IDLE:
        yield Caveat(
            "time-not-loading", round(idle / total, 3), IDLE,
            f"{figures.share(idle, total)} of the time went into something else than load; "
            f"{100 * IDLE:g} % is what it should take",
            "`seconds` says into what; restarts cost most, fixing what needs them saves time",
        )  # fmt: skip


CHECKS: tuple[Callable[[Evidence], Iterator[Caveat]], ...] = (
    _not_repeated, _few_pairs, _unsettled, _scatter, _drift, _differences, _bound, _cold,
    _generator, _many_failed, _few_tried, _idle,
)  # fmt: skip


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, …" if len(numbers) > 8 else shown
