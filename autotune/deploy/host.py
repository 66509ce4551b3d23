"""Observe, back up and change one host. Most methods make one round trip to the host."""

from __future__ import annotations

import base64
import contextlib
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from autotune import foreign_files
from autotune.deploy.backup import (
    ANY_DIGEST,
    SYSCTL_FILE,
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
    build_command_error,
    run_commands,
    run_required,
)
from autotune.deploy.host_files import check_unchanged, decode_contents
from autotune.deploy.host_lock import HostLock, read_lock
from autotune.deploy.host_state import (
    FileState,
    HostPlan,
    HostState,
    ObservedHost,
    ObservedUnit,
    ServiceManager,
    list_differences,
    parse_files,
    parse_sysctls,
    wrap_parse_errors,
)
from autotune.deploy.plan_steps import compute_action_timeout, list_plan_steps, parse_boot_seconds
from autotune.deploy.runtime import (
    ConfigurationCheck,
    InvalidConfiguration,
    NoteCallback,
    describe_draining,
)
from autotune.deploy.stack import ServiceInstance
from autotune.deploy.staging import (
    build_backup_check,
    build_staged_check,
    format_owner_and_mode,
    replace_paths,
    staged_path,
)
from autotune.errors import AutotuneError, LockedError
from autotune.masking import find_secret_words, remove_words
from autotune.services.base import Action, Argv, TrialStart
from autotune.strict_parsing import split_lines
from autotune.study_argument import format_study_argument
from autotune.target.beds import find_study_directory
from autotune.transports.base import CommandResult, HostUnreachable, Transport

CHECK_TIMEOUT_SECONDS = 150.0  # time limit to stage and check the original files of a host

# ACL of an original file without an ACL, so that an ACL that others added to the file is removed. Its
# permissions do not matter, because the mode is set afterwards.
_MINIMAL_ACL = "user::rw-,group::---,other::---"

# The line that `children_replaced` in on_host.sh prints: a unit, the number of its old processes, and
# the addresses of their clients.
_DRAINING_PATTERN = re.compile(
    r"^finishing (\S+) ([1-9]\d{0,5})((?: [0-9A-Fa-f.:%*\[\]]+)*)$", re.MULTILINE
)


