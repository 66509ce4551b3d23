"""One sitting of a study: everything opened, the study run as far as it goes, everything put back."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune import __version__
from autotune.environments.base import Bed
from autotune.study.directories import clear_left_behind
from autotune.study.lock import Lock
from autotune.study.progress import Narrator
from autotune.study.store import Store
from autotune.study.trial import Bench


@contextmanager
def opened(bed: Bed, directory: Path, narrator: Narrator) -> Iterator[Bench]:
    """The study's lock held, its store open and its fleet at hand; all given back at the end.

    Raises LockedError when another tuner has the study.
    """
    for line in bed.dropped:
        narrator.note(line)
    for left in clear_left_behind(directory.parent):
        narrator.note(f"ended a server that a killed tuner had left: {left}")
    with Lock(directory / "lock"):
        store = Store(directory)
        try:
            with bed.opened(directory, narrator) as equipment:
                yield Bench(
                    space=bed.space,
                    slo=bed.file.target.slo.slo,
                    equipment=equipment,
                    store=store,
                    narrator=narrator,
                )
        finally:
            store.close()


def versions() -> dict[str, str]:
    """What the study's numbers depend on beside the settings."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
