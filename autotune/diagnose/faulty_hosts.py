"""Find hosts that return wrong responses even without load. Such hosts are broken, not overloaded.

Failures in a reading may come from a single broken host, to which a load balancer sends many requests
because its wrong responses are fast. After failures, autotune requests a page of the load from each web
server, on the server's own host. autotune retries several times, so that the queues
of an overload can drain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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

    Some web servers accept requests only from a load balancer, for example because plain HTTP is
    redirected to HTTPS. If all reachable web servers seem faulty, ``load_host`` therefore also sends
    a request to each entry. If all of these responses are correct, the result is empty.
    """
    web_instances = {
        transports[instance.placement.host].name: instance
        for instance in instances
        if instance.placement.role is Role.WEB
    }

    def find_host_fault(transport: Transport) -> str | None:
        host_request = _build_host_request(request, web_instances[transport.name].placement.listen)
        problem = None
        for attempt in range(MAX_TRIES):
            if attempt:
                sleep(TRY_INTERVAL_SECONDS)
            problem = find_answer_error(send_request(transport, host_request), host_request)
            if problem is None:
                break
        return problem

    host_faults = run_on_all(
        [transports[part.placement.host] for part in web_instances.values()], find_host_fault
    )
    faults = {
        web_instances[name].name: fault for name, fault in host_faults.results.items() if fault
    }
    are_all_suspected = bool(faults) and all(host_faults.results.values())
    return {} if are_all_suspected and _serves_correctly(request, load_host) else faults


def _build_host_request(request: Request, endpoint: Endpoint) -> Request:
    """Return the request for a web server that listens at ``endpoint``.

    Servers behind the entry are assumed to speak plain HTTP/1.1, without TLS.
    """
    entry_requests = (
        entry for entry in request.per_endpoint() if entry.endpoint.host == endpoint.host
    )
    return next(entry_requests, replace(request, endpoint=endpoint, tls=None, http2=False))


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
        return request.expectations.describe_mismatch(answer.status, None, body, len(answer.body))
    return None
