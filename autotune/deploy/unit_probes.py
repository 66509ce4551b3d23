"""Pages that show whether a tier is ready, each requested from the tier's own host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from autotune.deploy.desired_state import DesiredState, describe_start
from autotune.deploy.host_commands import Command, run_commands
from autotune.deploy.runtime import RuntimeHost
from autotune.deploy.stack import ServiceInstance
from autotune.deploy.unit_start import UnitStart
from autotune.services.base import Endpoint, Role
from autotune.transports.request import Request

HTTP_ROLES = frozenset({Role.PROXY, Role.HTTP_CACHE, Role.WEB, Role.APP})
LOOPBACK = "127.0.0.1"


def describe_probed_start(
    ranks: Mapping[str, int], request: Request | None, interval: float, instance: ServiceInstance
) -> UnitStart:
    """Return the start rank and readiness check of an instance's unit. If the unit serves HTTP, the
    check requests a page of the load.

    Servers behind the entry are assumed to use plain HTTP. Requests that may change data are not
    used for readiness checks. ``interval`` is the shortest time between two requests in seconds.
    """
    unit_start = describe_start(ranks, instance)
    service, placement = instance.service, instance.placement
    if request is None or not request.is_safe:
        return unit_start
    if placement.role not in HTTP_ROLES or service.gateway_protocol:
        return unit_start
    location = service.get_socket(placement)
    if location in (request.endpoint, *request.other_endpoints):
        url = f"{request.scheme}://{location}{request.path}"
    elif isinstance(location, Endpoint):
        url = f"http://{location}{request.path}"
    elif location and location.isdecimal():
        url = f"http://{LOOPBACK}:{location}{request.path}"
    elif location and location.startswith("/"):
        url = f"http://localhost{request.path}"
    else:
        return unit_start
    return replace(unit_start, url=url, name=request.host or "", interval=interval)


def find_answered_pages(
    host: RuntimeHost, starts: Mapping[str, UnitStart], functions: str
) -> dict[str, UnitStart]:
    """Return ``starts`` with only the pages that the host serves now. For units without such a page,
    readiness checks request no page.

    If a server does not respond at its own address, the loopback address is tried.
    """
    probe_cases = [
        (unit, replace(unit_start, url=url))
        for unit, unit_start in starts.items()
        for url in _list_urls(unit_start)
    ]
    commands = [
        Command(
            (
                "answers",
                probe_case.url,
                probe_case.name,
                "0",
                f"{probe_case.interval:g}",
                probe_case.address,
            )
        )
        for _, probe_case in probe_cases
    ]
    timeout = 40.0 * (1 + len(commands))
    command_results = run_commands(host.transport, commands, timeout=timeout, functions=functions)
    answered_starts = {unit: replace(unit_start, url="") for unit, unit_start in starts.items()}
    for (unit, probe_case), command_result in zip(probe_cases, command_results, strict=False):
        if command_result.ok and not answered_starts[unit].url:
            answered_starts[unit] = probe_case
    return answered_starts


def _list_urls(unit_start: UnitStart) -> Iterable[str]:
    """Return the URLs of a unit's page, at the unit's address and then at the loopback address."""
    if not unit_start.url:
        return ()
    scheme, _, url_remainder = unit_start.url.partition("://")
    authority, slash, path = url_remainder.partition("/")
    _, colon, port = authority.rpartition(":")
    local_url = f"{scheme}://{LOOPBACK}:{port}{slash}{path}"
    return dict.fromkeys((unit_start.url, local_url)) if colon else (unit_start.url,)


def replace_starts(
    desired: DesiredState, starts: Mapping[str, Mapping[str, UnitStart]]
) -> DesiredState:
    """Return the state after replacing the starts of the units in ``starts`` (by host and unit)."""
    hosts = {
        name: replace(host_state, starts={**host_state.starts, **starts.get(name, {})})
        for name, host_state in desired.hosts.items()
    }
    return replace(desired, hosts=hosts)
