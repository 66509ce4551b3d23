"""Hosts locked, backed up and changed by one study, and restored from either copy of the backup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from autotune.deploy.backup import BackupStore, HostBackup
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import KEPT, ORIGINALS
from autotune.deploy.host_lock import Lease
from autotune.deploy.host_state import HostPlan, HostState, ObservedHost, ServiceManager, unlike
from autotune.deploy.runtime import Note
from autotune.errors import AutotuneError, LockedError, joined
from autotune.services.base import Action
from autotune.target.beds import study_of
from autotune.target.messages import plural
from autotune.transports.base import HostUnreachable, Transport
from autotune.transports.parallel import HostResults, run_on_all

T = TypeVar("T")
Fit = Callable[[Mapping[str, str | None]], Mapping[str, str]]


class ManagedHosts:
    """Hosts of one study. Nothing is done to them before ``take``; ``note`` hears of progress."""

    def __init__(
        self,
        transports: Iterable[Transport],
        study: Path,
        note: Note,
        service_manager: ServiceManager | None = None,
    ) -> None:
        store = BackupStore(study)
        self._hosts = {
            transport.name: ManagedHost(
                transport.name, transport, store, study_of(study).name, service_manager, note
            )
            for transport in transports
        }
        self._lease = Lease([host.lock for host in self._hosts.values()])
        self._study, self._note = study_of(study).name, note

    def __getitem__(self, name: str) -> ManagedHost:
        return self._hosts[name]

    def gather(self, names: Iterable[str], work: Callable[[ManagedHost], T]) -> HostResults[T]:
        """``work`` on all of them at once."""
        return run_on_all([self._hosts[name] for name in names], work)

    def take(self) -> None:
        """Lock every host, and restore what a killed tuner has left there.

        Raises LockedError while another tuner has one of them; none is held then.
        """
        errors = self._lock()
        if errors:
            self._unlock()
            raise joined(errors.values())
        self._lease.start()
        self._note_all(self.gather(self._hosts, clear_left_behind).unwrap())

    def check_held(self) -> None:
        """Raises AutotuneError where one was taken over, or booted, since it was taken."""
        self.gather(self._held(), ManagedHost.check_held).unwrap()

    def release(self, *, restored: bool) -> None:
        """Unlock the hosts that are held, restored or as they are now.

        Raises AutotuneError naming the hosts that could not be restored, when all others are.
        """
        self._lease.stop()
        leave = restore_host if restored else ManagedHost.commit
        try:
            failed = self.gather(self._held(), leave).errors
        finally:
            self._unlock()
        if failed:
            raise AutotuneError(
                "not restored: " + "; ".join(error.message for error in failed.values()),
                hint=f"`autotune restore {self._study}` once that is mended",
            )

    def _lock(self) -> dict[str, AutotuneError]:
        """Lock every host; returns the errors of those that cannot be locked."""
        locked = self.gather(self._hosts, lambda host: host.lock.take())
        for name, stale in locked.results.items():
            if stale:
                self._note(f"{name}: took over the lock of {stale}")
        return locked.errors

    def _unlock(self) -> None:
        self.gather(self._held(), lambda host: host.lock.release())

    def _held(self) -> list[str]:
        return [name for name, host in self._hosts.items() if host.lock.held]

    def _note_all(self, lines: Mapping[str, Sequence[str]]) -> None:
        for of_host in lines.values():
            for line in of_host:
                self._note(line)


class LoadHosts(ManagedHosts):
    """Hosts that make load, with kernel values that suit it while a study lasts."""

    def open(self, names: Sequence[str], fit: Fit) -> None:
        """Hold them, with the kernel values that ``fit(present values of names)`` returns.

        A host that cannot be prepared makes load as it is, which is noted. Raises LockedError while
        another tuner has one of them.
        """
        errors = self._lock()
        if locked := [error for error in errors.values() if isinstance(error, LockedError)]:
            self.release(restored=True)
            raise locked[0]
        self._lease.start()
        prepared = self.gather(self._held(), lambda host: _prepare(host, names, fit))
        self._note_all(prepared.results)
        for name, error in {**errors, **prepared.errors}.items():
            self._note(f"{name} makes load as it is: {error.message}")


def _prepare(host: ManagedHost, names: Sequence[str], fit: Fit) -> tuple[str, ...]:
    left = clear_left_behind(host)
    asked = HostState(sysctls=dict.fromkeys(names, ""))
    desired = HostState(sysctls=fit(host.observe(asked).sysctls))
    if desired.sysctls:
        host.save(desired)
        host.apply(desired, HostPlan(sysctls=desired.sysctls))
    return left


def restore_host(host: ManagedHost) -> tuple[str, ...]:
    """Restore files, owners, bits, absent files, kernel values and units; returns what was done.

    Every unit that was running is started again, for nothing tells which files it has read. A unit or
    kernel value that is gone is passed over, and files that the software refuses by now do not replace
    what works. Raises AutotuneError, and keeps the copies, where something else differs from the
    backup afterwards, or was refused.
    """
    if not host.changed:
        return ()
    host.tidy()
    observed = host.observe(host.original)
    desired, refusals = host.accepted(_without_gone(host, observed), observed)
    plan = plan_host(desired, observed, {}, dict.fromkeys(desired.units, Action.RESTART))
    failed = host.restore(desired, plan)
    errors = list(refusals)
    if wrong := unlike(desired, host.observe(desired)):
        errors += [f"{host.name} differs from its backup: {', '.join(wrong)}", *failed]
        errors += [f"{path} had the access list {file.access}: `setfacl --set` gives it back"
                   for path, file in desired.files.items() if path in wrong and file.access]  # fmt: skip
    if errors:
        raise AutotuneError("\n".join([*host.notes, *errors]))
    host.forget()
    changed = plural(len(plan.write) + len(plan.remove), "file")
    units = plural(len(plan.act) + len(plan.stop), "unit")
    return (f"{host.name}: restored {changed}, {plural(len(plan.sysctls), 'sysctl')}, {units}",)


def _without_gone(host: ManagedHost, observed: ObservedHost) -> HostState:
    """How the host was, without what cannot be restored; notes that, and what others set."""
    original = host.original
    there = {unit for unit in original.units if observed.units[unit].exists}
    masked = {unit for unit in there if observed.units[unit].masked
              and host.backup.enabled.get(unit) != observed.units[unit].enabled}  # fmt: skip
    for unit in sorted(masked):
        host.note(f"{host.name}: {unit} was masked by others: it is passed over")
    units = {unit: runs for unit, runs in original.units.items() if unit in there - masked}
    keys = {name: v for name, v in original.sysctls.items() if observed.sysctls[name] is not None}
    for gone in sorted({*original.units, *original.sysctls} - {*there, *keys}):
        host.note(f"{host.name}: there is no {gone} any more: it is passed over")
    for name, value in keys.items():
        now = observed.sysctls[name]
        if now != value and host.backup.set_by_others(name, now):
            host.note(f"{host.name}: others had set {name} to {now}: it is {value} again")
    enabled = {unit: starts for unit, starts in host.backup.switched.items() if unit in units}
    definitions = {u: words for u, words in host.backup.definitions.items() if units.get(u)}
    return replace(original, units=units, sysctls=keys, enabled=enabled, definitions=definitions)


def clear_left_behind(host: ManagedHost) -> tuple[str, ...]:
    """Restore a host that a killed tuner has left changed and that is now held; what was done."""
    left = backup_on_host(host)
    if left is not None:
        host.backup = left
    else:
        _leave_later_work(host)
    study = host.backup.study
    lines = restore_host(host)
    if lines and left is not None:
        host.forget_of(study)
    return tuple(f"{line} (study {study} had been killed)" for line in lines)


def _leave_later_work(host: ManagedHost) -> None:
    """Limit a study's copy to what is still the study's, where the host has been restored since, say
    by another machine: the host's record is gone then, and only what is still as the study wrote it
    counts.

    Raises AutotuneError where another study has changed the host since.
    """
    if not host.changed:
        return
    try:
        record, kept = host.own_copy(ORIGINALS), host.own_copy(KEPT)
    except HostUnreachable:
        raise
    except AutotuneError:
        return  # there is a record, even if it cannot be read
    if host.backup.is_of(record, kept):
        return
    if record is not None:
        raise AutotuneError(
            f"{host.name} was restored, and has been changed by study {record.study} since",
            hint="`autotune restore` of that study, or of its target, comes first",
        )
    original, observed = host.original, host.observe(host.original)
    part = host.backup.still_in_place(observed)
    if part.state == HostState():
        host.supersede(observed)
        return
    host.backup = part
    for path, file in original.files.items():
        if path not in part.state.files and not observed.files[path].is_as(file):
            host.note(f"{host.name}: others have changed {path} since it was restored: it stays")


def backup_on_host(host: ManagedHost, *, applied: bool = False) -> HostBackup | None:
    """The host's own copy of its backup, if any; ``applied``: that of a kept deployment, too."""
    left = host.own_copy(ORIGINALS)
    kept = host.own_copy(KEPT) if applied else None
    return kept.before(left) if kept and left else left or kept


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
        for name in store.hosts()
        if name not in transports
    }
    restored = run_on_all(
        transports.values(),
        lambda transport: _restore(
            ManagedHost(transport.name, transport, store, study_of(study).name, service_manager)
        ),
    )
    return _lines(HostResults(restored.results, {**missing, **restored.errors}))


