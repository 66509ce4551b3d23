"""Progress a line each, for the plain display and the live one."""

from __future__ import annotations

from autotune.deploy.deployed import Deployed
from autotune.measure.reading import Reading
from autotune.measure.warmup import Warmth
from autotune.report import format as fmt
from autotune.report.outlook import Outlook
from autotune.report.reading_counts import WARM_UP
from autotune.report.trials import label, outcome
from autotune.services.base import Action
from autotune.study.records import Phase, Trial
from autotune.target.model import Budget
from autotune.target.slo import Slo


def trial_line(trial: Trial, outlook: Outlook, budget: Budget) -> str:
    """Number, phase, capacity, p99 there, best so far, change against the baseline, time left."""
    ended = f"{label(trial):<21} {outcome(trial, outlook.units)}"
    if trial.phase is Phase.MEASURE:
        return ended
    return f"[{outlook.counted:>{len(str(budget.trials))}}/{budget.trials}] {ended}   {outlook}"


def not_shown(error: Exception) -> str:
    """That the display itself failed."""
    return f"(progress cannot be shown: {error!r}; the study goes on)"


def deployed_line(deployed: Deployed) -> str:
    """What had to be reloaded or restarted, and what took effect otherwise than asked."""
    done = [f"{a.name.lower()} {n}" for n, a in deployed.actions.items() if a is not Action.NONE]
    differing = [str(difference) for difference in deployed.differences]
    return "deployed: " + "; ".join([", ".join(done) or "nothing to do", *differing])


def warm_line(warmth: Warmth) -> str:
    """Whether the warm-up settled, after how many windows, at which hit rate."""
    hits = "" if warmth.hits is None else f", {100 * warmth.hits:.1f} % of gets hit"
    how = "warm" if warmth.settled else "not settled, going on all the same"
    return f"{how} after {fmt.plural(len(warmth.windows), 'window')}{hits}"


def reading_line(reading: Reading, purpose: str, slo: Slo) -> str:
    """One load step."""
    rate = f"{fmt.rate(reading.rate):>6}/s"
    if (why := reading.limited or reading.disturbed) is not None:
        return f"{rate}  invalid sample: {why}"
    late = fmt.latency(reading.percentile(slo.quantile))
    bad = f"{_percent(reading.fraction)} % late or failed"
    errors = ", ".join(f"{kind} {count}" for kind, count in reading.errors.items() if count)
    tail = ("  cut short" if reading.truncated else "") + (f"  ({errors})" if errors else "")
    mark = "·" if purpose == WARM_UP else verdict_mark(reading, slo)
    return f"{rate} {mark} {fmt.percentile(slo)} {late:>7}  {bad}{tail}"


def verdict_mark(reading: Reading, slo: Slo) -> str:
    """Whether a reading met the SLO; ``?`` where it says nothing of the server."""
    if not reading.is_valid:
        return "?"
    return "✓" if slo.met(reading) else "✗"


def _percent(fraction: float) -> str:
    """Two digits that mean something: ``0.33``, ``4.2``, ``100``."""
    percent = 100 * fraction
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"
