"""Hosts that one study locks, backs up and changes. Either copy of a backup is enough to restore its
host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from autotune.deploy.backup import BackupStore, HostBackup
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import APPLIED_BACKUP_FILE, BACKUP_FILE
from autotune.deploy.host_lock import RENEWAL_SECONDS, HostLock, renew_locks
from autotune.deploy.host_state import HostPlan, HostState, ServiceManager
from autotune.deploy.restoration import restore_in_order
from autotune.deploy.runtime import NoteCallback
from autotune.errors import AutotuneError, LockedError, NotRestoredError, join_errors
from autotune.periodic_task import PeriodicTask
from autotune.study_argument import format_study_argument
from autotune.target.beds import find_study_directory
from autotune.transports.base import HostUnreachable, Transport
from autotune.transports.parallel_hosts import HostResults, run_on_all

T = TypeVar("T")
KernelValueFitter = Callable[[Mapping[str, str | None]], Mapping[str, str]]


class ManagedHosts:
    """The hosts of one study, which are not changed before ``lock`` is called. ``note`` receives
    progress messages.
    """

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
        locks = [host.lock for host in self._hosts.values()]
        self._lease = PeriodicTask("leases", RENEWAL_SECONDS, partial(renew_locks, locks))
        self._study, self._note = format_study_argument(find_study_directory(study)), note

    def __getitem__(self, name: str) -> ManagedHost:
        return self._hosts[name]

    def run_on_hosts(
        self, host_names: Iterable[str], work: Callable[[ManagedHost], T]
    ) -> HostResults[T]:
        """Run ``work`` on the named hosts concurrently."""
        return run_on_all([self._hosts[name] for name in host_names], work)

    def lock(self) -> None:
        """Lock every host, and restore the hosts that a killed tuner left changed.

        If another tuner holds the lock on any host, no host is locked. Raises LockedError.
        """
        errors = self._lock_each()
        if errors:
            self._unlock_each()
            raise join_errors(errors.values())
        self._lease.start()
        self._note_lines(restore_all_orphaned(self._hosts.values()).unwrap())

    def assert_locked(self) -> None:
        """Raise AutotuneError if another tuner has locked a host, or if a host was rebooted after
        this tuner locked it.
        """
        self.run_on_hosts(self._list_locked_names(), ManagedHost.assert_locked).unwrap()

    def unlock(self, *, restored: bool) -> None:
        """Restore the locked hosts, or keep their deployment. Then unlock all hosts.

        A host is not changed if its backup was never compared with it, because others may have changed
        the host since the backup. Raises NotRestoredError with the hosts that could not be restored,
        after restoring all other hosts.
        """
        locked_hosts = [self._hosts[name] for name in self._list_locked_names()]
        hosts = [host for host in locked_hosts if host.is_backup_current]
        try:
            errors_by_host = (
                restore_in_order(hosts).errors
                if restored
                else run_on_all(hosts, ManagedHost.commit).errors
            )
        finally:
            self._lease.stop()
            self._unlock_each()
        if errors_by_host:
            problem = "not restored: " if restored else "not kept: "
            error_type = NotRestoredError if restored else AutotuneError
            raise error_type(
                problem + "; ".join(error.message for error in errors_by_host.values()),
                hint=f"fix the cause, then run `autotune restore {self._study}`",
            )

    def _lock_each(self) -> dict[str, AutotuneError]:
        """Lock every host. Return the errors of hosts that could not be locked."""
        lock_results = self.run_on_hosts(self._hosts, lambda host: host.lock.lock())
        for host_name, stale_reason in lock_results.results.items():
            if stale_reason:
                self._note(f"{host_name}: took over the lock of {stale_reason}")
        return lock_results.errors

    def _unlock_each(self) -> None:
        self.run_on_hosts(self._list_locked_names(), lambda host: host.lock.unlock())

    def _list_locked_names(self) -> list[str]:
        return [name for name, host in self._hosts.items() if host.lock.is_locked]

    def _note_lines(self, lines_by_host: Mapping[str, Sequence[str]]) -> None:
        for host_lines in lines_by_host.values():
            for line in host_lines:
                self._note(line)


class LoadHosts(ManagedHosts):
    """Load hosts, whose kernel values are adjusted during a study."""

    def lock_and_adjust_kernel(
        self, sysctl_names: Sequence[str], compute_values: KernelValueFitter
    ) -> None:
        """Lock load hosts, and set the kernel values that ``compute_values`` returns for the current
        values of ``sysctl_names``.

        If a host cannot be adjusted, it is used unchanged, and the user gets a message. Raises
        LockedError if another tuner holds the lock on a load host.
        """
        errors = self._lock_each()
        if lock_errors := [error for error in errors.values() if isinstance(error, LockedError)]:
            self.unlock(restored=True)
            raise lock_errors[0]
        self._lease.start()
        preparation_results = self.run_on_hosts(
            self._list_locked_names(),
            lambda host: _adjust_kernel_values(host, sysctl_names, compute_values),
        )
        self._note_lines(preparation_results.results)
        for host_name, error in {**errors, **preparation_results.errors}.items():
            self._note(
                f"{host_name} generates load with its current kernel values: {error.message}"
            )


def _adjust_kernel_values(
    host: ManagedHost, sysctl_names: Sequence[str], compute_values: KernelValueFitter
) -> tuple[str, ...]:
    restored_orphans = restore_orphaned(host)
    requested_state = HostState(sysctls=dict.fromkeys(sysctl_names, ""))
    desired_state = HostState(sysctls=compute_values(host.observe(requested_state).sysctls))
    if desired_state.sysctls:
        host.back_up(desired_state)
        host.apply(desired_state, HostPlan(sysctls=desired_state.sysctls))
    return restored_orphans


def restore_orphaned(host: ManagedHost) -> tuple[str, ...]:
    """Restore one locked host that a killed tuner left changed: see `restore_all_orphaned`."""
    return restore_all_orphaned([host]).unwrap()[host.name]


def restore_all_orphaned(hosts: Iterable[ManagedHost]) -> HostResults[tuple[str, ...]]:
    """Restore locked hosts that killed tuners left changed. Return lines about each host."""
    hosts_by_name = {host.name: host for host in hosts}
    selected_backups = run_on_all(hosts_by_name.values(), _select_orphaned_backup)
    restore_results = restore_in_order(
        [hosts_by_name[host_name] for host_name in selected_backups.results]
    )
    lines_by_host = {}
    for host_name, host_lines in restore_results.results.items():
        orphaned_backup = selected_backups.results[host_name]
        if host_lines and orphaned_backup.is_recorded_on_host:
            hosts_by_name[host_name].delete_study_backup(orphaned_backup.backup)
        lines_by_host[host_name] = tuple(
            f"{line} (study {orphaned_backup.backup.study} was killed)" for line in host_lines
        )
    return HostResults(lines_by_host, {**selected_backups.errors, **restore_results.errors})


@dataclass(frozen=True)
class _OrphanedBackup:
    """The backup from which a host is restored. ``is_recorded_on_host`` is true if the backup was
    read from the host.
    """

    backup: HostBackup
    is_recorded_on_host: bool


def _select_orphaned_backup(host: ManagedHost) -> _OrphanedBackup:
    backup = read_host_backup(host)
    if backup is None or backup.study != host.backup.study:
        _refuse_kept_deployment(host)
    if backup is not None:
        host.backup = backup
    else:
        _exclude_later_changes(host)
    _refuse_unmanaged_units(host)
    host.is_backup_current = True
    return _OrphanedBackup(host.backup, backup is not None)


def _refuse_unmanaged_units(host: ManagedHost) -> None:
    """Raise AutotuneError if the backup contains units, and this study cannot restart units on the
    host.
    """
    if host.original_state.units and not host.can_restart_units:
        raise AutotuneError(
            f"{host.name} still has the configuration of study {host.backup.study}, which was killed. "
            "`autotune restore` with that study or its target reverts it"
        )


def _refuse_kept_deployment(host: ManagedHost) -> None:
    """Raise AutotuneError if the study kept its deployment on the host. Only `autotune restore` reverts
    a kept deployment.
    """
    if host.is_changed and host.backup.is_confirmed_by(
        None, host.read_backup_copy(APPLIED_BACKUP_FILE)
    ):
        raise AutotuneError(
            f"{host.name} still has the configuration that study {host.backup.study} kept there",
            hint=f"`autotune restore {host.study_argument}` reverts it",
        )


def _exclude_later_changes(host: ManagedHost) -> None:
    """If another machine has restored the host, keep only this study's settings in its backup.

    The restore has removed the host's own record. Raises AutotuneError if another study has changed
    the host.
    """
    if not host.is_changed:
        return
    try:
        record, kept_record = (
            host.read_backup_copy(BACKUP_FILE),
            host.read_backup_copy(APPLIED_BACKUP_FILE),
        )
    except HostUnreachable:
        raise
    except AutotuneError:
        return  # the record exists, even though it cannot be read
    if host.backup.is_confirmed_by(record, kept_record):
        return
    if record is not None:
        raise AutotuneError(
            f"{host.name} was restored, and study {record.study} has changed it since then",
            hint="first run `autotune restore` with that study or its target",
        )
    original_state, observed_host = host.original_state, host.observe(host.original_state)
    remaining_backup = host.backup.without_foreign_changes(observed_host)
    if remaining_backup.state == HostState():
        host.discard_stale_backup(observed_host)
        return
    host.backup = remaining_backup
    for path, file in original_state.files.items():
        if path not in remaining_backup.state.files and not observed_host.files[path].matches(file):
            host.note(
                f"{host.name}: {path} is not restored, because it was changed after an earlier restore"
            )


def read_host_backup(host: ManagedHost, *, applied: bool = False) -> HostBackup | None:
    """Return the backup that is stored on the host, or ``None``. With ``applied``, the result
    includes the backup of a kept deployment.
    """
    backup = host.read_backup_copy(BACKUP_FILE)
    kept_backup = host.read_backup_copy(APPLIED_BACKUP_FILE) if applied else None
    return kept_backup.merge_later(backup) if kept_backup and backup else backup or kept_backup


def restore_hosts(
    study: Path,
    transports: Mapping[str, Transport],
    service_manager: ServiceManager,
    await_correct_entries: Callable[[], str] | None = None,
    *,
    prefers_host_copies: bool,
) -> list[str]:
    """Restore the hosts that a study changed. Return lines about the results.

    The backups are the controller's copies. With ``prefers_host_copies``, the backup on a host itself
    is used if there is one. If services were restarted, ``await_correct_entries()`` waits for a correct
    response and returns a line about it.

    Raises AutotuneError with each host that could not be restored, once all other hosts are restored.
    Raises LockedError if another tuner holds the locks on all hosts that could not be restored.
    """
    store, study_name = BackupStore(study), find_study_directory(study).name
    hosts: dict[str, ManagedHost] = {}

    def prepare(transport: Transport) -> None:
        # A damaged copy on the controller is an error for its host only.
        host = ManagedHost(transport.name, transport, store, study_name, service_manager)
        hosts[host.name] = host
        own_backup = read_host_backup(host, applied=True) if prefers_host_copies else None
        host.backup = own_backup or host.backup
        # A killed tuner may have left its lock on a host that it had not changed.
        if host.is_changed or host.lock.is_orphaned():
            if stale_reason := host.lock.lock():
                host.note(f"{host.name}: took over the lock of {stale_reason}")
            (ManagedHost.keep_foreign_versions if own_backup else _exclude_later_changes)(host)

    try:
        preparation_results = run_on_all(transports.values(), prepare)
        prepared_hosts = [hosts[name] for name in preparation_results.results]
        locked_hosts = [h for h in prepared_hosts if h.lock.is_locked]
        with _renew_leases([h.lock for h in locked_hosts]):
            restore_results = restore_in_order(locked_hosts)
    finally:
        run_on_all([h for h in hosts.values() if h.lock.is_locked], lambda host: host.lock.unlock())
    errors = {**_find_missing_hosts(store, transports), **preparation_results.errors}
    errors |= restore_results.errors
    # A killed tuner may not have reported the copies that it saved.
    saved_copies = run_on_all(
        [host for host in prepared_hosts if host.name not in errors], ManagedHost.list_saved_copies
    )
    lines = _list_result_lines(hosts, restore_results.results, saved_copies.results)
    if errors := {**errors, **saved_copies.errors}:
        raise join_errors(errors.values(), first_lines=lines)
    if await_correct_entries is not None and any(host.has_started_units for host in hosts.values()):
        lines.append(await_correct_entries())
    return lines


@contextmanager
def _renew_leases(locks: Sequence[HostLock]) -> Iterator[None]:
    """Renew the leases of locked hosts in the ``with`` block. During a restore, a host may wait for
    minutes until the tiers behind it have started.
    """
    lease = PeriodicTask("leases", RENEWAL_SECONDS, partial(renew_locks, locks))
    lease.start()
    try:
        yield
    finally:
        lease.stop()


def _list_result_lines(
    hosts: Mapping[str, ManagedHost],
    restored_lines: Mapping[str, Sequence[str]],
    saved_copies: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the notes of each host, and the lines about its restored units and saved copies."""
    return [
        line
        for name, host_copies in saved_copies.items()
        for line in dict.fromkeys((*hosts[name].notes, *restored_lines.get(name, ()), *host_copies))
    ]


def _find_missing_hosts(
    store: BackupStore, transports: Mapping[str, Transport]
) -> dict[str, AutotuneError]:
    """Return an error for each host with a backup on the controller that no transport reaches."""
    return {
        host: AutotuneError(
            f"{host} was changed by the study, but the target contains no host with this name"
        )
        for host in store.list_hosts()
        if host not in transports
    }
