"""Parameters of Redis, and what it takes of its host."""

from __future__ import annotations

from autotune.services.base import Action, Needs, Parameter
from autotune.services.redis_protocol import backlog, clients

SOURCE = "redis.io, redis.conf"

PARAMETERS = (
    Parameter(
        name="io_threads", low=1, high="2 * cpus", stock=1, recommended=1,
        action=Action.RESTART, source=SOURCE,
        meaning="Threads that write answers; advised only from four CPUs on.",
    ),
    backlog(SOURCE),
    clients(SOURCE),
    Parameter(
        name="io_threads_do_reads", choices=(False, True), stock=False, action=Action.RESTART,
        source=SOURCE,
        meaning="Whether the threads read and parse requests too; of use with more than one.",
    ),
    Parameter(
        name="hz", low=1, high=100, log=True, stock=10, action=Action.RESTART, source=SOURCE,
        meaning="Background rounds a second: idle clients, expired keys, rehashing.",
    ),
    Parameter(
        name="activerehashing", choices=(False, True), stock=True, action=Action.RESTART,
        source=SOURCE,
        meaning="Whether a millisecond in a hundred goes into resizing the main hash table.",
    ),
    Parameter(
        name="tcp_keepalive", low=0, high=600, stock=300, unit="s", action=Action.RESTART,
        source=SOURCE,
        meaning="Time after which silent clients are asked whether they live; 0 never asks.",
    ),
    Parameter(
        name="jemalloc_bg_thread", choices=(False, True), stock=True, action=Action.RESTART,
        source=SOURCE,
        meaning="Whether freed memory goes back to the system in a thread of its own.",
    ),
)  # fmt: skip

NEEDS = Needs(
    processes="1",
    rss=64 * 2**20,
    source="resident size with a small data set; redis.io, memory optimization, gives the rest",
    connections="maxclients",
)
