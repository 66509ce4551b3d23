"""nginx, as a load balancer or in front of PHP-FPM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from autotune.services.base import (
    Argv,
    ConfigFile,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
    Site,
)
from autotune.services.diagnosis import TOLD, Diagnosis, Finding, PartReading, Resource
from autotune.services.nginx.parameters import NEEDS, PARAMETERS
from autotune.services.nginx.syntax import directives
from autotune.services.readback import backlog_in_force

IN_EFFECT = {name: name for name in (
    "worker_processes", "worker_connections", "multi_accept", "accept_mutex", "use",
    "keepalive_timeout", "keepalive_requests", "fastcgi_keep_conn",
)}  # fmt: skip


class Nginx(Service):
    """Role ``proxy`` balances over the tier it forwards to; role ``web`` hands on to PHP-FPM."""

    name = "nginx"
    title = "nginx"
    deployment = "nginx"
    role = Role.PROXY
    port = 80
    config = ("nginx.conf", "/etc/nginx/nginx.conf")
    unit_name = "nginx.service"
    gateways = frozenset({"fastcgi"})
    packages = ("nginx",)
    programs: ClassVar[Programs] = {"nginx": ("nginx",)}
    parameters = PARAMETERS
    reload_signal = "HUP"
    needs = NEEDS

    def files(self, site: Site) -> tuple[ConfigFile, ...]:
        return (ConfigFile(self.config_path(site), f"nginx/{site.role}.conf.j2"),)

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-t", "-q")

    def start(self, site: Site, files: Mapping[str, bytes]) -> Argv:
        return (*self._command(site), "-g", "daemon off;")

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback((*self._command(site), "-T"), in_effect), backlog_in_force(site))

    def _command(self, site: Site) -> Argv:
        # The working directory is the site; "-e" keeps the very first messages out of /var/log.
        private = site.place(("-p", ".", "-e", "nginx-error.log"), ())
        return (site.programs["nginx"], *private, "-c", self.config_path(site))


SERVICES = (Nginx(),)


def in_effect(text: str) -> Settings:
    """What ``nginx -T`` prints; a number of workers that it finds itself is not among it."""
    values = directives(IN_EFFECT)(text)
    return {name: value for name, value in values.items() if value != "auto"}


def _connections(part: PartReading) -> Finding | None:
    """Out of connections it resets clients."""
    if not (part.mostly_errors and part.activity.complaints.get("worker_connections")):
        return None
    limit = part.setting("worker_connections")
    workers = part.setting("worker_processes") or part.activity.workers
    return Finding(
        Resource.CONNECTIONS,
        f"“worker_connections are not enough” in its log: {workers} workers of {limit}"
        f" connections, two for each request; {part.failed} requests failed:"
        " raise worker_connections",
        TOLD,
    )


MORE_CONNECTIONS = ("worker_connections+", "worker_processes+", "backlog+", "upstream_keepalive+")

DIAGNOSIS = Diagnosis(
    counters=None,
    log=lambda site: site.place(f"{site.directory}/nginx-error.log", "/var/log/nginx/error.log"),
    complaints={
        "worker_connections": re.compile(r"worker_connections are not enough"),
        "no_live_upstreams": re.compile(r"no live upstreams"),
        "upstream_timed_out": re.compile(r"upstream timed out"),
        "upstream_refused": re.compile(r"connect\(\).* failed \(111"),
        "upstream_queue_full": re.compile(r"connect\(\).* failed \(11:"),
    },
    moves={
        Resource.WORKERS: ("worker_processes+",),
        Resource.CONNECTIONS: MORE_CONNECTIONS,
    },
    threads="worker_processes",
    refusal_rules=(_connections,),
)
