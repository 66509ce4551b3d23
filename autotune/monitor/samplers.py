"""Samples of this machine: its own /proc read in this process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.monitor.listening import tcp_queues
from autotune.monitor.process_table import Owners, ProcessFiles
from autotune.monitor.procfs import FILES, Look, parsed
from autotune.monitor.sample import Sample

_LINKS = Path("/sys/class/net")
_LARGEST = 1 << 20  # bytes of one file; /proc/net/unix is the only one that could come near


class LocalSampler:
    """Looks at this machine. ``cost`` is the CPU time they have taken so far, in seconds.

    About 0.3 ms a look and 20 µs for each process of a service where those are looked at too. What
    was read is parsed by ``samples``, once the reading is over.
    """

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._others: set[str] = set()  # processes already seen to be nobody's: not looked at again
        self._limits: dict[str, int | None] = {}
        self._links = {f"{path}/speed": _read(f"{path}/speed") for path in _LINKS.glob("*")}
        self._looks: list[Look] = []
        self.cost = 0.0

    def look(self, *, processes: bool) -> None:
        begun = time.thread_time()
        texts = self._links | {path: _read(path) for path in FILES}
        found = tuple(self._processes()) if processes else ()
        self._looks.append(Look(texts, found, tcp_queues()))
        self.cost += time.thread_time() - begun

    def samples(self) -> tuple[Sample, ...]:
        return tuple(parsed(self._looks, self._owners))

    def _processes(self) -> Iterator[ProcessFiles]:
        for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a Path each costs 5 ×
            if pid in self._others:
                continue
            if not self._is_ours(pid):
                self._others.add(pid)
                continue
            base = f"/proc/{pid}"
            yield ProcessFiles(
                _read(f"{base}/stat"), _read(f"{base}/schedstat"), _open(pid), self._limit(pid)
            )

    def _limit(self, pid: str) -> int | None:
        if pid not in self._limits:
            self._limits[pid] = _descriptor_limit(pid)
        return self._limits[pid]

    def _is_ours(self, pid: str) -> bool:
        try:
            if self._owners.sessions:
                return os.getsid(int(pid)) in self._owners.sessions
        except OSError:
            return False
        return _read(f"/proc/{pid}/comm").strip() in self._owners.programs


def _read(path: str) -> str:
    # Plain descriptors: a sample reads hundreds of files, and buffered text files cost three times
    # as much. Some (an interface's speed) fail on being read.
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return b"".join(_pieces(descriptor)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _pieces(descriptor: int) -> Iterator[bytes]:
    left = _LARGEST
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
        left -= len(piece)
        yield piece


def _open(pid: str) -> int | None:
    """Open descriptors. Linux 6.2 and later give them as the directory's size; before, they are
    counted."""
    with contextlib.suppress(OSError):
        place = f"/proc/{pid}/fd"
        return os.stat(place).st_size or len(os.listdir(place))  # noqa: PTH116, PTH208 - cost
    return None


def _descriptor_limit(pid: str) -> int | None:
    # Asking for another user's limits by system call takes a privilege; reading them does not.
    for line in _read(f"/proc/{pid}/limits").splitlines():
        if line.startswith("Max open files") and line.split()[3].isdigit():
            return int(line.split()[3])
    return None
