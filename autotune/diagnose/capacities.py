"""Estimate the capacity of each part of a stack from its utilisation at sustained rates.

Operational laws (Denning & Buzen, The operational analysis of queueing network models, 1978) hold for
any distribution of arrivals and service times:

- Utilisation law, U = X·D: at X requests/s, the share U of a resource is in use. A request's demand is
  D = U/X, and the resource sustains 1/D requests/s.
- Little's law, N = X·R: a pool with N busy workers at X requests/s sustains X·limit/N requests/s. A
  request is assumed to occupy its worker for the same time at both rates.

Because of waiting times and bursts, the SLO is already violated below the computed capacities. The
caller must learn how far below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log

from autotune.diagnose.context import ReadingContext
from autotune.estimate import Estimate, InstanceCapacity
from autotune.parameter_name import select_service_settings
from autotune.services.diagnosis import InstanceActivity
from autotune.space.expression import parse_expression

MIN_USED_SHARE = 0.02  # a smaller share of a resource in use does not show the resource's capacity
# Standard deviations of a log capacity from one reading. ``LOW_USE_SD``, divided by the share in use,
# is added.
CPU_LOG_SD, THREADS_LOG_SD, POOL_LOG_SD, LOW_USE_SD = 0.10, 0.10, 0.25, 0.03
COMMON_ERROR_SD = 0.05  # sd of the error that all readings of a trial share


@dataclass(frozen=True)
class ResourceUsage:
    """The share of an instance's resource in use (``used_share``) at ``rate`` served requests/s, with
    the ``sd`` of the share's logarithm.
    """

    instance_name: str
    tiers: tuple[str, ...]
    rate: float
    used_share: float
    sd: float

    @property
    def capacity(self) -> Estimate:
        return Estimate(
            log(self.rate / self.used_share), hypot(self.sd, LOW_USE_SD / self.used_share)
        )


def pool_capacities(usages: Iterable[ResourceUsage]) -> dict[str, InstanceCapacity]:
    """Return the capacity of each part of a stack, pooled over all usages of the part's resources."""
    usages_by_part: dict[str, list[ResourceUsage]] = {}
    for usage in usages:
        if usage.rate > 0 and usage.used_share >= MIN_USED_SHARE:
            usages_by_part.setdefault(usage.instance_name, []).append(usage)
    capacities = {}
    for instance, part_usages in usages_by_part.items():
        pooled_estimate = Estimate.pool([usage.capacity for usage in part_usages])
        capacities[instance] = InstanceCapacity(
            pooled_estimate.log_mean,
            hypot(pooled_estimate.sd, COMMON_ERROR_SD),
            part_usages[0].tiers,
        )
    return capacities


def list_resource_usages(
    contexts: Sequence[ReadingContext], called_tiers: Mapping[str, Sequence[str]]
) -> list[ResourceUsage]:
    """Return the resource usages of all parts in the readings that met the SLO.

    ``called_tiers`` maps each tier to the tiers that it calls, directly or through others.
    """
    sustained_contexts = [
        context for context in contexts if context.met_slo and not context.reading.limited
    ]
    return [
        usage
        for context in sustained_contexts
        for usage in (*_list_cpu_usages(context), *_list_pool_usages(context, called_tiers))
    ]


def build_cpu_usages(
    rate: float, busy_shares: Mapping[str, float], tiers: Mapping[str, Sequence[str]]
) -> list[ResourceUsage]:
    """Return CPU usages, computed with the utilisation law. Among hosts with the same ``tiers``, only
    the busiest host is used.

    ``busy_shares`` contains the share of each host's CPUs in use.
    """
    highest_shares: dict[tuple[str, ...], float] = {}
    for host, busy_share in busy_shares.items():
        if host_tiers := tuple(sorted(tiers.get(host, ()))):
            highest_shares[host_tiers] = max(busy_share, highest_shares.get(host_tiers, 0.0))
    return [
        ResourceUsage(f"{'+'.join(tier_names)}.cpu", tier_names, rate, busy_share, CPU_LOG_SD)
        for tier_names, busy_share in highest_shares.items()
    ]


def _list_cpu_usages(context: ReadingContext) -> list[ResourceUsage]:
    tiers: dict[str, set[str]] = {}
    for instance in context.instances:
        tiers.setdefault(instance.host, set()).add(instance.tier)
    # Exclude the CPU time of other programs, such as a generator.
    own_cpu = {name: sum(part.cpu for part in context.instances_on(name)) for name in context.hosts}
    busy_shares = {
        name: own_cpu[name] / host.cpus if own_cpu[name] else host.busy_share
        for name, host in context.hosts.items()
    }
    return build_cpu_usages(
        context.answered_rate, busy_shares, {host: tuple(names) for host, names in tiers.items()}
    )


def _list_pool_usages(
    context: ReadingContext, called_tiers: Mapping[str, Sequence[str]]
) -> list[ResourceUsage]:
    """Return the usages of workers (from Little's law) and of threads (from the utilisation law).

    Only the busiest host of each service is used.
    """
    highest_usages: dict[str, ResourceUsage] = {}
    for instance in context.instances:
        for usage in (
            _find_worker_usage(context, instance, called_tiers),
            _find_thread_usage(context, instance),
        ):
            if usage and usage.used_share > (
                highest_usages[usage.instance_name].used_share
                if usage.instance_name in highest_usages
                else 0.0
            ):
                highest_usages[usage.instance_name] = usage
    return list(highest_usages.values())


def _find_worker_usage(
    context: ReadingContext, instance: InstanceActivity, called_tiers: Mapping[str, Sequence[str]]
) -> ResourceUsage | None:
    max_workers = _find_max_workers(context, instance)
    if not instance.runs_application or not max_workers or instance.accepted_connections <= 0:
        return None
    # A request also occupies its worker while the called tiers are working.
    tiers = (instance.tier, *called_tiers.get(instance.tier, ()))
    return ResourceUsage(
        f"{instance.label}.workers",
        tiers,
        context.answered_rate,
        instance.accepted_connections / max_workers,
        POOL_LOG_SD,
    )


def _find_max_workers(context: ReadingContext, instance: InstanceActivity) -> float | None:
    """Return the maximum number of workers of a service; ``None`` if unknown."""
    services = context.catalogue.list_by_name(instance.service)
    worker_formula = next((s.needs.workers for s in services if s.needs.workers), "")
    own_settings = select_service_settings(context.settings, instance.label)
    numeric_settings = {n: float(v) for n, v in own_settings.items() if isinstance(v, int | float)}
    try:
        return (
            parse_expression(worker_formula).evaluate(numeric_settings) if worker_formula else None
        )
    except KeyError:
        return None


def _find_thread_usage(context: ReadingContext, instance: InstanceActivity) -> ResourceUsage | None:
    threads = context.count_threads(instance)
    used_cpus = context.compute_threads_cpu(instance)
    if threads is None or used_cpus <= 0:
        return None
    share = used_cpus / threads
    return ResourceUsage(
        f"{instance.label}.threads", (instance.tier,), context.answered_rate, share, THREADS_LOG_SD
    )
