"""httperf: one request per new connection, Poisson arrivals, an open loop.

How many processes. httperf polls without sleeping, so each process takes whatever a core has to
spare, which on one machine is the servers' core. So there are as few as can do the job: one process
opens up to ``LIMITS.rate`` connections/s, and FD_SETSIZE keeps it to about a thousand at a time. It
is enough that these last ``PATIENCE`` latency limits; they need not last until the timeout. Once a
server holds that many requests (``prlimit`` sets the number), by Little's law the average one waits
several latency limits: the objective is missed beyond doubt, and what is not sent because of it
(``fd-unavailable``) is a violation like the late answer it would have got. This is also what cuts an
overload short: the queue that a reading can build up is bounded.

A request that was due is never forgotten, but a starved httperf sends it later, together with the
others that were due (``Maximum connect burst length``). As long as it has caught up in the end the
reading stands. If it has not, or the heap was a good part of the reading, the load that was ordered
was not made (``limited``), unless the server failed what was made of it (``truncated``).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from autotune.loads import arrivals
from autotune.loads.base import Limits, Order, Process, Request, Tally
from autotune.loads.httperf_output import Printed
from autotune.loads.own_file import with_file

LIMITS = Limits(open_connections=1000, rate=6000.0)  # FD_SETSIZE is 1024; about 12 000/s at most
PATIENCE = 5.0  # latency limits that a process's connections must last …
ENOUGH = 10.0  # … and how many of them it may hold connections for, where it has so many
LEAST_OPEN = 64
OTHER_DESCRIPTORS = 16
ACHIEVED = 0.99  # of the intended rate, as a valid reading must have
STALL = 0.1  # of a reading; a generator off the CPU for longer made another load than ordered
PROVEN = 0.05  # fraction of requests that failed beyond what a starved generator can explain
BEHIND = "the load generator fell behind: give the load host more CPU, or add load hosts"
STOPPED = "the load generator was stopped before it had sent the load"
NO_PORTS = "the load host ran out of ports: widen net.ipv4.ip_local_port_range or add load hosts"
NO_FILES = "the load host ran out of open files: raise fs.file-max there"


@dataclass(frozen=True)
class Httperf:
    """Debian's httperf 0.9.0 (httperf.github.io), each process bounded by ``timeout``.

    With ``uris``, these are asked for in turn instead of the request's path, each process beginning
    at another place, a new one in every reading.
    """

    uris: tuple[str, ...] = ()
    name: str = "httperf"
    packages: tuple[str, ...] = ("httperf",)
    elsewhere: str = ""
    limits: Limits = LIMITS

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        return {"httperf": ("httperf",)}

    def processes(self, request: Request, order: Order, hosts: int = 1) -> tuple[Process, ...]:
        lasting = min(PATIENCE * order.limit, order.timeout)
        count = max(
            hosts,
            ceil(order.rate * lasting / self.limits.open_connections),
            ceil(order.rate / self.limits.rate),
        )
        count = min(count, order.requests)
        first = secrets.randbelow(arrivals.CLIENTS) if order.seed is None else order.seed * count
        return tuple(self._process(request, order, first, i, count) for i in range(count))

    def _process(
        self, request: Request, order: Order, first: int, index: int, count: int
    ) -> Process:
        rate = order.rate / count
        requests = order.requests // count + (index < order.requests % count)
        client = (first + index) % arrivals.CLIENTS
        gap = arrivals.mean_gap(client, requests, rate)
        held = ceil(rate * min(ENOUGH * order.limit, order.timeout))
        held = min(self.limits.open_connections, max(LEAST_OPEN, held))
        span = (requests - 1) / rate
        bound = ceil(1.5 * span + 2 * order.timeout + 2)  # a timeout each to connect and to answer
        argv = (
            "prlimit", f"--nofile={held + OTHER_DESCRIPTORS}",
            # It ends by itself even if nobody is left to end it; told INT, it prints what it has.
            "timeout", "--signal=INT", "--kill-after=1", str(bound),
            "httperf", "-v", "-v", f"--client={client}/{arrivals.CLIENTS}",
            "--server", request.endpoint.host, "--port", str(request.endpoint.port),
            "--uri", request.path, f"--period=e{gap:.12f}", f"--num-conns={requests}",
            "--num-calls=1", f"--timeout={order.timeout:g}",
        )  # fmt: skip
        plain = Process(argv, requests, span, bound + 1.0, held)
        if not self.uris:
            return plain
        at = len(self.uris) * client // arrivals.CLIENTS
        listed = "".join(f"{uri}\0" for uri in (*self.uris[at:], *self.uris[:at]))
        return replace(plain, argv=with_file(argv, "--wlog=y,"), input=listed.encode())

    def parse(self, process: Process, printed: str, request: Request, order: Order) -> Tally:
        found = Printed.read(printed)
        if found is None:
            return no_result(process, printed)
        tally = counted(found, process.requests)
        if request.expect is not None:
            tally = tally.blame("wrong body", wrong_by_size(found, len(request.expect)))
        return judged(tally, found, process, order)


def no_result(process: Process, printed: str) -> Tally:
    """For output that cannot be read: its last words say why."""
    said = (printed.strip().splitlines() or ["nothing"])[-1]
    return Tally(
        intended=process.requests,
        errors={"not sent": process.requests},
        limited=f"httperf printed no result: {said[:200]}",
    )


def counted(found: Printed, intended: int) -> Tally:
    """Every intended request either answered right or an error of one kind."""
    errors = {kind: n for kind, n in found.errors.items() if n}
    statuses = {kind: n for kind, n in found.statuses.items() if kind != "2xx" and n}
    ok = min(
        found.statuses.get("2xx", 0), max(0, sum(found.lifetimes.values()) - sum(statuses.values()))
    )
    missing = intended - ok - sum(statuses.values()) - sum(errors.values())
    if missing < 0:  # an answer was complete and its connection failed after it: it is an answer
        errors = _fewer(errors, -missing)
    unsent = max(0, min(missing, intended - found.connections - errors.get("fd-unavailable", 0)))
    extra = {"not sent": unsent, "unanswered": max(0, missing - unsent)}
    answered = Tally(
        intended=intended,
        sent=found.requests,
        histogram=found.lifetimes,
        duration=found.duration,
    )
    kept = answered.blame("", answered.replies_ok - ok).histogram
    everything = {**errors, **statuses, **extra}
    return replace(answered, histogram=kept, errors={k: n for k, n in everything.items() if n})


def _fewer(errors: Mapping[str, int], surplus: int) -> dict[str, int]:
    left = dict(errors)
    for kind in ("reset", "other", "timeout"):
        taken = min(surplus, left.get(kind, 0))
        surplus -= taken
        left[kind] = left.get(kind, 0) - taken
    return {kind: n for kind, n in left.items() if n}


def wrong_by_size(found: Printed, expected: int) -> int:
    """How many bodies were wrong, going by the mean size of all of them; 0 when it is as expected.

    An estimate: it takes a wrong body for an empty one (or one of twice the size). The mean covers
    answers of all kinds and has one decimal, so it says nothing once there are error pages.
    """
    right = found.statuses.get("2xx", 0)
    if found.content is None or right == 0 or right != found.replies:
        return 0
    off = abs(found.content - expected)
    if off <= 0.051:
        return 0
    return max(1, ceil(right * min(1.0, off / max(1, expected))))


def judged(tally: Tally, found: Printed, process: Process, order: Order) -> Tally:
    """The tally with the reason why it says nothing about the server, if there is one.

    On a machine that it shares with overloaded servers httperf starves with them. Then the answers
    decide: those later than the limit by more than twice the longest stall (``lag``) were late
    because of the server, at *less* load than ordered, so it fails the ordered load as well.
    """
    if tally.errors.get("no free port"):
        return replace(tally, limited=NO_PORTS)
    if tally.errors.get("file table full"):
        return replace(tally, limited=NO_FILES)
    lag = max(0, found.burst - 1) * process.span / max(1, process.requests - 1)
    if not _fell_short(tally, found, process, order, lag):
        return replace(tally, truncated="unanswered" in tally.errors)
    unmade = sum(tally.errors.get(kind, 0) for kind in ("fd-unavailable", "not sent", "unanswered"))
    if tally.later_than(order.limit + 2 * lag) + tally.failed - unmade > PROVEN * tally.intended:
        return replace(tally, truncated=True)
    stopped = tally.errors.get("not sent") and found.duration < process.span
    return replace(tally, limited=STOPPED if stopped else BEHIND)


def _fell_short(tally: Tally, found: Printed, process: Process, order: Order, lag: float) -> bool:
    """Whether the load ordered was not made: not all, not in time, or in one heap.

    When the last request went out is not printed, but it was no earlier than the longest wait
    before the end. Connections used up by a burst of the generator's own count too.
    """
    if tally.errors.get("not sent") or lag > STALL * process.span + order.limit:
        return True
    if tally.errors.get("fd-unavailable") and found.burst > process.open_connections / 2:
        return True
    timed_out = tally.errors.get("timeout", 0) > 0
    longest = 2 * order.timeout if timed_out else found.longest
    return found.duration - longest > process.span / ACHIEVED + 0.010
