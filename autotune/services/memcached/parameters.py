"""Parameters of memcached, and what it takes of its host."""

from __future__ import annotations

from functools import partial

from autotune.services.base import Needs, on_restart

SOURCE = "memcached(1)"
EXTSTORE = "memcached.org, extstore; memcached -h"
option = partial(on_restart, source=SOURCE)
on_disk = partial(on_restart, source=EXTSTORE, when=(("extstore", (True,)),))

PARAMETERS = (
    option("threads", "Worker threads; beyond the CPUs they only wait for each other.",
        low=1, high="8 * cpus", log=True, stock=4, recommended="cpus"),
    option("connections", "Clients at one time; more wait until one leaves.",
        low=64, high="min(65536, nofile - 100)", log=True, stock=1024, recommended=4096),
    option("requests_per_event", "Requests served on one connection before others get their turn.",
        low=1, high=1000, log=True, stock=20),
    option("memory", "Memory for items.",
        low=8, high="memory / 2 / 1048576", log=True, stock=64, unit="MB"),
    option("backlog", "Connections that may wait to be accepted; the kernel caps it at somaxconn.",
        low=64, high=65535, log=True, stock=1024, recommended=4096),
    option("growth_factor",
        "Ratio of neighbouring chunk sizes; nearer to 1 wastes less memory per item.",
        low=1.05, high=2.0, stock=1.25),
    option("chunk_size", "Least space for key, value and flags: the size of the smallest chunks.",
        low=8, high=512, log=True, stock=48, unit="B"),
    on_restart("udp", "Whether clients may ask over UDP too; only ever for a network of one's own.",
        choices=(False, True), stock=False, on_demand=True, source=f"{SOURCE}; CVE-2018-1000115"),
    on_restart("extstore", "Whether large items overflow to a file on disk, keys staying in memory.",
        choices=(False, True), stock=False, built_in=True, on_demand=True, source=EXTSTORE),
    on_disk("ext_size", "Size of that file.",
        low=256, high=65536, log=True, stock=1024, unit="MB"),
    on_disk("ext_threads", "Threads that read and write it.",
        low=1, high="4 * cpus", log=True, stock=1),
    on_disk("ext_item_size", "Items larger than this may go to disk.",
        low=64, high=65536, log=True, stock=512, unit="B"),
    on_disk("ext_wbuf_size", "Buffer in which items gather before they are written.",
        choices=(2, 4, 8, 16), stock=4, unit="MB"),
    on_disk("ext_recache_rate", "One in so many reads of an item on disk brings it back to memory.",
        low=1, high=100_000, log=True, stock=2000),
)  # fmt: skip

NEEDS = Needs(
    # Items, the hash table beside them, and what each connection and thread keeps.
    memory="memory * 1.1 + connections * 4 KB + threads * 1 MB + 4 MB",
    source="memcached.org, user internals; `stats`: read buffers are shared since 1.6",
    connections="connections",
)
