"""Parameters of Varnish, and its resource needs."""

from __future__ import annotations

from functools import partial

from autotune.services.base import ResourceNeeds, build_accept_queue, on_restart, with_guidance

MANUAL = "varnish-cache.org, varnishd(1) 7.1"
GUIDE_DOCS = "varnish-cache.org, Users Guide"
build_varnish_option = partial(on_restart, source=MANUAL)
build_timeout_option = partial(on_restart, source=MANUAL, unit="s", log=True)

# The minimum number of threads comes first: each `-p` must be consistent with the `-p` options before
# it.
PARAMETERS = with_guidance((
    on_restart("storage", "Memory for cached objects (`-s malloc`). Each object adds about 1 KB.",
        low=16, high="memory / 2 / 1048576", log=True, stock=256, unit="MB",
        source=f"{GUIDE_DOCS}, Sizing your cache"),
    build_varnish_option("thread_pools", "Number of thread pools, each with its own queue.",
        low=1, high="max(2, min(32, 2 * cpus))", stock=2, recommended=2),
    on_restart("thread_pool_min", "Minimum number of threads per pool.",
        low=5, high=1000, log=True, stock=100, recommended=100,
        source=f"{MANUAL}; {GUIDE_DOCS}, Performance: as many as are usually busy"),
    build_varnish_option("thread_pool_max",
        "Maximum number of threads per pool. A cache miss occupies two.",
        low=10, high=10_000, log=True, stock=5000),
    build_varnish_option("thread_queue_limit",
        "Maximum number of requests per pool that wait for a thread. Others are dropped.",
        low=0, high=2000, stock=20),
    build_timeout_option("thread_pool_timeout",
        "Idle time after which a thread above the minimum exits.",
        low=10, high=3600, stock=300),
    build_accept_queue("listen_depth", stock=1024, source=MANUAL),
    build_varnish_option("workspace_client", "Memory for headers and VCL per request.",
        low=9, high=512, log=True, stock=96, unit="KB"),
    build_varnish_option("workspace_backend", "Memory for headers and VCL per fetch.",
        low=9, high=512, log=True, stock=96, unit="KB"),
    build_varnish_option("http_max_hdr", "Maximum number of header lines in a request or response.",
        choices=(32, 64, 128, 256), stock=64),
    build_varnish_option("timeout_idle", "Time that an idle client connection stays open.",
        low=1, high=300, log=True, stock=5, unit="s"),
    build_timeout_option("backend_idle_timeout", "Time that an idle backend connection stays open.",
        low=1, high=3600, stock=60),
    build_varnish_option("gzip_level",
        "Compression level for responses, if the VCL enables compression.",
        low=1, high=9, stock=6),
    # Short timeouts would abort slow pages.
    build_timeout_option("first_byte_timeout",
        "Maximum time until the first byte of a backend response.",
        low=1, high=600, stock=60, on_demand=True),
),
    capacity="storage+ thread_pools thread_pool_min+ thread_pool_max listen_depth+",
    small="thread_queue_limit+ workspace_client workspace_backend timeout_idle"
    " backend_idle_timeout+ gzip_level-",
    safe={"thread_pools": (1, "max(2, cpus)"), "thread_pool_min": (50, 1000),
          "thread_pool_max": (500, 10_000), "listen_depth": (256, 65_535),
          "workspace_client": (64, 512), "workspace_backend": (64, 512)},
)  # fmt: skip
PARAMETERS_BY_NAME = {parameter.name: parameter for parameter in PARAMETERS}

RESOURCE_NEEDS = ResourceNeeds(
    # Memory for objects, for the log, and for the stack and workspace of each thread.
    memory="storage * 1.1 + 90 MB + thread_pools * thread_pool_max"
    " * (16 KB + (workspace_client + workspace_backend) / 2)",
    source=f"{GUIDE_DOCS}, Sizing your cache; resident size of 7.1: 14 KB a thread at rest, 116 KB a"
    " miss, which takes two threads, and 86 MB for the log",
    connections="thread_pools * thread_pool_max",
)
