"""Taking one reading: every process started together, every intended request counted once.

A reading has two parts. The ramp-in offers the same load for ``order.ramp`` seconds and is thrown
away: httperf prints one histogram for all it did, so its first second cannot be taken out
afterwards. What it found is not wasted: where its errors ran away, the counted part is never
offered, and the ramp-in is handed back as a truncated reading. The counted part starts when the
ramp-in's last answer is there, or at once when that is more than a latency limit overdue, so a queue
that has built up is still there. During the counted part the queue is bounded by the generator
(``httperf``), and its length by ``order.seconds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from math import ceil

from autotune.loads import bodies, ports
from autotune.loads.base import Load, Order, Process, Request, Tally, total
from autotune.loads.errors import LoadError
from autotune.services.base import Argv
from autotune.transports.base import Completed, Transport

RUNAWAY = 0.25  # fraction of a ramp-in's requests in error that ends the reading
MARGIN = 10.0  # seconds a transport waits beyond the bound that a process keeps by itself
MISSING = (126, 127)  # how ``timeout`` says that it could not start the program


def take(load: Load, request: Request, order: Order, *transports: Transport) -> Tally:
    """Offer ``order`` from all load hosts together and count what came of it.

    Raises HostUnreachable when a load host is lost, LoadError when it lacks the generator.
    """
    short = ports.shortage(transports, request, order)
    if short:
        return Tally(order.requests, errors={"not sent": order.requests}, limited=short)
    ramp = replace(order, seconds=order.ramp)
    ramping = load.processes(request, ramp, len(transports)) if order.ramp > 0 else ()
    counting = load.processes(request, order, len(transports))
    with ThreadPoolExecutor(len(ramping) + len(counting) + 1) as pool:
        warm = _start(pool, ramping, transports)
        if warm:
            cut = _runaway(load, request, ramp, ramping, warm)
            if cut is not None:
                return cut
        started = _start(pool, counting, transports)
        looking = _look(pool, request, order, transports[0])
        tally = total(_tallies(load, request, order, counting, started))
        if looking is not None and request.expect is not None:
            tally = bodies.parse(_output(looking.result(), bodies.PACKAGES), request.expect).blame(
                tally
            )
        return tally


def _start(
    pool: ThreadPoolExecutor, processes: Sequence[Process], transports: Sequence[Transport]
) -> list[Future[Completed]]:
    """Processes dealt out to the hosts in turn."""
    return [
        pool.submit(_run, transports[i % len(transports)], process.argv, process.bound)
        for i, process in enumerate(processes)
    ]


def _run(transport: Transport, argv: Argv, bound: float) -> Completed:
    return transport.run(argv, timeout=bound + MARGIN)


def _look(
    pool: ThreadPoolExecutor, request: Request, order: Order, transport: Transport
) -> Future[Completed] | None:
    if request.expect is None:
        return None
    bound = ceil(order.seconds + order.timeout) + 1.0
    return pool.submit(_run, transport, bodies.argv(request, order), bound)


def _runaway(
    load: Load,
    request: Request,
    ramp: Order,
    processes: Sequence[Process],
    running: Sequence[Future[Completed]],
) -> Tally | None:
    """The ramp-in as a truncated reading if its errors ran away, known soon after its last send."""
    due = max(process.span for process in processes) + ramp.limit
    _, late = wait(running, timeout=due)
    if late:
        return None
    tally = total(_tallies(load, request, ramp, processes, running))
    if tally.limited is None and tally.failed > RUNAWAY * tally.intended:
        return replace(tally, truncated=True)
    return None


def _tallies(
    load: Load,
    request: Request,
    order: Order,
    processes: Sequence[Process],
    running: Sequence[Future[Completed]],
) -> list[Tally]:
    return [
        load.parse(process, _output(future.result(), load.packages), request, order)
        for process, future in zip(processes, running, strict=True)
    ]


def _output(completed: Completed, packages: Sequence[str]) -> str:
    """Standard output, or the last words of a program that printed nothing there."""
    if completed.returncode in MISSING:
        raise LoadError(
            f"the load host cannot make the load: {completed.said}",
            hint=f"install it there: sudo apt-get install {' '.join(packages)}",
        )
    return completed.stdout if completed.stdout.strip() else completed.said
