"""Hosts with wrong answers to direct requests. A wrong answer without load means broken, not overloaded.

Behind a load balancer, a host with fast wrong answers looks fast. After a reading with such failures,
autotune therefore requests the page of the load from each web server, on that server's own host. Several
tries wait until the queues of an overload are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autotune.deploy.stack import Part
from autotune.measure.reading import Reading
from autotune.services.base import Role
from autotune.transports.base import Transport
from autotune.transports.curl import Answer, answer
from autotune.transports.parallel import run_on_all
from autotune.transports.request import Request

KINDS = frozenset({"1xx", "3xx", "4xx", "5xx", "wrong body", "reset", "refused"})
SUSPECT = 0.01  # share of the requests; fewer such errors do not point to one host
TRIES = 4
PAUSE = 0.5  # seconds between tries: a queue of a second or two is gone by the last try
_SHOWN = 60  # characters of a body in a message


def suspected(reading: Reading) -> bool:
    """True if the failures of a reading may come from a host with wrong answers."""
    failures = sum(count for kind, count in reading.errors.items() if kind in KINDS)
    return failures > SUSPECT * reading.intended


def faults(
    parts: Sequence[Part],
    transports: Mapping[str, Transport],
    request: Request,
    pause: Callable[[float], object] = time.sleep,
) -> dict[str, str]:
    """Return part → fault, for every web server without a correct answer in any try.

    ``transports`` are by host name; a host that cannot be reached is left out.
    """
    web = {transports[part.site.host].name: part for part in parts if part.site.role is Role.WEB}

    def look(transport: Transport) -> str | None:
        site = web[transport.name].site
        asked = next((entry for entry in request.each() if entry.endpoint.host == site.listen.host),
                     None)  # fmt: skip
        # Servers behind the entry are assumed to speak plain HTTP/1.1, without TLS.
        asked = asked or replace(request, endpoint=site.listen, tls=None, http2=False)
        wrong = None
        for turn in range(TRIES):
            if turn:
                pause(PAUSE)
            wrong = wrong_with(answer(transport, asked), asked)
            if wrong is None:
                break
        return wrong

    answers = run_on_all([transports[part.site.host] for part in web.values()], look)
    return {web[name].name: wrong for name, wrong in answers.results.items() if wrong}


def wrong_with(got: Answer | str, request: Request) -> str | None:
    """Return what is wrong with an answer in a few words; ``None`` if it is correct."""
    if isinstance(got, str):
        return got
    if got.status not in request.statuses:
        return f"status {got.status}"
    body = got.body.decode(errors="replace")
    if request.expect is not None and got.body != request.expect:
        return f"status {got.status} with a wrong body, {body[:_SHOWN]!r}"
    if request.checks is not None:
        return request.checks.unmet(got.status, None, body, len(got.body))
    return None
