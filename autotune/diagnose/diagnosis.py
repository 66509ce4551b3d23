"""Find the tier and the resource that limit the peak, with a line of evidence."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.deploy.stack import Stack
from autotune.diagnose.bottleneck import Bottleneck, RelatedShortage
from autotune.diagnose.causes import find_cause, is_negligible
from autotune.diagnose.context import ReadingContext, build_context, compute_latency_floor
from autotune.diagnose.rules import BOTTLENECK_RULES
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.monitor.host_watch import Observations, WatchedHost
from autotune.services.base import Role, Settings
from autotune.services.diagnosis import Resource, parse_parameter
from autotune.services.registry import SHIPPED, Catalogue
from autotune.target.slo import Slo

# maximum number of failed readings to use, because overload far above the peak hides the cause
MAX_FAILED_READINGS = 3


@dataclass(frozen=True)
class WatchedReading:
    """A reading, the observations during it, and the usage of each host."""

    reading: Reading
    observations: Observations
    hosts: Mapping[str, HostUsage] = field(default_factory=dict)


def find_bottleneck(
    stack: Stack,
    settings: Settings,
    watched_readings: Sequence[WatchedReading],
    *,
    hosts: tuple[WatchedHost, ...],
    slo: Slo,
) -> Bottleneck | None:
    """Return the bottleneck of the readings around the peak; ``None`` if no rule explains the
    readings.
    """
    return select_bottleneck(
        build_contexts(stack, settings, watched_readings, hosts=hosts, slo=slo)
    )


def build_contexts(
    stack: Stack,
    settings: Settings,
    watched_readings: Sequence[WatchedReading],
    *,
    hosts: tuple[WatchedHost, ...],
    slo: Slo,
) -> list[ReadingContext]:
    """Return the context of each reading."""
    return [
        build_context(
            w.reading, w.observations, stack=stack, hosts=hosts, settings=settings, slo=slo
        )
        for w in watched_readings
    ]


def select_bottleneck(contexts: Sequence[ReadingContext]) -> Bottleneck | None:
    """Return the bottleneck that the readings just above the peak agree on.

    The finding with the highest total confidence is chosen. If several findings have the same
    confidence, the finding from the reading nearest to the peak is chosen. Readings that the generator
    limited do not show the limits of the stack, so they are used only if no other reading failed. If no
    reading failed or was limited, the reading at the highest rate is used.
    """
    latency_floors = [
        floor_seconds for s in contexts if (floor_seconds := compute_latency_floor(s)) is not None
    ]
    comparable_contexts = [
        replace(s, fastest_latency=min(latency_floors, default=None)) for s in contexts
    ]
    unlimited_contexts = sorted(
        (s for s in comparable_contexts if not s.reading.limited), key=lambda s: s.reading.rate
    )
    failed_contexts = [s for s in unlimited_contexts if not s.met_slo][:MAX_FAILED_READINGS]
    limited_contexts = [s for s in contexts if s.reading.limited]
    if not failed_contexts and limited_contexts:
        return find_first_bottleneck(max(limited_contexts, key=lambda s: s.reading.rate))
    findings = [
        finding
        for s in failed_contexts or unlimited_contexts[-1:]
        if (finding := find_first_bottleneck(s))
    ]
    if not findings:
        return None
    weights: dict[tuple[str, str, str], float] = {}
    for finding in findings:
        shortage_key = (finding.tier, finding.service, finding.resource)
        weights[shortage_key] = weights.get(shortage_key, 0.0) + finding.confidence
    # Among equal weights, ``max`` selects the finding nearest to the peak.
    chosen_key = max(weights, key=lambda key: weights[key])
    main_finding = next(f for f in findings if (f.tier, f.service, f.resource) == chosen_key)
    return replace(main_finding, confidence=weights[chosen_key] / max(1, len(failed_contexts)))


def find_first_bottleneck(context: ReadingContext) -> Bottleneck | None:
    """Return the finding of the first rule that applies to a reading. If the finding has a cause in
    another tier, return the cause instead.

    A database wait that hardly delays the application is returned only if no other rule applies.
    Otherwise, the wait is a related shortage.
    """
    negligible_wait = None
    for rule in BOTTLENECK_RULES:
        if (finding := rule(context)) is None:
            continue
        cause = find_cause(context, finding)
        if not is_negligible(context, cause):
            return _add_related_wait(cause, negligible_wait)
        negligible_wait = negligible_wait or cause
    return negligible_wait


def _add_related_wait(cause: Bottleneck, wait: Bottleneck | None) -> Bottleneck:
    if wait is None:
        return cause
    related = (*cause.related, RelatedShortage(wait.tier, wait.service, wait.resource))
    return replace(cause, related=tuple(dict.fromkeys(related)))


def find_max_rss(watched_readings: Iterable[WatchedReading]) -> dict[str, int]:
    """Return the size of the largest process of each `tier.service`, in bytes."""
    largest_sizes: dict[str, int] = {}
    for reading in watched_readings:
        for host_usage in reading.hosts.values():
            for instance, rss_bytes in host_usage.rss.items():
                tier, _, host_and_service = instance.partition(".")
                service_label = f"{tier}.{host_and_service.rpartition('.')[2]}"
                largest_sizes[service_label] = max(rss_bytes, largest_sizes.get(service_label, 0))
    return largest_sizes


def list_recommended_changes(
    bottleneck: Bottleneck | None,
    existing_names: Container[str] | None = None,
    catalogue: Catalogue = SHIPPED,
) -> tuple[str, ...]:
    """Return the changes that a recorded bottleneck suggests, followed by changes for related
    shortages.

    Examples are ``web.php_fpm.max_children+`` and ``web.php_fpm.pm=static``. Only measurements show
    whether a change helps. The result is empty if no setting helps. ``existing_names`` contains the full
    names of the existing parameters, if known, and ``catalogue`` contains the services of the target.
    """
    if not bottleneck:
        return ()
    own_shortage = bottleneck.tier, bottleneck.service, bottleneck.resource
    # The evidence contains the name of a parameter that helps, such as tmp_table_size.
    evidence_words = bottleneck.evidence_words
    own_changes = sorted(
        _list_changes(*own_shortage, existing_names, catalogue),
        key=lambda change: parse_parameter(change).rpartition(".")[2] not in evidence_words,
    )
    recommended_changes = (
        *own_changes,
        *(
            change
            for shortage in bottleneck.related
            for change in _list_changes(*shortage, existing_names, catalogue)
        ),
    )
    return tuple(dict.fromkeys(recommended_changes))


def _list_changes(
    tier: str,
    service: str,
    resource: Resource,
    existing_names: Container[str] | None,
    catalogue: Catalogue,
) -> tuple[str, ...]:
    """Return the parameter changes that reduce a shortage of ``resource``."""
    host_services = [s.name for s in catalogue.list_by_role(Role.HOST) if not s.interpreter]
    # All services of a tier share its CPUs, so less work in one service leaves more CPU for the others.
    other_services = [s.name for s in catalogue.services] if resource is Resource.CPU else []
    service_names = dict.fromkeys((service, *host_services, *other_services))
    return tuple(
        f"{tier}.{service_name}.{change}"
        for service_name in service_names
        for change in catalogue.find_diagnosis(service_name).recommended_changes.get(resource, ())
        if existing_names is None
        or f"{tier}.{service_name}.{parse_parameter(change)}" in existing_names
    )
