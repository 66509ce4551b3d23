"""Taking one reading: every process started together, every answer counted once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from autotune.loads import bodies
from autotune.loads.base import Argv, Load, Order, Request, Tally, total, without_fastest
from autotune.transports.base import Transport
from autotune.transports.errors import HostUnreachable

GRACE = 20.0  # seconds beyond the reading before a generator that hangs is given up


def take(load: Load, request: Request, order: Order, transport: Transport) -> Tally:
    """Offer ``order`` with as many processes as it needs, looking at some bodies meanwhile."""
    commands = load.processes(request, order)
    patience = 2 * order.seconds + order.timeout + GRACE

    def run(argv: Argv) -> str:
        try:
            done = transport.run(argv, timeout=patience)
        except HostUnreachable as error:
            return str(error)
        return f"{done.stdout}\n{done.stderr}" if done.ok else f"{done.stdout}\n{done.said}"

    with ThreadPoolExecutor(len(commands) + 1) as pool:
        looked = None
        if request.expect is not None:
            looked = pool.submit(run, bodies.command(request, order.seconds, order.timeout))
        printed = list(pool.map(run, commands))
        tally = total(load.parse(text, order, len(commands)) for text in printed)
        if looked is None or request.expect is None:
            return tally
        return _with_bodies(tally, bodies.parse(looked.result(), request.expect), request.expect)


def _with_bodies(tally: Tally, seen: bodies.Bodies, expect: bytes) -> Tally:
    wrong = round(seen.share * tally.answered)
    statuses = sum(tally.errors.get(kind, 0) for kind in ("1xx", "3xx", "4xx", "5xx"))
    if not statuses:
        # Error pages have sizes of their own: with some of them the mean says nothing.
        wrong = max(wrong, bodies.wrong_by_size(tally.body_bytes, expect, tally.answered))
    if not wrong:
        return tally
    kept = without_fastest(tally.histogram, wrong)
    return replace(tally, histogram=kept, errors={**tally.errors, "wrong body": wrong})
