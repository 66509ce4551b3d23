"""A closed loop against the entry of a stack, with a look at whole answers at the same time."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from autotune.loads import probes
from autotune.loads.answers import PER_SECOND, SHARE, WRONG, Page, Validator
from autotune.loads.base import LoadSpec
from autotune.loads.closed import Ceiling, Clients, ClosedLoad
from autotune.loads.offer import UNKNOWN, LoadCommand, run_together
from autotune.loads.take import look_command
from autotune.transports.base import Transport
from autotune.transports.request import Request

MARGIN = 15.0  # seconds a transport waits beyond what a program takes by its own account


def run(
    load: ClosedLoad, request: Request, clients: Clients, host: Transport, validator: Validator
) -> Ceiling:
    """The ceiling of these clients. Answers that ``validator`` calls wrong are errors of it.

    Clients and looks together keep ``clients.max_rate``, if the generator is paced. Raises
    HostUnreachable.
    """
    pages = tuple(page for page in validator.pages if _asks(page, request))
    validator = Validator(pages)
    spec = LoadSpec(min(clients.max_rate, PER_SECOND / SHARE), clients.seconds, clients.timeout)
    chosen = validator.chosen(validator.count(spec))
    looks = [look_command(validator, chosen, request, spec)] if chosen else []
    beside = [
        LoadCommand(host, look.argv, look.rate, 0.0, look.span, look.bound, look.input)
        for look in looks
    ]
    left = replace(clients, max_rate=clients.max_rate - sum(look.rate for look in looks))
    command = LoadCommand(
        host,
        load.argv(request, left),
        left.max_rate if load.paced else UNKNOWN,
        0.0,
        clients.seconds,
        clients.seconds + 2 * clients.timeout + MARGIN,
        load.input(left),
    )
    done, *looked = run_together([command, *beside], clients.max_rate if load.paced else UNKNOWN)
    ceiling = load.parse(done.stdout or done.error_text, left)
    if ceiling.failed or not looked:
        return ceiling
    return _without_wrong(
        ceiling, validator, chosen, probes.answers_of(looked[0], looks[0].requests)
    )


def _asks(page: Page, request: Request) -> bool:
    """True if the clients ask for this page: they ask for one alone."""
    step = page.step
    return (step.method, step.path, step.body) == (request.method, request.path, request.body)


def _without_wrong(
    ceiling: Ceiling, validator: Validator, chosen: list[int], answers: list[probes.Answer | None]
) -> Ceiling:
    """The ceiling without the share of its answers that a look found wrong."""
    look = validator.look(chosen, answers)
    wrong = ceil(look.share * (ceiling.requests - ceiling.wrong) - 1e-9)
    if not wrong:
        return ceiling
    return replace(ceiling, errors={**ceiling.errors, WRONG: wrong}, example=look.example)
