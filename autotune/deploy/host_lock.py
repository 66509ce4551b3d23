"""The lock on a host: a record of the lock's holder, and the reasons why a lock is stale.

The holder renews a lease that is timed by the host's uptime, so no clock needs to be correct. If
the holder is on this machine, autotune checks the holder's process. A lock whose record cannot be
read counts as held as long as the lock is renewed.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.deploy.host_commands import STATE_DIRECTORY, Command, CommandFailed, run_commands
from autotune.errors import AutotuneError, LockedError
from autotune.strict_parsing import parse_decimal, parse_json
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all

LEASE_SECONDS = 180.0  # a lock that was not renewed for this time is stale
# Two renewals may fail, each with a separate timeout, before the lock expires.
RENEWAL_SECONDS = LEASE_SECONDS / 4
_CLAIM_LOST_STATUS = 3  # exit status of ``claim`` if another tuner was faster


@dataclass(frozen=True)
class LockHolder:
    """The holder of a lock: an account on a machine, with a process, a start time and a study.

    - ``place``: boot and process namespace of the holder's machine, in which ``pid`` is unique.
    - ``ticks``: start of the process in clock ticks since the boot of the holder's machine, because a
      ``pid`` may be reused.
    - ``boot``: boot ID of the locked host. ``token``: random text, unique to this lock.
    - ``entry``: name of the host in the holder's target.

    Each field has a default, because a record from another version may lack the field.
    """

    holder: str = "somebody"
    host: str = "another machine"
    pid: int = 0
    ticks: int = 0
    since: str = "an unknown time"
    study: str = ""
    place: str = ""
    boot: str = ""
    token: str = ""
    entry: str = ""

    def is_same_tuner(self, other: LockHolder) -> bool:
        """True if one process holds both locks for the same study."""
        return (self.place, self.pid, self.ticks, self.study) == (
            other.place,
            other.pid,
            other.ticks,
            other.study,
        )

    def __str__(self) -> str:
        return f"{self.holder} on {self.host}, process {self.pid}, since {self.since}"


@dataclass(frozen=True)
class ObservedLock:
    """The state of a lock, read from the host. ``record`` is the text of the lock's record. Times are
    in seconds of host uptime.
    """

    boot: str
    uptime: float
    renewed_uptime: float | None
    record: str

    @property
    def holder(self) -> LockHolder | None:
        """Return the holder, or ``None`` if the record cannot be read. Unknown fields are ignored."""
        try:
            record = parse_json(self.record)
            return LockHolder(
                **{
                    field.name: type(getattr(LockHolder, field.name))(record[field.name])
                    for field in fields(LockHolder)
                    if field.name in record
                }
            )
        except (ValueError, TypeError, AttributeError):
            return None


def current_holder(study: str) -> LockHolder:
    """Return the current process as a lock holder."""
    return LockHolder(
        holder=_find_account_name(),
        host=socket.gethostname(),
        pid=os.getpid(),
        ticks=read_start_ticks(os.getpid()) or 0,
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        study=study,
        place=_read_boot_and_namespace(),
    )


def find_stale_reason(observed: ObservedLock, local_place: str) -> str | None:
    """Return the reason why a lock is stale, or ``None`` if its holder may still be running.

    ``local_place`` identifies this machine's boot and process namespace.
    """
    holder = observed.holder or LockHolder()  # a record from another version may be unreadable
    if holder.place == local_place:
        # If /proc hides processes of other accounts, only the lease shows whether the holder runs.
        ticks = read_start_ticks(holder.pid)
        if _has_exited(holder.pid) or ticks not in (None, holder.ticks or ticks):
            return f"process {holder.pid} exited"
        if holder.ticks and ticks is not None:
            return None
    if holder.boot and holder.boot != observed.boot:
        return "the host was rebooted after it was locked"
    if observed.renewed_uptime is None and observed.holder is None:
        return None
    if (
        observed.renewed_uptime is None
        or not 0 <= observed.uptime - observed.renewed_uptime <= LEASE_SECONDS
    ):
        return f"the lock was not renewed for {LEASE_SECONDS:.0f} s"
    return None


class HostLock:
    """The lock on one host, which this process holds between calls of ``lock`` and ``unlock``."""

    def __init__(self, transport: Transport, study: str) -> None:
        self._transport, self._me = transport, current_holder(study)
        self.record = ""

    @property
    def name(self) -> str:
        return self._transport.name

    @property
    def is_locked(self) -> bool:
        return bool(self.record)

    @property
    def boot_id(self) -> str:
        """Return the boot ID that the host had when it was locked."""
        return str(json.loads(self.record)["boot"])

    @property
    def assert_command(self) -> Command:
        """Return the command that fails if this process no longer holds the lock. The command is run
        before every change.
        """
        return Command(("fence", self.record), required=True)

    def lock(self) -> str | None:
        """Lock the host. If a stale lock was replaced, return a text with its holder and the reason
        why the lock was stale.

        Raises LockedError with holder, process and start time if another tuner holds the lock.
        """
        for _ in range(3):
            observed = read_lock(self._transport)
            stale_reason = find_stale_reason(observed, self._me.place) if observed.record else None
            if observed.record and stale_reason is None:
                raise self._build_locked_error(observed.holder)
            # A new token lets `fence` refuse late commands from an earlier holder of the lock.
            token = secrets.token_hex(8)
            holder = replace(self._me, boot=observed.boot, token=token, entry=self._transport.name)
            record = json.dumps(asdict(holder))
            (command_result,) = run_commands(
                self._transport, [Command(("claim", observed.record, record))], timeout=120.0
            )
            if command_result.ok:
                self.record = record
                return (
                    f"{observed.holder or 'somebody'}: {stale_reason}" if observed.record else None
                )
            if command_result.returncode != _CLAIM_LOST_STATUS:
                raise AutotuneError(
                    f"{self._transport.name} cannot be locked: {command_result.error_text}",
                    hint=f"{STATE_DIRECTORY} on that host must be writable and have free space: "
                    f"check `df {STATE_DIRECTORY}`",
                )
        raise self._build_locked_error(read_lock(self._transport).holder)

    def is_orphaned(self) -> bool:
        """True if a stopped tuner left a lock for the same study on the host."""
        observed_lock = read_lock(self._transport)
        holder = observed_lock.holder
        is_same_study = holder is not None and holder.study == self._me.study
        return is_same_study and find_stale_reason(observed_lock, self._me.place) is not None

    def renew(self) -> None:
        """Renew the lease. Raises LockedError if another tuner took the lock."""
        (command_result,) = run_commands(self._transport, [self.assert_command])
        if not command_result.ok:
            raise LockedError(f"{self._transport.name}: {command_result.error_text}")

    def unlock(self) -> None:
        if self.is_locked:
            run_commands(self._transport, [Command(("unlock", self.record))])
            self.record = ""

    def _build_locked_error(self, holder: LockHolder | None) -> LockedError:
        if holder is not None and holder.is_same_tuner(self._me):
            return LockedError(
                f"{self._transport.name} and {holder.entry} of `hosts:` are the same machine",
                hint="keep one of the entries, and use it in all tiers that run on that machine",
            )
        return LockedError(
            f"{self._transport.name} is being tuned by {holder or 'another autotune process'}"
            + (f" (study {holder.study})" if holder else ": the record of its lock cannot be read"),
            hint="wait until that run has finished; autotune takes over the lock if the process of that "
            "run no longer exists"
            + (
                ""
                if holder
                else f". If no such process exists, `rm {STATE_DIRECTORY}/lock` there removes the lock"
            ),
        )


def read_lock(transport: Transport) -> ObservedLock:
    """Return the current lock on a host."""
    (command_result,) = run_commands(transport, [Command(("lock_state",))])
    output_lines = command_result.stdout.split("\n", 3)
    if not command_result.ok or len(output_lines) < 3:
        raise CommandFailed(
            f"the lock of {transport.name} cannot be read: {command_result.error_text}"
        )
    renewed_uptime = None
    with contextlib.suppress(ValueError):
        renewed_uptime = parse_decimal(output_lines[2])
    try:
        uptime = parse_decimal(output_lines[1])
    except ValueError as error:
        raise CommandFailed(f"the uptime of {transport.name} cannot be read: {error}") from None
    return ObservedLock(
        output_lines[0], uptime, renewed_uptime, output_lines[3] if len(output_lines) > 3 else ""
    )


def _find_account_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, the account may have no name
        return f"account {os.getuid()}"


def _read_boot_and_namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  # not a path: pid:[…]


def _has_exited(pid: int) -> bool:
    """True if there is no process with this ID. Unlike reading /proc, signals show processes of other
    accounts even if /proc is mounted with the option ``hidepid``.
    """
    if pid <= 0:  # a record that names no process
        return True
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except (ProcessLookupError, OverflowError):
        return True
    return False


def read_start_ticks(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot, or ``None`` if there is no such
    process or if /proc hides it.
    """
    try:
        stat_text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat_text.rpartition(")")[2].split()[19])


def renew_locks(locks: Iterable[HostLock]) -> None:
    """Renew the leases of held locks. If a lock was lost, the next change to its host fails."""
    held_locks = [lock for lock in locks if lock.is_locked]
    # Renew all leases concurrently, so that an unresponsive host does not delay other hosts.
    run_on_all(held_locks, HostLock.renew, max_parallel=len(held_locks) or 1)
