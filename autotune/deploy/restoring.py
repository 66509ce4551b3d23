"""Putting hosts back when the tuner that changed them is gone: `autotune restore`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.deploy.host import FleetHost
from autotune.deploy.originals import Kept
from autotune.deploy.put_back import on_host, put_back
from autotune.errors import AutotuneError, joined
from autotune.transports.base import Transport
from autotune.transports.parallel import Gathered, on_all


def restore_study(study: Path, transports: Mapping[str, Transport]) -> list[str]:
    """Put back the hosts that a study changed, as the controller's copies have them.

    What was done, a line each. Raises AutotuneError naming each host that could not be put back and
    why, after all others are; LockedError where a tuner holds them all.
    """
    kept = Kept(study)
    missing = {
        name: AutotuneError(f"{name} was changed, and the target does not say how to reach it")
        for name in kept.hosts()
        if name not in transports
    }
    restored = on_all(
        transports.values(),
        lambda transport: _restore(FleetHost(transport.name, transport, kept, study.name)),
    )
    return _lines(Gathered(restored.results, {**missing, **restored.errors}))


def restore_hosts(study: Path, transports: Mapping[str, Transport]) -> list[str]:
    """Put back hosts by their own copies of how they were found, where they have one.

    ``study`` is a directory for the controller's copy; it is not made.
    """
    kept = Kept(study)
    return _lines(
        on_all(
            transports.values(),
            lambda transport: _restore_by_own_copy(
                FleetHost(transport.name, transport, kept, study.name)
            ),
        )
    )


def _restore(host: FleetHost) -> tuple[str, ...]:
    """Where nothing was changed yet, a lock may still have been left."""
    if not host.changed and not host.lock.left_behind():
        return ()
    stale = host.lock.take()
    try:
        lines = put_back(host)
    finally:
        host.lock.release()
    return (*((f"{host.name}: took over the lock of {stale}",) if stale else ()), *lines)


def _restore_by_own_copy(host: FleetHost) -> tuple[str, ...]:
    found = on_host(host, kept=True)
    if found is None:
        return ()
    host.originals = found
    return _restore(host)


def _lines(restored: Gathered[tuple[str, ...]]) -> list[str]:
    lines = [line for of_host in restored.results.values() for line in of_host]
    if restored.errors:
        raise joined(restored.errors.values(), after=lines)
    return lines
