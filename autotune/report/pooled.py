"""Several measurements of one configuration as one peak with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

from autotune.optimize.ranking import Scored, pooled_peak
from autotune.study.records import Peak, Phase, State, Trial

WITHIN_90 = 1.645  # standard deviations either side of the mean that hold 90 % of a normal
LEAST_SD = 0.005  # no peak search knows its own answer better than this; as in `pooled_peak`


@dataclass(frozen=True)
class Estimate:
    """A peak in requests/s with its 90 % interval; ``measurements`` searches stand behind it."""

    peak: float
    low: float
    high: float
    measurements: int


def estimate(peaks: Sequence[Peak]) -> Estimate | None:
    """The pooled peak: the mean of the logs, each weighted by its precision.

    Where the peaks scatter more than they say of themselves, the interval is widened by the scale
    factor of the Particle Data Group (Review of Particle Physics, Introduction, section 5.2.2).
    ``None`` when there are none.
    """
    if not peaks:
        return None
    if len(peaks) == 1:
        return Estimate(peaks[0].peak, peaks[0].low, peaks[0].high, 1)
    sds = [max(peak.sd, LEAST_SD) for peak in peaks]
    middle = pooled_peak([Scored(0, p.peak, sd) for p, sd in zip(peaks, sds, strict=True)])
    surprise = sum((log(p.peak / middle) / sd) ** 2 for p, sd in zip(peaks, sds, strict=True))
    scale = max(1.0, sqrt(surprise / (len(peaks) - 1)))
    half = WITHIN_90 * scale / sqrt(sum(sd**-2 for sd in sds))
    return Estimate(middle, middle * exp(-half), middle * exp(half), len(peaks))


def repeats(state: State, number: int) -> tuple[Trial, ...]:
    """Finished measurements of a trial's settings after it was selected: finals, confirmation."""
    again = state.finished(Phase.FINALIST, Phase.CONFIRM)
    return tuple(trial for trial in again if trial.of == number)


def fresh(state: State, number: int) -> Estimate | None:
    """A trial's peak from its repeats alone; ``None`` when it has none that met the objective.

    The measurement it was selected for is left out: the best of many overstates itself.
    """
    return estimate([t.peak for t in repeats(state, number) if t.peak and t.peak.feasible])
