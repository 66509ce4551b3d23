"""Putting hosts back when the tuner that changed them is gone: `autotune restore`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.deploy.backup import BackupStore
from autotune.deploy.host import ManagedHost
from autotune.deploy.restore_host import on_host, restore_host
from autotune.errors import AutotuneError, joined
from autotune.transports.base import Transport
from autotune.transports.parallel import HostResults, run_on_all


def restore_study(study: Path, transports: Mapping[str, Transport]) -> list[str]:
    """Put back the hosts that a study changed, as the controller's copies have them.

    What was done, a line each. Raises AutotuneError naming each host that could not be put back and
    why, after all others are; LockedError where a tuner holds them all.
    """
    kept = BackupStore(study)
    missing = {
        name: AutotuneError(f"{name} was changed, and the target does not say how to reach it")
        for name in kept.hosts()
        if name not in transports
    }
    restored = run_on_all(
        transports.values(),
        lambda transport: _restore(ManagedHost(transport.name, transport, kept, study.name)),
    )
    return _lines(HostResults(restored.results, {**missing, **restored.errors}))


def restore_hosts(study: Path, transports: Mapping[str, Transport]) -> list[str]:
    """Put back hosts by their own copies of how they were found, where they have one.

    ``study`` is a directory for the controller's copy; it is not made.
    """
    kept = BackupStore(study)
    return _lines(
        run_on_all(
            transports.values(),
            lambda transport: _restore_by_own_copy(
                ManagedHost(transport.name, transport, kept, study.name)
            ),
        )
    )


def _restore(host: ManagedHost) -> tuple[str, ...]:
    """Where nothing was changed yet, a lock may still have been left."""
    if not host.changed and not host.lock.left_behind():
        return ()
    stale = host.lock.take()
    try:
        lines = restore_host(host)
    finally:
        host.lock.release()
    return (*((f"{host.name}: took over the lock of {stale}",) if stale else ()), *lines)


def _restore_by_own_copy(host: ManagedHost) -> tuple[str, ...]:
    backup = on_host(host, kept=True)
    if backup is None:
        return ()
    host.backup = backup
    return _restore(host)


def _lines(restored: HostResults[tuple[str, ...]]) -> list[str]:
    lines = [line for of_host in restored.results.values() for line in of_host]
    if restored.errors:
        raise joined(restored.errors.values(), after=lines)
    return lines
