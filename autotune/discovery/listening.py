"""Listeners on a host, and the listeners that are not tuned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import basename

from autotune.services.adoption import Listener
from autotune.services.registry import SERVICES

_SOCKET = re.compile(r'LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s+\S+(?:\s+users:\(\("([^"]*)")?')
_LOOPBACK = re.compile(r"127\.|\[::1\]|::1$")
_LONGEST = 15  # characters of a process's name that the kernel keeps


def listeners(printed: str) -> tuple[Listener, ...]:
    """Return the listeners in the output of `ss -ltnpH`, each program and port once."""
    local: dict[tuple[str, int], bool] = {}
    for address, port, program in _SOCKET.findall(printed):
        key = program, int(port)
        local[key] = local.get(key, True) and bool(_LOOPBACK.match(address))
    return tuple(Listener(*key, local[key]) for key in sorted(local))


def at_other_ports(every: Iterable[Listener], tuned: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield a line for each further port at which a tuned service listens.

    ``tuned`` are services by their keys, with the port of each.
    """
    for listener in every:
        owners = _owners(listener, tuned)
        if owners and all(listener.port != port for _, port in owners) and _serves(
            owners[0][0], listener.program
        ):  # fmt: skip
            key, port = owners[0]
            yield (
                f"{SERVICES[key].title} also listens on port {listener.port} with the same settings; "
                f"load goes to port {port}"
            )


def untuned(
    listening: Mapping[str, tuple[Iterable[Listener], Sequence[tuple[str, int]]]],
) -> Iterator[str]:
    """Yield lines of listeners that are not tuned: shared by all hosts, then the rest by host."""
    unowned = {host: [listener for listener in every if not _owners(listener, tuned)]
               for host, (every, tuned) in listening.items()}  # fmt: skip
    lists = list(unowned.values())
    alike = (
        [each for each in lists[0] if all(each in other for other in lists)] if lists[1:] else []
    )
    rest = {host: [each for each in of if each not in alike] for host, of in unowned.items()}
    for where, of in {"every host": alike, **rest}.items():
        if of:
            yield f"listening but not tuned on {where}: {', '.join(map(str, of))}"


def _owners(listener: Listener, tuned: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(key, port) for key, port in tuned
            if any(listener.program.startswith(name) for name in _executables(key))]  # fmt: skip


def _executables(key: str) -> tuple[str, ...]:
    """Return the prefixes of the names of a service's processes."""
    names = {name for names in SERVICES[key].programs.values() for name in names}
    return tuple(
        basename(name)[:_LONGEST] for name in sorted({*names, key, *SERVICES[key].serving})
    )


def _serves(key: str, program: str) -> bool:
    """True if this process of a service answers visitors, not a web server or an administrator."""
    service = SERVICES[key]
    return not service.gateway and (not service.serving or program in service.serving)
