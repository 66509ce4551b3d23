"""Which of the programs that services need are on a host, and where."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.deploy.batch import Command, ask
from autotune.deploy.ground import NeedsPrograms, remedy
from autotune.errors import AutotuneError
from autotune.transports.base import Transport


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
