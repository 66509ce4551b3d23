"""New files beside the real ones, and how the software that will read them judges them there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from autotune.deploy.on_host import in_place
from autotune.deploy.steps import Steps
from autotune.deploy.wanted import Wanted
from autotune.services.base import Argv, TrialStart


@dataclass(frozen=True)
class Check:
    """How software judges files that are staged: whose and which, and where it may try them."""

    part: str
    directory: str
    how: Argv | TrialStart
    files: tuple[str, ...]


def checks(wanted: Wanted, host: str, steps: Steps) -> list[Check]:
    """How the software of a host judges those of its files that are new."""
    found = []
    for part in wanted.parts_on(host):
        files = wanted.rendered[part.name]
        if new := tuple(path for path in steps.write if path in files):
            how = part.service.validate(part.site, files)
            if how is not None:
                found.append(Check(part.name, part.site.directory, how, new))
    return found


def staged(path: str) -> str:
    """Where a new file waits. The dot and the ending keep it out of directories read by pattern."""
    place = PurePosixPath(path)
    return str(place.with_name(f".{place.name}.autotune-new"))


def judging(check: Check) -> tuple[str, ...]:
    """The check of the real files turned on the staged ones.

    A program that takes the path of the file is given the staged one's; files that it only comes
    upon by reading others are put over the real ones where nobody else sees it.
    """
    how = check.how
    argv = how.argv if isinstance(how, TrialStart) else how
    words = tuple(staged(word) if word in check.files else word for word in argv)
    if isinstance(how, TrialStart):
        return ("trial", check.directory, how.socket, *words)
    if all(path in argv for path in check.files):
        return words
    return in_place({path: staged(path) for path in check.files}, argv)
