"""The peak of a configuration at a latency objective, with an interval.

Method: a posterior over log peak on a lattice, together with the shape of the onset of violations
and the noise of the capacity, none of which is known. Each reading's *fraction* of violations says
how far its rate was from the peak (graded, not pass or fail); capacity noise blurs that, and a
one-sided term lets a reading be disturbed and look worse than the server is. The next rate is where
the posterior puts the peak; with nothing failed or nothing passed yet, rates grow or shrink faster
and faster. There are no brackets: a reading that turns out to have been disturbed loses its say as
others contradict it.

It assumes that more load never violates less, that noise is independent from reading to reading
(drift between configurations is the caller's, by re-measuring a reference), that readings last long
enough for the objective to show, and that the probe lets a backlog drain before it returns. What
counts as the peak is what typical readings show: a stall seen once in many readings is taken for a
disturbance, not for a limit of the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from autotune.estimate import Estimate
from autotune.measure.hunt import CapacityVerdict, Hunt
from autotune.measure.limits import Limits
from autotune.measure.noise import Noise
from autotune.measure.reading import Reading

if TYPE_CHECKING:
    from autotune.target.slo import Slo

__all__ = ["Capacity", "Limits", "Probe", "search"]

UNKNOWN_SD = 0.35  # of the log of a peak that is expected without saying how surely
Probe = Callable[[float, float], Reading]
"""``probe(rate, seconds)``: offer ``rate`` requests/s and count for ``seconds``."""


@dataclass(frozen=True)
class Capacity:
    """The long-run peak in requests/s, and the interval ``low`` to ``high`` that has it with 90 %.

    ``sd`` is that of the log of the peak. ``load_seconds`` is all load the search made, warm-up
    (``Limits.overhead``) included. ``noise`` is for the study's next search.

    Verdicts: ``measured``; ``screened``: will hardly beat the incumbent, the posterior so far is
    given; ``generator-limited``: the load could not be raised (by the generator or ``max_rate``) to
    where the peak is: ``peak`` is the highest rate that met the objective, ``high`` mostly prior;
    ``unmeetable``: no rate tried meets the objective, ``peak`` and ``low`` are 0, ``high`` the
    lowest rate that failed; ``unsettled``: the caps came first.
    """

    peak: float
    low: float
    high: float
    sd: float
    verdict: CapacityVerdict
    readings: tuple[Reading, ...]
    load_seconds: float
    noise: Noise


def search(
    probe: Probe,
    slo: Slo,
    prior: Estimate | float | None = None,
    *,
    target_sd: float = 0.024,
    incumbent: Capacity | float | None = None,
    noise: Noise | None = None,
    limits: Limits | None = None,
) -> Capacity:
    """Find the highest rate at which ``probe`` keeps within ``slo``.

    ``prior`` is what is expected (a bare number is a peak in requests/s), ``incumbent`` the peak to
    beat, ``noise`` the ``Capacity.noise`` of the study's last search. The search ends when the sd
    of the log peak is down to ``target_sd``, or so far below the noise of one reading that a
    further one would narrow it by less than a tenth, or at ``limits``.
    """
    hunt = Hunt.opening(
        slo,
        limits or Limits(),
        target_sd,
        prior=Estimate.of(prior, UNKNOWN_SD) if isinstance(prior, int | float) else prior,
        beat=_to_beat(incumbent),
        noise=noise or Noise(),
    )
    while True:
        rate = hunt.next_rate()
        hunt = hunt.after(probe(rate, hunt.seconds(rate)))
        verdict = hunt.verdict()
        if verdict is not None:
            return _result(hunt, verdict)


def _to_beat(incumbent: Capacity | float | None) -> Estimate | None:
    if isinstance(incumbent, Capacity):
        return Estimate.of(incumbent.peak, incumbent.sd) if incumbent.peak > 0 else None
    return Estimate.of(incumbent) if incumbent is not None and incumbent > 0 else None


def _result(hunt: Hunt, verdict: CapacityVerdict) -> Capacity:
    low, peak, high = (exp(hunt.summary.quantile(q)) for q in (0.05, 0.5, 0.95))
    sd = hunt.summary.sd
    if verdict == "generator-limited":
        peak = max(hunt.passes, default=0.0)
        low = min(low, peak)
    if verdict == "unmeetable":
        low, peak, high, sd = 0.0, 0.0, min(hunt.failures), 0.0
    return Capacity(
        peak=peak,
        low=low,
        high=high,
        sd=sd,
        verdict=verdict,
        readings=hunt.readings,
        load_seconds=hunt.load_seconds,
        noise=hunt.learned,
    )
