"""One host of a fleet: observed, backed up, its files staged and swapped, its units acted on.

Each method is one exchange with the host, whatever it has to do there.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from autotune.deploy.backup import (
    ANY_DIGEST,
    BackupCheck,
    BackupStore,
    HostBackup,
    decode_backup,
    encode_backup,
)
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host_commands import (
    APPLIED_BACKUP_FILE,
    BACKUP_FILE,
    Command,
    CommandFailed,
    mount_files_command,
    run_commands,
    run_required,
)
from autotune.deploy.host_lock import HostLock, read_lock
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedFile,
    ObservedHost,
    ServiceManager,
    list_differences,
    parse_files,
    parse_sysctls,
)
from autotune.deploy.runtime import (
    ConfigurationCheck,
    InvalidConfiguration,
    NoteCallback,
    ValidationCases,
    describe_draining,
)
from autotune.deploy.stack import ServiceInstance
from autotune.errors import AutotuneError, LockedError
from autotune.masking import has_placeholder, restore_secrets
from autotune.services.base import Action, Argv, TrialStart
from autotune.services.registry import find_outliner
from autotune.strict_parsing import split_lines
from autotune.target.beds import find_study_directory
from autotune.transports.base import CommandResult, Transport

_TRIAL_TIMEOUT = ("timeout", "10")  # of a trial start, in seconds
ACTION_TIMEOUT_SECONDS = (
    150.0  # s for a host to stop and start its units; systemd gives each 90 s to stop
)

# What `children_replaced` of on_host.sh prints: unit, number of processes, addresses of clients.
_DRAINING_PATTERN = re.compile(
    r"^finishing (\S+) ([1-9]\d{0,5})((?: [0-9A-Fa-f.:%*\[\]]+)*)$", re.MULTILINE
)


class ManagedHost:
    """``store`` has the controller's copy of the backup; ``note`` hears of what others changed."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        store: BackupStore,
        study: str,
        service_manager: ServiceManager | None = None,
        note: NoteCallback | None = None,
    ) -> None:
        self.name, self.transport, self._manager = name, transport, service_manager
        self._functions = service_manager.shell_functions if service_manager else ""
        self.lock = HostLock(transport, study)
        self._store, self._study = store, study
        self._started: set[str] = set()
        self._apart: dict[str, str] = {}
        self._finishing: set[str] = set()  # units that were named for it
        # Every account can write to the directory of a trial start: none must find it.
        self._trials = secrets.token_hex(8)
        self.notes: list[str] = []
        self.note = note or self.notes.append
        self.backup = store.read(name) or HostBackup(name, study)

    @property
    def is_changed(self) -> bool:
        """Whether anything was changed, as far as there is a backup."""
        return self.backup.state != HostState()

    @property
    def original_state(self) -> HostState:
        """The host as it was before the first change, as far as it has been changed."""
        return self.backup.state

    def assert_locked(self) -> None:
        """Raises AutotuneError where the host was taken over, or booted, since it was taken."""
        self.lock.renew()
        if read_lock(self.transport).boot != self.lock.boot_id:
            raise AutotuneError(
                f"{self.name} has been booted since", hint="`autotune resume` repeats the trial"
            )

    def observe(self, desired: HostState) -> ObservedHost:
        """Everything that ``desired`` speaks of, as it is; changes nothing."""
        return self._read_state(desired, ())[0]

    def observe_and_query(
        self, desired: HostState, queries: Sequence[tuple[ServiceInstance, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """As ``observe``, with what each command printed, in the same exchange."""
        inside = self._manager.wrap_command if self._manager else None
        commands = [Command(inside(part.placement, argv) if inside else argv)
                    for part, argv in queries]  # fmt: skip
        observed, answers = self.observe_and_run(desired, commands)
        return observed, [done.stdout for done in answers]

    def observe_and_run(
        self, desired: HostState, commands: Sequence[Command]
    ) -> tuple[ObservedHost, list[CommandResult]]:
        """As `observe`, and in the same exchange what each command says; none may change anything.

        Raises CommandFailed for a vital one that failed.
        """
        paths, names, keys = tuple(desired.files), tuple(desired.units), tuple(desired.sysctls)
        looking = [
            ("look", *paths),
            ("units", *names) if names else ("true",),
            ("kernel", *(key.replace(".", "/") for key in keys)),
        ]
        backup, running, kernel, *answers = run_required(
            self.transport,
            [*(Command(words, required=True) for words in looking), *commands],
            exclusive=self.lock.is_locked,  # waits for commands that a lost connection left running
            functions=self._functions,
        )
        files = parse_files(paths, backup.stdout)
        self._apart |= {path: file.staging_directory for path, file in files.items()}
        observed = ObservedHost(
            files,
            self._manager.parse_units(names, running.stdout) if self._manager and names else {},
            parse_sysctls(keys, kernel.stdout),
        )
        return observed, answers

    def back_up(
        self,
        desired: HostState,
        created_files: Iterable[str] = (),
        checks: Sequence[ConfigurationCheck] = (),
    ) -> None:
        """Back up, on the controller and the host, all that is about to change and has no backup yet.

        ``created_files`` are paths that the software itself is going to make; ``checks`` are how it
        validates what is backed up.
        """
        files = {**desired.files, **{path: FileState() for path in created_files}}
        new = self.backup.find_missing(HostState(files, desired.units, desired.sysctls))
        if new == HostState():
            return
        above = {str(p): FileState() for path in new.files for p in PurePosixPath(path).parents}
        everything = HostState({**above, **new.files}, new.units, new.sysctls)
        observed, contents = self._read_state(everything, tuple(new.files))
        present = {path: file for path, file in observed.files.items()
                 if path in new.files or file.kind == "absent"}  # fmt: skip
        observed = replace(observed, files=present)
        for path, file in desired.files.items():
            if not file.is_absent and path in present and present[path].kind == "directory":
                raise AutotuneError(f"{self.name}: {path} is a directory, not a file")
        if unknown := [
            unit for unit, unit_state in observed.units.items() if not unit_state.exists
        ]:
            raise AutotuneError(f"{self.name}: unknown unit {unknown[0]}")
        backup = self.backup.with_observed(observed, contents)
        backup = backup.with_written(dict.fromkeys(created_files, ANY_DIGEST))
        recorded = [*self.backup.checks]
        # Originals that are not among the host's own files have nothing put in their place.
        if not (self._manager and self._manager.validate_command):
            recorded += filter(None, (_build_backup_check(check, backup.state) for check in checks))
        backup = replace(backup, checks=tuple(dict.fromkeys(recorded)))
        self._run_locked([self._store_backup(backup)])
        self.backup = backup

    def _store_backup(self, backup: HostBackup) -> Command:
        """Write the backup on the controller; the command that is returned writes it on the host."""
        self._store.write(backup)
        return Command(
            ("keep", BACKUP_FILE, base64.b64encode(encode_backup(backup)).decode()), required=True
        )

    def stage(
        self, desired: HostState, plan: HostPlan, checks: Sequence[ConfigurationCheck] = ()
    ) -> None:
        """Write new files next to the real ones and let the software validate them there. Where other
        accounts can change names, they are staged in a directory that only root can enter.

        Raises Invalid with the software's words, CommandFailed where they cannot be written.
        """
        commands = [
            self._staging_command(path, desired.files[path]) for path in plan.files_to_write
        ]
        trials = [Command(self._build_check(check)) for check in checks]
        answers = self._run_locked([*commands, *trials], timeout=60.0)
        for check, done in zip(checks, answers[len(commands) :], strict=True):
            if not done.ok:
                raise InvalidConfiguration(
                    f"{check.instance.name}: {done.error_text or 'its configuration is not accepted'}"
                )

    def _build_check(self, check: ConfigurationCheck) -> tuple[str, ...]:
        if self._manager and self._manager.validate_command:
            return self._manager.validate_command(
                check.instance.placement, check.method, [*check.files], check.changed_files
            )
        return self._build_staged_check(
            check.method, check.instance.placement.directory, check.changed_files
        )

    def _build_staged_check(
        self, method: Argv | TrialStart, directory: str, changed_files: Sequence[str]
    ) -> tuple[str, ...]:
        new_files = {path: self._staged_path(path) for path in changed_files}
        trial = f"{directory}.{self._trials}"
        if isinstance(method, TrialStart):
            method = replace(method, argv=_replace_paths(method.argv, {directory: trial}))
        return build_staged_check(method, trial, new_files)

    def _staged_path(self, path: str) -> str:
        return self._apart.get(path) or staged_path(path)

    def discard_staged(self, plan: HostPlan) -> None:
        """Take staged files away."""
        if plan.files_to_write:
            self._run_locked([Command(("unstage", *plan.files_to_write))])

    def apply(self, desired: HostState, plan: HostPlan) -> None:
        """Do the steps. Raises CommandFailed, with the words of the unit or command that failed.

        Digests of what is written are on record first. What others changed is kept aside, and noted.
        """
        digests = {path: desired.files[path].digest for path in plan.files_to_write}
        changed = {**digests, **plan.sysctls, **dict.fromkeys(plan.boot_changes, ANY_DIGEST)}
        self.backup = self.backup.with_written(changed, plan.replaced)
        keep = [self._store_backup(self.backup)] if changed else []
        # A directory that somebody has put something into meanwhile stays, and is reported later.
        steps = [
            Command(words, required=words[0] != "remove")
            for words in self._list_steps(desired, plan)
        ]
        self._run_locked([*keep, *steps], timeout=ACTION_TIMEOUT_SECONDS)

    def restore(self, desired: HostState, plan: HostPlan) -> list[str]:
        """As ``apply``, of originals; goes on after a failed step. Returns what failed, in words."""
        steps = [Command(words) for words in self._list_steps(desired, plan)]
        answers = self._run_locked(steps, timeout=ACTION_TIMEOUT_SECONDS)
        return [done.error_text or " ".join(step.argv[:2])
                for step, done in zip(steps, answers, strict=False)
                if not done.ok and step.argv[0] != "remove"]  # fmt: skip

    def _list_steps(self, desired: HostState, plan: HostPlan) -> list[tuple[str, ...]]:
        commands: list[tuple[str, ...]] = [("stop", unit) for unit in plan.units_to_stop]
        own_digests = self.backup.replaceable_digests
        commands += [
            (
                "swap",
                path,
                self._staged_path(path),
                desired.files[path].modified or "",
                *own_digests(path),
            )
            for path in plan.files_to_write
        ]
        commands += [("remove", path, *own_digests(path)) for path in plan.files_to_remove]
        if plan.sysctls:
            values = (f"{name}={value}" for name, value in plan.sysctls.items())
            commands.append(("sysctl", "-q", "-w", *values))
        if self._manager and any(
            path.startswith(self._manager.unit_directory) for path in plan.unread_files
        ):
            commands.append(("reread",))
        for unit, action in plan.unit_actions.items():
            how = ("rereading",) if unit in desired.in_process_reloads else ()
            commands.append(
                ("reload", unit, *how) if action is Action.RELOAD else ("restart", unit)
            )
            commands.append(("up", unit, desired.listen_addresses.get(unit, "")))
        commands += [("enable" if starts else "disable", unit)
                     for unit, starts in plan.boot_changes.items()]  # fmt: skip
        self._started = {unit for unit, runs in desired.units.items() if runs}
        return commands

    def _note_draining(self, output: str) -> None:
        """Name the processes of before a reload that serve connections which were open then."""
        match = _DRAINING_PATTERN.search(output)
        if match is None or match[1] in self._finishing:
            return
        self._finishing.add(match[1])
        self.note(describe_draining(self.name, match[1], int(match[2]), match[3].split()))

    def remove_staged(self) -> None:
        """Remove what a killed tuner had staged."""
        self._run_locked([Command(("unstage", *self.backup.state.files))])

    def list_saved_copies(self) -> list[str]:
        """Files that others had changed and that a tuner kept when it replaced them, a line each."""
        (done,) = run_required(self.transport, [Command(("kept_aside",), required=True)])
        return [self._describe_saved_copy(copy) for copy in sorted(split_lines(done.stdout))]

    def _describe_saved_copy(self, saved_copy: str) -> str:
        # What follows the time.
        _, _, path = saved_copy.partition("/overwritten/")[2].partition("/")
        return f"{self.name}: others had changed /{path}: theirs is kept as {saved_copy}"

    def find_failures(self) -> list[str]:
        """Why units that ought to run do not, in their own words and with their names."""
        commands = [Command(("complaint", unit)) for unit in sorted(self._started)]
        answers = run_commands(self.transport, commands, functions=self._functions)
        return [f"{self.name}: {done.error_text}" for done in answers if done.error_text]

    def delete_backups(self) -> None:
        """The host is restored: neither copy of its backup is needed any more."""
        words = [("discard", BACKUP_FILE), ("discard_of", self.backup.study, APPLIED_BACKUP_FILE)]
        self._run_locked([Command(command) for command in words])
        self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def discard_stale_backup(self, observed: ObservedHost) -> None:
        """Others have restored the host: nothing is restored from the controller's copy any more."""
        if list_differences(self.original_state, observed):
            self.note(
                f"{self.name} was restored by others, and nothing there is study {self._study}'s any "
                f"more: it stays as it is; the study's copy of its originals is now "
                f"{self._store.archive(self.name)}"
            )
        else:
            self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def delete_study_backup(self, study: str) -> None:
        """Remove the controller's copy of another study, whose directory is beside this one's."""
        own = self._store.directory.parent
        directory = find_study_directory(own).with_name(study) / own.relative_to(
            find_study_directory(own)
        )
        BackupStore(directory).remove(self.name)

    def persist_state(self, desired: HostState) -> None:
        """See `RuntimeHost.persist`."""
        earlier = self.read_backup_copy(APPLIED_BACKUP_FILE)
        lasting = (
            earlier.merge_later(self.backup) if earlier else self.backup
        ).build_persistent_state(desired)
        self.back_up(lasting)
        plan = plan_host(lasting, self.observe(lasting), {})
        self.stage(lasting, plan)
        self.apply(lasting, plan)
        switched = (f"{unit} {'enabled' if starts else 'disabled'}"
                    for unit, starts in plan.boot_changes.items())  # fmt: skip
        if done := [*plan.files_to_write, *plan.files_to_remove, *switched]:
            self.note(f"{self.name}: after a reboot too: {', '.join(done)}")

    def commit(self) -> None:
        """What is deployed stays; the backup is there for a later `restore`."""
        if not self.is_changed:
            return
        earlier = self.read_backup_copy(APPLIED_BACKUP_FILE)
        # After several kept deployments, a restore leads back to how the host was before the first.
        backup = encode_backup(earlier.merge_later(self.backup) if earlier else self.backup)
        keep = ("keep", APPLIED_BACKUP_FILE, base64.b64encode(backup).decode())
        self._run_locked(
            [Command(keep, required=True), Command(("discard", BACKUP_FILE), required=True)]
        )

    def read_backup_copy(self, path: str) -> HostBackup | None:
        """The host's own copy of a backup, if it has one."""
        commands = [Command(("test", "-e", path)), Command(("contents", path))]
        there, printed = run_required(self.transport, commands)
        content = base64.b64decode(printed.stdout)
        return decode_backup(content, f"{self.name}:{path}") if there.ok else None

    def select_restorable(
        self, original: HostState, observed: ObservedHost
    ) -> tuple[HostState, list[str]]:
        """See `RuntimeHost.accepted`."""
        plan = plan_host(original, observed, {}, dict.fromkeys(original.units, Action.RESTART))
        self.stage(original, plan)
        refused = self._validation_errors(original, plan, observed)
        staying = {path for check in refused for path in check.files}
        self.discard_staged(
            replace(
                plan, files_to_write=tuple(path for path in plan.files_to_write if path in staying)
            )
        )
        files = {path: file for path, file in original.files.items() if path not in staying}
        messages = [f"{self.name}: {check.unit} refuses its original files, so that those in place "
                    f"stay: {words}" for check, words in refused.items()]  # fmt: skip
        return replace(original, files=files), messages

    def _validation_errors(
        self, desired: HostState, plan: HostPlan, observed: ObservedHost
    ) -> dict[BackupCheck, str]:
        """What the software says against staged originals where it accepts the files in place.

        It is not asked where an original is to replace something other than a file: there, nothing
        can be put in place for the check alone. Files that are to be removed look empty to the check.
        """
        removing = [path for path in plan.files_to_remove if observed.files[path].kind == "file"]
        changing = (*plan.files_to_write, *removing)
        checks = [check for check in self.backup.checks
                  if {*changing} & {*check.files} and desired.units.get(check.unit)]  # fmt: skip
        if not checks or any(observed.files[path].kind != "file" for path in plan.files_to_write):
            return {}
        empty = [self._staging_command(path, FileState(b"")) for path in removing]
        commands = [Command(self._build_original_check(check, changing)) for check in checks]
        as_is = [Command(self._build_original_check(check, ())) for check in checks]
        running = {check: observed.units[check.unit].active for check in checks}
        unstage = Command(("unstage", *removing))
        answers = self._run_locked(
            [*empty, *commands, *as_is, unstage], timeout=ACTION_TIMEOUT_SECONDS
        )[len(empty) :]
        return {
            check: done.error_text
            for check, done, working in zip(checks, answers, answers[len(checks) :], strict=False)
            if not done.ok and (working.ok if {*check.files} & {*check.argv} else running[check])
        }

    def _build_original_check(self, check: BackupCheck, changing: Sequence[str]) -> tuple[str, ...]:
        """A check on record, of the files in place with those that are ``changing`` as staged."""
        how = TrialStart(check.argv, check.socket) if check.socket else check.argv
        return self._build_staged_check(how, check.directory, changing)

    def _read_state(
        self, desired: HostState, content_paths: tuple[str, ...]
    ) -> tuple[ObservedHost, dict[str, bytes]]:
        """What is there, and the contents of the files ``content_paths``."""
        reading = Command(("contents", *content_paths), required=True)
        observed, (content,) = self.observe_and_run(desired, [reading])
        contents = _decode_contents(content_paths, content.stdout)
        check_unchanged(self.name, observed.files, contents)
        return observed, contents

    def _staging_command(self, path: str, file: FileState) -> Command:
        if file.link_target is not None:
            link = (path, self._staged_path(path), file.owner or "0:0", file.link_target)
            return Command(("stage_link", *link), required=True)
        content = base64.b64encode(file.content or b"").decode()
        mode = f"{0o644 if file.mode is None else file.mode:04o}"
        words = (path, self._staged_path(path), mode, file.owner or "-", content, file.acl or "")
        before = self.backup.state.files.get(path, FileState())
        kept = ("0:0", mode) if before.content is None else _owner_and_mode(before)
        return Command(("stage", *words, *kept), required=True)

    def _run_locked(
        self, commands: Sequence[Command], timeout: float = 30.0
    ) -> list[CommandResult]:
        """Change something, if the host is still ours."""
        assert self.lock.is_locked, "a host is locked before it is changed"
        fence = self.lock.assert_command
        answers = run_commands(
            self.transport,
            [fence, *commands],
            timeout=timeout,
            exclusive=True,
            functions=self._functions,
        )
        if not answers[0].ok:
            raise LockedError(
                f"{self.name}: {answers[0].error_text}", hint="another tuner took it over"
            )
        for command, done in zip(commands, answers[1:], strict=False):
            if command.argv[0] in ("swap", "remove") and done.ok and (copy := done.stdout.strip()):
                self.note(self._describe_saved_copy(copy))
            if command.argv[0] == "reload" and done.ok:
                self._note_draining(done.stdout)
            if command.required and not done.ok:
                raise CommandFailed(f"{self.name}: {done.error_text or ' '.join(command.argv[:2])}")
        return answers[1:]


def staged_path(path: str) -> str:
    """Where a new file waits. The dot and the ending keep it out of directories read by pattern."""
    location = PurePosixPath(path)
    return str(location.with_name(f".{location.name}.autotune-new"))


def build_staged_check(
    method: Argv | TrialStart, directory: str, staged_paths: Mapping[str, str]
) -> tuple[str, ...]:
    """The check of the real files, made to read staged ones for those in ``staged_paths`` (path →
    staged).

    A program that takes a file's path as an argument is given the path of the staged one. Staged
    files that it finds only by reading others are mounted over the real ones, for the check alone. So
    are files that are staged apart, so that their names lead only to what is staged.
    ``directory`` is where a trial start may write.
    """
    apart = any(location != staged_path(path) for path, location in staged_paths.items())
    if isinstance(method, TrialStart):
        words = (*_TRIAL_TIMEOUT, *method.argv)
        words = (
            mount_files_command(staged_paths, words)
            if apart
            else _replace_paths(words, staged_paths)
        )
        return ("trial", directory, method.socket, *words)
    if all(path in method for path in staged_paths) and not apart:
        return _replace_paths(method, staged_paths)
    return mount_files_command(staged_paths, method)


def _replace_paths(argv: Sequence[str], replacements: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(replacements.get(word, word) for word in argv)


def _owner_and_mode(file: FileState) -> tuple[str, str]:
    return file.owner or "", "" if file.mode is None else f"{file.mode:04o}"


def _decode_contents(paths: Sequence[str], output: str) -> dict[str, bytes]:
    """What ``read_contents`` printed about ``paths``."""
    return {path: base64.b64decode(line)
            for path, line in zip(paths, f"{output}\n".split("\n"), strict=False)}  # fmt: skip


def check_unchanged(
    host: str, observed: Mapping[str, ObservedFile], contents: Mapping[str, bytes]
) -> None:
    """Raise AutotuneError if a file was replaced between the looks at its state and its content."""
    for path, content in contents.items():
        digest = FileState(content).digest
        if observed[path].kind == "file" and observed[path].detail != digest:
            raise AutotuneError(
                f"{host}: {path} was changed while it was read", hint="run the command again"
            )


def _build_backup_check(check: ConfigurationCheck, backup: HostState) -> BackupCheck | None:
    """``None`` where the part has no unit, or where the check's arguments hold the contents of files
    and one of them was not there."""
    part, how = check.instance, check.method
    unit = part.service.get_unit(part.placement)
    if unit is None:
        return None
    if isinstance(how, TrialStart) and not {*check.files} & {*how.argv}:
        originals = {path: backup.files[path].content for path in check.files}
        contents = {path: content for path, content in originals.items() if content is not None}
        if len(contents) < len(originals):
            return None
        how = part.service.build_validation(part.placement, contents) or how
    argv = how.argv if isinstance(how, TrialStart) else how
    socket = how.socket if isinstance(how, TrialStart) else None
    return BackupCheck(unit, argv, tuple(check.files), part.placement.directory, socket)


# Even if nobody reads the answers any more, the commands go on and remove what was staged.
_IGNORE_BROKEN_PIPE = "trap : PIPE\n"


def validate_cases(transport: Transport, cases: ValidationCases) -> list[str | None]:
    """What the software says against each part's files; ``None`` where it accepts them.

    All parts are of this host. Raises HostUnreachable, or AutotuneError where they cannot be asked
    about.
    """
    own = f"validated-{secrets.token_hex(8)}"  # another tuner may be asking about its own
    originals = _read_masked_files(transport, cases)
    cases = _insert_secrets(cases, originals)
    commands: list[Command] = []
    command_indexes: list[int | None] = []
    for number, (part, files) in enumerate(cases):
        location = f"{part.placement.directory}.{own}/{number}"
        commands += [_build_write_command(path, f"{location}{path}", files[path], originals.get(path))
                     for path in files]  # fmt: skip
        check = _build_check(part, files, location)
        command_indexes.append(None if check is None else len(commands))
        commands += [] if check is None else [Command(check)]
    locations = sorted({f"{part.placement.directory}.{own}" for part, _ in cases})
    commands.append(Command(("rm", "-rf", "--", *locations)))
    answers = run_commands(
        transport, commands, timeout=60.0 + 10.0 * len(cases), functions=_IGNORE_BROKEN_PIPE
    )
    return [None if at is None or answers[at].ok else answers[at].error_text or "it is refused"
            for at in command_indexes]  # fmt: skip


@dataclass(frozen=True)
class CurrentFile:
    """A file of a host, and its content; empty if it does not exist."""

    observed: ObservedFile
    content: bytes


def _read_masked_files(transport: Transport, cases: ValidationCases) -> dict[str, CurrentFile]:
    """The host's own version of each file that has placeholders for secrets."""
    paths = sorted({path for _, files in cases for path in files if has_placeholder(files[path])})
    return read_files(transport, paths) if paths else {}


def _insert_secrets(
    cases: ValidationCases, originals: Mapping[str, CurrentFile]
) -> ValidationCases:
    """The cases with each placeholder replaced by the secret in the host's own file."""
    if not originals:
        return cases
    contents = {path: file.content for path, file in originals.items()}
    return [(part, fill_secrets(part, files, contents)) for part, files in cases]


def fill_secrets(
    instance: ServiceInstance, files: Mapping[str, bytes], originals: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    """Files of a part with each placeholder replaced by what the host's own file has in its place.

    Raises AutotuneError where that has other pieces than those that were masked.
    """
    return {path: restore_secrets(content, originals.get(path), f"{instance.placement.host}: {path}",
                           find_outliner(instance.service, path))
            for path, content in files.items()}  # fmt: skip


def read_files(transport: Transport, paths: Sequence[str]) -> dict[str, CurrentFile]:
    """Files of a host as they are. Raises AutotuneError for one that cannot be read safely."""
    words = [("look", *paths), ("contents", *paths)]
    looked, printed = run_required(
        transport, [Command(command, required=True) for command in words]
    )
    observed, content = (
        parse_files(tuple(paths), looked.stdout),
        _decode_contents(paths, printed.stdout),
    )
    for path, file in observed.items():
        if file.kind == "refused":
            raise AutotuneError(f"{transport.name}: {path} cannot be read safely: {file.detail}")
    check_unchanged(transport.name, observed, content)
    return {path: CurrentFile(observed[path], content[path]) for path in paths}


def read_contents(transport: Transport, paths: Sequence[str]) -> dict[str, bytes]:
    """The contents of files of a host; empty for one that is not there."""
    (printed,) = run_required(transport, [Command(("contents", *paths), required=True)])
    return _decode_contents(paths, printed.stdout)


def _build_write_command(
    path: str, target: str, content: bytes, existing: CurrentFile | None
) -> Command:
    """Write a file with the mode and the owner of the real one. If it has the secrets of ``existing``,
    these are the mode and owner that ``existing`` had when it was read."""
    kept: tuple[str, ...] = ("", "")
    if existing and existing.observed.kind == "file":
        kept = _owner_and_mode(
            FileState(mode=existing.observed.mode, owner=existing.observed.owner)
        )
    words = (path, target, "0644", "-", base64.b64encode(content).decode(), "")
    return Command(("stage", *words, *kept))


def _build_check(
    instance: ServiceInstance, files: Mapping[str, bytes], root: str
) -> tuple[str, ...] | None:
    """The check of the real files, made to read those below ``root``."""
    how = instance.service.build_validation(instance.placement, files)
    if how is None:
        return None
    argv = how.argv if isinstance(how, TrialStart) else how
    elsewhere = {path: f"{root}{path}" for path in files}
    if instance.placement.adopted is not None and not isinstance(how, TrialStart):
        # They may include each other.
        return mount_files_command(elsewhere, argv) if files else None
    elsewhere[instance.placement.directory] = f"{root}/trial"
    words = _replace_paths(argv, elsewhere)
    if isinstance(how, TrialStart):
        return ("trial", f"{root}/trial", how.socket, *_TRIAL_TIMEOUT, *words)
    return words
