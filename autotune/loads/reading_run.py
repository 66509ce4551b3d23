"""Taking one reading: every process started together, every intended request counted once.

A reading has two parts. The ramp-in offers the same load for ``spec.ramp`` seconds and is not
counted: httperf prints one histogram for all it did, so its first second cannot be taken out
afterwards. If most of the ramp-in failed, the counted part is never offered, and the ramp-in is the
result, as a truncated reading. It gives up requests after ``RAMP_TIMEOUT_LIMITS`` latency limits, so a
clear
overload ends within about a second. The counted part starts when the ramp-in's last answer is there,
milliseconds after its last request if the stack keeps up (a queue long enough to matter would make
answers late). From then on the generator bounds the queue that can build up (``httperf``), and
``spec.seconds`` the time.

The result of a ramp-in shorter than ``MIN_CHECKED_RAMP`` is ignored: the stack has just carried about
this rate. The counted part is then started together with the ramp-in, by processes of its own that begin
when it ends, so that load never stops and nothing is waited for in between. What the ramp-in sent is in
no count.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from autotune.loads import load_host, probes, start_times
from autotune.loads.answer_validation import AnswerInspection, AnswerValidator
from autotune.loads.base import (
    NO_PORT_ERROR,
    LoadError,
    LoadGenerator,
    LoadResult,
    LoadSpec,
    sum_results,
)
from autotune.loads.load_commands import LoadCommand, check_rate, compute_highest_rate, run_together
from autotune.transports.base import CommandResult, Transport
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.request import Request

MIN_CHECKED_RAMP = 0.5  # seconds
RUNAWAY_ERROR_SHARE = 0.25  # fraction of a ramp-in's requests in error that ends the reading …
RUNAWAY_VIOLATION_SHARE = 0.7  # … and of those in error or late
RAMP_TIMEOUT_LIMITS = 10.0  # latency limits after which the ramp-in gives up a request
TIMEOUT_MARGIN_SECONDS = (
    10.0  # seconds a transport waits beyond the bound that a process keeps by itself
)
LOW_RATE_MESSAGE = "has no whole request in a reading at this rate: raise the rate"
EMPTY_INSPECTION = AnswerInspection()  # has been looked at
MAX_SEEDS = 1 << 16  # places in a list of pages where a look begins
MISSING_STATUSES = (126, 127)  # how ``timeout`` says that it could not start the program


@dataclass(frozen=True)
class ValidationContext:
    """How answers are validated, and what was looked at before at lower rates."""

    validator: AnswerValidator
    earlier_inspection: AnswerInspection


def take_reading(
    load: LoadGenerator,
    request: Request,
    spec: LoadSpec,
    *transports: Transport,
    max_rate: float,
    validator: AnswerValidator | None = None,
    earlier_inspection: AnswerInspection = EMPTY_INSPECTION,
) -> LoadResult:
    """Offer ``spec`` from all load hosts together and count what came of it.

    ``validator`` decides which answers are right. Without it, the body that the request expects does,
    if it expects one. ``earlier_inspection`` is what was looked at before at lower rates.

    Raises RateTooHigh for a rate that makes more than ``max_rate`` requests/s, HostUnreachable when a
    load host is lost, LoadError when it lacks the generator.
    """
    check_rate(spec.rate * load.requests_per_iteration, max_rate)
    spec = replace(spec, max_rate=max_rate)
    looking = ValidationContext(
        validator
        or (
            AnswerValidator.for_exact_body(request)
            if request.expected_body
            else AnswerValidator(())
        ),
        earlier_inspection,
    )
    short = (
        None
        if load.limits.keeps_connections
        else load_host.find_port_shortage(transports, request, spec)
    )
    if short:
        return LoadResult.not_sent(spec.request_count, str(short), NO_PORT_ERROR)
    gentle = min(spec.timeout, RAMP_TIMEOUT_LIMITS * spec.latency_limit)
    ramp = replace(spec, seconds=spec.ramp_seconds, timeout=gentle)
    # At a lower rate no request is due before the counted ones.
    ramped_up = spec.rate * spec.ramp_seconds >= 1
    if ramped_up and spec.ramp_seconds < MIN_CHECKED_RAMP:
        moments = _agree_start_times(transports)
        with ThreadPoolExecutor(1) as pool:
            ramping = pool.submit(_run_load, load, request, ramp, transports, moments)
            result = _run_counted(
                load, request, spec, transports, moments, looking, delay_seconds=spec.ramp_seconds
            )
            ramping.result()  # raises what the ramp-in raised
            return result
    if ramped_up:
        ramped, _ = _run_load(load, request, ramp, transports, _agree_start_times(transports))
        if ramped.limited is None and has_run_away(ramped, spec.latency_limit):
            return replace(ramped, truncated=True)
    return _run_counted(load, request, spec, transports, _agree_start_times(transports), looking)


def inspect_generator(load: LoadGenerator, transports: Sequence[Transport]) -> None:
    """Let the generator check what it will run. Raises LoadError with the reason if it refuses."""
    if inspection := load.inspection_command():
        argv, text = inspection
        ran = run_on_all(
            transports, lambda host: host.run(argv, input=text, timeout=180.0)
        ).unwrap()
        for name, answer in ran.items():
            if answer.returncode:
                raise LoadError(
                    f"{load.name} on {name} refuses the load: {answer.error_text[:300]}"
                )


def count_requests(
    load: LoadGenerator, request: Request, host: Transport, max_rate: float
) -> LoadGenerator:
    """The load, with how many requests a unit of its rate makes at most: a slow run shows it, if need be.

    Raises LoadError if it cannot be run.
    """
    process = load.counting_process(request, max_rate)
    if process is None:
        return load
    timeout = process.stop_seconds + TIMEOUT_MARGIN_SECONDS
    command = LoadCommand(
        host, process.argv, process.max_rate, 0.0, process.span_seconds, timeout, process.input
    )
    (done,) = run_together([command], max_rate)
    return load.with_counted_requests(_require_output(done, _describe_installation(load)))


def _agree_start_times(transports: Sequence[Transport]) -> Mapping[str, int]:
    """When each load host starts; processes on one host do within a millisecond anyway."""
    return start_times.agree_start_times(transports) if len(transports) > 1 else {}


def _run_counted(
    load: LoadGenerator,
    request: Request,
    spec: LoadSpec,
    transports: Sequence[Transport],
    moments: Mapping[str, int],
    validation: ValidationContext,
    *,
    delay_seconds: float = 0.0,
) -> LoadResult:
    """The part that counts, with a look at whole answers, whose requests are a part of the rate."""
    validator = validation.validator
    count = validator.count_probes(spec)
    if not count:
        return _run_load(load, request, spec, transports, moments, delay_seconds=delay_seconds)[0]
    pages = validator.choose_pages(count, secrets.randbelow(MAX_SEEDS))
    look = build_inspection_command(validator, pages, request, spec)
    command = LoadCommand(
        transports[0],
        start_times.delay_command(delay_seconds, look.argv),
        look.max_rate,
        start=delay_seconds,
        end=delay_seconds + look.span_seconds,
        timeout=delay_seconds + look.stop_seconds,
        input=look.input,
    )
    room, each = spec.max_rate - look.max_rate, load.requests_per_iteration
    # A look that is a trace of the load takes nothing from it, unless the limit is near.
    rate = min(spec.rate, room / each) if validator.is_exact else spec.rate - look.max_rate / each
    reduced_spec = replace(spec, rate=rate, max_rate=room)
    result, printed = _run_load(
        load,
        request,
        reduced_spec,
        transports,
        moments,
        delay_seconds=delay_seconds,
        other_commands=[command],
    )
    if not printed or result.limited:
        return result  # it says nothing about the server
    answers = probes.parse_answers(printed[0], look.requests)
    return validator.reclassify(
        result, validator.inspect(pages, answers), validation.earlier_inspection
    )


def build_inspection_command(
    validator: AnswerValidator, pages: Sequence[int], request: Request, spec: LoadSpec
) -> probes.ProbeCommand:
    """What requests ``pages``, of each entry in turn, spread over the reading."""
    entries = itertools.cycle(request.per_endpoint())
    return probes.build_command(
        [
            validator.pages[page].build_request(entry)
            for page, entry in zip(pages, entries, strict=False)
        ],
        per_second=len(pages) / spec.seconds,
        timeout=spec.timeout,
        expected_seconds=spec.latency_limit / 2,
        whole_bodies=validator.reads_whole_bodies,
    )


def has_run_away(result: LoadResult, limit: float) -> bool:
    """Whether more load would only confirm that the server fails; ``limit`` in seconds."""
    violations = result.error_count + result.count_later_than(limit)
    return (
        result.error_count > RUNAWAY_ERROR_SHARE * result.intended
        or violations > RUNAWAY_VIOLATION_SHARE * result.intended
    )


def _run_load(
    load: LoadGenerator,
    request: Request,
    spec: LoadSpec,
    transports: Sequence[Transport],
    moments: Mapping[str, int],
    *,
    delay_seconds: float = 0.0,
    other_commands: Sequence[LoadCommand] = (),
) -> tuple[LoadResult, list[CommandResult]]:
    """All processes of ``spec``, dealt out to the hosts in turn and started together, ``delay_seconds``
    seconds from now or from the ``moments`` that the hosts agreed on.

    Every entry gets an equal share, by processes of its own; with fewer requests than entries, as many
    entries get one. Returns the results of the commands ``other_commands`` too, which start with the
    others.
    """
    entries = request.per_endpoint()[: max(1, int(spec.rate * spec.seconds))]
    shares = [spec.split(location, len(entries)) for location in range(len(entries))]
    parts = [
        (process, entry, share)
        for entry, share in zip(entries, shares, strict=True)
        for process in load.build_processes(entry, share, len(transports))
    ]
    if not parts:
        return LoadResult.not_sent(spec.request_count, f"{load.name} {LOW_RATE_MESSAGE}"), []
    hosts = itertools.cycle(transports)
    commands = [
        LoadCommand(
            host,
            start_times.start_command_at(
                moments[host.name] + round(1e9 * delay_seconds), process.argv
            )
            if moments
            else start_times.delay_command(delay_seconds, process.argv),
            process.max_rate,
            start=delay_seconds,
            end=delay_seconds + process.span_seconds,
            timeout=delay_seconds + process.stop_seconds + TIMEOUT_MARGIN_SECONDS,
            input=process.input,
        )
        for (process, _, _), host in zip(parts, hosts, strict=False)
    ]
    done = run_together(
        [*commands, *other_commands], spec.max_rate + compute_highest_rate(other_commands)
    )
    install = _describe_installation(load)
    results = (
        load.parse_checked(process, _require_output(answer, install), entry, share)
        for (process, entry, share), answer in zip(parts, done, strict=False)
    )
    return sum_results(results), done[len(parts) :]


def _describe_installation(load: LoadGenerator) -> str:
    return load.package_source or f"sudo apt-get install {' '.join(load.packages)}"


def _require_output(completed: CommandResult, install_hint: str) -> str:
    """Standard output, or the last words of a program that printed nothing there."""
    if completed.returncode in MISSING_STATUSES:
        raise LoadError(
            f"the load host cannot make the load: {completed.error_text}",
            hint=f"install it there: {install_hint}",
        )
    return completed.stdout if completed.stdout.strip() else completed.error_text
