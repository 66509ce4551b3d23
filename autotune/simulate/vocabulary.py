"""The parameters that the model answers to, by the catalogue's names."""

from __future__ import annotations

from autotune.simulate.topology import Topology

ANSWERED = {
    "lb": frozenset({
        "service", "nginx.worker_processes", "nginx.worker_connections", "nginx.use",
        "nginx.multi_accept", "nginx.accept_mutex", "nginx.reuseport", "nginx.upstream_keepalive",
        "nginx.access_log_buffer", "nginx.backlog", "apache.ServerLimit", "apache.ThreadsPerChild",
        "apache.MaxRequestWorkers", "apache.ListenBacklog", "sysctl.net.core.somaxconn",
    }),
    "web": frozenset({
        "service", "nginx.worker_processes", "nginx.worker_connections", "nginx.use",
        "php_fpm.pm", "php_fpm.max_children", "php_fpm.max_requests", "apache.MaxRequestWorkers",
        "apache.MaxConnectionsPerChild",
    }),
    "cache": frozenset({
        "memcached.threads", "memcached.connections", "memcached.memory",
    }),
    "store": frozenset[str](),
}  # fmt: skip


def has_effect(topology: Topology, name: str) -> bool:
    """Whether the parameter called ``name`` (``tier.service.parameter``) is in the model at all."""
    tier, _, bare = name.partition(".")
    return any(
        tier == getattr(topology, field).tier and bare in names for field, names in ANSWERED.items()
    )
