"""Find hosts that return wrong responses even without load. Such hosts are broken, not overloaded.

Failures in a reading may come from a single broken host, to which a load balancer sends many requests
because its wrong responses are fast. After failures, autotune requests a page of the load from each web
server, on the server's own host. autotune retries several times, so that the queues
of an overload can drain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from autotune.deploy.stack import ServiceInstance
from autotune.measure.reading import Reading
from autotune.services.base import Endpoint, Role
from autotune.transports.base import Transport
from autotune.transports.curl import CurlAnswer, send_request
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.request import Request

SUSPECT_ERROR_KINDS = frozenset({"1xx", "3xx", "4xx", "5xx", "wrong body", "reset", "refused"})
# smallest share of failed requests at which a host is suspected
SUSPECT_ERROR_SHARE = 0.01
MAX_TRIES = 4
# time between tries, long enough for a queue of one or two seconds to drain before the last try
TRY_INTERVAL_SECONDS = 0.5
_MAX_SHOWN_CHARACTERS = 60  # maximum number of characters of a response body in a message


def is_host_suspected(reading: Reading) -> bool:
    """True if the failures of a reading may come from a host with wrong responses."""
    suspect_failure_count = sum(
        count for error_kind, count in reading.errors.items() if error_kind in SUSPECT_ERROR_KINDS
    )
    return suspect_failure_count > SUSPECT_ERROR_SHARE * reading.intended


def find_faulty_instances(
    instances: Sequence[ServiceInstance],
    transports: Mapping[str, Transport],
    request: Request,
    load_host: Transport,
    sleep: Callable[[float], object] = time.sleep,
) -> dict[str, str]:
    """Return the fault of every web server that returned no correct response in any try, by service
    instance.

    ``transports`` maps host names to transports. The result omits unreachable hosts.

    Some web servers accept requests only from another tier. For example, they redirect plain HTTP to
    HTTPS, or only the other tier serves the page. If all reachable web servers of a tier seem faulty,
    ``load_host`` therefore also sends a request to each entry. If all of these responses are correct,
    the result omits the tier.
    """
    host_requests = _build_host_requests(instances, request)
    web_hosts = {transports[host].name: host for host in host_requests}

    def find_host_faults(transport: Transport) -> list[tuple[ServiceInstance, str | None]]:
        return [
            (instance, _find_fault(transport, host_request, sleep))
            for instance, host_request in host_requests[web_hosts[transport.name]]
        ]

    web_transports = [transports[host] for host in web_hosts.values()]
    results = run_on_all(web_transports, find_host_faults).results
    faults_by_tier: dict[str, dict[str, str | None]] = {}
    for host_faults in results.values():
        for instance, fault in host_faults:
            faults_by_tier.setdefault(instance.placement.tier, {})[instance.name] = fault
    doubtful_tiers = [tier for tier, faults in faults_by_tier.items() if all(faults.values())]
    if doubtful_tiers and _serves_correctly(request, load_host):
        for tier in doubtful_tiers:
            del faults_by_tier[tier]
    return {
        name: fault for faults in faults_by_tier.values() for name, fault in faults.items() if fault
    }


def _build_host_requests(
    instances: Sequence[ServiceInstance], request: Request
) -> dict[str, list[tuple[ServiceInstance, Request]]]:
    """Return the web servers on each host, each with the request for this server."""
    called_endpoints = {
        endpoint
        for instance in instances
        for endpoint in (*instance.placement.forwards_to, *instance.placement.uses)
    }
    host_requests: dict[str, list[tuple[ServiceInstance, Request]]] = {}
    for instance in instances:
        placement = instance.placement
        if placement.role is Role.WEB:
            host_request = _build_host_request(request, placement.listen, called_endpoints)
            host_requests.setdefault(placement.host, []).append((instance, host_request))
    return host_requests


def _find_fault(
    transport: Transport, host_request: Request, sleep: Callable[[float], object]
) -> str | None:
    """Return the last wrong response of a web server; ``None`` after a correct response."""
    problem = None
    for attempt in range(MAX_TRIES):
        if attempt:
            sleep(TRY_INTERVAL_SECONDS)
        problem = find_answer_error(send_request(transport, host_request), host_request)
        if problem is None:
            break
    return problem


def _build_host_request(
    request: Request, endpoint: Endpoint, called_endpoints: Container[Endpoint]
) -> Request:
    """Return the request for a web server that listens at ``endpoint``.

    Servers behind the entry are assumed to speak plain HTTP/1.1, without TLS. Such a server may share
    its host with the entry. ``called_endpoints`` are the endpoints of all servers behind the entry.
    """
    direct_request = replace(request, endpoint=endpoint, tls=None, http2=False)
    if endpoint in called_endpoints:
        return direct_request
    entry_requests = (
        entry for entry in request.per_endpoint() if entry.endpoint.host == endpoint.host
    )
    return next(entry_requests, direct_request)


def _serves_correctly(request: Request, load_host: Transport) -> bool:
    """True if ``load_host`` is reachable, and every entry of the stack returns a correct response."""

    def are_entries_right(host: Transport) -> bool:
        return all(
            find_answer_error(send_request(host, entry), entry) is None
            for entry in request.per_endpoint()
        )

    return any(run_on_all([load_host], are_entries_right).results.values())


def find_answer_error(answer: CurlAnswer | str, request: Request) -> str | None:
    """Return a short description of the error in a response; ``None`` if it is correct."""
    if isinstance(answer, str):
        return answer
    if answer.status not in request.statuses:
        return f"status {answer.status}"
    body = answer.body.decode(errors="replace")
    if request.expected_body is not None and answer.body != request.expected_body:
        return f"status {answer.status} with a wrong body, {body[:_MAX_SHOWN_CHARACTERS]!r}"
    if request.expectations is not None:
        return request.expectations.describe_mismatch(answer.status, None, body, answer.size)
    return None
