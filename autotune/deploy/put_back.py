"""A host back to how it was found, from either copy of that. Repeating it does no harm."""

from __future__ import annotations

from autotune.deploy.host import FleetHost
from autotune.deploy.host_commands import KEPT, ORIGINALS
from autotune.deploy.host_state import HostSeen, HostState
from autotune.deploy.originals import Originals, decode
from autotune.deploy.plan import decide
from autotune.errors import AutotuneError


def put_back(host: FleetHost) -> tuple[str, ...]:
    """Files, owners, bits, absent-ness, kernel values and units as they were; what was done.

    Every unit that was running is started again, for nothing tells which files it has read. Raises
    AutotuneError, and keeps the copies, where something is not as it was found afterwards.
    """
    wanted = host.originals.state
    if not host.changed:
        return ()
    host.tidy()
    todo = decide(wanted, host.observe(wanted), {}, wanted.units)
    host.stage(wanted, todo)
    host.apply(wanted, todo)
    if wrong := unlike(wanted, host.observe(wanted)):
        raise AutotuneError(f"{host.name} is not as it was found: {', '.join(wrong)}")
    host.forget()
    changed = len(todo.write) + len(todo.remove)
    units = len(todo.act) + len(todo.stop)
    return (f"{host.name}: put back {changed} files, {len(todo.sysctls)} sysctls, {units} units",)


def clear_left_behind(host: FleetHost) -> tuple[str, ...]:
    """Put back what a killed tuner has left on a host that is now held; what was done."""
    left = on_host(host)
    if left is not None:
        host.originals = left
    study = host.originals.study
    lines = put_back(host)
    if lines and left is not None:
        host.forget_of(study)
    return tuple(f"{line} (study {study} had been killed)" for line in lines)


def on_host(host: FleetHost, *, kept: bool = False) -> Originals | None:
    """The host's own copy of how it was found, if it has one; of a kept deployment if asked."""
    for path in (ORIGINALS, *((KEPT,) if kept else ())):
        content = host.transport.get(path, sudo=True)
        if content is not None:
            return decode(content, f"{host.name}:{path}")
    return None


def unlike(wanted: HostState, seen: HostSeen) -> list[str]:
    """What is not as wanted, each in a word or two."""
    files = [path for path, file in wanted.files.items() if not seen.files[path].is_as(file)]
    units = [unit for unit, runs in wanted.units.items() if seen.units[unit].active != runs]
    keys = [name for name, value in wanted.sysctls.items() if seen.sysctls[name] != value]
    return [*files, *units, *keys]
