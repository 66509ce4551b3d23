"""The tier and the resource that limit the peak, with a line of evidence. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.deploy.stack import Stack
from autotune.diagnose.context import Bottleneck, ReadingContext, context_of, floor
from autotune.diagnose.rules import RULES
from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.monitor.watch import Observations, WatchedHost
from autotune.services.base import Role, Settings
from autotune.services.diagnosis import Resource
from autotune.services.registry import ALL, diagnosis, of_role
from autotune.target.slo import Slo

NEAREST = 3  # failed readings that count; further above the peak, overload hides the cause


@dataclass(frozen=True)
class WatchedReading:
    """A reading, the observations during it, and the usage of each host."""

    reading: Reading
    observations: Observations
    hosts: Mapping[str, HostUsage] = field(default_factory=dict)


def diagnose(
    stack: Stack,
    settings: Settings,
    watched: Sequence[WatchedReading],
    *,
    hosts: tuple[WatchedHost, ...],
    slo: Slo,
) -> Bottleneck | None:
    """Return what limits the peak, from the readings around it; ``None`` without an explanation."""
    return bottleneck_of(contexts_of(stack, settings, watched, hosts=hosts, slo=slo))


def contexts_of(
    stack: Stack,
    settings: Settings,
    watched: Sequence[WatchedReading],
    *,
    hosts: tuple[WatchedHost, ...],
    slo: Slo,
) -> list[ReadingContext]:
    """Return the context of each reading."""
    return [
        context_of(w.reading, w.observations, stack=stack, hosts=hosts, settings=settings, slo=slo)
        for w in watched
    ]


def bottleneck_of(contexts: Sequence[ReadingContext]) -> Bottleneck | None:
    """Return the verdict of the readings just above the peak.

    The finding with the highest total confidence counts, and among equals the finding of the reading
    nearest to the peak. A reading that the generator limited proves nothing about the stack. The highest
    of these decides only if no other reading failed. Without either, the highest rate decides.
    """
    floors = [time for s in contexts if (time := floor(s)) is not None]
    compared = [replace(s, fastest=min(floors, default=None)) for s in contexts]
    real = sorted((s for s in compared if not s.reading.limited), key=lambda s: s.reading.rate)
    failed = [s for s in real if not s.met][:NEAREST]
    limited = [s for s in contexts if s.reading.limited]
    if not failed and limited:
        return explain(max(limited, key=lambda s: s.reading.rate))
    findings = [finding for s in failed or real[-1:] if (finding := explain(s))]
    if not findings:
        return None
    weights: dict[tuple[str, str, str], float] = {}
    for finding in findings:
        named = (finding.tier, finding.service, finding.resource)
        weights[named] = weights.get(named, 0.0) + finding.confidence
    chosen = max(weights, key=lambda named: weights[named])  # among equals, the nearest
    first = next(f for f in findings if (f.tier, f.service, f.resource) == chosen)
    return replace(first, confidence=weights[chosen] / max(1, len(failed)))


def explain(context: ReadingContext) -> Bottleneck | None:
    """Return the finding of the first rule that applies to a reading."""
    return next((finding for rule in RULES if (finding := rule(context))), None)


def worst_rss(watched: Iterable[WatchedReading]) -> dict[str, int]:
    """Return the largest resident size of one process by `tier.service`, in bytes."""
    worst: dict[str, int] = {}
    for reading in watched:
        for usage in reading.hosts.values():
            for part, size in usage.rss.items():
                tier, _, rest = part.partition(".")
                name = f"{tier}.{rest.rpartition('.')[2]}"
                worst[name] = max(size, worst.get(name, 0))
    return worst


def recommended_moves(
    bottleneck: Mapping[str, Any] | None, among: Container[str] | None = None
) -> tuple[str, ...]:
    """Return the moves that a recorded bottleneck suggests.

    ``among`` are the full names of the existing parameters, if known.

    Examples are ``web.php_fpm.max_children+`` and ``web.php_fpm.pm=static``. There are none if software
    cannot help, as for a lack of CPU. The moves are advice; measurements show whether they help.
    """
    if not bottleneck:
        return ()
    tier, resource = bottleneck["tier"], Resource(bottleneck["resource"])
    of_host = [s.name for s in of_role(Role.HOST) if not s.interpreter]
    # All services of a tier share its CPUs: less work in any of them leaves more for the others.
    others = [s.name for s in ALL] if resource is Resource.CPU else []
    names = dict.fromkeys((bottleneck["service"], *of_host, *others))
    return tuple(
        f"{tier}.{name}.{move}"
        for name in names
        for move in diagnosis(name).moves.get(resource, ())
        if among is None or f"{tier}.{name}.{_moved(move)}" in among
    )


def _moved(move: str) -> str:
    """The bare name of the parameter that a move changes."""
    return move.partition("=")[0].rstrip("+-")
