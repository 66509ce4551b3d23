"""What is going on, a line each: what the plain and the live narrator both say."""

from __future__ import annotations

from autotune.deploy.fleet import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import Warmth
from autotune.report import figures
from autotune.report.standing import Standing, counted, seconds_left, standing
from autotune.report.tally import WARM_UP
from autotune.report.yardstick import Requests, Yardstick, yardstick
from autotune.services.base import Action
from autotune.study.records import COUNTED, Phase, State, Trial
from autotune.target.model import Target
from autotune.target.slo import Slo


def trial_line(trial: Trial, state: State, target: Target) -> str:
    """Number, phase, peak, p99 at peak, best so far, change against the baseline, time left."""
    budget, by = target.budget, yardstick(target, state)
    if trial.phase is Phase.MEASURE:
        return f"{trial_in_words(trial):<21} {outcome(trial, by)}"
    place = f"[{counted(state):>{len(str(budget.trials))}}/{budget.trials}]"
    return f"{place} {trial_in_words(trial):<21} {outcome(trial, by)}   {outlook(state, target)}"


def trial_in_words(trial: Trial) -> str:
    """``#7 search``, ``#21 confirm #7``."""
    again = "" if trial.of is None or trial.phase in COUNTED else f" #{trial.of}"
    return f"#{trial.number} {trial.phase}{again}"


def outcome(trial: Trial, by: Yardstick) -> str:
    """How a trial ended."""
    peak = trial.peak
    if peak is None:
        return f"failed: {trial.failure}" if trial.failure else "not measured"
    if peak.verdict == "unmeetable":
        return by.nothing
    said = f"{by.brief(by.of(peak.peak)):>8}"
    if isinstance(by, Requests):
        said = f"{said}  p99 {figures.latency(peak.p99):>7}"
    return said if peak.verdict == "measured" else f"{said}  {peak.verdict}"


def outlook(state: State, target: Target) -> str:
    """The best so far, by how much it beats the baseline, and the time left."""
    stands, by = standing(state), yardstick(target, state)
    best = "nothing meets the objective yet" if isinstance(by, Requests) else "no value yet"
    leader = stands.leader
    if leader is not None and leader.peak is not None and leader.peak.feasible:
        change = f", {so_far}" if (so_far := ahead(stands, by)) else ""
        best = f"best {by.brief(by.of(leader.peak.peak))} (#{leader.number}{change})"
    return f"{best}   {figures.duration(seconds_left(state, target.budget))} left"


def ahead(stands: Standing, by: Yardstick) -> str:
    """By how much the leader is ahead of the baseline so far; empty while it leads itself."""
    stock = stands.baseline.peak if stands.baseline else None
    return by.change(stands.ratio, stock.peak) if stands.ratio and stock else ""


def deployed_line(deployed: Deployed) -> str:
    """What had to be reloaded or restarted, and what took effect otherwise than asked."""
    done = [f"{a.name.lower()} {n}" for n, a in deployed.actions.items() if a is not Action.NONE]
    differing = [str(difference) for difference in deployed.differences]
    return "deployed: " + "; ".join([", ".join(done) or "nothing to do", *differing])


def warm_line(warmth: Warmth) -> str:
    """Whether the warm-up settled, after how many windows, at which hit rate."""
    hits = "" if warmth.hits is None else f", {100 * warmth.hits:.1f} % of gets hit"
    how = "warm" if warmth.settled else "not settled, going on all the same"
    return f"{how} after {figures.plural(len(warmth.windows), 'window')}{hits}"


def reading_line(reading: Reading, purpose: str, slo: Slo) -> str:
    """One rung of the ladder."""
    rate = f"{figures.rate(reading.rate):>6}/s"
    if (why := reading.limited or reading.disturbed) is not None:
        return f"{rate}  says nothing: {why}"
    late = figures.latency(reading.percentile(slo.quantile))
    bad = f"{_percent(reading.fraction)} % late or failed"
    errors = ", ".join(f"{kind} {count}" for kind, count in reading.errors.items() if count)
    tail = ("  cut short" if reading.truncated else "") + (f"  ({errors})" if errors else "")
    mark = "·" if purpose == WARM_UP else verdict_mark(reading, slo)
    return f"{rate} {mark} {figures.percentile(slo)} {late:>7}  {bad}{tail}"


def verdict_mark(reading: Reading, slo: Slo) -> str:
    """Whether a reading met the SLO; ``?`` where it says nothing of the server."""
    if not reading.is_valid:
        return "?"
    return "✓" if slo.met(reading) else "✗"


def _percent(fraction: float) -> str:
    """Two digits that mean something: ``0.33``, ``4.2``, ``100``."""
    percent = 100 * fraction
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"
