"""Hosts locked, backed up and changed by one study, and restored from either copy of the backup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from autotune.deploy.backup import BackupStore, HostBackup
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import APPLIED_BACKUP_FILE, BACKUP_FILE
from autotune.deploy.host_lock import LeaseRenewer
from autotune.deploy.host_state import (
    HostPlan,
    HostState,
    ObservedHost,
    ServiceManager,
    list_differences,
)
from autotune.deploy.runtime import NoteCallback
from autotune.errors import AutotuneError, LockedError, join_errors
from autotune.services.base import Action
from autotune.target.beds import find_study_directory
from autotune.target.messages import format_count
from autotune.transports.base import HostUnreachable, Transport
from autotune.transports.parallel_hosts import HostResults, run_on_all

T = TypeVar("T")
KernelValueFitter = Callable[[Mapping[str, str | None]], Mapping[str, str]]


class ManagedHosts:
    """Hosts of one study. Nothing is done to them before ``lock``; ``note`` hears of progress."""

    def __init__(
        self,
        transports: Iterable[Transport],
        study: Path,
        note: NoteCallback,
        service_manager: ServiceManager | None = None,
    ) -> None:
        store = BackupStore(study)
        self._hosts = {
            transport.name: ManagedHost(
                transport.name,
                transport,
                store,
                find_study_directory(study).name,
                service_manager,
                note,
            )
            for transport in transports
        }
        self._lease = LeaseRenewer([host.lock for host in self._hosts.values()])
        self._study, self._note = find_study_directory(study).name, note

    def __getitem__(self, name: str) -> ManagedHost:
        return self._hosts[name]

    def run_on_hosts(
        self, names: Iterable[str], work: Callable[[ManagedHost], T]
    ) -> HostResults[T]:
        """``work`` on all of them at once."""
        return run_on_all([self._hosts[name] for name in names], work)

    def lock(self) -> None:
        """Lock every host, and restore what a killed tuner has left there.

        Raises LockedError while another tuner has one of them; none is held then.
        """
        errors = self._lock_each()
        if errors:
            self._unlock_each()
            raise join_errors(errors.values())
        self._lease.start()
        self._note_all(self.run_on_hosts(self._hosts, restore_orphaned).unwrap())

    def assert_locked(self) -> None:
        """Raises AutotuneError where one was taken over, or booted, since it was taken."""
        self.run_on_hosts(self._locked_names(), ManagedHost.assert_locked).unwrap()

    def unlock(self, *, restored: bool) -> None:
        """Unlock the hosts that are held, restored or as they are now.

        Raises AutotuneError naming the hosts that could not be restored, when all others are.
        """
        self._lease.stop()
        leave = restore_host if restored else ManagedHost.commit
        try:
            failed = self.run_on_hosts(self._locked_names(), leave).errors
        finally:
            self._unlock_each()
        if failed:
            raise AutotuneError(
                "not restored: " + "; ".join(error.message for error in failed.values()),
                hint=f"`autotune restore {self._study}` once that is mended",
            )

    def _lock_each(self) -> dict[str, AutotuneError]:
        """Lock every host; returns the errors of those that cannot be locked."""
        locked = self.run_on_hosts(self._hosts, lambda host: host.lock.lock())
        for name, stale in locked.results.items():
            if stale:
                self._note(f"{name}: took over the lock of {stale}")
        return locked.errors

    def _unlock_each(self) -> None:
        self.run_on_hosts(self._locked_names(), lambda host: host.lock.unlock())

    def _locked_names(self) -> list[str]:
        return [name for name, host in self._hosts.items() if host.lock.is_locked]

    def _note_all(self, lines: Mapping[str, Sequence[str]]) -> None:
        for of_host in lines.values():
            for line in of_host:
                self._note(line)


class LoadHosts(ManagedHosts):
    """Hosts that make load, with kernel values that suit it while a study lasts."""

    def lock_and_fit(self, names: Sequence[str], fit: KernelValueFitter) -> None:
        """Hold them, with the kernel values that ``fit(present values of names)`` returns.

        A host that cannot be prepared makes load as it is, which is noted. Raises LockedError while
        another tuner has one of them.
        """
        errors = self._lock_each()
        if locked := [error for error in errors.values() if isinstance(error, LockedError)]:
            self.unlock(restored=True)
            raise locked[0]
        self._lease.start()
        prepared = self.run_on_hosts(
            self._locked_names(), lambda host: _fit_kernel_values(host, names, fit)
        )
        self._note_all(prepared.results)
        for name, error in {**errors, **prepared.errors}.items():
            self._note(f"{name} makes load as it is: {error.message}")


def _fit_kernel_values(
    host: ManagedHost, names: Sequence[str], fit: KernelValueFitter
) -> tuple[str, ...]:
    orphaned = restore_orphaned(host)
    requested = HostState(sysctls=dict.fromkeys(names, ""))
    desired = HostState(sysctls=fit(host.observe(requested).sysctls))
    if desired.sysctls:
        host.back_up(desired)
        host.apply(desired, HostPlan(sysctls=desired.sysctls))
    return orphaned


def restore_host(host: ManagedHost) -> tuple[str, ...]:
    """Restore files, owners, bits, absent files, kernel values and units; returns what was done.

    Every unit that was running is started again, for nothing tells which files it has read. A unit or
    kernel value that is gone is passed over, and files that the software refuses by now do not replace
    what works. Raises AutotuneError, and keeps the copies, where something else differs from the
    backup afterwards, or was refused.
    """
    if not host.is_changed:
        return ()
    host.remove_staged()
    observed = host.observe(host.original_state)
    desired, refusals = host.select_restorable(_find_restorable_state(host, observed), observed)
    plan = plan_host(desired, observed, {}, dict.fromkeys(desired.units, Action.RESTART))
    failed = host.restore(desired, plan)
    errors = list(refusals)
    if wrong := list_differences(desired, host.observe(desired)):
        errors += [f"{host.name} differs from its backup: {', '.join(wrong)}", *failed]
        errors += [f"{path} had the access list {file.acl}: `setfacl --set` gives it back"
                   for path, file in desired.files.items() if path in wrong and file.acl]  # fmt: skip
    if errors:
        raise AutotuneError("\n".join([*host.notes, *errors]))
    host.delete_backups()
    changed = format_count(len(plan.files_to_write) + len(plan.files_to_remove), "file")
    units = format_count(len(plan.unit_actions) + len(plan.units_to_stop), "unit")
    return (
        f"{host.name}: restored {changed}, {format_count(len(plan.sysctls), 'sysctl')}, {units}",
    )


def _find_restorable_state(host: ManagedHost, observed: ObservedHost) -> HostState:
    """How the host was, without what cannot be restored; notes that, and what others set."""
    original = host.original_state
    there = {unit for unit in original.units if observed.units[unit].exists}
    masked = {unit for unit in there if observed.units[unit].is_masked
              and host.backup.enabled.get(unit) != observed.units[unit].enabled}  # fmt: skip
    for unit in sorted(masked):
        host.note(f"{host.name}: {unit} was masked by others: it is passed over")
    units = {unit: runs for unit, runs in original.units.items() if unit in there - masked}
    keys = {name: v for name, v in original.sysctls.items() if observed.sysctls[name] is not None}
    for missing in sorted({*original.units, *original.sysctls} - {*there, *keys}):
        host.note(f"{host.name}: there is no {missing} any more: it is passed over")
    for name, value in keys.items():
        now = observed.sysctls[name]
        if now != value and host.backup.is_foreign_value(name, now):
            host.note(f"{host.name}: others had set {name} to {now}: it is {value} again")
    enabled = {unit: starts for unit, starts in host.backup.toggled_units.items() if unit in units}
    definitions = {u: words for u, words in host.backup.definitions.items() if units.get(u)}
    return replace(original, units=units, sysctls=keys, enabled=enabled, definitions=definitions)


def restore_orphaned(host: ManagedHost) -> tuple[str, ...]:
    """Restore a host that a killed tuner has left changed and that is now held; what was done."""
    backup = read_host_backup(host)
    if backup is not None:
        host.backup = backup
    else:
        _exclude_later_changes(host)
    study = host.backup.study
    lines = restore_host(host)
    if lines and backup is not None:
        host.delete_study_backup(study)
    return tuple(f"{line} (study {study} had been killed)" for line in lines)


def _exclude_later_changes(host: ManagedHost) -> None:
    """Limit a study's copy to what is still the study's, where the host has been restored since, say
    by another machine: the host's record is gone then, and only what is still as the study wrote it
    counts.

    Raises AutotuneError where another study has changed the host since.
    """
    if not host.is_changed:
        return
    try:
        record, kept = (
            host.read_backup_copy(BACKUP_FILE),
            host.read_backup_copy(APPLIED_BACKUP_FILE),
        )
    except HostUnreachable:
        raise
    except AutotuneError:
        return  # there is a record, even if it cannot be read
    if host.backup.is_confirmed_by(record, kept):
        return
    if record is not None:
        raise AutotuneError(
            f"{host.name} was restored, and has been changed by study {record.study} since",
            hint="`autotune restore` of that study, or of its target, comes first",
        )
    original, observed = host.original_state, host.observe(host.original_state)
    part = host.backup.without_foreign_changes(observed)
    if part.state == HostState():
        host.discard_stale_backup(observed)
        return
    host.backup = part
    for path, file in original.files.items():
        if path not in part.state.files and not observed.files[path].matches(file):
            host.note(f"{host.name}: others have changed {path} since it was restored: it stays")


def read_host_backup(host: ManagedHost, *, applied: bool = False) -> HostBackup | None:
    """The host's own copy of its backup, if any; ``applied``: that of a kept deployment, too."""
    backup = host.read_backup_copy(BACKUP_FILE)
    kept = host.read_backup_copy(APPLIED_BACKUP_FILE) if applied else None
    return kept.merge_later(backup) if kept and backup else backup or kept


