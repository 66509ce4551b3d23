"""What PHP-FPM says and runs out of: children."""

from __future__ import annotations

import re

from autotune.services.base import Site
from autotune.services.diagnosis import FULL, MEASURED, Diagnosis, Finding, PartReading, Resource
from autotune.services.php_fpm.service import unit


def _log(site: Site) -> str:
    return site.place(f"{site.directory}/php-fpm.log", unit(site))


def _children(part: PartReading) -> Finding | None:
    """All children have a request in hand and more requests wait at the socket."""
    seen = part.activity
    limit = part.setting("max_children") or seen.workers
    if not seen.workers or seen.queued < 0.25 or seen.occupied < 0.75 * seen.workers:
        return None
    meanwhile = f" while {part.idle:.0%} of the CPU was idle" if part.idle is not None else ""
    remedy = "raise max_children"
    if seen.workers < FULL * limit:
        remedy = "children are forked too slowly: raise start_servers, or pm = static"
    return Finding(
        Resource.WORKERS,
        f"{seen.occupied:.1f} of {seen.workers} children busy, {limit} allowed,"
        f" {seen.waiting:.0f} requests waiting at its socket (up to {seen.waiting_max})"
        f"{meanwhile}: {remedy}",
        MEASURED,
    )


DIAGNOSIS = Diagnosis(
    counters=None,
    log=_log,
    complaints={"max_children": re.compile(r"reached (?:pm\.)?max_children")},
    moves={
        Resource.WORKERS: ("max_children+", "pm=static", "start_servers+", "min_spare_servers+"),
        Resource.CONNECTIONS: ("listen_backlog+",),
        Resource.MEMORY: ("max_children-",),
    },
    worker_rules=(_children,),
)
