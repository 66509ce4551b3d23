"""The runtime `systemd`: the distribution's own services on hosts reached over SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from autotune.deploy.host import FleetHost
from autotune.deploy.host_lock import Lease
from autotune.deploy.originals import Kept
from autotune.deploy.put_back import clear_left_behind, put_back
from autotune.deploy.runtime import Layout
from autotune.errors import AutotuneError
from autotune.transports.base import Transport
from autotune.transports.parallel import Gathered, on_all

T = TypeVar("T")


class Systemd:
    """Held by one study from ``take`` to ``give_back``; ``note`` hears what is found on the way."""

    layout = Layout()
    persistent = True

    def __init__(
        self, ways: Mapping[str, Transport], study: Path, note: Callable[[str], None]
    ) -> None:
        kept = Kept(study)
        self._hosts = {name: FleetHost(name, way, kept, study.name) for name, way in ways.items()}
        self._lease = Lease([host.lock for host in self._hosts.values()])
        self._study, self._note = study, note

    def __getitem__(self, name: str) -> FleetHost:
        return self._hosts[name]

    def gather(self, names: Iterable[str], work: Callable[[FleetHost], T]) -> Gathered[T]:
        """``work`` on all of them at once."""
        return on_all([self._hosts[name] for name in names], work)

    def take(self) -> None:
        """Lock every host, and put back what a killed tuner has left there.

        Raises LockedError while another tuner has one of them.
        """
        taken = self.gather(self._hosts, lambda host: host.lock.take())
        if taken.errors:
            self._unlock()
            taken.everywhere()
        for name, stale in taken.results.items():
            if stale:
                self._note(f"{name}: took over the lock of {stale}")
        self._lease.start()
        for lines in self.gather(self._hosts, clear_left_behind).everywhere().values():
            for line in lines:
                self._note(line)

    def give_back(self, *, restored: bool) -> None:
        """Unlock the hosts that are held, as they were found or as they are now.

        Raises AutotuneError naming the hosts that could not be put back, when all others are.
        """
        self._lease.stop()
        held = [name for name, host in self._hosts.items() if host.lock.held]
        try:
            failed = self.gather(held, put_back if restored else FleetHost.commit).errors
        finally:
            self._unlock()
        if failed:
            raise AutotuneError(
                "not put back: " + "; ".join(error.message for error in failed.values()),
                hint=f"`autotune restore {self._study.name}` once that is mended",
            )

    def _unlock(self) -> None:
        self.gather(self._hosts, lambda host: host.lock.release())
