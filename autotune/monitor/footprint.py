"""What a reading took of each host, in a few numbers that are kept with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.monitor.activity import host_activity, part_activity
from autotune.monitor.watch import Seen, WatchedHost


@dataclass(frozen=True)
class Footprint:
    """A host over one reading.

    ``cpu`` is the fraction of its CPUs' time in use and ``steal`` what the machine below took of
    it; ``load`` the load average at the end, ``running`` the mean of runnable threads; ``memory``
    the fraction in use at worst; ``sockets`` and ``time_wait`` counts at worst; ``network``
    bytes/s. ``rss`` is the largest process of each service in bytes, ``workers`` how many there
    were, by the part's name.
    """

    cpu: float
    steal: float
    load: float
    running: float
    memory: float
    sockets: int
    time_wait: int
    network: float
    rss: Mapping[str, int] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)


def footprints(hosts: Sequence[WatchedHost], seen: Seen, seconds: float) -> dict[str, Footprint]:
    """Host → its footprint, for every host that was seen at all."""
    found = {host.name: _footprint(host, seen, seconds) for host in hosts}
    return {name: footprint for name, footprint in found.items() if footprint}


def _footprint(host: WatchedHost, seen: Seen, seconds: float) -> Footprint | None:
    whole = host_activity(host, seen, seconds)
    if whole is None:
        return None
    parts = [part_activity(part, seen, seconds) for part in host.parts]
    return Footprint(
        cpu=round(whole.busy, 4),
        steal=round(whole.cpu.get("steal", 0.0), 4),
        load=round(whole.load, 2),
        running=round(whole.running, 2),
        memory=round(whole.memory, 4),
        sockets=whole.sockets,
        time_wait=whole.time_wait,
        network=round(whole.network),
        rss={part.name: part.rss for part in parts if part.rss},
        workers={part.name: part.workers for part in parts if part.workers},
    )
