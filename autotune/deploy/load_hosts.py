"""Load hosts made fit to make load while a study lasts, and put back as all others are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autotune.deploy.backup import BackupStore
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_lock import Lease
from autotune.deploy.host_state import HostState
from autotune.deploy.plan import HostPlan
from autotune.deploy.restore_host import clear_left_behind, restore_host
from autotune.errors import AutotuneError, LockedError
from autotune.transports.base import Transport
from autotune.transports.parallel import run_on_all

Fit = Callable[[Mapping[str, str | None]], Mapping[str, str]]


class LoadHosts:
    """Hosts that make load, held by one study. Nothing is done to them before ``open``."""

    def __init__(self, transports: Sequence[Transport], study: Path) -> None:
        store = BackupStore(study)
        self._study = study.name
        self._hosts = [ManagedHost(t.name, t, store, study.name) for t in transports]
        self._lease = Lease([host.lock for host in self._hosts])

    def open(self, names: Sequence[str], fit: Fit, note: Callable[[str], None]) -> None:
        """Hold them, with their kernels as ``fit(what they have of names)`` wants them.

        One that does not let itself be prepared makes load as it is, and ``note`` is told why. Raises
        LockedError while another tuner has one of them.
        """
        taken = run_on_all(self._hosts, lambda host: host.lock.take())
        if locked := [e for e in taken.errors.values() if isinstance(e, LockedError)]:
            self.restore()
            raise locked[0]
        self._lease.start()
        done = run_on_all(self._held(), lambda host: _prepare(host, names, fit))
        for lines in done.results.values():
            for line in lines:
                note(line)
        for name, error in {**taken.errors, **done.errors}.items():
            note(f"{name} makes load as it is: {error.message}")

    def restore(self) -> None:
        """Leave every one as it was found, and unlock it.

        Raises AutotuneError naming those that could not be put back, when all others are.
        """
        self._lease.stop()
        held = self._held()
        try:
            failed = run_on_all(held, restore_host).errors
        finally:
            run_on_all(held, lambda host: host.lock.release())
        if failed:
            raise AutotuneError(
                "not put back: " + "; ".join(error.message for error in failed.values()),
                hint=f"`autotune restore {self._study}` once that is mended",
            )

    def _held(self) -> list[ManagedHost]:
        return [host for host in self._hosts if host.lock.held]


def _prepare(host: ManagedHost, names: Sequence[str], fit: Fit) -> tuple[str, ...]:
    left = clear_left_behind(host)
    asked = HostState(sysctls=dict.fromkeys(names, ""))
    desired = HostState(sysctls=fit(host.observe(asked).sysctls))
    if desired.sysctls:
        host.save(desired)
        host.apply(desired, HostPlan(sysctls=desired.sysctls))
    return left
