"""A host back to how it was found, from either copy of that. Repeating it does no harm."""

from __future__ import annotations

from autotune.deploy.backup import HostBackup, decode
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import KEPT, ORIGINALS
from autotune.deploy.host_state import HostState, ObservedHost
from autotune.deploy.plan import plan_host
from autotune.errors import AutotuneError


def restore_host(host: ManagedHost) -> tuple[str, ...]:
    """Files, owners, bits, absent-ness, kernel values and units as they were; what was done.

    Every unit that was running is started again, for nothing tells which files it has read. Raises
    AutotuneError, and keeps the copies, where something is not as it was found afterwards.
    """
    desired = host.backup.state
    if not host.changed:
        return ()
    host.tidy()
    plan = plan_host(desired, host.observe(desired), {}, desired.units)
    host.stage(desired, plan)
    host.apply(desired, plan)
    if wrong := unlike(desired, host.observe(desired)):
        raise AutotuneError(f"{host.name} is not as it was found: {', '.join(wrong)}")
    host.forget()
    changed = len(plan.write) + len(plan.remove)
    units = len(plan.act) + len(plan.stop)
    return (f"{host.name}: put back {changed} files, {len(plan.sysctls)} sysctls, {units} units",)


def clear_left_behind(host: ManagedHost) -> tuple[str, ...]:
    """Put back what a killed tuner has left on a host that is now held; what was done."""
    left = on_host(host)
    if left is not None:
        host.backup = left
    study = host.backup.study
    lines = restore_host(host)
    if lines and left is not None:
        host.forget_of(study)
    return tuple(f"{line} (study {study} had been killed)" for line in lines)


def on_host(host: ManagedHost, *, kept: bool = False) -> HostBackup | None:
    """The host's own copy of how it was found, if it has one; of a kept deployment if asked."""
    for path in (ORIGINALS, *((KEPT,) if kept else ())):
        content = host.transport.get(path, sudo=True)
        if content is not None:
            return decode(content, f"{host.name}:{path}")
    return None


def unlike(desired: HostState, observed: ObservedHost) -> list[str]:
    """What is not as wanted, each in a word or two."""
    files = [path for path, file in desired.files.items() if not observed.files[path].is_as(file)]
    units = [unit for unit, runs in desired.units.items() if observed.units[unit].active != runs]
    keys = [name for name, value in desired.sysctls.items() if observed.sysctls[name] != value]
    return [*files, *units, *keys]
