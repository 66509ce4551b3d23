"""What a host shows of itself at one instant. Counters only ever grow; gauges are as found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Queue:
    """A listening socket: connections ``waiting`` to be accepted, its backlog (``None``: not
    shown) and, for a unix socket, how many are ``accepted`` and still open."""

    place: str
    waiting: int
    backlog: int | None = None
    accepted: int = 0


@dataclass(frozen=True)
class Processes:
    """The processes of one service. ``workers`` leaves out masters; ``cpu`` is seconds since they
    started, those that have ended included; ``delay`` is seconds they waited for a CPU; ``rss`` is
    the largest, in bytes; ``descriptors`` is the largest number open in one process."""

    workers: int = 0
    running: int = 0
    threads: int = 0
    cpu: float = 0.0
    delay: float | None = None
    rss: int = 0
    descriptors: int | None = None
    descriptor_limit: int | None = None


@dataclass(frozen=True)
class Sample:
    """One look at one host, ``at`` seconds on its own monotonic clock (time since boot).

    ``cpu`` holds seconds by kind, summed over the CPUs that the kernel shows, which in a container
    are the whole machine's; ``used`` those of the host's own control group, if that has a quota;
    ``throttled`` how long this kept it waiting. ``memory`` holds bytes, ``Group…`` those of the
    group; ``tcp`` the kernel's counters by their own names; ``network`` bytes in and out by
    interface, ``link`` its bytes/s.
    """

    at: float
    cpu: Mapping[str, float] = field(default_factory=dict)
    running: int = 0
    switches: int = 0
    load: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    tcp: Mapping[str, int] = field(default_factory=dict)
    sockets: Mapping[str, int] = field(default_factory=dict)
    network: Mapping[str, int] = field(default_factory=dict)
    link: Mapping[str, float] = field(default_factory=dict)
    files: tuple[int, int] | None = None
    used: float | None = None
    throttled: float | None = None
    queues: tuple[Queue, ...] = ()
    processes: Mapping[str, Processes] = field(default_factory=dict)
