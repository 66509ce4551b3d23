"""One host of a fleet: observed, backed up, its files staged and swapped, its units acted on.

Each method is one exchange with the host, whatever it has to do there.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from autotune.deploy.backup import ANY, BackupCheck, BackupStore, HostBackup, decode, encode
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host_commands import (
    KEPT,
    ORIGINALS,
    Command,
    CommandFailed,
    ask,
    run_checked,
    with_files,
)
from autotune.deploy.host_lock import HostLock, look
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedHost,
    ServiceManager,
    parse_files,
    parse_sysctls,
    unlike,
)
from autotune.deploy.runtime import Cases, Check, Invalid, Note
from autotune.deploy.stack import Part
from autotune.errors import AutotuneError, LockedError
from autotune.masking import is_masked, unmasked
from autotune.services.base import Action, Argv, TrialStart
from autotune.services.registry import outliner
from autotune.strict import split_lines
from autotune.target.beds import study_of
from autotune.transports.base import Completed, Transport

ACTING = 150.0  # s for a host to stop and start its units; systemd gives each 90 s to stop


class ManagedHost:
    """``store`` has the controller's copy of the backup; ``note`` hears of what others changed."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        store: BackupStore,
        study: str,
        service_manager: ServiceManager | None = None,
        note: Note | None = None,
    ) -> None:
        self.name, self.transport, self._manager = name, transport, service_manager
        self._functions = service_manager.functions if service_manager else ""
        self.lock = HostLock(transport, study)
        self._store, self._study = store, study
        self._started: set[str] = set()
        self.notes: list[str] = []
        self.note = note or self.notes.append
        self.backup = store.read(name) or HostBackup(name, study)

    @property
    def changed(self) -> bool:
        """Whether anything was changed, as far as there is a backup."""
        return self.backup.state != HostState()

    @property
    def original(self) -> HostState:
        """The host as it was before the first change, as far as it has been changed."""
        return self.backup.state

    def check_held(self) -> None:
        """Raises AutotuneError where the host was taken over, or booted, since it was taken."""
        self.lock.renew()
        if look(self.transport).boot != self.lock.boot:
            raise AutotuneError(
                f"{self.name} has been booted since", hint="`autotune resume` repeats the trial"
            )

    def observe(self, desired: HostState) -> ObservedHost:
        """Everything that ``desired`` speaks of, as it is; changes nothing."""
        return self._look(desired, ())[0]

    def observe_and_ask(
        self, desired: HostState, questions: Sequence[tuple[Part, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """As ``observe``, with what each command printed, in the same exchange."""
        inside = self._manager.inside if self._manager else None
        commands = [Command(inside(part.site, argv) if inside else argv)
                    for part, argv in questions]  # fmt: skip
        observed, answers = self.observe_and_run(desired, commands)
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
            alone=self.lock.held,  # waits for commands that a lost connection left running
            functions=self._functions,
        )
        observed = ObservedHost(
            parse_files(paths, backup.stdout),
            self._manager.parse(names, running.stdout) if self._manager and names else {},
            parse_sysctls(keys, kernel.stdout),
        )
        return observed, answers

    def save(
        self, desired: HostState, leaves: Iterable[str] = (), checks: Sequence[Check] = ()
    ) -> None:
        """Back up, on the controller and the host, all that is about to change and has no backup yet.

        ``leaves`` are paths that the software itself is going to make; ``checks`` are how it
        validates what is backed up.
        """
        files = {**desired.files, **{path: FileState() for path in leaves}}
        new = self.backup.lacks(HostState(files, desired.units, desired.sysctls))
        if new == HostState():
            return
        above = {str(p): FileState() for path in new.files for p in PurePosixPath(path).parents}
        everything = HostState({**above, **new.files}, new.units, new.sysctls)
        observed, contents = self._look(everything, tuple(new.files))
        if unknown := [
            unit for unit, unit_state in observed.units.items() if not unit_state.exists
        ]:
            raise AutotuneError(f"{self.name}: there is no unit {unknown[0]}")
        backup = self.backup.with_observed(observed, contents)
        backup = backup.with_written(dict.fromkeys(leaves, ANY))
        recorded = [*self.backup.checks]
        # Originals that are not among the host's own files have nothing put in their place.
        if not (self._manager and self._manager.validate):
            recorded += filter(None, (_backup_check(check, backup.state) for check in checks))
        backup = replace(backup, checks=tuple(dict.fromkeys(recorded)))
        self._do([self._keep(backup)])
        self.backup = backup

    def _keep(self, backup: HostBackup) -> Command:
        """Write the backup on the controller; the command that is returned writes it on the host."""
        self._store.write(backup)
        return Command(("keep", ORIGINALS, base64.b64encode(encode(backup)).decode()), vital=True)

    def stage(self, desired: HostState, plan: HostPlan, checks: Sequence[Check] = ()) -> None:
        """Write new files beside the real ones and let the software validate them there.

        Raises Invalid with the software's words, CommandFailed where they cannot be written.
        """
        commands = [self._staging(path, desired.files[path]) for path in plan.write]
        trials = [Command(self._check(check)) for check in checks]
        answers = self._do([*commands, *trials], timeout=60.0)
        for check, done in zip(checks, answers[len(commands) :], strict=True):
            if not done.ok:
                raise Invalid(
                    f"{check.part.name}: {done.error_text or 'its configuration is not accepted'}"
                )

    def _check(self, check: Check) -> tuple[str, ...]:
        if self._manager and self._manager.validate:
            return self._manager.validate(check.part.site, check.how, [*check.files], check.new)
        return staged_check(check.how, check.part.site.directory, check.new)

    def discard(self, plan: HostPlan) -> None:
        """Take staged files away."""
        if plan.write:
            self._do([Command(("discard", *map(staged, plan.write)))])

    def apply(self, desired: HostState, plan: HostPlan) -> None:
        """Do the steps. Raises CommandFailed, with the words of the unit or command that failed.

        Digests of what is written are on record first. What others changed is kept aside, and noted.
        """
        digests = {path: desired.files[path].digest for path in plan.write}
        changed = {**digests, **plan.sysctls, **dict.fromkeys(plan.switch, ANY)}
        self.backup = self.backup.with_written(changed, plan.replaces)
        keep = [self._keep(self.backup)] if changed else []
        # A directory that somebody has put something into meanwhile stays, and is reported later.
        steps = [Command(words, vital=words[0] != "remove") for words in self._steps(desired, plan)]
        self._do([*keep, *steps], timeout=ACTING)

    def restore(self, desired: HostState, plan: HostPlan) -> list[str]:
        """As ``apply``, of originals; goes on after a failed step. Returns what failed, in words."""
        steps = [Command(words) for words in self._steps(desired, plan)]
        answers = self._do(steps, timeout=ACTING)
        return [done.error_text or " ".join(step.words[:2])
                for step, done in zip(steps, answers, strict=False)
                if not done.ok and step.words[0] != "remove"]  # fmt: skip

    def _steps(self, desired: HostState, plan: HostPlan) -> list[tuple[str, ...]]:
        commands: list[tuple[str, ...]] = [("stop", unit) for unit in plan.stop]
        ours = self.backup.digests
        commands += [("swap", path, staged(path), desired.files[path].time or "", *ours(path))
                     for path in plan.write]  # fmt: skip
        commands += [("remove", path, *ours(path)) for path in plan.remove]
        if plan.sysctls:
            values = (f"{name}={value}" for name, value in plan.sysctls.items())
            commands.append(("sysctl", "-q", "-w", *values))
        if self._manager and any(path.startswith(self._manager.directory) for path in plan.unread):
            commands.append(("reread",))
        for unit, action in plan.act.items():
            how = ("rereading",) if unit in desired.rereading else ()
            commands.append(
                ("reload", unit, *how) if action is Action.RELOAD else ("restart", unit)
            )
            commands.append(("up", unit, desired.listening.get(unit, "")))
        commands += [("enable" if starts else "disable", unit)
                     for unit, starts in plan.switch.items()]  # fmt: skip
        self._started = {unit for unit, runs in desired.units.items() if runs}
        return commands

    def tidy(self) -> None:
        """Remove what a killed tuner had staged."""
        self._do([Command(("discard", *map(staged, self.backup.state.files)))])

    def kept_aside(self) -> list[str]:
        """Files that others had changed and that a tuner kept when it replaced them, a line each."""
        (done,) = run_checked(self.transport, [Command(("kept_aside",), vital=True)])
        return [self._kept(copy) for copy in sorted(split_lines(done.stdout))]

    def _kept(self, copy: str) -> str:
        _, _, path = copy.partition("/overwritten/")[2].partition("/")  # what follows the time
        return f"{self.name}: others had changed /{path}: theirs is kept as {copy}"

    def complaints(self) -> list[str]:
        """Why units that ought to run do not, in their own words and with their names."""
        asked = [Command(("complaint", unit)) for unit in sorted(self._started)]
        answers = ask(self.transport, asked, functions=self._functions)
        return [f"{self.name}: {done.error_text}" for done in answers if done.error_text]

    def forget(self) -> None:
        """The host is restored: neither copy of its backup is needed any more."""
        words = [("discard", ORIGINALS), ("discard_of", self.backup.study, KEPT)]
        self._do([Command(command) for command in words])
        self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def supersede(self, observed: ObservedHost) -> None:
        """Others have restored the host: nothing is restored from the controller's copy any more."""
        if unlike(self.original, observed):
            self.note(
                f"{self.name} was restored by others, and nothing there is study {self._study}'s any "
                f"more: it stays as it is; the study's copy of its originals is now "
                f"{self._store.set_aside(self.name)}"
            )
        else:
            self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def forget_of(self, study: str) -> None:
        """Remove the controller's copy of another study, whose directory is beside this one's."""
        own = self._store.directory.parent
        beside = study_of(own).with_name(study) / own.relative_to(study_of(own))
        BackupStore(beside).remove(self.name)

    def persist(self, desired: HostState) -> None:
        """See `RuntimeHost.persist`."""
        earlier = self.own_copy(KEPT)
        lasting = (earlier.before(self.backup) if earlier else self.backup).lasting(desired)
        self.save(lasting)
        plan = plan_host(lasting, self.observe(lasting), {})
        self.stage(lasting, plan)
        self.apply(lasting, plan)
        switched = (f"{unit} {'enabled' if starts else 'disabled'}"
                    for unit, starts in plan.switch.items())  # fmt: skip
        if done := [*plan.write, *plan.remove, *switched]:
            self.note(f"{self.name}: after a reboot too: {', '.join(done)}")

    def commit(self) -> None:
        """What is deployed stays; the backup is there for a later `restore`."""
        if not self.changed:
            return
        earlier = self.own_copy(KEPT)
        # After several kept deployments, a restore leads back to how the host was before the first.
        backup = encode(earlier.before(self.backup) if earlier else self.backup)
        keep = ("keep", KEPT, base64.b64encode(backup).decode())
        self._do([Command(keep, vital=True), Command(("discard", ORIGINALS), vital=True)])

    def own_copy(self, path: str) -> HostBackup | None:
        """The host's own copy of a backup, if it has one."""
        asked = [Command(("test", "-e", path)), Command(("contents", path))]
        there, printed = run_checked(self.transport, asked)
        content = base64.b64decode(printed.stdout)
        return decode(content, f"{self.name}:{path}") if there.ok else None

    def accepted(self, original: HostState, observed: ObservedHost) -> tuple[HostState, list[str]]:
        """See `RuntimeHost.accepted`."""
        plan = plan_host(original, observed, {}, original.units)
        self.stage(original, plan)
        refused = self._refusals(original, plan, observed)
        staying = {path for check in refused for path in check.files}
        self.discard(replace(plan, write=tuple(path for path in plan.write if path in staying)))
        files = {path: file for path, file in original.files.items() if path not in staying}
        messages = [f"{self.name}: {check.unit} refuses its original files, so that those in place "
                    f"stay: {words}" for check, words in refused.items()]  # fmt: skip
        return replace(original, files=files), messages

    def _refusals(
        self, desired: HostState, plan: HostPlan, observed: ObservedHost
    ) -> dict[BackupCheck, str]:
        """What the software says against staged originals where it accepts the files in place.

        It is not asked where an original is to replace something other than a file: there, nothing
        can be put in place for the check alone. Files that are to be removed look empty to the check.
        """
        removing = [path for path in plan.remove if observed.files[path].kind == "file"]
        changing = (*plan.write, *removing)
        checks = [check for check in self.backup.checks
                  if {*changing} & {*check.files} and desired.units.get(check.unit)]  # fmt: skip
        if not checks or any(observed.files[path].kind != "file" for path in plan.write):
            return {}
        empty = [self._staging(path, FileState(b"")) for path in removing]
        asked = [Command(original_check(check, changing)) for check in checks]
        as_is = [Command(original_check(check, ())) for check in checks]
        running = {check: observed.units[check.unit].active for check in checks}
        discard = Command(("discard", *map(staged, removing)))
        answers = self._do([*empty, *asked, *as_is, discard], timeout=ACTING)[len(empty) :]
        return {
            check: done.error_text
            for check, done, working in zip(checks, answers, answers[len(checks) :], strict=False)
            if not done.ok and (working.ok if {*check.files} & {*check.argv} else running[check])
        }

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
            link = (staged(path), file.owner or "0:0", file.link)
            return Command(("stage_link", *link), vital=True)
        content = base64.b64encode(file.content or b"").decode()
        mode = f"{0o644 if file.mode is None else file.mode:04o}"
        words = (path, staged(path), mode, file.owner or "-", content, file.access or "")
        return Command(("stage", *words), vital=True)

    def _do(self, commands: Sequence[Command], timeout: float = 30.0) -> list[Completed]:
        """Change something, if the host is still ours."""
        assert self.lock.held, "a host is locked before it is changed"
        fence = self.lock.fence
        answers = ask(
            self.transport,
            [fence, *commands],
            timeout=timeout,
            alone=True,
            functions=self._functions,
        )
        if not answers[0].ok:
            raise LockedError(
                f"{self.name}: {answers[0].error_text}", hint="another tuner took it over"
            )
        for command, done in zip(commands, answers[1:], strict=False):
            if command.words[0] in ("swap", "remove") and done.ok and (copy := done.stdout.strip()):
                self.note(self._kept(copy))
            if command.vital and not done.ok:
                raise CommandFailed(
                    f"{self.name}: {done.error_text or ' '.join(command.words[:2])}"
                )
        return answers[1:]


def staged(path: str) -> str:
    """Where a new file waits. The dot and the ending keep it out of directories read by pattern."""
    place = PurePosixPath(path)
    return str(place.with_name(f".{place.name}.autotune-new"))


def staged_check(how: Argv | TrialStart, directory: str, new: Sequence[str]) -> tuple[str, ...]:
    """The check of the real files, made to read the staged ones for those in ``new``.

    A program that takes a file's path as an argument is given the path of the staged one. Staged
    files that it finds only by reading others are mounted over the real ones, for the check alone.
    ``directory`` is where a trial start may write.
    """
    argv = how.argv if isinstance(how, TrialStart) else how
    words = tuple(staged(word) if word in new else word for word in argv)
    if isinstance(how, TrialStart):
        return ("trial", directory, how.socket, *words)
    if all(path in argv for path in new):
        return words
    return with_files({path: staged(path) for path in new}, argv)


def original_check(check: BackupCheck, changing: Sequence[str]) -> tuple[str, ...]:
    """A check on record, of the files in place with those that are ``changing`` as staged."""
    how = TrialStart(check.argv, check.socket) if check.socket else check.argv
    return staged_check(how, check.directory, changing)


def _backup_check(check: Check, backup: HostState) -> BackupCheck | None:
    """``None`` where the part has no unit, or where the check's arguments hold the contents of files
    and one of them was not there."""
    part, how = check.part, check.how
    unit = part.service.unit(part.site)
    if unit is None:
        return None
    if isinstance(how, TrialStart) and not {*check.files} & {*how.argv}:
        originals = {path: backup.files[path].content for path in check.files}
        contents = {path: content for path, content in originals.items() if content is not None}
        if len(contents) < len(originals):
            return None
        how = part.service.validate(part.site, contents) or how
    argv = how.argv if isinstance(how, TrialStart) else how
    socket = how.socket if isinstance(how, TrialStart) else None
    return BackupCheck(unit, argv, tuple(check.files), part.site.directory, socket)


# Even if nobody reads the answers any more, the commands go on and remove what was staged.
_TO_THE_END = "trap : PIPE\n"


def validate_all(transport: Transport, cases: Cases) -> list[str | None]:
    """What the software says against each part's files; ``None`` where it accepts them.

    All parts are of this host. Raises HostUnreachable, or AutotuneError where they cannot be asked
    about.
    """
    own = f"validated-{secrets.token_hex(8)}"  # another tuner may be asking about its own
    cases = _with_secrets(transport, cases)
    commands: list[Command] = []
    asked: list[int | None] = []
    for number, (part, files) in enumerate(cases):
        place = f"{part.site.directory}.{own}/{number}"
        commands += [_written(path, f"{place}{path}", files[path]) for path in files]
        check = _check(part, files, place)
        asked.append(None if check is None else len(commands))
        commands += [] if check is None else [Command(check)]
    places = sorted({f"{part.site.directory}.{own}" for part, _ in cases})
    commands.append(Command(("rm", "-rf", "--", *places)))
    answers = ask(transport, commands, timeout=60.0 + 10.0 * len(cases), functions=_TO_THE_END)
    return [None if at is None or answers[at].ok else answers[at].error_text or "it is refused"
            for at in asked]  # fmt: skip


def _with_secrets(transport: Transport, cases: Cases) -> Cases:
    """The cases with each placeholder replaced by the secret in the host's own file."""
    paths = sorted({path for _, files in cases for path in files if is_masked(files[path])})
    if not paths:
        return cases
    originals = contents(transport, paths)
    return [(part, filled_in(part, files, originals)) for part, files in cases]


def filled_in(
    part: Part, files: Mapping[str, bytes], originals: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    """Files of a part with each placeholder replaced by what the host's own file has in its place.

    Raises AutotuneError where that has other pieces than those that were masked.
    """
    return {path: unmasked(content, originals.get(path), f"{part.site.host}: {path}",
                           outliner(part.service, path))
            for path, content in files.items()}  # fmt: skip


def contents(transport: Transport, paths: Sequence[str]) -> dict[str, bytes]:
    """The contents of files of a host; empty for one that is not there."""
    (printed,) = run_checked(transport, [Command(("contents", *paths), vital=True)])
    lines = zip(paths, f"{printed.stdout}\n".split("\n"), strict=False)
    return {path: base64.b64decode(line) for path, line in lines}


def _written(path: str, place: str, content: bytes) -> Command:
    """Write a file with the bits and the owner of the real one, which may be secret."""
    return Command(("stage", path, place, "0644", "-", base64.b64encode(content).decode(), ""))


def _check(part: Part, files: Mapping[str, bytes], place: str) -> tuple[str, ...] | None:
    """The check of the real files, made to read those below ``place``."""
    how = part.service.validate(part.site, files)
    if how is None:
        return None
    argv = how.argv if isinstance(how, TrialStart) else how
    elsewhere = {path: f"{place}{path}" for path in files}
    if part.site.own is not None and not isinstance(how, TrialStart):
        return with_files(elsewhere, argv) if files else None  # they may include each other
    elsewhere[part.site.directory] = f"{place}/trial"
    words = tuple(elsewhere.get(word, word) for word in argv)
    return ("trial", f"{place}/trial", how.socket, *words) if isinstance(how, TrialStart) else words
