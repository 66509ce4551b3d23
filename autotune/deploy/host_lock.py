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

from autotune.deploy.host_commands import HOME, Command, CommandFailed, ask
from autotune.errors import AutotuneError, LockedError
from autotune.strict import decimal, parse_json, split_lines
from autotune.transports.base import Transport
from autotune.transports.parallel import run_on_all

LEASE = 180.0  # s after which a lock that was not renewed is nobody's
RENEWAL = LEASE / 4  # s: two renewals may fail, each with its own timeout, before a lock expires
_TICKS = " since "  # in a token, before the ticks
_CHANGED = 3  # what ``claim`` ends with when somebody was faster


@dataclass(frozen=True)
class Holder:
    """Who tunes: an account on a machine, its process, since when, and for which study.

    ``place`` is the boot and process namespace of the holder's machine. Within it ``pid`` means one
    process. ``ticks`` is when that process started (of the kernel's clock, since that boot), which
    tells it from a later one of the same number. No step of the wall clock changes either. ``boot``
    is the boot of the host that is held; ``token`` is unique to this holding. Each field has a
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

    def __str__(self) -> str:
        return f"{self.holder} on {self.host}, process {self.pid}, since {self.since}"


@dataclass(frozen=True)
class ObservedLock:
    """What a host says of its lock: ``record`` is its text, times are in seconds of uptime."""

    boot: str
    uptime: float
    renewed: float | None
    record: str

    @property
    def holder(self) -> Holder | None:
        """``None`` for a lock that is not there or cannot be read; unknown fields are ignored."""
        try:
            record = parse_json(self.record)
            _, _, ticks = str(record.get("token", "")).partition(_TICKS)
            record = {"ticks": ticks or 0, **record}
            return Holder(**{field.name: type(getattr(Holder, field.name))(record[field.name])
                             for field in fields(Holder) if field.name in record})  # fmt: skip
        except (ValueError, TypeError, AttributeError):
            return None


def encoded(holder: Holder) -> str:
    """The record of a lock. Versions before ``ticks`` took a record with other keys than theirs for
    nobody's. So it has the keys they know, with ``started`` (seconds since the epoch), and the ticks
    are in the token."""
    record = asdict(holder)
    ticks = record.pop("ticks")
    stat = Path("/proc/stat").read_text(encoding="ascii")
    booted = next(int(line.split()[1]) for line in split_lines(stat) if line.startswith("btime "))
    started = booted + ticks / os.sysconf("SC_CLK_TCK")
    return json.dumps({**record, "started": started, "token": f"{holder.token}{_TICKS}{ticks}"})


def oneself(study: str) -> Holder:
    """This process as a holder."""
    return Holder(
        holder=_account(),
        host=socket.gethostname(),
        pid=os.getpid(),
        ticks=start_ticks(os.getpid()) or 0,
        since=datetime.now(UTC).isoformat(timespec="seconds"),
        study=study,
        place=_place(),
    )


def why_stale(observed: ObservedLock, here: str) -> str | None:
    """Why nobody holds the lock any more, in words; ``None`` while somebody may.

    ``here`` is this machine's own place.
    """
    holder = observed.holder or Holder()  # a record that cannot be read is another version's
    if holder.place == here:
        ticks = start_ticks(holder.pid)
        if ticks is None or holder.ticks not in (0, ticks):
            return f"process {holder.pid} has ended"
        if holder.ticks:
            return None
    if holder.boot and holder.boot != observed.boot:
        return "the host has been booted since"
    if observed.renewed is None and observed.holder is None:
        return None
    if observed.renewed is None or not 0 <= observed.uptime - observed.renewed <= LEASE:
        return f"it was not renewed for {LEASE:.0f} s"
    return None


class HostLock:
    """The lock of one host, held by this process from ``take`` to ``release``."""

    def __init__(self, transport: Transport, study: str) -> None:
        self._transport, self._me = transport, oneself(study)
        self.record = ""

    @property
    def name(self) -> str:
        return self._transport.name

    @property
    def held(self) -> bool:
        return bool(self.record)

    @property
    def boot(self) -> str:
        """The boot of the host in which it was taken."""
        return str(json.loads(self.record)["boot"])

    @property
    def fence(self) -> Command:
        """Goes before any change: nothing is done on a host that is no longer held."""
        return Command(("fence", self.record), vital=True)

    def take(self) -> str | None:
        """Hold the host. Says why an earlier lock was stale, if there was one.

        Raises LockedError, naming holder, process and time, while another tuner has it.
        """
        for _ in range(3):
            observed = look(self._transport)
            stale = why_stale(observed, self._me.place) if observed.record else None
            if observed.record and stale is None:
                raise self._held(observed.holder)
            token = secrets.token_hex(
                8
            )  # so that a late exchange of an earlier holding is refused by `fence`
            record = encoded(replace(self._me, boot=observed.boot, token=token))
            (done,) = ask(
                self._transport, [Command(("claim", observed.record, record))], timeout=120.0
            )
            if done.ok:
                self.record = record
                return f"{observed.holder or 'somebody'}: {stale}" if observed.record else None
            if done.returncode != _CHANGED:
                raise AutotuneError(
                    f"{self._transport.name} cannot be locked: {done.error_text}",
                    hint=f"{HOME} there has to take files: `df {HOME}`",
                )
        raise self._held(look(self._transport).holder)

    def left_behind(self) -> bool:
        """Whether a tuner of the same study that is gone has left its lock there."""
        observed = look(self._transport)
        holder = observed.holder
        same = holder is not None and holder.study == self._me.study
        return same and why_stale(observed, self._me.place) is not None

    def renew(self) -> None:
        """Raises LockedError where the lock has gone to somebody else."""
        (done,) = ask(self._transport, [self.fence])
        if not done.ok:
            raise LockedError(f"{self._transport.name}: {done.error_text}")

    def release(self) -> None:
        if self.held:
            ask(self._transport, [Command(("unlock", self.record))])
            self.record = ""

    def _held(self, holder: Holder | None) -> LockedError:
        return LockedError(
            f"{self._transport.name} is being tuned by {holder or 'somebody'}"
            + (f" (study {holder.study})" if holder else ": the record of its lock cannot be read"),
            hint="wait for it; a lock whose holder is gone is taken over by itself"
            + ("" if holder else f", or by `rm {HOME}/lock` there once no tuner runs"),
        )


def look(transport: Transport) -> ObservedLock:
    """The host's lock as it is now; changes nothing."""
    (done,) = ask(transport, [Command(("lock_state",))])
    lines = done.stdout.split("\n", 3)
    if not done.ok or len(lines) < 3:
        raise CommandFailed(f"{transport.name} does not say who has locked it: {done.error_text}")
    renewed = None
    with contextlib.suppress(ValueError):
        renewed = decimal(lines[2])
    try:
        uptime = decimal(lines[1])
    except ValueError as error:
        raise CommandFailed(f"{transport.name} does not say how long it is up: {error}") from None
    return ObservedLock(lines[0], uptime, renewed, lines[3] if len(lines) > 3 else "")


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container where the account has no name
        return f"account {os.getuid()}"


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  # not a path: pid:[…]


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; ``None`` where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


class Lease:
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
        while not self._over.wait(RENEWAL):
            # All at once: one host that does not answer must not cost the others their locks.
            held = [lock for lock in self._locks if lock.held]
            run_on_all(held, HostLock.renew, at_most=len(held) or 1)
