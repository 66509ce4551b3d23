"""Find listening sockets on a host, and list the ports of programs that are not tuned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import basename

from autotune.services.adoption import Listener
from autotune.services.base import Service
from autotune.services.registry import Catalogue

_SOCKET_PATTERN = re.compile(r'LISTEN\s+\d+\s+\d+\s+(\S+):(\d+)\s+\S+(?:\s+users:\(\("([^"]*)")?')
_LOOPBACK_PATTERN = re.compile(r"127\.|\[::1\]|::1$")
_MAX_NAME_LENGTH = 15  # the kernel shortens names of processes to this number of characters


def parse_listeners(output: str) -> tuple[Listener, ...]:
    """Return the listeners in the output of `ss -ltnpH`, without duplicates."""
    is_loopback_only: dict[tuple[str, int], bool] = {}
    for address, port, program in _SOCKET_PATTERN.findall(output):
        key = program, int(port)
        is_loopback_only[key] = is_loopback_only.get(key, True) and bool(
            _LOOPBACK_PATTERN.match(address)
        )
    return tuple(Listener(*key, is_loopback_only[key]) for key in sorted(is_loopback_only))


def list_other_ports(
    catalogue: Catalogue, listeners: Iterable[Listener], tuned_ports: Sequence[tuple[str, int]]
) -> Iterator[str]:
    """Yield a line for each additional port on which a tuned service listens.

    ``tuned_ports`` contains pairs of a service's key and port.
    """
    for listener in listeners:
        port_owners = _find_owners(catalogue, listener, tuned_ports)
        if (
            port_owners
            and all(listener.port != port for _, port in port_owners)
            and _answers_visitors(catalogue.deployable[port_owners[0][0]], listener.program)
        ):
            key, port = port_owners[0]
            yield (
                f"{catalogue.deployable[key].title} also listens on port {listener.port} with the "
                f"same settings; load goes to port {port}"
            )


def list_untuned(
    catalogue: Catalogue,
    listeners_by_host: Mapping[str, tuple[Iterable[Listener], Sequence[tuple[str, int]]]],
) -> Iterator[str]:
    """Yield lines about listeners that are not tuned: first listeners on every host, then other
    listeners by host.
    """
    unowned_listeners = {
        host: [
            listener
            for listener in all_listeners
            if not _find_owners(catalogue, listener, tuned_ports)
        ]
        for host, (all_listeners, tuned_ports) in listeners_by_host.items()
    }
    listener_lists = list(unowned_listeners.values())
    common_listeners = (
        [each for each in listener_lists[0] if all(each in other for other in listener_lists)]
        if listener_lists[1:]
        else []
    )
    other_listeners = {
        host: [each for each in host_listeners if each not in common_listeners]
        for host, host_listeners in unowned_listeners.items()
    }
    for host_label, host_listeners in {"every host": common_listeners, **other_listeners}.items():
        if host_listeners:
            yield f"listening but not tuned on {host_label}: {', '.join(map(str, host_listeners))}"


def _find_owners(
    catalogue: Catalogue, listener: Listener, tuned_ports: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    return [
        (service_key, port)
        for service_key, port in tuned_ports
        if listener.program.startswith(_list_executables(catalogue.deployable[service_key]))
    ]


def _list_executables(service: Service) -> tuple[str, ...]:
    """Return prefixes of the process names of a service."""
    executables = {name for executables in service.programs.values() for name in executables}
    return tuple(
        basename(name)[:_MAX_NAME_LENGTH]
        for name in sorted({*executables, service.key, *service.serving_processes})
    )


def _answers_visitors(service: Service, program: str) -> bool:
    """True if the process ``program`` of a service serves the site's visitors."""
    return not service.gateway_protocol and (
        not service.serving_processes or program in service.serving_processes
    )
