"""Which of the programs that services need are on a host, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autotune.deploy.batch import Command, ask
from autotune.deploy.ground import NeedsPrograms, remedy
from autotune.errors import AutotuneError
from autotune.services.placement import placed
from autotune.target.model import Target
from autotune.transports.base import Transport
from autotune.transports.parallel import on_all


def installed(transport: Transport, needing: Iterable[NeedsPrograms]) -> dict[str, str]:
    """Full paths on that host, by the names services use.

    Raises AutotuneError with every missing one and the command that brings it.
    """
    used = list(needing)
    alternatives = {name: paths for one in used for name, paths in one.programs.items()}
    answers = ask(transport, [Command(("where", *paths)) for paths in alternatives.values()])
    found = {name: done.stdout.strip() for name, done in zip(alternatives, answers, strict=True)}
    missing = sorted(name for name, path in found.items() if not path)
    if missing:
        lacking = [one for one in used if set(one.programs) & set(missing)]
        raise AutotuneError(
            f"{transport.name}: not installed: {', '.join(missing)}",
            hint=f"there: {remedy(lacking)}",
        )
    return found


def installed_services(target: Target, ways: Mapping[str, Transport]) -> dict[str, dict[str, str]]:
    """Likewise of all hosts that have a tier, by their names in the target."""
    services = {host: [place.service for name, tier in target.tiers.items() if host in tier.hosts
                       for place in placed(name, tier)] for host in ways}  # fmt: skip
    used = {ways[host].name: host for host, needed in services.items() if needed}
    found = on_all(
        [ways[host] for host in used.values()],
        lambda transport: installed(transport, services[used[transport.name]]),
    ).everywhere()
    return {used[name]: programs for name, programs in found.items()}
