"""What to change where a bottleneck was named: the moves a search is advised to try first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.measure.bottleneck import Resource

# By service and by what it runs out of: parameters with where to move them, `+` more and `-` less,
# or a choice to take. It is advice: measurements say whether it helps.
_OF_SERVICE: Mapping[tuple[str, Resource], tuple[str, ...]] = {
    ("nginx", Resource.WORKERS): ("worker_processes+",),
    ("nginx", Resource.CONNECTIONS): (
        "worker_connections+", "worker_processes+", "backlog+", "upstream_keepalive+",
    ),
    ("php_fpm", Resource.WORKERS): (
        "max_children+", "pm=static", "start_servers+", "min_spare_servers+",
    ),
    ("php_fpm", Resource.CONNECTIONS): ("listen_backlog+",),
    ("php_fpm", Resource.MEMORY): ("max_children-",),
    ("apache", Resource.WORKERS): (
        "MaxRequestWorkers+", "ServerLimit+", "ThreadsPerChild+", "StartServers+",
        "MinSpareServers+", "MinSpareThreads+", "KeepAliveTimeout-",
    ),
    ("apache", Resource.CONNECTIONS): ("MaxRequestWorkers+", "ServerLimit+", "ListenBacklog+"),
    ("apache", Resource.MEMORY): ("MaxRequestWorkers-", "ServerLimit-"),
    ("memcached", Resource.WORKERS): ("threads+",),
    ("memcached", Resource.CONNECTIONS): ("connections+", "backlog+"),
    ("memcached", Resource.CACHE): ("memory+",),
    ("redis", Resource.STORE): ("io_threads+",),
    ("redis", Resource.CONNECTIONS): ("maxclients+", "tcp_backlog+"),
}  # fmt: skip
_OF_HOST: Mapping[Resource, tuple[str, ...]] = {
    Resource.DESCRIPTORS: ("limits.nofile+",),
    Resource.CONNECTIONS: ("sysctl.net.core.somaxconn+", "sysctl.net.ipv4.tcp_max_syn_backlog+"),
}


def moves(found: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The moves that a bottleneck, as a study recorded it, suggests: ``web.php_fpm.max_children+``,
    ``web.php_fpm.pm=static``. None where nothing can be changed in software, as for a lack of CPU."""
    if not found:
        return ()
    tier, service, resource = found["tier"], found["service"], Resource(found["resource"])
    own = (f"{tier}.{service}.{move}" for move in _OF_SERVICE.get((service, resource), ()))
    return (*own, *(f"{tier}.{move}" for move in _OF_HOST.get(resource, ())))
