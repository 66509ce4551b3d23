"""A host's software asked about files that are never deployed: all of them in one exchange.

They are written below /run, which is memory, and are gone when the answer comes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from autotune.deploy.batch import Command, ask
from autotune.deploy.on_host import in_place
from autotune.deploy.stack import Part
from autotune.services.base import TrialStart
from autotune.transports.base import Transport

Files = Mapping[str, bytes]


def judge(transport: Transport, cases: Sequence[tuple[Part, Files]]) -> list[str | None]:
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
    return [None if at is None or answers[at].ok else answers[at].said or "it is refused"
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
