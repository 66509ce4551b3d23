"""What listens on a host, and what of it nobody tunes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename

from autotune.services.adoption import Listener
from autotune.services.registry import SERVICES

_SOCKET = re.compile(r'LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s+\S+(?:\s+users:\(\("([^"]*)")?')
_LOOPBACK = re.compile(r"127\.|\[::1\]|::1$")
_LONGEST = 15  # characters of a process's name that the kernel keeps


def listeners(printed: str) -> tuple[Listener, ...]:
    """What `ss -ltnpH` printed, each program and port once."""
    local: dict[tuple[str, int], bool] = {}
    for address, port, program in _SOCKET.findall(printed):
        key = program, int(port)
        local[key] = local.get(key, True) and bool(_LOOPBACK.match(address))
    return tuple(Listener(*key, local[key]) for key in sorted(local))


def untuned(every: Iterable[Listener], tuned: Iterable[tuple[str, int]]) -> Iterator[str]:
    """A line for what listens and is not tuned, and one for each that listens at other ports too.

    ``tuned`` are services by their keys, with the port of each.
    """
    tuned = tuple(tuned)
    names = {key: _executables(key) for key, _ in tuned}
    unowned = []
    for listener in every:
        owners = [(key, port) for key, port in tuned
                  if any(listener.program.startswith(name) for name in names[key])]  # fmt: skip
        if not owners:
            unowned.append(str(listener))
        elif all(listener.port != port for _, port in owners) and _serves(
            owners[0][0], listener.program
        ):
            key, port = owners[0]
            yield (
                f"{SERVICES[key].title} listens on port {listener.port} too: what is there is served "
                f"with the same settings, and load goes to port {port}"
            )
    if unowned:
        yield f"not tuned, though it listens: {', '.join(unowned)}"


def _executables(key: str) -> tuple[str, ...]:
    """The beginnings of the names that a service's processes have."""
    names = {name for names in SERVICES[key].programs.values() for name in names}
    return tuple(
        basename(name)[:_LONGEST] for name in sorted({*names, key, *SERVICES[key].serving})
    )


def _serves(key: str, program: str) -> bool:
    """Whether that process of a service answers visitors, and no web server or admin."""
    service = SERVICES[key]
    return not service.gateway and (not service.serving or program in service.serving)