def restore_study(
    study: Path, transports: Mapping[str, Transport], service_manager: ServiceManager
) -> list[str]:
    """Restore the hosts that a study changed, as the controller's copies have them.

    What was done, a line each. Raises AutotuneError naming each host that could not be restored and
    why, after all others are; LockedError where a tuner holds them all.
    """
    store = BackupStore(study)
    missing = {
        name: AutotuneError(f"{name} was changed, and the target does not say how to reach it")
        for name in store.list_hosts()
        if name not in transports
    }
    restored = run_on_all(
        transports.values(),
        lambda transport: _restore_or_unlock(
            ManagedHost(
                transport.name, transport, store, find_study_directory(study).name, service_manager
            )
        ),
    )
    return _format_results(HostResults(restored.results, {**missing, **restored.errors}))


def restore_hosts(
    study: Path, transports: Mapping[str, Transport], service_manager: ServiceManager
) -> list[str]:
    """Restore hosts from their own copies of the backup, where they have one.

    ``study`` is a directory for the controller's copy; it is not made.
    """
    store = BackupStore(study)
    return _format_results(
        run_on_all(
            transports.values(),
            lambda transport: _restore_from_host(
                ManagedHost(
                    transport.name,
                    transport,
                    store,
                    find_study_directory(study).name,
                    service_manager,
                )
            ),
        )
    )


def _restore_or_unlock(host: ManagedHost, *, from_host_copy: bool = False) -> tuple[str, ...]:
    """Restore a host; where nothing was changed yet, a lock may still have been left.

    Files kept aside because others had changed them are named once more: the tuner that kept them may
    have been killed before it named them.
    """
    lines: tuple[str, ...] = ()
    if host.is_changed or host.lock.is_orphaned():
        stale = host.lock.lock()
        try:
            if not from_host_copy:
                _exclude_later_changes(host)
            lines = restore_host(host)
        finally:
            host.lock.unlock()
        taken_over = [f"{host.name}: took over the lock of {stale}"] if stale else []
        lines = (*taken_over, *host.notes, *lines)
    return tuple(dict.fromkeys((*lines, *host.list_saved_copies())))


def _restore_from_host(host: ManagedHost) -> tuple[str, ...]:
    own = read_host_backup(host, applied=True)
    host.backup = own or host.backup
    return _restore_or_unlock(host, from_host_copy=own is not None)


def _format_results(restored: HostResults[tuple[str, ...]]) -> list[str]:
    lines = [line for of_host in restored.results.values() for line in of_host]
    if restored.errors:
        raise join_errors(restored.errors.values(), first_lines=lines)
    return lines
