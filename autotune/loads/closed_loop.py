"""Run a closed loop against the entry of a stack, with a concurrent sample of complete
responses.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from autotune.loads import probes
from autotune.loads.answer_validation import (
    MAX_PROBE_RATE,
    MAX_PROBE_SHARE,
    WRONG_ANSWER,
    AnswerInspection,
    AnswerValidator,
    LoadPage,
)
from autotune.loads.base import LoadSpec
from autotune.loads.closed_load import ClosedLoopCeiling, ClosedLoopClients, ClosedLoopGenerator
from autotune.loads.load_commands import UNKNOWN_RATE, LoadCommand, run_together
from autotune.loads.reading_run import build_inspection_command
from autotune.transports.base import Transport
from autotune.transports.request import Request

TIMEOUT_MARGIN_SECONDS = 15.0  # time that a transport waits beyond a program's own time limit


def run_closed_loop(
    load: ClosedLoopGenerator,
    request: Request,
    clients: ClosedLoopClients,
    host: Transport,
    validator: AnswerValidator,
) -> ClosedLoopCeiling:
    """Return the throughput ceiling that closed-loop ``clients`` reach. Responses that
    ``validator`` rejects count as errors.

    If the generator is paced, clients and samples together stay below ``clients.max_rate``. Raises
    HostUnreachable.
    """
    pages = tuple(page for page in validator.pages if _is_requested_page(page, request))
    validator = AnswerValidator(pages)
    spec = LoadSpec(
        min(clients.max_rate, MAX_PROBE_RATE / MAX_PROBE_SHARE), clients.seconds, clients.timeout
    )
    page_indices = validator.choose_pages(validator.count_probes(spec))
    probe_commands = (
        [build_inspection_command(validator, page_indices, request, spec)] if page_indices else []
    )
    inspections = [_build_probe_command(probe, host) for probe in probe_commands]
    probe_rate = sum(probe.max_rate for probe in probe_commands)
    clients_without_probes = replace(clients, max_rate=clients.max_rate - probe_rate)
    command = LoadCommand(
        host,
        load.build_command(request, clients_without_probes),
        clients_without_probes.max_rate if load.is_paced else UNKNOWN_RATE,
        0.0,
        clients.seconds,
        clients.seconds + 2 * clients.timeout + TIMEOUT_MARGIN_SECONDS,
        load.build_input(clients_without_probes),
    )
    load_result, *probe_results = run_together(
        [command, *inspections], clients.max_rate if load.is_paced else UNKNOWN_RATE
    )
    ceiling = load.parse_checked(
        load_result.stdout or load_result.error_text, clients_without_probes
    )
    if ceiling.failure or not probe_results:
        return ceiling
    answers = probes.parse_answers_under_load(probe_results[0], probe_commands[0])
    inspection = validator.inspect_answers(page_indices, answers, load.accepted_classes)
    return _exclude_wrong_answers(ceiling, inspection)


def _build_probe_command(probe: probes.ProbeCommand, host: Transport) -> LoadCommand:
    return LoadCommand(
        host,
        probe.argv,
        probe.max_rate,
        0.0,
        probe.span_seconds,
        probe.stop_seconds,
        probe.input,
    )


def _is_requested_page(page: LoadPage, request: Request) -> bool:
    """True if ``page`` is the page that all clients request."""
    step = page.step
    return (step.method, step.path, step.body) == (request.method, request.path, request.body)


def _exclude_wrong_answers(
    ceiling: ClosedLoopCeiling, inspection: AnswerInspection
) -> ClosedLoopCeiling:
    """Return the ceiling, reduced by the fraction of wrong responses in the sample."""
    wrong_count = ceil(inspection.wrong_share * (ceiling.requests - ceiling.error_count) - 1e-9)
    if not wrong_count:
        return ceiling
    errors = {**ceiling.errors, WRONG_ANSWER: wrong_count}
    return replace(ceiling, errors=errors, example=inspection.example)
