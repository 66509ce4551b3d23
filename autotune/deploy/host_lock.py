"""One tuner per host: a record on the host of who holds it, and how to tell that nobody does.

A holder renews its lease, in the host's own uptime, so that no clock need be right. If the holder
is on the machine that checks the lock, the holder's process itself is looked at. A lock whose record
cannot be read counts as held while somebody renews it.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.deploy.host_commands import STATE_DIRECTORY, Command, CommandFailed, run_commands
from autotune.errors import AutotuneError, LockedError
from autotune.strict_parsing import parse_decimal, parse_json, split_lines
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all

LEASE_SECONDS = 180.0  # s after which a lock that was not renewed is nobody's
# Seconds: two renewals may fail, each with its own timeout, before a lock expires.
RENEWAL_SECONDS = LEASE_SECONDS / 4
_TICKS_SEPARATOR = " since "  # in a token, before the ticks
_CLAIM_LOST_STATUS = 3  # what ``claim`` ends with when somebody was faster


@dataclass(frozen=True)
class LockHolder:
    """Who tunes: an account on a machine, its process, since when, and for which study.

    ``place`` is the boot and process namespace of the holder's machine. Within it ``pid`` means one
    process. ``ticks`` is when that process started (of the kernel's clock, since that boot), which
    tells it from a later one of the same number. No step of the wall clock changes either. ``boot``
    is the boot of the host that is held; ``token`` is unique to this holding. ``entry`` is how the
    target of the holder names the host. Each field has a
    default, since another version's record may lack it.
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
        """True if one process holds both for the same study."""
        return (self.place, self.pid, self.ticks, self.study) == (
            other.place, other.pid, other.ticks, other.study,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"{self.holder} on {self.host}, process {self.pid}, since {self.since}"


@dataclass(frozen=True)
class ObservedLock:
    """What a host says of its lock: ``record`` is its text, times are in seconds of uptime."""

    boot: str
    uptime: float
    renewed_uptime: float | None
    record: str

    @property
    def holder(self) -> LockHolder | None:
        """``None`` for a lock that is not there or cannot be read; unknown fields are ignored."""
        try:
            record = parse_json(self.record)
            _, _, ticks = str(record.get("token", "")).partition(_TICKS_SEPARATOR)
            record = {"ticks": ticks or 0, **record}
            return LockHolder(**{field.name: type(getattr(LockHolder, field.name))(record[field.name])
                             for field in fields(LockHolder) if field.name in record})  # fmt: skip
        except (ValueError, TypeError, AttributeError):
            return None


def encode_holder(holder: LockHolder) -> str:
    """The record of a lock. Versions before ``ticks`` took a record with other keys than theirs for
    nobody's. So it has the keys they know, with ``started`` (seconds since the epoch), and the ticks
    are in the token."""
    record = asdict(holder)
    ticks = record.pop("ticks")
    stat = Path("/proc/stat").read_text(encoding="ascii")
    booted = next(int(line.split()[1]) for line in split_lines(stat) if line.startswith("btime "))
    started = booted + ticks / os.sysconf("SC_CLK_TCK")
    return json.dumps(
        {**record, "started": started, "token": f"{holder.token}{_TICKS_SEPARATOR}{ticks}"}
    )


def current_holder(study: str) -> LockHolder:
    """This process as a holder."""
    return LockHolder(
        holder=_account_name(),
        host=socket.gethostname(),
        pid=os.getpid(),
        ticks=read_start_ticks(os.getpid()) or 0,
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        study=study,
        place=_boot_and_namespace(),
    )


def find_stale_reason(observed: ObservedLock, local_place: str) -> str | None:
    """Why nobody holds the lock any more, in words; ``None`` while somebody may.

    ``local_place`` is this machine's own place.
    """
    holder = observed.holder or LockHolder()  # a record that cannot be read is another version's
    if holder.place == local_place:
        ticks = read_start_ticks(holder.pid)
        if ticks is None or holder.ticks not in (0, ticks):
            return f"process {holder.pid} has ended"
        if holder.ticks:
            return None
    if holder.boot and holder.boot != observed.boot:
        return "the host has been booted since"
    if observed.renewed_uptime is None and observed.holder is None:
        return None
    if (
        observed.renewed_uptime is None
        or not 0 <= observed.uptime - observed.renewed_uptime <= LEASE_SECONDS
    ):
        return f"it was not renewed for {LEASE_SECONDS:.0f} s"
    return None


class HostLock:
    """The lock of one host, held by this process from ``lock`` to ``unlock``."""

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
        """The boot of the host in which it was taken."""
        return str(json.loads(self.record)["boot"])

    @property
    def assert_command(self) -> Command:
        """Goes before any change: nothing is done on a host that is no longer held."""
        return Command(("fence", self.record), required=True)

    def lock(self) -> str | None:
        """Hold the host. Says why an earlier lock was stale, if there was one.

        Raises LockedError, naming holder, process and time, while another tuner has it.
        """
        for _ in range(3):
            observed = read_lock(self._transport)
            stale = find_stale_reason(observed, self._me.place) if observed.record else None
            if observed.record and stale is None:
                raise self._build_locked_error(observed.holder)
            # So that a late exchange of an earlier holding is refused by `fence`.
            token = secrets.token_hex(8)
            record = encode_holder(
                replace(self._me, boot=observed.boot, token=token, entry=self._transport.name)
            )
            (done,) = run_commands(
                self._transport, [Command(("claim", observed.record, record))], timeout=120.0
            )
            if done.ok:
                self.record = record
                return f"{observed.holder or 'somebody'}: {stale}" if observed.record else None
            if done.returncode != _CLAIM_LOST_STATUS:
                raise AutotuneError(
                    f"{self._transport.name} cannot be locked: {done.error_text}",
                    hint=f"{STATE_DIRECTORY} there has to take files: `df {STATE_DIRECTORY}`",
                )
        raise self._build_locked_error(read_lock(self._transport).holder)

    def is_orphaned(self) -> bool:
        """Whether a tuner of the same study that is gone has left its lock there."""
        observed = read_lock(self._transport)
        holder = observed.holder
        same = holder is not None and holder.study == self._me.study
        return same and find_stale_reason(observed, self._me.place) is not None

    def renew(self) -> None:
        """Raises LockedError where the lock has gone to somebody else."""
        (done,) = run_commands(self._transport, [self.assert_command])
        if not done.ok:
            raise LockedError(f"{self._transport.name}: {done.error_text}")

    def unlock(self) -> None:
        if self.is_locked:
            run_commands(self._transport, [Command(("unlock", self.record))])
            self.record = ""

    def _build_locked_error(self, holder: LockHolder | None) -> LockedError:
        if holder is not None and holder.is_same_tuner(self._me):
            return LockedError(
                f"{self._transport.name} and {holder.entry} of `hosts:` are the same machine",
                hint="keep one of the entries, and name it in all tiers that run there",
            )
        return LockedError(
            f"{self._transport.name} is being tuned by {holder or 'somebody'}"
            + (f" (study {holder.study})" if holder else ": the record of its lock cannot be read"),
            hint="wait for it; a lock whose holder is gone is taken over by itself"
            + ("" if holder else f", or by `rm {STATE_DIRECTORY}/lock` there once no tuner runs"),
        )


def read_lock(transport: Transport) -> ObservedLock:
    """The host's lock as it is now; changes nothing."""
    (done,) = run_commands(transport, [Command(("lock_state",))])
    lines = done.stdout.split("\n", 3)
    if not done.ok or len(lines) < 3:
        raise CommandFailed(f"{transport.name} does not say who has locked it: {done.error_text}")
    renewed = None
    with contextlib.suppress(ValueError):
        renewed = parse_decimal(lines[2])
    try:
        uptime = parse_decimal(lines[1])
    except ValueError as error:
        raise CommandFailed(f"{transport.name} does not say how long it is up: {error}") from None
    return ObservedLock(lines[0], uptime, renewed, lines[3] if len(lines) > 3 else "")


def _account_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container where the account has no name
        return f"account {os.getuid()}"


def _boot_and_namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  # not a path: pid:[…]


def read_start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; ``None`` where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


class LeaseRenewer:
    """Renews ``locks`` in the background from ``start`` to ``stop``.

    If a lock is lost meanwhile, the next change finds that out and is not made.
    """

    def __init__(self, locks: Sequence[HostLock]) -> None:
        self._locks = locks
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._renew, name="leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _renew(self) -> None:
        while not self._over.wait(RENEWAL_SECONDS):
            # All at once: one host that does not answer must not cost the others their locks.
            locked = [lock for lock in self._locks if lock.is_locked]
            run_on_all(locked, HostLock.renew, max_parallel=len(locked) or 1)
