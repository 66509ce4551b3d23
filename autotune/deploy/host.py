"""One host of a fleet: looked at, its originals kept, its files staged and swapped, units acted on.

Each method is one exchange with the host, whatever it has to do there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from autotune.deploy.backup import BackupStore, HostBackup, encode
from autotune.deploy.host_commands import KEPT, ORIGINALS, Command, CommandFailed, ask, run_checked
from autotune.deploy.host_lock import HostLock
from autotune.deploy.host_state import (
    FileState,
    HostState,
    ObservedHost,
    parse_files,
    parse_sysctls,
    parse_units,
)
from autotune.deploy.plan import HostPlan
from autotune.deploy.runtime import Check, Invalid
from autotune.deploy.stack import Part
from autotune.deploy.validation import staged, staged_check
from autotune.errors import AutotuneError, LockedError
from autotune.services.base import Action, Argv
from autotune.transports.base import Completed, Transport

ACTING = 150.0  # s for a host to stop and start its units; systemd gives each 90 s to stop


class ManagedHost:
    """``kept`` is the controller's copy of how the host was found."""

    def __init__(self, name: str, transport: Transport, store: BackupStore, study: str) -> None:
        self.name, self.transport = name, transport
        self.lock = HostLock(transport, study)
        self._store, self._study = store, study
        self._started: set[str] = set()
        self.backup = store.read(name) or HostBackup(name, study)

    @property
    def changed(self) -> bool:
        """Whether anything was, since the host was found."""
        return self.backup.state != HostState()

    @property
    def original(self) -> HostState:
        """How the host was found, as far as it has been changed since."""
        return self.backup.state

    def observe(self, desired: HostState) -> ObservedHost:
        """Everything that ``desired`` speaks of, as it is; changes nothing."""
        return self._look(desired, ())[0]

    def observe_and_ask(
        self, desired: HostState, questions: Sequence[tuple[Part, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """As ``observe``, with what each command printed, in the same exchange."""
        observed, answers = self.observe_and_run(desired, [Command(argv) for _, argv in questions])
        return observed, [done.stdout for done in answers]

    def observe_and_run(
        self, desired: HostState, commands: Sequence[Command]
    ) -> tuple[ObservedHost, list[Completed]]:
        """As `observe`, and in the same exchange what each command says; none may change anything.

        Raises CommandFailed for a vital one that failed.
        """
        paths, names, keys = tuple(desired.files), tuple(desired.units), tuple(desired.sysctls)
        looking = [
            ("look", *paths),
            ("units", *names) if names else ("true",),
            ("kernel", *(key.replace(".", "/") for key in keys)),
        ]
        backup, running, kernel, *answers = run_checked(
            self.transport,
            [*(Command(words, vital=True) for words in looking), *commands],
        )
        observed = ObservedHost(
            parse_files(paths, backup.stdout),
            parse_units(names, running.stdout),
            parse_sysctls(keys, kernel.stdout),
        )
        return observed, answers

    def save(self, desired: HostState, leaves: Iterable[str] = ()) -> None:
        """Keep, here and there, how everything is that has not been kept and is about to change.

        ``leaves`` are paths that the software itself is going to make.
        """
        files = {**desired.files, **{path: FileState() for path in leaves}}
        new = self.backup.lacks(HostState(files, desired.units, desired.sysctls))
        if new == HostState():
            return
        above = {str(p): FileState() for path in new.files for p in PurePosixPath(path).parents}
        everything = HostState({**above, **new.files}, new.units, new.sysctls)
        observed, contents = self._look(everything, tuple(new.files))
        if unknown := [unit for unit, backup in observed.units.items() if not backup.known]:
            raise AutotuneError(f"{self.name}: there is no unit {unknown[0]}")
        backup = self.backup.with_observed(observed, contents)
        self._store.write(backup)
        copy = Command(("keep", ORIGINALS, base64.b64encode(encode(backup)).decode()), vital=True)
        self._do([copy])
        self.backup = backup

    def stage(self, desired: HostState, plan: HostPlan, checks: Sequence[Check] = ()) -> None:
        """Write new files beside the real ones and let the software judge them there.

        Raises Invalid with the software's words, CommandFailed where they cannot be written.
        """
        commands = [self._staging(path, desired.files[path]) for path in plan.write]
        trials = [Command(staged_check(check.how, check.part.site.directory, check.new))
                  for check in checks]  # fmt: skip
        answers = self._do([*commands, *trials], timeout=60.0)
        for check, done in zip(checks, answers[len(commands) :], strict=True):
            if not done.ok:
                raise Invalid(
                    f"{check.part.name}: {done.error_text or 'its configuration is not accepted'}"
                )

    def discard(self, plan: HostPlan) -> None:
        """Take staged files away."""
        if plan.write:
            self._do([Command(("discard", *map(staged, plan.write)))])

    def apply(self, desired: HostState, plan: HostPlan) -> None:
        """Do the steps. Raises CommandFailed, with the words of the unit or command that failed."""
        commands: list[tuple[str, ...]] = [("rest", unit) for unit in plan.stop]
        commands += [("swap", path, staged(path), desired.files[path].time or "")
                     for path in plan.write]  # fmt: skip
        commands += [("remove", path) for path in plan.remove]
        commands += [("sysctl", "-q", "-w", f"{name}={value}")
                     for name, value in plan.sysctls.items()]  # fmt: skip
        if plan.daemon_reload:
            commands.append(("systemctl", "daemon-reload"))
        for unit, action in plan.act.items():
            reloaded = action is Action.RELOAD
            commands.append(("reload", unit) if reloaded else ("act", "restart", unit))
            commands.append(("up", unit, desired.listening.get(unit, "")))
        self._started = {unit for unit, runs in desired.units.items() if runs}
        # A directory that somebody has put something into meanwhile stays, and is told of later.
        vital = [Command(words, vital=words[0] != "remove") for words in commands]
        self._do(vital, timeout=ACTING)

    def ask(self, commands: Sequence[Argv], timeout: float = 30.0) -> list[Completed]:
        """What each command says; none of them may change anything."""
        return ask(self.transport, [Command(argv) for argv in commands], timeout=timeout)

    def tidy(self) -> None:
        """Take away what a tuner that was killed had staged."""
        self._do([Command(("discard", *map(staged, self.backup.state.files)))])

    def complaints(self) -> list[str]:
        """What the units that ought to run and do not have said, with their names."""
        answers = self.ask([("complaint", unit) for unit in sorted(self._started)])
        return [f"{self.name}: {done.error_text}" for done in answers if done.error_text]

    def forget(self) -> None:
        """The host is as it was found: the copies of how that was are not needed any more."""
        words = [("discard", ORIGINALS), ("discard_of", self.backup.study, KEPT)]
        self._do([Command(command) for command in words])
        self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def forget_of(self, study: str) -> None:
        """Likewise the controller's copy of another study that lives beside this one."""
        BackupStore(self._store.directory.parent.with_name(study)).remove(self.name)

    def commit(self) -> None:
        """What is deployed stays; how the host was found is kept for a later `restore`."""
        if self.changed:
            self._do([Command(("mv", "-f", "--", ORIGINALS, KEPT), vital=True)])

    def _look(
        self, desired: HostState, whole: tuple[str, ...]
    ) -> tuple[ObservedHost, dict[str, bytes]]:
        """What is there, and the contents of the files ``whole``."""
        reading = Command(("contents", *whole), vital=True)
        observed, (content,) = self.observe_and_run(desired, [reading])
        lines = f"{content.stdout}\n".split("\n")
        return observed, {path: base64.b64decode(line)
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
            raise LockedError(
                f"{self.name}: {answers[0].error_text}", hint="another tuner took it over"
            )
        for command, done in zip(commands, answers[1:], strict=False):
            if command.vital and not done.ok:
                raise CommandFailed(
                    f"{self.name}: {done.error_text or ' '.join(command.words[:2])}"
                )
        return answers[1:]
