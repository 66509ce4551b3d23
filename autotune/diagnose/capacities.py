"""The capacity of each part of a stack, from its utilisation at sustained rates. Pure.

Operational laws (Denning & Buzen, The operational analysis of queueing network models, 1978) hold for
any arrivals and any service times:

- Utilisation law, U = X·D: at X requests/s the share U of a resource is in use. A request's demand is
  D = U/X, and the resource sustains 1/D.
- Little's law, N = X·R: a pool with N busy workers at X requests/s sustains X·limit/N. This requires
  that a request occupies a worker no longer than now.

Waiting and bursts violate the SLO below that; the caller has to learn how far below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log

from autotune.diagnose.context import ReadingContext
from autotune.estimate import Estimate, PartCapacity
from autotune.parameter_name import own_settings
from autotune.services.base import Settings
from autotune.services.diagnosis import PartActivity
from autotune.services.registry import named
from autotune.space.expression import parse

LEAST_USE = 0.02  # share of a resource; a lower use proves nothing
# Standard deviations of a log capacity from one reading. ``BLUR`` over the share in use is added.
OF_CPU, OF_THREADS, OF_POOL, BLUR = 0.10, 0.10, 0.25, 0.03
SHARED = 0.05  # sd of the error that all readings of a trial share


@dataclass(frozen=True)
class Use:
    """The ``share`` of a part in use at ``rate`` answered requests/s; ``sd`` is of its logarithm."""

    part: str
    tiers: tuple[str, ...]
    rate: float
    share: float
    sd: float

    @property
    def capacity(self) -> Estimate:
        return Estimate(log(self.rate / self.share), hypot(self.sd, BLUR / self.share))


def capacities(uses: Iterable[Use]) -> dict[str, PartCapacity]:
    """Return the capacity of each part, pooled over all its uses."""
    by_part: dict[str, list[Use]] = {}
    for use in uses:
        if use.rate > 0 and use.share >= LEAST_USE:
            by_part.setdefault(use.part, []).append(use)
    pooled_by_part = {}
    for part, its_uses in by_part.items():
        pooled = Estimate.pool([use.capacity for use in its_uses])
        pooled_by_part[part] = PartCapacity(
            pooled.log_mean, hypot(pooled.sd, SHARED), its_uses[0].tiers
        )
    return pooled_by_part


def uses(contexts: Sequence[ReadingContext], calls: Mapping[str, Sequence[str]]) -> list[Use]:
    """Return the uses of all parts in the readings that met the SLO.

    ``calls`` maps each tier to the tiers that it calls, directly or through others.
    """
    carried = [context for context in contexts if context.met and not context.reading.limited]
    return [use for context in carried for use in (*_of_hosts(context), *_of_pools(context, calls))]


def of_hosts(
    rate: float, busy: Mapping[str, float], tiers: Mapping[str, Sequence[str]]
) -> list[Use]:
    """Return CPU uses by the utilisation law; only the busiest host with the same ``tiers`` counts.

    ``busy`` is the share of each host's CPUs in use.
    """
    busiest: dict[tuple[str, ...], float] = {}
    for host, share in busy.items():
        if its_tiers := tuple(sorted(tiers.get(host, ()))):
            busiest[its_tiers] = max(share, busiest.get(its_tiers, 0.0))
    return [Use(f"{'+'.join(own)}.cpu", own, rate, s, OF_CPU) for own, s in busiest.items()]


def _of_hosts(context: ReadingContext) -> list[Use]:
    tiers: dict[str, set[str]] = {}
    for part in context.parts:
        tiers.setdefault(part.host, set()).add(part.tier)
    # Requests do not cause the CPU use of other programs, such as a generator.
    own = {name: sum(part.cpu for part in context.on(name)) for name in context.hosts}
    busy = {
        name: own[name] / host.cpus if own[name] else host.busy
        for name, host in context.hosts.items()
    }
    return of_hosts(context.answered, busy, {host: tuple(names) for host, names in tiers.items()})


def _of_pools(context: ReadingContext, calls: Mapping[str, Sequence[str]]) -> list[Use]:
    """Return uses by Little's law (workers) and the utilisation law (threads), per busiest host."""
    fullest: dict[str, Use] = {}
    for part in context.parts:
        for use in (_workers(context, part, calls), _threads(context, part)):
            if use and use.share > (fullest[use.part].share if use.part in fullest else 0.0):
                fullest[use.part] = use
    return list(fullest.values())


def _workers(
    context: ReadingContext, part: PartActivity, calls: Mapping[str, Sequence[str]]
) -> Use | None:
    limit = _limit(part, context.settings)
    if not part.runs_application or not limit or part.accepted <= 0:
        return None
    # A request also occupies its worker while the called tiers work.
    tiers = (part.tier, *calls.get(part.tier, ()))
    return Use(f"{part.label}.workers", tiers, context.answered, part.accepted / limit, OF_POOL)


def _limit(part: PartActivity, settings: Settings) -> float | None:
    """Return the maximum number of workers of a service; ``None`` if unknown."""
    formula = next((s.needs.workers for s in named(part.service) if s.needs.workers), "")
    own = own_settings(settings, part.label)
    numbers = {n: float(v) for n, v in own.items() if isinstance(v, int | float)}
    try:
        return parse(formula).evaluate(numbers) if formula else None
    except KeyError:
        return None


def _threads(context: ReadingContext, part: PartActivity) -> Use | None:
    threads = context.threads(part)
    if threads is None or part.cpu <= 0:
        return None
    share = part.cpu / threads
    return Use(f"{part.label}.threads", (part.tier,), context.answered, share, OF_THREADS)
