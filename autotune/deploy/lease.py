"""Locks kept alive while a study measures and nobody talks to the hosts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

from autotune.deploy.host_lock import LEASE, HostLock
from autotune.errors import AutotuneError

EVERY = LEASE / 4  # s: three may fail before a lock is anybody's


class Lease:
    """Renews ``locks`` in the background from ``start`` to ``stop``.

    A lock that is lost meanwhile is found out by the next change, which does not happen then.
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
        while not self._over.wait(EVERY):
            for lock in self._locks:
                with contextlib.suppress(AutotuneError):
                    lock.renew()
