"""Take one reading: all processes start together, and every intended request is counted exactly
once.

A reading has two phases, the ramp-up and the counted phase. The ramp-up offers the same load for
``spec.ramp_seconds``. The ramp-up needs separate processes, because httperf prints one histogram for a
whole run. If most requests of the ramp-up failed, the counted phase is not started, and the truncated
result of the ramp-up is returned. The ramp-up abandons requests after ``RAMP_TIMEOUT_LIMITS`` latency
limits, so a clearly overloaded ramp-up ends within about a second. The counted phase starts after the
last response of the ramp-up. If the stack keeps up, the pause between the phases lasts milliseconds.
During the counted phase, the generator limits the queue (see ``httperf``), and ``spec.seconds`` limits
the time.

If the ramp-up is shorter than ``MIN_CHECKED_RAMP``, its result is ignored, because the stack has
just sustained about this rate. Processes for the counted phase then start together with the ramp-up,
and send load when the ramp-up ends. The load therefore continues without a pause between the two
phases. Requests in the ramp-up are never counted.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.loads import load_host, probes, start_times
from autotune.loads.answer_validation import AnswerInspection, AnswerValidator
from autotune.loads.base import (
    LOW_RATE_ERROR,
    NO_PORT_ERROR,
    LoadError,
    LoadGenerator,
    LoadProcess,
    LoadResult,
    LoadSpec,
    WrongAnswers,
    sum_results,
)
from autotune.loads.load_commands import LoadCommand, check_rate, run_together
from autotune.transports.base import CommandResult, Transport
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.request import Request

MIN_CHECKED_RAMP = 0.5  # seconds; the result of a shorter ramp-up is ignored
RUNAWAY_ERROR_SHARE = 0.25  # a larger share of errors in a ramp-up ends the reading
# a larger share of errors and late responses in a ramp-up ends the reading
RUNAWAY_VIOLATION_SHARE = 0.7
# time after which the ramp-up abandons a request, as a multiple of the latency limit
RAMP_TIMEOUT_LIMITS = 10.0
TIMEOUT_MARGIN_SECONDS = 10.0  # time that a transport waits beyond a process's own time limit
LOW_RATE_MESSAGE = "sends no complete request in a reading at this rate: raise the rate"
EMPTY_INSPECTION = AnswerInspection()
MAX_SEEDS = 1 << 16  # number of start positions for samples in a list of pages


@dataclass(frozen=True)
class AnswerSample:
    """Requests for complete responses, which ``command`` sends during a reading.

    ``pages`` contains the index of the validator's page for each request.
    ``earlier_inspection`` is the sample at lower rates. ``with_incomplete`` is true if the generator does
    not detect incomplete bodies.
    """

    validator: AnswerValidator
    pages: Sequence[int]
    command: probes.ProbeCommand
    earlier_inspection: AnswerInspection
    with_incomplete: bool

    def find_wrong_answers(self, result: LoadResult, output: CommandResult) -> WrongAnswers:
        """Return the wrong responses in ``result`` that the output of the command reveals."""
        answers = probes.parse_answers_under_load(
            output, self.command, with_incomplete=self.with_incomplete
        )
        # The requests contain the correct statuses of all pages, even of pages without a reference.
        accepted_classes = {status // 100 for status in self.command.requests[0].statuses}
        inspection = self.validator.inspect_answers(self.pages, answers, accepted_classes)
        return self.validator.find_wrong_answers(result, inspection, self.earlier_inspection)


def take_reading(
    load: LoadGenerator,
    request: Request,
    spec: LoadSpec,
    *transports: Transport,
    max_rate: float,
    validator: AnswerValidator | None = None,
    earlier_inspection: AnswerInspection = EMPTY_INSPECTION,
    on_start: Callable[[float], None] = lambda _: None,
) -> LoadResult:
    """Offer ``spec`` from all load hosts together and count the results.

    ``validator`` decides which responses are correct. Without a validator, only the expected body of
    the request is checked, if it is set. ``earlier_inspection`` is the sample at lower rates.
    ``on_start`` is called with the planned seconds of load just before load starts: once, or again after
    a checked ramp-up.

    Raises RateTooHigh if ``spec`` would make more than ``max_rate`` requests/s, HostUnreachable if
    a load host is lost, and LoadError if a host lacks the generator.
    """
    check_rate(spec.rate * load.requests_per_iteration, max_rate)
    spec = replace(spec, max_rate=max_rate)
    if not load.limits.keeps_connections and (
        shortage := load_host.find_port_shortage(transports, request, spec)
    ):
        return LoadResult.build_unsent_result(spec.request_count, str(shortage), NO_PORT_ERROR)
    load_run = _LoadRun(load, request, transports, max_rate, on_start)
    ramp_timeout = min(spec.timeout, RAMP_TIMEOUT_LIMITS * spec.latency_limit)
    ramp_spec = replace(spec, seconds=spec.ramp_seconds, timeout=ramp_timeout)
    # If less than one request is due in the ramp-up, there is no ramp-up.
    has_ramp = spec.rate * spec.ramp_seconds >= 1
    is_ramp_checked = has_ramp and spec.ramp_seconds >= MIN_CHECKED_RAMP
    if is_ramp_checked:
        ramp_result = load_run.offer_load(ramp_spec)
        if ramp_result.limited is None and has_run_away(ramp_result, spec.latency_limit):
            return replace(ramp_result, truncated=True)
    if sample := _plan_sample(load, validator, request, spec, earlier_inspection):
        requests_per_iteration, sample_rate = load.requests_per_iteration, sample.command.max_rate
        # If the correct body is known, the few sampled requests are added to the load, unless the total
        # would exceed the maximum rate.
        rate = (
            spec.rate
            if sample.validator.is_exact
            else spec.rate - sample_rate / requests_per_iteration
        )
        remaining_rate = max_rate - sample_rate
        spec = replace(
            spec, rate=min(rate, remaining_rate / requests_per_iteration), max_rate=remaining_rate
        )
    unchecked_ramp = ramp_spec if has_ramp and not is_ramp_checked else None
    return load_run.offer_load(spec, unchecked_ramp, sample)


def _plan_sample(
    load: LoadGenerator,
    validator: AnswerValidator | None,
    request: Request,
    spec: LoadSpec,
    earlier_inspection: AnswerInspection,
) -> AnswerSample | None:
    """Return the sample of requests for a reading, or ``None`` if no response can be validated."""
    if validator is None:
        has_body = bool(request.expected_body)
        validator = AnswerValidator.for_exact_body(request) if has_body else AnswerValidator(())
    probe_count = validator.count_probes(spec)
    if not probe_count:
        return None
    if not validator.is_exact:
        extended_count = _extend_sample(load, request, spec, probe_count)
        probe_count = min(extended_count, max(probe_count, validator.max_probe_count))
    pages = validator.choose_pages(probe_count, secrets.randbelow(MAX_SEEDS))
    # Responses that arrive later than the latency limit count as late anyway.
    overrun_seconds = min(spec.latency_limit, spec.timeout)
    command = build_inspection_command(validator, pages, request, spec, overrun_seconds)
    return AnswerSample(
        validator, pages, command, earlier_inspection, load.counts_incomplete_bodies
    )


def _extend_sample(load: LoadGenerator, request: Request, spec: LoadSpec, probe_count: int) -> int:
    """Return the number of sampled requests, at least ``probe_count``, that leaves a rate that the
    generator can send.

    For example, oha sends only whole rates to each entry.
    """
    requests_per_rate = spec.seconds * load.requests_per_iteration
    entry_count = len(request.per_endpoint())
    remaining_rate = (spec.rate - probe_count / requests_per_rate) / entry_count
    sent_rate = entry_count * load.round_rate(remaining_rate, remaining_rate)
    return round((spec.rate - sent_rate) * requests_per_rate)


@dataclass(frozen=True)
class _LoadShare:
    """A process that sends a share of the load to one entry, and the command that starts it."""

    process: LoadProcess
    entry: Request
    spec: LoadSpec
    command: LoadCommand


@dataclass(frozen=True)
class _LoadRun:
    """A load, and the hosts that together offer at most ``max_rate`` requests/s of it.

    ``on_start`` is called with the planned seconds of load just before load starts.
    """

    load: LoadGenerator
    request: Request
    transports: Sequence[Transport]
    max_rate: float
    on_start: Callable[[float], None]

    def offer_load(
        self,
        spec: LoadSpec,
        unchecked_ramp: LoadSpec | None = None,
        sample: AnswerSample | None = None,
    ) -> LoadResult:
        """Run the processes for ``spec`` and the requests of ``sample``, and return the result.

        Processes start together. Those for ``spec`` and ``sample`` wait until ``unchecked_ramp`` ends.
        """
        host_start_times = (
            start_times.agree_start_times(self.transports) if len(self.transports) > 1 else {}
        )
        delay = unchecked_ramp.seconds if unchecked_ramp else 0.0
        ramp_shares = self._build_shares(unchecked_ramp, host_start_times) if unchecked_ramp else []
        shares = self._build_shares(spec, host_start_times, delay)
        if not shares:
            reason = f"{self.load.name} {LOW_RATE_MESSAGE}"
            return LoadResult.build_unsent_result(spec.request_count, reason, LOW_RATE_ERROR)
        commands = [share.command for share in (*ramp_shares, *shares)]
        if sample:
            # If it started before the load of other hosts, both together could exceed the maximum rate.
            command, host = sample.command, self.transports[0]
            commands.append(
                LoadCommand(
                    host,
                    start_times.delay_command(delay, command.argv, host_start_times.get(host.name)),
                    command.max_rate,
                    start=delay,
                    end=delay + command.span_seconds,
                    timeout=delay + command.stop_seconds,
                    input=command.input,
                )
            )
        self.on_start(delay + spec.seconds)
        outputs = run_together(commands, self.max_rate)[len(ramp_shares) :]
        for output in outputs[: len(shares)]:
            _check_started(output, self.load)
        result = sum_results(
            self.load.parse_checked(share.process, output.text, share.entry, share.spec)
            for share, output in zip(shares, outputs, strict=False)  # the sample is the last output
        )
        if sample is None or result.limited:
            return result  # a limited result does not describe the server
        return result.reclassify(sample.find_wrong_answers(result, outputs[-1]))

    def _build_shares(
        self, spec: LoadSpec, host_start_times: Mapping[str, int], delay_seconds: float = 0.0
    ) -> list[_LoadShare]:
        """Return the processes for ``spec``, distributed over the hosts.

        The processes send load after ``delay_seconds``, counted from now or from the hosts' agreed
        start times. Separate processes send an equal share of the load to each entry. If there are
        fewer requests than entries, some entries get no requests.
        """
        entry_requests = self.request.per_endpoint()[: max(1, int(spec.rate * spec.seconds))]
        hosts, entry_count = itertools.cycle(self.transports), len(entry_requests)
        shares: list[_LoadShare] = []
        for index, entry_request in enumerate(entry_requests):
            share_spec = replace(
                spec,
                rate=spec.rate / entry_count,
                max_rate=spec.max_rate / entry_count,
                seed=None if spec.seed is None else spec.seed * entry_count + index,
            )
            for process in self.load.build_processes(
                entry_request, share_spec, len(self.transports)
            ):
                host = next(hosts)
                command = LoadCommand(
                    host,
                    start_times.delay_command(
                        delay_seconds, process.argv, host_start_times.get(host.name)
                    ),
                    process.max_rate,
                    start=delay_seconds,
                    end=delay_seconds + process.span_seconds,
                    timeout=delay_seconds + process.stop_seconds + TIMEOUT_MARGIN_SECONDS,
                    input=process.input,
                )
                shares.append(_LoadShare(process, entry_request, share_spec, command))
        return shares


def inspect_generator(load: LoadGenerator, transports: Sequence[Transport]) -> None:
    """Let the generator check its input on the load hosts. Raises LoadError if the generator rejects
    the input.
    """
    if inspection_command := load.inspection_command():
        argv, standard_input = inspection_command
        results = run_on_all(
            transports, lambda host: host.run(argv, input=standard_input, timeout=180.0)
        ).unwrap()
        for host_name, result in results.items():
            if result.returncode:
                raise LoadError(
                    f"{load.name} on {host_name} refuses the load: {result.error_text[:300]}"
                )


def count_requests(
    load: LoadGenerator, request: Request, host: Transport, max_rate: float
) -> LoadGenerator:
    """Return the generator with its number of requests per iteration. If the number is unknown, a
    slow run counts the requests.

    Raises LoadError if the generator cannot run the load.
    """
    process = load.counting_process(request, max_rate)
    if process is None:
        return load
    timeout = process.stop_seconds + TIMEOUT_MARGIN_SECONDS
    command = LoadCommand(
        host, process.argv, process.max_rate, 0.0, process.span_seconds, timeout, process.input
    )
    (completed,) = run_together([command], max_rate)
    _check_started(completed, load)
    return load.with_counted_requests(completed.text)


def build_inspection_command(
    validator: AnswerValidator,
    page_indices: Sequence[int],
    request: Request,
    spec: LoadSpec,
    overrun_seconds: float | None = None,
) -> probes.ProbeCommand:
    """Return a command that requests the pages ``page_indices``, spread over the reading. The entries
    of the stack take turns.

    The command stops ``overrun_seconds`` after the reading, by default the timeout of a request.
    """
    entry_requests = itertools.cycle(request.per_endpoint())
    return probes.build_command(
        [
            validator.pages[page].build_request(entry_request)
            for page, entry_request in zip(page_indices, entry_requests, strict=False)
        ],
        per_second=len(page_indices) / spec.seconds,
        timeout=spec.timeout,
        expected_seconds=spec.latency_limit / 2,
        overrun_seconds=overrun_seconds,
        whole_bodies=validator.reads_whole_bodies,
    )


def has_run_away(result: LoadResult, latency_limit: float) -> bool:
    """True if the server has clearly failed under the load. ``latency_limit`` is in seconds."""
    violations = result.error_count + result.count_later_than(latency_limit)
    return (
        result.error_count > RUNAWAY_ERROR_SHARE * result.intended
        or violations > RUNAWAY_VIOLATION_SHARE * result.intended
    )


def _check_started(completed: CommandResult, load: LoadGenerator) -> None:
    """Raise LoadError if the load host cannot run the generator."""
    if completed.returncode in probes.MISSING_STATUSES:
        installation_source = (
            load.package_source or f"sudo apt-get install {' '.join(load.packages)}"
        )
        raise LoadError(
            f"the load host cannot run the generator: {completed.error_text}",
            hint=f"install it there: {installation_source}",
        )
