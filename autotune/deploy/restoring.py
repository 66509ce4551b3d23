"""Putting hosts back when the tuner that changed them is gone: `autotune restore`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.deploy.host import FleetHost
from autotune.deploy.originals import Kept
from autotune.deploy.put_back import on_host, put_back
from autotune.errors import AutotuneError
from autotune.transports.base import Transport
from autotune.transports.parallel import Gathered, on_all


def restore_study(study: Path, ways: Mapping[str, Transport]) -> list[str]:
    """Put back the hosts that a study changed, as the controller's copies have them.

    What was done, a line each. Raises LockedError while a tuner holds one of them, AutotuneError
    naming the hosts that could not be put back, after all others are.
    """
    kept = Kept(study)
    for name in kept.hosts():
        if name not in ways:
            raise AutotuneError(f"the target no longer has the host {name}, which was changed")
    hosts = [FleetHost(name, way, kept, study.name) for name, way in ways.items()]
    return _lines(on_all(hosts, _restore))


def restore_hosts(study: Path, ways: Mapping[str, Transport]) -> list[str]:
    """Put back hosts by their own copies of how they were found, where they have one.

    ``study`` is a directory for the controller's copy; it is not made.
    """
    kept = Kept(study)
    hosts = [FleetHost(name, way, kept, study.name) for name, way in ways.items()]
    return _lines(on_all(hosts, _restore_by_own_copy))


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


def _lines(gathered: Gathered[tuple[str, ...]]) -> list[str]:
    lines = [line for found in gathered.results.values() for line in found]
    if gathered.errors and lines:
        said = "\n".join(error.message for error in gathered.errors.values())
        first = next(iter(gathered.errors.values()))
        raise type(first)("\n".join([*lines, said]), hint=first.hint)
    gathered.everywhere()
    return lines
