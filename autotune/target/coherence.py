"""What a target says in one place must fit what it says in another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autotune.target import kinds
from autotune.target.document import Location, instead
from autotune.target.kinds import Finding
from autotune.target.model import Target
from autotune.target.units import duration_text, fraction_text


def findings(target: Target) -> Iterator[Finding]:
    """All there is to find, in no particular order; what kind of target it is comes first."""
    of_kind = list(kinds.findings(target))
    if of_kind or target.command:
        yield from of_kind
        return
    yield from _hosts(target)
    yield from _load(target)
    yield from _neighbours(target)
    yield from _local_caches(target)
    yield from _circles(target)
    yield from _ports(target)
    yield from _objective(target)


def _load(target: Target) -> Iterator[Finding]:
    if target.load.command and "generator" in target.load.model_fields_set:
        message = "`generator` and `command` exclude each other"
        yield Finding(("load", "command"), message)
    for key in ("uris", "sessions"):
        if getattr(target.load, key) is None:
            continue
        if target.load.command or target.load.generator != "httperf":
            yield Finding(("load", key), f"`{key}` is for httperf alone")
        if key == "sessions" and target.load.uris is not None:
            yield Finding(("load", key), "`uris` and `sessions` exclude each other")


def _hosts(target: Target) -> Iterator[Finding]:
    for name, tier in target.tiers.items():
        yield from _known(("tiers", name, "hosts"), "host", tier.hosts, target.hosts)
        yield from _twice(("tiers", name, "service"), tier.service)
    yield from _known(("load", "hosts"), "host", target.load.hosts, target.hosts)


def _neighbours(target: Target) -> Iterator[Finding]:
    for name, tier in target.tiers.items():
        place = ("tiers", name)
        others = {other: target.tiers[other] for other in target.tiers if other != name}
        if name in (tier.forwards_to, *tier.uses):
            key = "forwards_to" if tier.forwards_to == name else "uses"
            yield Finding((*place, key), f"tier {name!r} cannot have itself behind it")
            continue
        if tier.forwards_to is not None and tier.forwards_to not in others:
            yield _absent((*place, "forwards_to"), "tier", tier.forwards_to, others)
        yield from _known((*place, "uses"), "tier", tier.uses, others)


def _known(
    place: tuple[str, ...], what: str, names: tuple[str, ...], known: Mapping[str, object]
) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if name not in known:
            yield _absent((*place, index), what, name, known)
    yield from _twice(place, names)


def _absent(place: Location, what: str, name: str, known: Mapping[str, object]) -> Finding:
    return Finding(place, f"there is no {what} {name!r}", instead(name, known))


def _twice(place: tuple[str, ...], names: tuple[str, ...]) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Finding((*place, index), f"{name!r} is there twice")


def _local_caches(target: Target) -> Iterator[Finding]:
    for name, tier in target.tiers.items():
        if tier.local_cache and not tier.app:
            message = f"tier {name!r} has no application that could ask a local cache"
            yield Finding(("tiers", name, "local_cache"), message, "leave `local_cache:` out")


def _circles(target: Target) -> Iterator[Finding]:
    for start in target.tiers:
        circle = _circle(target, (start,))
        if circle and len(circle) > 2:
            behind = target.tiers[start].forwards_to == circle[1]
            place = ("tiers", start, "forwards_to" if behind else "uses")
            yield Finding(place, f"tiers depend on each other in a circle: {' → '.join(circle)}")


def _circle(target: Target, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The way from the first tier of ``path`` back to it, if there is one."""
    tier = target.tiers[path[-1]]
    for after in (*((tier.forwards_to,) if tier.forwards_to else ()), *tier.uses):
        if after == path[0]:
            return (*path, after)
        if after in target.tiers and after not in path:
            found = _circle(target, (*path, after))
            if found:
                return found
    return None


def _ports(target: Target) -> Iterator[Finding]:
    taken: dict[tuple[str, int], str] = {}
    for name, tier in target.tiers.items():
        for host in tier.hosts:
            if tier.port is None or host not in target.hosts:
                continue
            other = taken.setdefault((target.hosts[host].address, tier.port), name)
            if other != name:
                message = f"port {tier.port} on host {host!r} is that of tier {other!r} already"
                yield Finding(
                    ("tiers", name, "port"), message, "leave `port:` out to have a free one"
                )


def _objective(target: Target) -> Iterator[Finding]:
    slo, timeout = target.slo.slo, target.load.timeout
    # Requests given up early never show how late they were, and relieve an overloaded server.
    if timeout < 2 * slo.limit:
        least = duration_text(2 * slo.limit)
        near = f"{duration_text(timeout)} is too near the latency limit, {duration_text(slo.limit)}"
        written = "timeout" in target.load.model_fields_set
        place = ("load", "timeout") if written else ("slo",)
        yield Finding(place, f"timeout: {near}", f"give it more: `load: {{timeout: {least}}}`")
    # Errors are late requests too (Slo.allowed), so a larger allowance could never be used.
    if slo.errors > slo.allowed + 1e-12:
        more = f"{fraction_text(slo.errors)} is more than the {slo.allowed * 100:g}%"
        message = f"errors: {more} that may be late or fail together"
        yield Finding(("slo", "errors"), message)
