"""Taking one reading: every process started together, every intended request counted once.

A reading has two parts. The ramp-in offers the same load for ``spec.ramp`` seconds and is not
counted: httperf prints one histogram for all it did, so its first second cannot be taken out
afterwards. What the ramp-in found is not wasted: where most of it failed, the counted part is never
offered, and the ramp-in is handed back as a truncated reading. It gives up requests after
``GIVEN_UP`` latency limits, so a clear overload ends within about a second. The counted part starts
when the ramp-in's last answer is there, milliseconds after its last request where the stack keeps up
(a queue worth keeping would itself be late). From then on the generator bounds the queue that can
build up (``httperf``), and ``spec.seconds`` the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import ceil

from autotune.loads import bodies, load_host, start
from autotune.loads.base import Load, LoadError, LoadResult, LoadSpec, total
from autotune.transports.base import Completed, Transport
from autotune.transports.request import Request

ERRORS = 0.25  # fraction of a ramp-in's requests in error that ends the reading …
VIOLATIONS = 0.7  # … and of those in error or late
GIVEN_UP = 10.0  # latency limits after which the ramp-in gives up a request
MARGIN = 10.0  # seconds a transport waits beyond the bound that a process keeps by itself
MISSING = (126, 127)  # how ``timeout`` says that it could not start the program


def take(load: Load, request: Request, spec: LoadSpec, *transports: Transport) -> LoadResult:
    """Offer ``spec`` from all load hosts together and count what came of it.

    Raises HostUnreachable when a load host is lost, LoadError when it lacks the generator.
    """
    short = None if load.limits.kept else load_host.shortage(transports, request, spec)
    if short:
        return LoadResult.nothing(spec.requests, short)
    if spec.ramp > 0:
        gentle = min(spec.timeout, GIVEN_UP * spec.limit)
        ramp = replace(spec, seconds=spec.ramp, timeout=gentle)
        ramped = _offer(load, request, ramp, transports)
        if ramped.limited is None and ran_away(ramped, spec.limit):
            return replace(ramped, truncated=True)
    if request.expect is None:
        return _offer(load, request, spec, transports)
    entries = request.each()
    share = replace(spec, rate=spec.rate / len(entries))
    with ThreadPoolExecutor(len(entries)) as pool:
        bound = ceil(spec.seconds + spec.timeout) + 1.0
        looking = [
            pool.submit(transports[0].run, bodies.argv(entry, share), timeout=bound + MARGIN)
            for entry in entries
        ]
        result = _offer(load, request, spec, transports)
        install = f"sudo apt-get install {bodies.PACKAGE}"
        looks = (bodies.parse(_output(o.result(), install), request.expect) for o in looking)
        return sum(looks, bodies.Look(0, 0)).reclassify(result)


def ran_away(result: LoadResult, limit: float) -> bool:
    """Whether more load would only tell again that it fails; ``limit`` in seconds."""
    violations = result.failed + result.later_than(limit)
    return result.failed > ERRORS * result.intended or violations > VIOLATIONS * result.intended


def _offer(
    load: Load, request: Request, spec: LoadSpec, transports: Sequence[Transport]
) -> LoadResult:
    """All processes of ``spec``, dealt out to the hosts in turn and started together.

    Every entry gets an equal share, by processes of its own.
    """
    entries = request.each()
    shares = [
        replace(
            spec,
            rate=spec.rate / len(entries),
            seed=None if spec.seed is None else spec.seed * len(entries) + place,
        )
        for place in range(len(entries))
    ]
    parts = [
        (process, entry, share)
        for entry, share in zip(entries, shares, strict=True)
        for process in load.processes(entry, share, len(transports))
    ]
    hosts = itertools.cycle(transports)
    install = load.elsewhere or f"sudo apt-get install {' '.join(load.packages)}"
    # Processes on one host start within a millisecond of each other anyway.
    moments = start.together(transports) if len(transports) > 1 else {}
    with ThreadPoolExecutor(len(parts)) as pool:
        running = [
            pool.submit(
                host.run,
                start.at(moments[host.name], p.argv) if moments else p.argv,
                input=p.input,
                timeout=p.bound + MARGIN,
            )
            for (p, _, _), host in zip(parts, hosts, strict=False)
        ]
        return total(
            load.parse(process, _output(future.result(), install), entry, share)
            for (process, entry, share), future in zip(parts, running, strict=True)
        )


def _output(completed: Completed, install: str) -> str:
    """Standard output, or the last words of a program that printed nothing there."""
    if completed.returncode in MISSING:
        raise LoadError(
            f"the load host cannot make the load: {completed.error_text}",
            hint=f"install it there: {install}",
        )
    return completed.stdout if completed.stdout.strip() else completed.error_text
