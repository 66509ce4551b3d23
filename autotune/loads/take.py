"""Taking one reading: every process started together, every intended request counted once.

A reading has two parts. The ramp-in offers the same load for ``spec.ramp`` seconds and is not
counted: httperf prints one histogram for all it did, so its first second cannot be taken out
afterwards. If most of the ramp-in failed, the counted part is never offered, and the ramp-in is the
result, as a truncated reading. It gives up requests after ``GIVEN_UP`` latency limits, so a clear
overload ends within about a second. The counted part starts when the ramp-in's last answer is there,
milliseconds after its last request if the stack keeps up (a queue long enough to matter would make
answers late). From then on the generator bounds the queue that can build up (``httperf``), and
``spec.seconds`` the time.

The result of a ramp-in shorter than ``LOOKED_AT`` is ignored: the stack has just carried about this
rate. The counted part is then started together with the ramp-in, by processes of its own that begin
when it ends, so that load never stops and nothing is waited for in between. What the ramp-in sent is in
no count.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from autotune.loads import load_host, probes, start
from autotune.loads.answers import Look, Validator
from autotune.loads.base import NO_PORT, Load, LoadError, LoadResult, LoadSpec, total
from autotune.loads.offer import LoadCommand, check_rate, highest_rate, run_together
from autotune.transports.base import Completed, Transport
from autotune.transports.parallel import run_on_all
from autotune.transports.request import Request

LOOKED_AT = 0.5  # seconds
ERRORS = 0.25  # fraction of a ramp-in's requests in error that ends the reading …
VIOLATIONS = 0.7  # … and of those in error or late
GIVEN_UP = 10.0  # latency limits after which the ramp-in gives up a request
MARGIN = 10.0  # seconds a transport waits beyond the bound that a process keeps by itself
TOO_LOW = "has no whole request in a reading at this rate: raise the rate"
NOTHING = Look()  # has been looked at
MOST_SEEDS = 1 << 16  # places in a list of pages where a look begins
MISSING = (126, 127)  # how ``timeout`` says that it could not start the program


@dataclass(frozen=True)
class Looking:
    """How answers are validated, and what was looked at before at lower rates."""

    validator: Validator
    earlier: Look


def take(
    load: Load,
    request: Request,
    spec: LoadSpec,
    *transports: Transport,
    max_rate: float,
    validator: Validator | None = None,
    earlier: Look = NOTHING,
) -> LoadResult:
    """Offer ``spec`` from all load hosts together and count what came of it.

    ``validator`` decides which answers are right. Without it, the body that the request expects does,
    if it expects one. ``earlier`` is what was looked at before at lower rates.

    Raises RateTooHigh for a rate that makes more than ``max_rate`` requests/s, HostUnreachable when a
    load host is lost, LoadError when it lacks the generator.
    """
    check_rate(spec.rate * load.requests_each, max_rate)
    spec = replace(spec, max_rate=max_rate)
    looking = Looking(
        validator or (Validator.exactly(request) if request.expect else Validator(())), earlier
    )
    short = None if load.limits.kept else load_host.shortage(transports, request, spec)
    if short:
        return LoadResult.nothing(spec.requests, str(short), NO_PORT)
    gentle = min(spec.timeout, GIVEN_UP * spec.limit)
    ramp = replace(spec, seconds=spec.ramp, timeout=gentle)
    ramped_up = (
        spec.rate * spec.ramp >= 1
    )  # at a lower rate no request is due before the counted ones
    if ramped_up and spec.ramp < LOOKED_AT:
        moments = _moments(transports)
        with ThreadPoolExecutor(1) as pool:
            ramping = pool.submit(_offer, load, request, ramp, transports, moments)
            result = _counted(load, request, spec, transports, moments, looking, after=spec.ramp)
            ramping.result()  # raises what the ramp-in raised
            return result
    if ramped_up:
        ramped, _ = _offer(load, request, ramp, transports, _moments(transports))
        if ramped.limited is None and ran_away(ramped, spec.limit):
            return replace(ramped, truncated=True)
    return _counted(load, request, spec, transports, _moments(transports), looking)


def inspect(load: Load, transports: Sequence[Transport]) -> None:
    """Let the generator check what it will run. Raises LoadError with the reason if it refuses."""
    if inspection := load.inspection():
        argv, text = inspection
        ran = run_on_all(
            transports, lambda host: host.run(argv, input=text, timeout=180.0)
        ).unwrap()
        for name, answer in ran.items():
            if answer.returncode:
                raise LoadError(
                    f"{load.name} on {name} refuses the load: {answer.error_text[:300]}"
                )


def count_requests(load: Load, request: Request, host: Transport, max_rate: float) -> Load:
    """The load, with how many requests a unit of its rate makes at most: a slow run shows it, if need be.

    Raises LoadError if it cannot be run.
    """
    process = load.counting(request, max_rate)
    if process is None:
        return load
    timeout = process.bound + MARGIN
    command = LoadCommand(
        host, process.argv, process.rate, 0.0, process.span, timeout, process.input
    )
    (done,) = run_together([command], max_rate)
    return load.counted(_output(done, _installation(load)))


def _moments(transports: Sequence[Transport]) -> Mapping[str, int]:
    """When each load host starts; processes on one host do within a millisecond anyway."""
    return start.together(transports) if len(transports) > 1 else {}


def _counted(
    load: Load,
    request: Request,
    spec: LoadSpec,
    transports: Sequence[Transport],
    moments: Mapping[str, int],
    looking: Looking,
    *,
    after: float = 0.0,
) -> LoadResult:
    """The part that counts, with a look at whole answers, whose requests are a part of the rate."""
    validator = looking.validator
    count = validator.count(spec)
    if not count:
        return _offer(load, request, spec, transports, moments, after=after)[0]
    pages = validator.chosen(count, secrets.randbelow(MOST_SEEDS))
    look = look_command(validator, pages, request, spec)
    command = LoadCommand(
        transports[0],
        start.after(after, look.argv),
        look.rate,
        begins=after,
        ends=after + look.span,
        timeout=after + look.bound,
        input=look.input,
    )
    room, each = spec.max_rate - look.rate, load.requests_each
    # A look that is a trace of the load takes nothing from it, unless the limit is near.
    rate = min(spec.rate, room / each) if validator.is_exact else spec.rate - look.rate / each
    left = replace(spec, rate=rate, max_rate=room)
    result, printed = _offer(
        load, request, left, transports, moments, after=after, beside=[command]
    )
    if not printed or result.limited:
        return result  # it says nothing about the server
    answers = probes.answers_of(printed[0], look.requests)
    return validator.reclassify(result, validator.look(pages, answers), looking.earlier)


def look_command(
    validator: Validator, pages: Sequence[int], request: Request, spec: LoadSpec
) -> probes.ProbeCommand:
    """What requests ``pages``, of each entry in turn, spread over the reading."""
    entries = itertools.cycle(request.each())
    return probes.command(
        [validator.pages[page].request(entry) for page, entry in zip(pages, entries, strict=False)],
        per_second=len(pages) / spec.seconds,
        timeout=spec.timeout,
        usual=spec.limit / 2,
        whole_bodies=validator.reads_whole_bodies,
    )


def ran_away(result: LoadResult, limit: float) -> bool:
    """Whether more load would only confirm that the server fails; ``limit`` in seconds."""
    violations = result.failed + result.later_than(limit)
    return result.failed > ERRORS * result.intended or violations > VIOLATIONS * result.intended


def _offer(
    load: Load,
    request: Request,
    spec: LoadSpec,
    transports: Sequence[Transport],
    moments: Mapping[str, int],
    *,
    after: float = 0.0,
    beside: Sequence[LoadCommand] = (),
) -> tuple[LoadResult, list[Completed]]:
    """All processes of ``spec``, dealt out to the hosts in turn and started together, ``after``
    seconds from now or from the ``moments`` that the hosts agreed on.

    Every entry gets an equal share, by processes of its own; with fewer requests than entries, as many
    entries get one. Returns the results of the commands ``beside`` too, which start with the others.
    """
    entries = request.each()[: max(1, int(spec.rate * spec.seconds))]
    shares = [spec.share(place, len(entries)) for place in range(len(entries))]
    parts = [
        (process, entry, share)
        for entry, share in zip(entries, shares, strict=True)
        for process in load.processes(entry, share, len(transports))
    ]
    if not parts:
        return LoadResult.nothing(spec.requests, f"{load.name} {TOO_LOW}"), []
    hosts = itertools.cycle(transports)
    commands = [
        LoadCommand(
            host,
            start.at(moments[host.name] + round(1e9 * after), process.argv)
            if moments
            else start.after(after, process.argv),
            process.rate,
            begins=after,
            ends=after + process.span,
            timeout=after + process.bound + MARGIN,
            input=process.input,
        )
        for (process, _, _), host in zip(parts, hosts, strict=False)
    ]
    done = run_together([*commands, *beside], spec.max_rate + highest_rate(beside))
    install = _installation(load)
    results = (
        load.parse(process, _output(answer, install), entry, share)
        for (process, entry, share), answer in zip(parts, done, strict=False)
    )
    return total(results), done[len(parts) :]


def _installation(load: Load) -> str:
    return load.elsewhere or f"sudo apt-get install {' '.join(load.packages)}"


def _output(completed: Completed, install: str) -> str:
    """Standard output, or the last words of a program that printed nothing there."""
    if completed.returncode in MISSING:
        raise LoadError(
            f"the load host cannot make the load: {completed.error_text}",
            hint=f"install it there: {install}",
        )
    return completed.stdout if completed.stdout.strip() else completed.error_text
