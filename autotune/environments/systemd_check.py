"""`autotune check` of hosts of one's own: what they accept, and who tunes them already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.deploy.desired_state import want
from autotune.deploy.host_lock import look, oneself, why_stale
from autotune.environments.acceptance import insist_on_acceptance
from autotune.environments.base import Checked, size
from autotune.environments.templates import rendered
from autotune.services.base import Settings

if TYPE_CHECKING:
    from autotune.environments.systemd import SystemdBed


def checked(bed: SystemdBed) -> Checked:
    """Reach every host, and let its own software judge what every deployment would give it."""
    space = bed.space
    for deployment in space.deployments:
        for settings in (deployment, space.preset("recommended", deployment)):
            _insist(bed, space.candidate(settings).settings)
    programs = {Path(path).name for part in bed.stack.parts
                for path in part.site.programs.values()}  # fmt: skip
    return Checked(
        held=(
            size(bed.file, space),
            f"reachable, as root: {', '.join(bed.stack.hosts)}",
            f"programs: {', '.join(sorted(programs))}",
            *_locks(bed),
            (
                f"deployments: {len(space.deployments)}, at their defaults and as recommended "
                "accepted by the hosts' own software"
            ),
        ),
        left_out=bed.dropped,
        not_checked=("whether the stack answers and what it carries: `autotune measure` does",),
    )


def _insist(bed: SystemdBed, settings: Settings) -> None:
    wanted = want(settings, bed.stack, lambda part: rendered(bed.file, part, settings))
    insist_on_acceptance(wanted.parts, wanted.rendered, bed.transports)


def _locks(bed: SystemdBed) -> Iterator[str]:
    here = oneself("").place
    for host in bed.stack.hosts:
        seen = look(bed.transports[host])
        if seen.record and why_stale(seen, here) is None:
            yield f"{host}: being tuned by {seen.holder}, so that a run would be refused now"
