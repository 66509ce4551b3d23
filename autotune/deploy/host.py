"""One host of a fleet: looked at, its originals kept, its files staged and swapped, units acted on.

Each method is one exchange with the host, whatever it has to do there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from autotune.deploy.host_commands import KEPT, ORIGINALS, Command, CommandFailed, ask, insist
from autotune.deploy.host_lock import HostLock
from autotune.deploy.host_state import (
    FileState,
    HostSeen,
    HostState,
    files_seen,
    sysctls_seen,
    units_seen,
)
from autotune.deploy.originals import Kept, Originals, encode
from autotune.deploy.plan import Steps
from autotune.deploy.runtime import Check, Invalid
from autotune.deploy.stack import Part
from autotune.deploy.validation import judging, staged
from autotune.errors import AutotuneError, LockedError
from autotune.services.base import Action, Argv
from autotune.transports.base import Completed, Transport

ACTING = 150.0  # s for a host to stop and start its units; systemd gives each 90 s to stop


class FleetHost:
    """``kept`` is the controller's copy of how the host was found."""

    def __init__(self, name: str, transport: Transport, kept: Kept, study: str) -> None:
        self.name, self.transport = name, transport
        self.lock = HostLock(transport, study)
        self._kept, self._study = kept, study
        self._started: set[str] = set()
        self.originals = kept.read(name) or Originals(name, study)

    @property
    def changed(self) -> bool:
        """Whether anything was, since the host was found."""
        return self.originals.state != HostState()

    @property
    def original(self) -> HostState:
        """How the host was found, as far as it has been changed since."""
        return self.originals.state

    def observe(self, desired: HostState) -> HostSeen:
        """Everything that ``desired`` speaks of, as it is; changes nothing."""
        return self._look(desired, ())[0]

    def observe_and_ask(
        self, desired: HostState, questions: Sequence[tuple[Part, Argv]]
    ) -> tuple[HostSeen, list[str]]:
        """As ``observe``, with what each command printed, in the same exchange."""
        seen, answers = self.look_and_ask(desired, [Command(argv) for _, argv in questions])
        return seen, [done.stdout for done in answers]

    def look_and_ask(
        self, wanted: HostState, commands: Sequence[Command]
    ) -> tuple[HostSeen, list[Completed]]:
        """As `observe`, and in the same exchange what each command says; none may change anything.

        Raises CommandFailed for a vital one that failed.
        """
        paths, names, keys = tuple(wanted.files), tuple(wanted.units), tuple(wanted.sysctls)
        looking = [
            ("look", *paths),
            ("units", *names) if names else ("true",),
            ("kernel", *(key.replace(".", "/") for key in keys)),
        ]
        found, running, kernel, *answers = insist(
            self.transport,
            [*(Command(words, vital=True) for words in looking), *commands],
        )
        seen = HostSeen(
            files_seen(paths, found.stdout),
            units_seen(names, running.stdout),
            sysctls_seen(keys, kernel.stdout),
        )
        return seen, answers

    def save(self, wanted: HostState, leaves: Iterable[str] = ()) -> None:
        """Keep, here and there, how everything is that has not been kept and is about to change.

        ``leaves`` are paths that the software itself is going to make.
        """
        files = {**wanted.files, **{path: FileState() for path in leaves}}
        new = self.originals.lacks(HostState(files, wanted.units, wanted.sysctls))
        if new == HostState():
            return
        above = {str(p): FileState() for path in new.files for p in PurePosixPath(path).parents}
        everything = HostState({**above, **new.files}, new.units, new.sysctls)
        seen, contents = self._look(everything, tuple(new.files))
        if unknown := [unit for unit, found in seen.units.items() if not found.known]:
            raise AutotuneError(f"{self.name}: there is no unit {unknown[0]}")
        found = self.originals.with_found(seen, contents)
        self._kept.write(found)
        copy = Command(("keep", ORIGINALS, base64.b64encode(encode(found)).decode()), vital=True)
        self._do([copy])
        self.originals = found

    def stage(self, wanted: HostState, steps: Steps, checks: Sequence[Check] = ()) -> None:
        """Write new files beside the real ones and let the software judge them there.

        Raises Invalid with the software's words, CommandFailed where they cannot be written.
        """
        commands = [self._staging(path, wanted.files[path]) for path in steps.write]
        trials = [Command(judging(check.how, check.part.site.directory, check.new))
                  for check in checks]  # fmt: skip
        answers = self._do([*commands, *trials], timeout=60.0)
        for check, done in zip(checks, answers[len(commands) :], strict=True):
            if not done.ok:
                raise Invalid(
                    f"{check.part.name}: {done.said or 'its configuration is not accepted'}"
                )

    def discard(self, steps: Steps) -> None:
        """Take staged files away."""
        if steps.write:
            self._do([Command(("discard", *map(staged, steps.write)))])

    def apply(self, wanted: HostState, steps: Steps) -> None:
        """Do the steps. Raises CommandFailed, with the words of the unit or command that failed."""
        commands: list[tuple[str, ...]] = [("rest", unit) for unit in steps.stop]
        commands += [("swap", path, staged(path), wanted.files[path].time or "")
                     for path in steps.write]  # fmt: skip
        commands += [("remove", path) for path in steps.remove]
        commands += [("sysctl", "-q", "-w", f"{name}={value}")
                     for name, value in steps.sysctls.items()]  # fmt: skip
        if steps.daemon_reload:
            commands.append(("systemctl", "daemon-reload"))
        for unit, action in steps.act.items():
            reloaded = action is Action.RELOAD
            commands.append(("reload", unit) if reloaded else ("act", "restart", unit))
            commands.append(("up", unit, wanted.listening.get(unit, "")))
        self._started = {unit for unit, runs in wanted.units.items() if runs}
        # A directory that somebody has put something into meanwhile stays, and is told of later.
        vital = [Command(words, vital=words[0] != "remove") for words in commands]
        self._do(vital, timeout=ACTING)

    def ask(self, commands: Sequence[Argv], timeout: float = 30.0) -> list[Completed]:
        """What each command says; none of them may change anything."""
        return ask(self.transport, [Command(argv) for argv in commands], timeout=timeout)

    def tidy(self) -> None:
        """Take away what a tuner that was killed had staged."""
        self._do([Command(("discard", *map(staged, self.originals.state.files)))])

    def complaints(self) -> list[str]:
        """What the units that ought to run and do not have said, with their names."""
        answers = self.ask([("complaint", unit) for unit in sorted(self._started)])
        return [f"{self.name}: {done.said}" for done in answers if done.said]

    def forget(self) -> None:
        """The host is as it was found: the copies of how that was are not needed any more."""
        words = [("discard", ORIGINALS), ("discard_of", self.originals.study, KEPT)]
        self._do([Command(command) for command in words])
        self._kept.remove(self.name)
        self.originals = Originals(self.name, self._study)

    def forget_of(self, study: str) -> None:
        """Likewise the controller's copy of another study that lives beside this one."""
        Kept(self._kept.directory.parent.with_name(study)).remove(self.name)

    def commit(self) -> None:
        """What is deployed stays; how the host was found is kept for a later `restore`."""
        if self.changed:
            self._do([Command(("mv", "-f", "--", ORIGINALS, KEPT), vital=True)])

    def _look(self, wanted: HostState, whole: tuple[str, ...]) -> tuple[HostSeen, dict[str, bytes]]:
        """What is there, and the contents of the files ``whole``."""
        reading = Command(("contents", *whole), vital=True)
        seen, (content,) = self.look_and_ask(wanted, [reading])
        lines = f"{content.stdout}\n".split("\n")
        return seen, {path: base64.b64decode(line)
                      for path, line in zip(whole, lines, strict=False)}  # fmt: skip

    def _staging(self, path: str, file: FileState) -> Command:
        if file.link is not None:
            words = ("stage_link", staged(path), file.owner or "0:0", file.link)
            return Command(words, vital=True)
        content = base64.b64encode(file.content or b"").decode()
        mode = f"{0o644 if file.mode is None else file.mode:04o}"
        return Command(("stage", path, staged(path), mode, file.owner or "-", content), vital=True)

    def _do(self, commands: Sequence[Command], timeout: float = 30.0) -> list[Completed]:
        """Change something, if the host is still ours."""
        assert self.lock.held, "a host is locked before it is changed"
        fence = self.lock.fence
        answers = ask(self.transport, [fence, *commands], timeout=timeout, alone=True)
        if not answers[0].ok:
            raise LockedError(f"{self.name}: {answers[0].said}", hint="another tuner took it over")
        for command, done in zip(commands, answers[1:], strict=False):
            if command.vital and not done.ok:
                raise CommandFailed(f"{self.name}: {done.said or ' '.join(command.words[:2])}")
        return answers[1:]
