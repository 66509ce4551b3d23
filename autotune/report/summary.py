"""A study as one versioned JSON object: what ``run``, ``resume`` and ``report --json`` print.

- ``verdict``: ``improved`` · ``no-improvement`` · ``unmeetable`` · ``stopped`` (none reached yet).
- ``slo``: ``percentile`` (99 is p99), ``limit`` in seconds, ``errors`` as a fraction of one.
- ``baseline``, ``best``: ``peak`` in requests/s with its 90 % interval ``low`` to ``high``, and all
  parameters by ``tier.service.parameter``. **The best's peak is pooled from measurements made after
  it was selected** (finalist and confirmation), never the search's own: that overstates itself. It
  is ``null`` until there is one. The baseline was not selected by its peak; its first measurement
  stands in until confirmation has measured it again.
- ``gain``: best over baseline from alternating ``pairs`` with its 90 % interval, or ``null``.
- ``trials``: the configurations that the budget counts, each in one of three: ``failed`` (not
  deployed, or no load within the objective), ``screened`` (given up: hardly better), ``complete``.
- ``seconds``: wall clock over all sessions; ``load`` includes warming up.
- ``goal``: only where the target is a command: ``direction``, ``name`` and ``unit`` of its value.
  Peaks are its values then, ``gain`` is best over baseline (below 1 is better where the direction
  is ``minimize``; ``null`` where a value is not positive) with the ``difference`` of the values, and
  ``slo`` is ``null``.
- ``bottleneck``: the findings for ``baseline`` and ``best``, or ``null`` when there are none.
- ``ceilings``: only where some were measured (`autotune measure --closed`, `--tier`), as
  ``report.ceilings.as_json`` has them.
- ``warnings``: ``code``, ``value``, ``threshold``, ``text``, ``remedy`` each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autotune.environments.clock import KINDS
from autotune.report.caveats import caveats
from autotune.report.claim import Claim, Side, claim
from autotune.report.evidence import Evidence
from autotune.report.failures import unusable
from autotune.report.pooled import Estimate
from autotune.report.tally import Tally
from autotune.report.yardstick import Yardstick, yardstick
from autotune.study.records import COUNTED, Peak, State
from autotune.target.model import Target
from autotune.target.slo import Slo

SCHEMA = 1
NO_READINGS: Mapping[int, Tally] = {}


def summary(
    name: str, target: Target, state: State, tallies: Mapping[int, Tally] = NO_READINGS
) -> dict[str, Any]:
    """The object described above. ``tallies`` are the study's readings, for the warnings."""
    found = claim(state)
    evidence = Evidence(name, target, state, tallies, found)
    by = yardstick(target, state)
    return {
        "schema": SCHEMA,
        "study": name,
        "verdict": found.verdict,
        "slo": _slo(target.slo.slo) if target.goal is None else None,
        **_goal(target),
        "baseline": _side(found.baseline, found.baseline_known, by),
        "best": _side(found.best, found.best_known, by),
        "gain": gained(found, by),
        "trials": trial_counts(state),
        "seconds": seconds(state),
        "bottleneck": _bottleneck(state, found),
        **({"ceilings": [dict(one) for one in state.ceilings]} if state.ceilings else {}),
        "warnings": [asdict(caveat) for caveat in caveats(evidence)],
    }


def gained(found: Claim, by: Yardstick) -> dict[str, Any] | None:
    """The claimed gain in the user's own terms."""
    if found.gain is None or found.baseline_known is None:
        return None
    return by.gain(found.gain, found.baseline_known.peak)


def trial_counts(state: State) -> dict[str, int]:
    """Finished trials that the budget counts, by how they ended."""
    over = state.finished(*COUNTED)
    failed = sum(map(unusable, over))
    screened = sum(t.peak is not None and t.peak.verdict == "screened" for t in over)
    return {"complete": len(over) - failed - screened, "failed": failed, "screened": screened}


def seconds(state: State) -> dict[str, float]:
    """Where the time went; the parts add up to the total."""
    known = {kind: state.seconds.get(kind, 0.0) for kind in KINDS}
    other = state.elapsed - sum(known.values())
    return _rounded({"total": state.elapsed, **known, "other": other}, 1)


def _slo(slo: Slo) -> dict[str, float]:
    return {"percentile": round(100 * slo.quantile, 6), "limit": slo.limit, "errors": slo.errors}


def _goal(target: Target) -> dict[str, Any]:
    goal = target.goal
    if goal is None:
        return {}
    direction = "maximize" if goal.maximize else "minimize"
    return {"goal": {"direction": direction, "name": goal.name, "unit": goal.unit}}


def numbers(known: Estimate | Peak | None, by: Yardstick) -> dict[str, float | None]:
    """A peak and the ends of its interval, the lower one first, in the user's own terms."""
    if known is None:
        return {"peak": None, "low": None, "high": None}
    if known.peak == 0:
        return {"peak": 0.0, "low": 0.0, "high": by.rounded(known.high)}
    low, high = sorted((by.of(known.low), by.of(known.high)))
    return {"peak": by.rounded(by.of(known.peak)), "low": by.rounded(low), "high": by.rounded(high)}


def _side(side: Side | None, known: Estimate | None, by: Yardstick) -> dict[str, Any] | None:
    if side is None:
        return None
    return {
        "trial": side.trial.number,
        **numbers(known, by),
        "parameters": dict(sorted(side.trial.settings.items())),
    }


def _bottleneck(state: State, found: Claim) -> dict[str, Any] | None:
    sides = {"baseline": found.baseline, "best": found.best}
    findings = {label: _finding(state, side) for label, side in sides.items()}
    return findings if any(findings.values()) else None


def _finding(state: State, side: Side | None) -> dict[str, Any] | None:
    """The newest finding about a configuration, whichever of its measurements it came from."""
    if side is None:
        return None
    numbers = [trial.number for trial in (side.trial, *side.repeats)]
    found = [state.bottlenecks[number] for number in numbers if number in state.bottlenecks]
    return {k: v for k, v in found[-1].items() if k != "event"} if found else None


def _rounded(values: Mapping[str, Any], digits: int) -> dict[str, Any]:
    return {k: round(v, digits) if isinstance(v, float) else v for k, v in values.items()}