class ManagedHost:
    """A host that is locked, backed up and changed.

    ``store`` contains the controller's copy of the backup. ``note`` receives lines about changes
    that other programs or people made.
    """

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
        self._staging_directories: dict[str, str] = {}
        self._stop_seconds: dict[str, float] = {}  # longest time that each unit takes to stop
        self._noted_units: set[str] = set()  # units whose old processes were already noted
        # Every account can write to the directory for test starts, so its name must not be guessable.
        self._test_start_suffix = secrets.token_hex(8)
        self.notes: list[str] = []
        self.note = note or self.notes.append
        self.backup = store.read(name) or HostBackup(name, study)
        self.is_backup_current = False  # true once the backup was compared with the locked host

    @property
    def study_argument(self) -> str:
        """Return the argument that names the study in hints."""
        return format_study_argument(find_study_directory(self._store.study))

    @property
    def is_changed(self) -> bool:
        """True if a backup exists, so the host may have been changed."""
        return self.backup.state != HostState()

    @property
    def original_state(self) -> HostState:
        """Return the state before the first change, with the start order of its units."""
        return self.backup.ordered_state

    @property
    def can_restart_units(self) -> bool:
        """True if a service manager is known, so that units can be restarted."""
        return self._manager is not None

    @property
    def has_started_units(self) -> bool:
        """True if this object has started or restarted units."""
        return bool(self._started)

    def assert_locked(self) -> None:
        """Raise AutotuneError if another tuner has locked the host, or if the host was rebooted
        since this tuner locked it.
        """
        self.lock.renew()
        if read_lock(self.transport).boot != self.lock.boot_id:
            raise AutotuneError(
                f"{self.name} was rebooted during the trial",
                hint=f"`autotune resume {self.study_argument}` repeats the trial",
            )

    def observe(self, desired: HostState) -> ObservedHost:
        """Return the current state of all files, units and kernel values in ``desired``."""
        return self._read_state(desired, ())[0]

    def observe_and_query(
        self, desired: HostState, queries: Sequence[tuple[ServiceInstance, Argv]]
    ) -> tuple[ObservedHost, list[str]]:
        """Return the result of ``observe`` and the output of each command, in one round trip."""
        wrap_command = self._manager.wrap_command if self._manager else None
        commands = [
            Command(wrap_command(instance.placement, argv) if wrap_command else argv)
            for instance, argv in queries
        ]
        observed_host, command_results = self.observe_and_run(desired, commands)
        return observed_host, [command_result.stdout for command_result in command_results]

    def observe_and_run(
        self, desired: HostState, commands: Sequence[Command]
    ) -> tuple[ObservedHost, list[CommandResult]]:
        """Return the result of ``observe`` and the result of each command, in one round trip. The
        commands must not change anything.

        Raises CommandFailed for a required command that failed.
        """
        paths, unit_names, sysctl_names = (
            tuple(desired.files),
            tuple(desired.units),
            tuple(desired.sysctls),
        )
        look_commands = [
            ("look", *paths),
            ("units", *unit_names) if unit_names else ("true",),
            ("kernel", *(sysctl_name.replace(".", "/") for sysctl_name in sysctl_names)),
        ]
        files_result, units_result, kernel_result, *command_results = run_required(
            self.transport,
            [*(Command(words, required=True) for words in look_commands), *commands],
            # If this process holds the lock, earlier commands may still be running, so wait for them.
            exclusive=self.lock.is_locked,
            functions=self._functions,
        )
        observed_files = parse_files(paths, files_result.stdout)
        self._staging_directories |= {
            path: file.staging_directory for path, file in observed_files.items()
        }
        observed_host = ObservedHost(
            observed_files,
            self._manager.parse_units(unit_names, units_result.stdout)
            if self._manager and unit_names
            else {},
            parse_sysctls(sysctl_names, kernel_result.stdout),
        )
        self._stop_seconds |= {
            name: unit.stop_seconds for name, unit in observed_host.units.items()
        }
        return observed_host, command_results

    def back_up(
        self,
        desired: HostState,
        created_files: Iterable[str] = (),
        checks: Sequence[ConfigurationCheck] = (),
    ) -> None:
        """Back up the files, units and kernel values in ``desired`` that have no backup yet. Copies
        are written on the controller and on the host.

        ``created_files`` are paths that the software itself creates. ``checks`` validate the original
        files.
        """
        file_states = {**desired.files, **{path: FileState() for path in created_files}}
        new_state = self.backup.find_missing(HostState(file_states, desired.units, desired.sysctls))
        if new_state == HostState():
            return
        parent_states = {
            str(p): FileState() for path in new_state.files for p in PurePosixPath(path).parents
        }
        complete_state = HostState(
            {**parent_states, **new_state.files}, new_state.units, new_state.sysctls
        )
        observed_host, contents = self._read_state(complete_state, tuple(new_state.files))
        present_files = {
            path: file
            for path, file in observed_host.files.items()
            if path in new_state.files or file.kind == "absent"
        }
        observed_units = self._add_new_units(desired, observed_host.units)
        observed_host = replace(observed_host, files=present_files, units=observed_units)
        self._require_replaceable(desired, observed_host)
        backup = self.backup.with_observed_state(observed_host, contents)
        backup = backup.with_starts(desired.starts)
        backup = backup.with_written_digests(dict.fromkeys(created_files, ANY_DIGEST))
        recorded_checks = [*self.backup.checks]
        # If services have their own file systems, no check is recorded, because the check could not
        # mount files in those file systems.
        if not (self._manager and self._manager.validate_command):
            recorded_checks += filter(
                None, (build_backup_check(check, backup.state) for check in checks)
            )
        backup = replace(backup, checks=tuple(dict.fromkeys(recorded_checks)))
        self._run_locked([self._store_backup(backup)])
        self.backup = backup

    def _require_replaceable(self, desired_state: HostState, observed: ObservedHost) -> None:
        """Raise AutotuneError if a path is a directory, or if a unit does not exist."""
        for path, file in desired_state.files.items():
            is_directory = path in observed.files and observed.files[path].kind == "directory"
            if is_directory and not file.is_absent:
                raise AutotuneError(f"{self.name}: {path} is a directory, not a file")
        for unit, unit_state in observed.units.items():
            if not unit_state.exists:
                raise AutotuneError(f"{self.name}: unknown unit {unit}")

    @property
    def created_units(self) -> set[str]:
        """Return the units that did not exist before autotune wrote their files."""
        original_files = self.original_state.files
        return {
            unit
            for unit in self.original_state.units
            if (file := original_files.get(self._find_unit_file(unit))) and file.is_absent
        }

    def _add_new_units(
        self, desired: HostState, units: Mapping[str, ObservedUnit]
    ) -> dict[str, ObservedUnit]:
        """Return ``units``, in which units that autotune will write are stopped and disabled."""
        return {
            unit: replace(unit_state, exists=True, enabled="disabled")
            if not unit_state.exists and self._find_unit_file(unit) in desired.files
            else unit_state
            for unit, unit_state in units.items()
        }

    def _find_unit_file(self, unit: str) -> str:
        return f"{self._manager.unit_directory if self._manager else ''}{unit}"

    def _store_backup(self, backup: HostBackup) -> Command:
        """Write the backup on the controller, and return the command that writes it on the host."""
        self._store.write(backup)
        return Command(
            ("keep", BACKUP_FILE, base64.b64encode(encode_backup(backup)).decode()), required=True
        )

    def stage(
        self, desired: HostState, plan: HostPlan, checks: Sequence[ConfigurationCheck] = ()
    ) -> None:
        """Write new files next to the files that they replace, and validate the new files with the
        software.

        If other accounts can rename files on a path, the new file for this path is staged in a directory
        that only root can enter. Files that the plan removes are empty during the check. Raises
        InvalidConfiguration with the software's message, or CommandFailed if a file cannot be written.
        """
        removed_paths = plan.files_to_remove if checks else ()
        commands = [
            self._build_staging_command(path, desired.files[path]) for path in plan.files_to_write
        ] + [self._build_staging_command(path, FileState(b"")) for path in removed_paths]
        check_commands = [Command(self._build_check(check)) for check in checks]
        command_results = self._run_locked(
            [*commands, *check_commands, Command(("unstage", *removed_paths))], timeout=60.0
        )
        for check, command_result in zip(checks, command_results[len(commands) :], strict=False):
            if not command_result.ok:
                reason = command_result.error_text or "its configuration is not accepted"
                raise InvalidConfiguration(f"{check.instance.name}: {reason}")

    def _build_check(self, check: ConfigurationCheck) -> tuple[str, ...]:
        if self._manager and self._manager.validate_command:
            return self._manager.validate_command(
                check.instance.placement, check.method, [*check.files], check.changed_files
            )
        return self._build_staged_check(
            check.method, check.instance.placement.directory, check.changed_files, check.files
        )

    def _build_staged_check(
        self,
        method: Argv | TrialStart,
        directory: str,
        changed_files: Sequence[str],
        files: Collection[str],
    ) -> tuple[str, ...]:
        staged_paths = {path: self._staged_path(path) for path in changed_files}
        trial_directory = f"{directory}.{self._test_start_suffix}"
        if isinstance(method, TrialStart):
            method = replace(method, argv=replace_paths(method.argv, {directory: trial_directory}))
        return build_staged_check(method, trial_directory, staged_paths, files)

    def _staged_path(self, path: str) -> str:
        return self._staging_directories.get(path) or staged_path(path)

    def discard_staged(self, plan: HostPlan) -> None:
        """Remove the files that were staged for ``plan``."""
        if staged_paths := (*plan.files_to_write, *plan.files_to_remove):
            self._run_locked([Command(("unstage", *staged_paths))])

    def apply(self, desired: HostState, plan: HostPlan) -> dict[str, float]:
        """Apply the plan and return the boot time of each restarted unit in seconds.

        Before the change, digests of new files are recorded, and files that other programs or people
        have changed are copied. The copies, and kernel values that others had set, are reported.
        Raises the errors of `RuntimeHost.apply`.
        """
        self.note_foreign_values(plan.sysctls, plan.replaced)
        digests = {path: desired.files[path].digest for path in plan.files_to_write}
        written_values = {**digests, **plan.sysctls, **dict.fromkeys(plan.boot_changes, ANY_DIGEST)}
        self.backup = self.backup.with_written_digests(written_values, plan.replaced)
        backup_commands = [self._store_backup(self.backup)] if written_values else []
        # A directory to which others have added files is kept, and is reported later.
        steps = [
            Command(command_words, required=command_words[0] != "remove")
            for command_words in self._list_steps(desired, plan)
        ]
        command_results = self._run_locked(
            [*backup_commands, *steps],
            timeout=compute_action_timeout(desired, plan, self._stop_seconds),
        )
        return parse_boot_seconds(command_results)

    def note_foreign_values(
        self, sysctls: Mapping[str, str], current_values: Mapping[str, str | None]
    ) -> None:
        """Report kernel values that others had set, and that ``sysctls`` replaces."""
        for name, value in sysctls.items():
            current_value = current_values.get(name)
            if current_value in (None, value):
                continue
            if self.backup.is_foreign_value(name, current_value):
                self.note(
                    f"{self.name}: replaced {name} = {current_value}, which others had set, with {value}"
                )

    def restore(self, desired: HostState, plan: HostPlan) -> list[str]:
        """Apply the plan that restores the original state. Continue after failed steps, and return
        the error messages.
        """
        steps = [Command(command_words) for command_words in self._list_steps(desired, plan)]
        command_results = self._run_locked(
            steps, timeout=compute_action_timeout(desired, plan, self._stop_seconds)
        )
        return [
            command_result.error_text or " ".join(step.argv[:2])
            for step, command_result in zip(steps, command_results, strict=False)
            if not command_result.ok and step.argv[0] != "remove"
        ]

    def _list_steps(self, desired_state: HostState, plan: HostPlan) -> list[tuple[str, ...]]:
        self._started = {unit for unit, is_running in desired_state.units.items() if is_running}
        return list_plan_steps(
            desired_state,
            plan,
            self.backup,
            self._staged_path,
            self._manager,
            self._stop_seconds,
        )

    def _note_draining(self, output: str) -> None:
        """Report old processes that still serve connections made before a reload."""
        match = _DRAINING_PATTERN.search(output)
        if match is None or match[1] in self._noted_units:
            return
        self._noted_units.add(match[1])
        self.note(describe_draining(self.name, match[1], int(match[2]), match[3].split()))

    def remove_staged(self) -> None:
        """Remove the files that a killed tuner staged."""
        self._run_locked([Command(("unstage", *self.backup.state.files))])

    def list_saved_copies(self) -> list[str]:
        """Return a line for each saved copy. A file is copied before its replacement if someone else
        had changed the file.
        """
        (command_result,) = run_required(self.transport, [Command(("kept_aside",), required=True)])
        return [
            self._describe_saved_copy(copy) for copy in sorted(split_lines(command_result.stdout))
        ]

    def _describe_saved_copy(self, saved_copy: str) -> str:
        # The path of a copy is ``<directory>/overwritten/<time>/<original path>``.
        _, _, path = saved_copy.partition("/overwritten/")[2].partition("/")
        return f"{self.name}: a copy of /{path}, which others had changed, is in {saved_copy}"

    def find_failures(self) -> list[str]:
        """Return the names and last messages of units that should be running but have stopped."""
        commands = [Command(("complaint", unit)) for unit in sorted(self._started)]
        command_results = run_commands(self.transport, commands, functions=self._functions)
        return [
            f"{self.name}: {command_result.error_text}"
            for command_result in command_results
            if command_result.error_text
        ]

    def delete_backups(self) -> None:
        """Delete both copies of a restored host's backup. The record of a kept deployment is deleted
        too if the restore reverted that deployment.
        """
        try:
            kept_backup = self.read_backup_copy(APPLIED_BACKUP_FILE)
        except HostUnreachable:
            raise
        except AutotuneError:
            kept_backup = None  # a record that cannot be read is not deleted
        is_reverted = kept_backup is not None and self.backup.reverts(kept_backup)
        paths = (BACKUP_FILE, *([APPLIED_BACKUP_FILE] if is_reverted else []))
        self._run_locked([Command(("discard", *paths), required=True)])
        self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def discard_stale_backup(self, observed: ObservedHost) -> None:
        """Discard the controller's backup copy of a host that someone else has restored."""
        if list_differences(self.original_state, observed):
            self.note(
                f"{self.name} is not changed, because others have restored it. Its earlier backup is now "
                f"{self._store.archive(self.name)}"
            )
        else:
            self._store.remove(self.name)
        self.backup = HostBackup(self.name, self._study)

    def delete_study_backup(self, restored: HostBackup) -> None:
        """Remove another study's backup copy of this host on the controller, after a restore. The
        other study is in the same parent directory.

        ``restored`` is the restored backup, which was read from the host. A copy with a different
        original state is kept, because the copy may belong to another machine.
        """
        own_directory = self._store.directory.parent
        study_directory = find_study_directory(own_directory)
        if restored.study not in foreign_files.list_names(study_directory.parent):
            return
        directory = study_directory.with_name(restored.study) / own_directory.relative_to(
            study_directory
        )
        store = BackupStore(directory)
        with contextlib.suppress(AutotuneError, OSError):  # a copy that cannot be read is kept
            copy = store.read(self.name)
            if copy is not None and (copy.study, copy.state) == (restored.study, restored.state):
                store.remove(self.name)

    def persist_state(self, desired: HostState) -> None:
        """Make the deployment survive a reboot: see `RuntimeHost.persist_state`."""
        applied_backup = self.read_backup_copy(APPLIED_BACKUP_FILE)
        (result,) = run_required(self.transport, [Command(("contents", SYSCTL_FILE))])
        current_sysctls = decode_contents((SYSCTL_FILE,), result.stdout)[SYSCTL_FILE]
        persistent_state = (
            applied_backup.merge_later(self.backup) if applied_backup else self.backup
        ).build_persistent_state(desired, current_sysctls)
        self.back_up(persistent_state)
        plan = plan_host(persistent_state, self.observe(persistent_state), {})
        self.stage(persistent_state, plan)
        self.apply(persistent_state, plan)
        toggled_units = (
            f"{unit} {'enabled' if starts_at_boot else 'disabled'}"
            for unit, starts_at_boot in plan.boot_changes.items()
        )
        if changed_names := [*plan.files_to_write, *plan.files_to_remove, *toggled_units]:
            self.note(f"settings on {self.name} that survive a reboot: {', '.join(changed_names)}")

    def commit(self) -> None:
        """Keep the deployment. The backup remains for a later `restore`."""
        if not self.is_changed:
            return
        applied_backup = self.read_backup_copy(APPLIED_BACKUP_FILE)
        copy_commands = _build_copy_commands(applied_backup, self.backup)
        # After several kept deployments, a restore reverts all of them.
        backup = encode_backup(
            applied_backup.merge_later(self.backup) if applied_backup else self.backup
        )
        keep_command = ("keep", APPLIED_BACKUP_FILE, base64.b64encode(backup).decode())
        self._run_locked(
            [
                *copy_commands,
                Command(keep_command, required=True),
                Command(("discard", BACKUP_FILE), required=True),
            ]
        )

    def keep_foreign_versions(self) -> None:
        """Copy the files that others changed between a kept deployment and a later study. A restore of
        both would otherwise lose these changes.
        """
        kept_backup = self.read_backup_copy(APPLIED_BACKUP_FILE)
        later_backup = self.read_backup_copy(BACKUP_FILE)
        commands = _build_copy_commands(kept_backup, later_backup)
        if commands:
            self._run_locked(commands)

    def read_backup_copy(self, path: str) -> HostBackup | None:
        """Return the host's own copy of a backup, or ``None`` if it does not exist.

        The record may name another host, but it describes this host. The controller's copy of the
        other host must never be replaced with it.
        """
        commands = [Command(("test", "-e", path)), Command(("contents", path))]
        test_result, content_result = run_required(self.transport, commands)
        with wrap_parse_errors(path, "(not shown)"):
            content = base64.b64decode(content_result.stdout, validate=True)
        if not test_result.ok:
            return None
        return replace(decode_backup(content, f"{self.name}:{path}"), host=self.name)

    def select_restorable(
        self, original: HostState, observed: ObservedHost
    ) -> tuple[HostState, list[str]]:
        """Return the restorable part of ``original``: see `RuntimeHost.select_restorable`."""
        plan = plan_host(original, observed, {}, dict.fromkeys(original.units, Action.RESTART))
        refused_checks = self._stage_originals(original, plan, observed)
        kept_paths = {path for check in refused_checks for path in check.files}
        self.discard_staged(
            replace(
                plan,
                files_to_write=tuple(path for path in plan.files_to_write if path in kept_paths),
            )
        )
        restorable_files = {
            path: file for path, file in original.files.items() if path not in kept_paths
        }
        messages = [
            f"{self.name}: {check.unit} refuses its original files, so the current files "
            f"are kept: {message}"
            for check, message in refused_checks.items()
        ]
        return replace(original, files=restorable_files), messages

    def _stage_originals(
        self, original: HostState, plan: HostPlan, observed_host: ObservedHost
    ) -> dict[BackupCheck, str]:
        """Stage the original files. For each check that only the current files pass, return the
        software's message about the original files.

        If an original file replaces a link or a directory, nothing is validated, because checks could
        not use the original file. Files that will be removed are empty during the check.
        """
        staging_commands = [
            self._build_staging_command(path, original.files[path]) for path in plan.files_to_write
        ]
        removed_paths = [
            path for path in plan.files_to_remove if observed_host.files[path].kind == "file"
        ]
        changing_paths = (*plan.files_to_write, *removed_paths)
        checks = [
            check
            for check in self.backup.checks
            if {*changing_paths} & {*check.files} and original.units.get(check.unit)
        ]
        if any(observed_host.files[path].kind != "file" for path in plan.files_to_write):
            checks = []
        if checks:
            staging_commands += [
                self._build_staging_command(path, FileState(b"")) for path in removed_paths
            ]
        commands = [Command(self._build_original_check(check, changing_paths)) for check in checks]
        commands += [Command(self._build_original_check(check, ())) for check in checks]
        running_by_check = {check: observed_host.units[check.unit].active for check in checks}
        command_results = self._run_locked(
            [*staging_commands, *commands, Command(("unstage", *removed_paths))],
            timeout=CHECK_TIMEOUT_SECONDS,
        )[len(staging_commands) :]
        return {
            check: _mask_values(
                staged_result.error_text,
                (original.files[path].content for path in check.files if path in original.files),
            )
            for check, staged_result, current_result in zip(
                checks, command_results, command_results[len(checks) :], strict=False
            )
            if not staged_result.ok
            and (current_result.ok if {*check.files} & {*check.argv} else running_by_check[check])
        }

    def _build_original_check(self, check: BackupCheck, changing: Sequence[str]) -> tuple[str, ...]:
        """Return the command of a recorded check. The check uses staged files for the paths in
        ``changing``, and current files for all other paths.
        """
        validation = TrialStart(check.argv, check.socket) if check.socket else check.argv
        return self._build_staged_check(validation, check.directory, changing, check.files)

    def _read_state(
        self, desired: HostState, content_paths: tuple[str, ...]
    ) -> tuple[ObservedHost, dict[str, bytes]]:
        """Return the current state of ``desired``, and the contents of the files ``content_paths``."""
        contents_command = Command(("contents", *content_paths), required=True)
        observed_host, (contents_result,) = self.observe_and_run(desired, [contents_command])
        contents = decode_contents(content_paths, contents_result.stdout)
        check_unchanged(self.name, observed_host.files, contents)
        return observed_host, contents

    def _build_staging_command(self, path: str, file: FileState) -> Command:
        if file.link_target is not None:
            link_arguments = (path, self._staged_path(path), file.owner or "0:0", file.link_target)
            return Command(("stage_link", *link_arguments), required=True)
        content = base64.b64encode(file.content or b"").decode()
        mode = f"{file.new_mode if file.mode is None else file.mode:04o}"
        acl = file.acl or ("" if file.acl is None else _MINIMAL_ACL)
        arguments = (path, self._staged_path(path), mode, file.owner or "-", content, acl)
        original_file = self.backup.state.files.get(path, FileState())
        owner_and_mode = (
            ("0:0", mode) if original_file.content is None else format_owner_and_mode(original_file)
        )
        return Command(("stage", *arguments, *owner_and_mode), required=True)

    def _run_locked(
        self, commands: Sequence[Command], timeout: float = 30.0
    ) -> list[CommandResult]:
        """Run commands that change the host. Raises LockedError if the lock was lost."""
        assert self.lock.is_locked, "a host is locked before it is changed"
        lock_assertion = self.lock.assert_command
        command_results = run_commands(
            self.transport,
            [lock_assertion, *commands],
            timeout=timeout,
            exclusive=True,
            functions=self._functions,
        )
        if not command_results[0].ok:
            raise LockedError(
                f"{self.name}: {command_results[0].error_text}",
                hint="another autotune process took over this host: wait until that process has stopped, "
                "then repeat the command",
            )
        for command, command_result in zip(commands, command_results[1:], strict=False):
            if (
                command.argv[0] in ("swap", "remove", "keep_copy")
                and command_result.ok
                and (saved_copy := command_result.stdout.strip())
            ):
                self.note(self._describe_saved_copy(saved_copy))
            if command.argv[0] == "reload" and command_result.ok:
                self._note_draining(command_result.stdout)
            if command.required and not command_result.ok:
                raise build_command_error(self.name, command, command_result)
        return command_results[1:]


def _build_copy_commands(earlier: HostBackup | None, later: HostBackup | None) -> list[Command]:
    """Return the commands that copy files which others changed between two backups."""
    foreign_versions = earlier.list_foreign_versions(later) if earlier and later else {}
    return [
        Command(("keep_copy", path, base64.b64encode(content).decode()), required=True)
        for path, content in foreign_versions.items()
    ]


def _mask_values(message: str, contents: Iterable[bytes | None]) -> str:
    """Return a message without the values in files that look like secrets. The syntax of the files is
    unknown.
    """
    words_by_file = (find_secret_words(content or b"") for content in contents)
    return remove_words(message, frozenset[str]().union(*words_by_file))
