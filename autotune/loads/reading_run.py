"""Take one reading: all processes start together, and every intended request is counted exactly
once.

A reading has two phases. The ramp-up offers the same load for ``spec.ramp_seconds`` and is not counted.
httperf prints one histogram for its whole run, so the first second could not be removed afterwards. If
most requests of the ramp-up failed, the counted phase is never sent, and the ramp-up is the result, as a
truncated reading. The ramp-up abandons requests after ``RAMP_TIMEOUT_LIMITS`` latency limits, so a
clearly overloaded ramp-up ends within about a second. The counted phase starts after the last response
of the ramp-up. If the stack keeps up, it starts milliseconds after the last request of the ramp-up.
During the counted phase, the generator limits the queue that can build up (see ``httperf``), and
``spec.seconds`` limits the time.

If the ramp-up is shorter than ``MIN_CHECKED_RAMP``, its result is ignored, because the stack has
just sustained about this rate. Separate processes for the counted phase then start together with
the ramp-up, and send load when it ends. The load therefore continues without a pause between both
phases. Requests in the ramp-up are never counted.
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
    LoadProcess,
    LoadResult,
    LoadSpec,
    sum_results,
)
from autotune.loads.load_commands import LoadCommand, check_rate, compute_highest_rate, run_together
from autotune.transports.base import CommandResult, Transport
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.request import Request

MIN_CHECKED_RAMP = 0.5  # seconds; the result of a shorter ramp-up is ignored
RUNAWAY_ERROR_SHARE = 0.25  # share of a ramp-up's requests; more errors end the reading
# share of a ramp-up's requests; more errors and late responses end the reading
RUNAWAY_VIOLATION_SHARE = 0.7
RAMP_TIMEOUT_LIMITS = 10.0  # the ramp-up gives up on a request after this many latency limits
TIMEOUT_MARGIN_SECONDS = 10.0  # time that a transport waits beyond a process's own time limit
LOW_RATE_MESSAGE = "sends no complete request in a reading at this rate: raise the rate"
EMPTY_INSPECTION = AnswerInspection()
MAX_SEEDS = 1 << 16  # number of start positions for samples in a list of pages
MISSING_STATUSES = (126, 127)  # exit statuses of ``timeout`` if it cannot start the program


@dataclass(frozen=True)
class ValidationContext:
    """The validator of responses, and the earlier sample at lower rates."""

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
    """Offer ``spec`` from all load hosts together and count the results.

    ``validator`` decides which responses are correct. Without it, the expected body in the request
    decides, if it is set. ``earlier_inspection`` is the sample at lower rates.

    Raises RateTooHigh if ``spec`` would make more than ``max_rate`` requests/s, HostUnreachable if
    a load host is lost, and LoadError if a host lacks the generator.
    """
    check_rate(spec.rate * load.requests_per_iteration, max_rate)
    spec = replace(spec, max_rate=max_rate)
    validation_context = ValidationContext(
        validator
        or (
            AnswerValidator.for_exact_body(request)
            if request.expected_body
            else AnswerValidator(())
        ),
        earlier_inspection,
    )
    shortage = (
        None
        if load.limits.keeps_connections
        else load_host.find_port_shortage(transports, request, spec)
    )
    if shortage:
        return LoadResult.build_unsent_result(spec.request_count, str(shortage), NO_PORT_ERROR)
    return _LoadRun(load, request, transports, validation_context).take_reading(spec)


@dataclass(frozen=True)
class _LoadRun:
    """A load and the hosts that offer it together. In its methods, ``host_start_times`` are the hosts'
    agreed start times.
    """

    load: LoadGenerator
    request: Request
    transports: Sequence[Transport]
    validation: ValidationContext

    def take_reading(self, spec: LoadSpec) -> LoadResult:
        """Offer the ramp-up, unless it is too short to contain a request, and the counted phase."""
        ramp_timeout = min(spec.timeout, RAMP_TIMEOUT_LIMITS * spec.latency_limit)
        ramp_spec = replace(spec, seconds=spec.ramp_seconds, timeout=ramp_timeout)
        # At a lower rate, no request would be due in the ramp-up.
        has_ramp = spec.rate * spec.ramp_seconds >= 1
        if has_ramp and spec.ramp_seconds < MIN_CHECKED_RAMP:
            return self._run_after_unchecked_ramp(ramp_spec, spec)
        if has_ramp:
            ramp_result, _ = self._run_load(ramp_spec, _agree_start_times(self.transports))
            if ramp_result.limited is None and has_run_away(ramp_result, spec.latency_limit):
                return replace(ramp_result, truncated=True)
        return self._run_counted_load(spec, _agree_start_times(self.transports))

    def _run_after_unchecked_ramp(self, ramp_spec: LoadSpec, spec: LoadSpec) -> LoadResult:
        """Start the ramp-up and the counted phase together, and return the counted result. The
        processes of the counted phase wait until the ramp ends.
        """
        host_start_times = _agree_start_times(self.transports)
        with ThreadPoolExecutor(1) as pool:
            ramp_run = pool.submit(self._run_load, ramp_spec, host_start_times)
            result = self._run_counted_load(spec, host_start_times, delay_seconds=spec.ramp_seconds)
            ramp_run.result()  # raises the ramp-up's errors
            return result

    def _run_counted_load(
        self, spec: LoadSpec, host_start_times: Mapping[str, int], *, delay_seconds: float = 0.0
    ) -> LoadResult:
        """Run the counted phase, and sample complete responses. The rate includes the sampled
        requests.
        """
        validator = self.validation.validator
        count = validator.count_probes(spec)
        if not count:
            return self._run_load(spec, host_start_times, delay_seconds=delay_seconds)[0]
        page_indices = validator.choose_pages(count, secrets.randbelow(MAX_SEEDS))
        probe = build_inspection_command(validator, page_indices, self.request, spec)
        command = LoadCommand(
            self.transports[0],
            start_times.delay_command(delay_seconds, probe.argv),
            probe.max_rate,
            start=delay_seconds,
            end=delay_seconds + probe.span_seconds,
            timeout=delay_seconds + probe.stop_seconds,
            input=probe.input,
        )
        result, other_results = self._run_load(
            self._reduce_for_probe(spec, probe.max_rate),
            host_start_times,
            delay_seconds=delay_seconds,
            other_commands=[command],
        )
        if not other_results or result.limited:
            return result  # a limited result does not describe the server
        answers = probes.parse_answers(other_results[0], probe.requests)
        return validator.reclassify(
            result,
            validator.inspect_answers(page_indices, answers),
            self.validation.earlier_inspection,
        )

    def _reduce_for_probe(self, spec: LoadSpec, probe_rate: float) -> LoadSpec:
        """Return ``spec`` with its rates reduced by the sample's rate.

        If the correct body is known, the small sample does not reduce the load, unless the total
        would exceed the maximum rate.
        """
        max_rate, requests_per_iteration = (
            spec.max_rate - probe_rate,
            self.load.requests_per_iteration,
        )
        is_exact = self.validation.validator.is_exact
        rate = (
            min(spec.rate, max_rate / requests_per_iteration)
            if is_exact
            else spec.rate - probe_rate / requests_per_iteration
        )
        return replace(spec, rate=rate, max_rate=max_rate)

    def _run_load(
        self,
        spec: LoadSpec,
        host_start_times: Mapping[str, int],
        *,
        delay_seconds: float = 0.0,
        other_commands: Sequence[LoadCommand] = (),
    ) -> tuple[LoadResult, list[CommandResult]]:
        """Run all processes for ``spec``, distributed over the hosts and started together.

        The processes start after ``delay_seconds``, counted from now or from the agreed
        ``host_start_times``. Every entry gets an equal share, from separate processes. If there are
        fewer requests than entries, some entries get no requests. ``other_commands`` start at the
        same time, and their results are returned as well.
        """
        entries = self.request.per_endpoint()[: max(1, int(spec.rate * spec.seconds))]
        shares = [spec.split(index, len(entries)) for index in range(len(entries))]
        processes = [
            (process, entry, share)
            for entry, share in zip(entries, shares, strict=True)
            for process in self.load.build_processes(entry, share, len(self.transports))
        ]
        if not processes:
            reason = f"{self.load.name} {LOW_RATE_MESSAGE}"
            return LoadResult.build_unsent_result(spec.request_count, reason), []
        hosts = itertools.cycle(self.transports)
        commands = [
            _build_load_command(process, host, host_start_times, delay_seconds)
            for (process, _, _), host in zip(processes, hosts, strict=False)
        ]
        command_results = run_together(
            [*commands, *other_commands], spec.max_rate + compute_highest_rate(other_commands)
        )
        install_hint = _describe_installation(self.load)
        results = (
            self.load.parse_checked(
                process, _require_output(command_result, install_hint), entry, share
            )
            for (process, entry, share), command_result in zip(
                processes, command_results, strict=False
            )
        )
        return sum_results(results), command_results[len(processes) :]


def _build_load_command(
    process: LoadProcess, host: Transport, host_start_times: Mapping[str, int], delay_seconds: float
) -> LoadCommand:
    """Return the command that starts a process ``delay_seconds`` from now, or after the host's
    agreed start time.
    """
    return LoadCommand(
        host,
        start_times.start_command_at(
            host_start_times[host.name] + round(1e9 * delay_seconds), process.argv
        )
        if host_start_times
        else start_times.delay_command(delay_seconds, process.argv),
        process.max_rate,
        start=delay_seconds,
        end=delay_seconds + process.span_seconds,
        timeout=delay_seconds + process.stop_seconds + TIMEOUT_MARGIN_SECONDS,
        input=process.input,
    )


def inspect_generator(load: LoadGenerator, transports: Sequence[Transport]) -> None:
    """Run the generator's check of its input on the load hosts. Raises LoadError with the reason if
    the generator rejects the input.
    """
    if inspection_command := load.inspection_command():
        argv, standard_input = inspection_command
        results = run_on_all(
            transports, lambda host: host.run(argv, input=standard_input, timeout=180.0)
        ).unwrap()
        for name, result in results.items():
            if result.returncode:
                raise LoadError(
                    f"{load.name} on {name} refuses the load: {result.error_text[:300]}"
                )


def count_requests(
    load: LoadGenerator, request: Request, host: Transport, max_rate: float
) -> LoadGenerator:
    """Return the generator with its number of requests per iteration. If the number is unknown, a
    slow run counts the requests.

    Raises LoadError if the load cannot be run.
    """
    process = load.counting_process(request, max_rate)
    if process is None:
        return load
    timeout = process.stop_seconds + TIMEOUT_MARGIN_SECONDS
    command = LoadCommand(
        host, process.argv, process.max_rate, 0.0, process.span_seconds, timeout, process.input
    )
    (command_result,) = run_together([command], max_rate)
    return load.with_counted_requests(_require_output(command_result, _describe_installation(load)))


def _agree_start_times(transports: Sequence[Transport]) -> Mapping[str, int]:
    """Return the start time for each load host. The result is empty for a single host, whose
    processes start together without an agreed time.
    """
    return start_times.agree_start_times(transports) if len(transports) > 1 else {}


def build_inspection_command(
    validator: AnswerValidator, page_indices: Sequence[int], request: Request, spec: LoadSpec
) -> probes.ProbeCommand:
    """Return a command that requests ``page_indices`` from each entry in order, spread over the
    reading.
    """
    entries = itertools.cycle(request.per_endpoint())
    return probes.build_command(
        [
            validator.pages[page].build_request(entry)
            for page, entry in zip(page_indices, entries, strict=False)
        ],
        per_second=len(page_indices) / spec.seconds,
        timeout=spec.timeout,
        expected_seconds=spec.latency_limit / 2,
        whole_bodies=validator.reads_whole_bodies,
    )


def has_run_away(result: LoadResult, latency_limit: float) -> bool:
    """True if more load would only confirm that the server fails. ``latency_limit`` is in seconds."""
    violations = result.error_count + result.count_later_than(latency_limit)
    return (
        result.error_count > RUNAWAY_ERROR_SHARE * result.intended
        or violations > RUNAWAY_VIOLATION_SHARE * result.intended
    )


def _describe_installation(load: LoadGenerator) -> str:
    return load.package_source or f"sudo apt-get install {' '.join(load.packages)}"


def _require_output(command_result: CommandResult, install_hint: str) -> str:
    """Return standard output, or the error text if there is none. Raises LoadError if the program
    cannot run.
    """
    if command_result.returncode in MISSING_STATUSES:
        raise LoadError(
            f"the load host cannot run the generator: {command_result.error_text}",
            hint=f"install it there: {install_hint}",
        )
    return command_result.stdout if command_result.stdout.strip() else command_result.error_text
