"""The runtime `systemd`: the distribution's own services on hosts reached over SSH."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from autotune.deploy.backup import BackupStore
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_lock import Lease
from autotune.deploy.restore_host import clear_left_behind, restore_host
from autotune.deploy.runtime import Layout, Runtime
from autotune.errors import AutotuneError
from autotune.transports.base import Transport
from autotune.transports.parallel import HostResults, run_on_all

T = TypeVar("T")


class Systemd(Runtime):
    """Services are units of the distribution, which autotune reconfigures and restores."""

    installed = True


RUNTIME = Systemd()


class Units:
    """Held by one study from ``take`` to ``give_back``; ``note`` hears what is found on the way."""

    installed = Systemd.installed
    layout = Layout()

    def __init__(
        self, transports: Mapping[str, Transport], study: Path, note: Callable[[str], None]
    ) -> None:
        store = BackupStore(study)
        self._hosts = {
            name: ManagedHost(name, transport, store, study.name)
            for name, transport in transports.items()
        }
        self._lease = Lease([host.lock for host in self._hosts.values()])
        self._study, self._note = study, note

    def __getitem__(self, name: str) -> ManagedHost:
        return self._hosts[name]

    def gather(self, names: Iterable[str], work: Callable[[ManagedHost], T]) -> HostResults[T]:
        """``work`` on all of them at once."""
        return run_on_all([self._hosts[name] for name in names], work)

    def take(self) -> None:
        """Lock every host, and put back what a killed tuner has left there.

        Raises LockedError while another tuner has one of them.
        """
        taken = self.gather(self._hosts, lambda host: host.lock.take())
        if taken.errors:
            self._unlock()
            taken.unwrap()
        for name, stale in taken.results.items():
            if stale:
                self._note(f"{name}: took over the lock of {stale}")
        self._lease.start()
        for lines in self.gather(self._hosts, clear_left_behind).unwrap().values():
            for line in lines:
                self._note(line)

    def give_back(self, *, restored: bool) -> None:
        """Unlock the hosts that are held, as they were found or as they are now.

        Raises AutotuneError naming the hosts that could not be put back, when all others are.
        """
        self._lease.stop()
        held = [name for name, host in self._hosts.items() if host.lock.held]
        try:
            failed = self.gather(held, restore_host if restored else ManagedHost.commit).errors
        finally:
            self._unlock()
        if failed:
            raise AutotuneError(
                "not put back: " + "; ".join(error.message for error in failed.values()),
                hint=f"`autotune restore {self._study.name}` once that is mended",
            )

    def _unlock(self) -> None:
        self.gather(self._hosts, lambda host: host.lock.release())
