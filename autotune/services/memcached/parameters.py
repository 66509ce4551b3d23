"""Parameters of memcached, and what it takes of its host."""

from __future__ import annotations

from autotune.services.base import Action, Needs, Parameter

SOURCE = "memcached(1)"
EXTSTORE = "memcached.org, extstore; memcached -h"
ON_DISK = (("extstore", (True,)),)

PARAMETERS = (
    Parameter(
        name="threads", low=1, high="8 * cpus", log=True, stock=4, recommended="cpus",
        action=Action.RESTART, source=SOURCE,
        meaning="Worker threads; beyond the CPUs they only wait for each other.",
    ),
    Parameter(
        name="connections", low=64, high="min(65536, nofile - 100)", log=True, stock=1024,
        recommended=4096, action=Action.RESTART, source=SOURCE,
        meaning="Clients at one time; more wait until one leaves.",
    ),
    Parameter(
        name="requests_per_event", low=1, high=1000, log=True, stock=20,
        action=Action.RESTART, source=SOURCE,
        meaning="Requests served on one connection before others get their turn.",
    ),
    Parameter(
        name="memory", low=8, high="memory / 2 / 1048576", log=True, stock=64, unit="MB",
        action=Action.RESTART, source=SOURCE,
        meaning="Memory for items.",
    ),
    Parameter(
        name="backlog", low=64, high=65535, log=True, stock=1024, recommended=4096,
        action=Action.RESTART, source=SOURCE,
        meaning="Connections that may wait to be accepted; the kernel caps it at somaxconn.",
    ),
    Parameter(
        name="growth_factor", low=1.05, high=2.0, stock=1.25, action=Action.RESTART,
        source=SOURCE,
        meaning="Ratio of neighbouring chunk sizes; nearer to 1 wastes less memory per item.",
    ),
    Parameter(
        name="chunk_size", low=8, high=512, log=True, stock=48, unit="B", action=Action.RESTART,
        source=SOURCE,
        meaning="Least space for key, value and flags: the size of the smallest chunks.",
    ),
    Parameter(
        name="udp", choices=(False, True), stock=False, on_demand=True, action=Action.RESTART,
        source=f"{SOURCE}; CVE-2018-1000115",
        meaning="Whether clients may ask over UDP too; only ever for a network of one's own.",
    ),
    Parameter(
        name="extstore", choices=(False, True), stock=False, on_demand=True, built_in=True,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Whether large items overflow to a file on disk, keys staying in memory.",
    ),
    Parameter(
        name="ext_size", low=256, high=65536, log=True, stock=1024, unit="MB", when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Size of that file.",
    ),
    Parameter(
        name="ext_threads", low=1, high="4 * cpus", log=True, stock=1, when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Threads that read and write it.",
    ),
    Parameter(
        name="ext_item_size", low=64, high=65536, log=True, stock=512, unit="B", when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Items larger than this may go to disk.",
    ),
    Parameter(
        name="ext_wbuf_size", choices=(2, 4, 8, 16), stock=4, unit="MB", when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="Buffer in which items gather before they are written.",
    ),
    Parameter(
        name="ext_recache_rate", low=1, high=100_000, log=True, stock=2000, when=ON_DISK,
        action=Action.RESTART, source=EXTSTORE,
        meaning="One in so many reads of an item on disk brings it back to memory.",
    ),
)  # fmt: skip

NEEDS = Needs(
    # Items, the hash table beside them, and what each connection and thread keeps.
    memory="memory * 1.1 + connections * 4 KB + threads * 1 MB + 4 MB",
    source="memcached.org, user internals; `stats`: read buffers are shared since 1.6",
    connections="connections",
)