def restore_hosts(
    study: Path, transports: Mapping[str, Transport], service_manager: ServiceManager
) -> list[str]:
    """Restore hosts from their own copies of the backup, where they have one.

    ``study`` is a directory for the controller's copy; it is not made.
    """
    store = BackupStore(study)
    return _lines(
        run_on_all(
            transports.values(),
            lambda transport: _restore_by_own_copy(
                ManagedHost(transport.name, transport, store, study_of(study).name, service_manager)
            ),
        )
    )


def _restore(host: ManagedHost, *, by_own_copy: bool = False) -> tuple[str, ...]:
    """Restore a host; where nothing was changed yet, a lock may still have been left.

    Files kept aside because others had changed them are named once more: the tuner that kept them may
    have been killed before it named them.
    """
    lines: tuple[str, ...] = ()
    if host.changed or host.lock.left_behind():
        stale = host.lock.take()
        try:
            if not by_own_copy:
                _leave_later_work(host)
            lines = restore_host(host)
        finally:
            host.lock.release()
        taken_over = [f"{host.name}: took over the lock of {stale}"] if stale else []
        lines = (*taken_over, *host.notes, *lines)
    return tuple(dict.fromkeys((*lines, *host.kept_aside())))


def _restore_by_own_copy(host: ManagedHost) -> tuple[str, ...]:
    own = backup_on_host(host, applied=True)
    host.backup = own or host.backup
    return _restore(host, by_own_copy=own is not None)


def _lines(restored: HostResults[tuple[str, ...]]) -> list[str]:
    lines = [line for of_host in restored.results.values() for line in of_host]
    if restored.errors:
        raise joined(restored.errors.values(), after=lines)
    return lines
