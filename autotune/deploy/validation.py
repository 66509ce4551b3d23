"""New files validated by the software that will read them: staged beside the real ones, or in memory.

Files that are never deployed are written below /run, which is memory, and are gone when the answer
comes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from autotune.deploy.host_commands import Command, ask, in_place
from autotune.deploy.stack import Part
from autotune.services.base import Argv, TrialStart
from autotune.transports.base import Transport

Files = Mapping[str, bytes]


def staged(path: str) -> str:
    """Where a new file waits. The dot and the ending keep it out of directories read by pattern."""
    place = PurePosixPath(path)
    return str(place.with_name(f".{place.name}.autotune-new"))


def staged_check(how: Argv | TrialStart, directory: str, new: Sequence[str]) -> tuple[str, ...]:
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


def validate_all(transport: Transport, cases: Sequence[tuple[Part, Files]]) -> list[str | None]:
    """What the software says against each part's files; ``None`` where it accepts them.

    All parts are of this host. Raises HostUnreachable, or AutotuneError where they cannot be asked
    about.
    """
    commands: list[Command] = []
    asked: list[int | None] = []
    for number, (part, files) in enumerate(cases):
        place = f"{part.site.directory}.judged/{number}"
        commands += [_written(f"{place}{path}", content) for path, content in files.items()]
        check = _check(part, files, place)
        asked.append(None if check is None else len(commands))
        commands += [] if check is None else [Command(check)]
    places = sorted({f"{part.site.directory}.judged" for part, _ in cases})
    commands.append(Command(("rm", "-rf", "--", *places)))
    answers = ask(transport, commands, timeout=60.0 + 10.0 * len(cases))
    return [None if at is None or answers[at].ok else answers[at].error_text or "it is refused"
            for at in asked]  # fmt: skip


def _written(path: str, content: bytes) -> Command:
    return Command(("stage", path, path, "0644", "0:0", base64.b64encode(content).decode()))


def _check(part: Part, files: Files, place: str) -> tuple[str, ...] | None:
    """The check of the real files turned on those below ``place``."""
    how = part.service.validate(part.site, files)
    if how is None:
        return None
    argv = how.argv if isinstance(how, TrialStart) else how
    elsewhere = {path: f"{place}{path}" for path in files}
    if part.site.own is not None and not isinstance(how, TrialStart):
        return in_place(elsewhere, argv) if files else None  # they include, and are included
    elsewhere[part.site.directory] = f"{place}/trial"
    words = tuple(elsewhere.get(word, word) for word in argv)
    return ("trial", f"{place}/trial", how.socket, *words) if isinstance(how, TrialStart) else words
