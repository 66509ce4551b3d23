"""New files beside the real ones, and how the software that will read them judges them there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from autotune.deploy.on_host import in_place
from autotune.services.base import Argv, TrialStart


def staged(path: str) -> str:
    """Where a new file waits. The dot and the ending keep it out of directories read by pattern."""
    place = PurePosixPath(path)
    return str(place.with_name(f".{place.name}.autotune-new"))


def judging(how: Argv | TrialStart, directory: str, new: Sequence[str]) -> tuple[str, ...]:
    """The check of the real files turned on the staged ones of ``new``.

    A program that takes the path of the file is given the staged one's; files that it only comes
    upon by reading others are put over the real ones where nobody else sees it. ``directory`` is
    where a trial start may write.
    """
    argv = how.argv if isinstance(how, TrialStart) else how
    words = tuple(staged(word) if word in new else word for word in argv)
    if isinstance(how, TrialStart):
        return ("trial", directory, how.socket, *words)
    if all(path in argv for path in new):
        return words
    return in_place({path: staged(path) for path in new}, argv)
