"""A closed loop against the entry of a stack, with a look at whole answers at the same time."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from autotune.loads import probes
from autotune.loads.answer_validation import (
    MAX_PROBE_RATE,
    MAX_PROBE_SHARE,
    WRONG_ANSWER,
    AnswerValidator,
    LoadPage,
)
from autotune.loads.base import LoadSpec
from autotune.loads.closed_load import ClosedLoopCeiling, ClosedLoopClients, ClosedLoopGenerator
from autotune.loads.load_commands import UNKNOWN_RATE, LoadCommand, run_together
from autotune.loads.reading_run import build_inspection_command
from autotune.transports.base import Transport
from autotune.transports.request import Request

RATE_MARGIN = 15.0  # seconds a transport waits beyond what a program takes by its own account


def run_closed_loop(
    load: ClosedLoopGenerator,
    request: Request,
    clients: ClosedLoopClients,
    host: Transport,
    validator: AnswerValidator,
) -> ClosedLoopCeiling:
    """The ceiling of these clients. Answers that ``validator`` calls wrong are errors of it.

    Clients and looks together keep ``clients.max_rate``, if the generator is paced. Raises
    HostUnreachable.
    """
    pages = tuple(page for page in validator.pages if _requests_answers(page, request))
    validator = AnswerValidator(pages)
    spec = LoadSpec(
        min(clients.max_rate, MAX_PROBE_RATE / MAX_PROBE_SHARE), clients.seconds, clients.timeout
    )
    chosen = validator.choose_pages(validator.count_probes(spec))
    looks = [build_inspection_command(validator, chosen, request, spec)] if chosen else []
    beside = [
        LoadCommand(
            host, look.argv, look.max_rate, 0.0, look.span_seconds, look.stop_seconds, look.input
        )
        for look in looks
    ]
    left = replace(clients, max_rate=clients.max_rate - sum(look.max_rate for look in looks))
    command = LoadCommand(
        host,
        load.build_command(request, left),
        left.max_rate if load.is_paced else UNKNOWN_RATE,
        0.0,
        clients.seconds,
        clients.seconds + 2 * clients.timeout + RATE_MARGIN,
        load.build_input(left),
    )
    done, *looked = run_together(
        [command, *beside], clients.max_rate if load.is_paced else UNKNOWN_RATE
    )
    ceiling = load.parse_checked(done.stdout or done.error_text, left)
    if ceiling.failure or not looked:
        return ceiling
    return _exclude_wrong_answers(
        ceiling, validator, chosen, probes.parse_answers(looked[0], looks[0].requests)
    )


def _requests_answers(page: LoadPage, request: Request) -> bool:
    """True if the clients ask for this page: they ask for one alone."""
    step = page.step
    return (step.method, step.path, step.body) == (request.method, request.path, request.body)


def _exclude_wrong_answers(
    ceiling: ClosedLoopCeiling,
    validator: AnswerValidator,
    chosen: list[int],
    answers: list[probes.ProbeAnswer | None],
) -> ClosedLoopCeiling:
    """The ceiling without the share of its answers that a look found wrong."""
    look = validator.inspect(chosen, answers)
    wrong = ceil(look.wrong_share * (ceiling.requests - ceiling.error_count) - 1e-9)
    if not wrong:
        return ceiling
    return replace(ceiling, errors={**ceiling.errors, WRONG_ANSWER: wrong}, example=look.example)
