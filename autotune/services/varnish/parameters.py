"""Parameters of Varnish, and what it takes of its host."""

from __future__ import annotations

from functools import partial

from autotune.services.base import Needs, accept_queue, guided, on_restart

MANUAL = "varnish-cache.org, varnishd(1) 7.1"
GUIDE = "varnish-cache.org, Users Guide"
option = partial(on_restart, source=MANUAL)
seconds = partial(on_restart, source=MANUAL, unit="s", log=True)

# The least number of threads comes first: each `-p` has to fit those before it.
PARAMETERS = guided((
    on_restart("storage", "Memory for cached answers (`-s malloc`); about 1 KB each comes to it.",
        low=16, high="memory / 2 / 1048576", log=True, stock=256, unit="MB",
        source=f"{GUIDE}, Sizing your cache"),
    option("thread_pools", "Pools of threads, each with a queue of its own.",
        low=1, high="max(2, min(32, 2 * cpus))", stock=2, recommended=2),
    on_restart("thread_pool_min", "Threads of each pool that are always there.",
        low=5, high=1000, log=True, stock=100, recommended=100,
        source=f"{MANUAL}; {GUIDE}, Performance: as many as it usually works on"),
    option("thread_pool_max", "Threads of each pool at the most; a miss takes two.",
        low=10, high=10_000, log=True, stock=5000),
    option("thread_queue_limit", "Requests that may wait for a thread of a pool; more are dropped.",
        low=0, high=2000, stock=20),
    seconds("thread_pool_timeout", "Idle time after which a thread above the least number ends.",
        low=10, high=3600, stock=300),
    accept_queue("listen_depth", stock=1024, source=MANUAL),
    option("workspace_client", "Memory for the headers and VCL of a request.",
        low=9, high=512, log=True, stock=96, unit="KB"),
    option("workspace_backend", "Memory for the headers and VCL of a fetch.",
        low=9, high=512, log=True, stock=96, unit="KB"),
    option("http_max_hdr", "Header lines that a request or an answer may have.",
        choices=(32, 64, 128, 256), stock=64),
    option("timeout_idle", "How long an idle client connection stays open.",
        low=1, high=300, log=True, stock=5, unit="s"),
    seconds("backend_idle_timeout", "How long an idle connection to the tier behind is kept.",
        low=1, high=3600, stock=60),
    option("gzip_level", "How hard answers are compressed where VCL asks for it.",
        low=1, high=9, stock=6),
    # Short timeouts cut off slow pages.
    seconds("first_byte_timeout", "How long the tier behind may take to begin its answer.",
        low=1, high=600, stock=60, on_demand=True),
),
    capacity="storage+ thread_pools thread_pool_min+ thread_pool_max listen_depth+",
    small="thread_queue_limit+ workspace_client workspace_backend timeout_idle"
    " backend_idle_timeout+ gzip_level-",
    safe={"thread_pools": (1, "max(2, cpus)"), "thread_pool_min": (50, 1000),
          "thread_pool_max": (500, 10_000), "listen_depth": (256, 65_535),
          "workspace_client": (64, 512), "workspace_backend": (64, 512)},
)  # fmt: skip
BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}

NEEDS = Needs(
    # Answers, the log in shared memory, and for each thread a stack and a workspace of one kind.
    memory="storage * 1.1 + 90 MB + thread_pools * thread_pool_max"
    " * (16 KB + (workspace_client + workspace_backend) / 2)",
    source=f"{GUIDE}, Sizing your cache; resident size of 7.1: 14 KB a thread at rest, 116 KB a miss,"
    " which takes two, and 86 MB for the log",
    connections="thread_pools * thread_pool_max",
)
