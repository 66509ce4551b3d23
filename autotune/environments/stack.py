"""What all stacks of servers have in common, however their services are run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from autotune.deploy.deployed import Fleet
from autotune.deploy.render import render
from autotune.deploy.stack import Part, Stack
from autotune.environments.base import Preview
from autotune.environments.evaluation import History
from autotune.environments.load_meter import LoadMeter
from autotune.environments.load_session import LoadSession, capacity_limits
from autotune.errors import AutotuneError
from autotune.loads.base import Load, Request
from autotune.loads.headroom import Headroom
from autotune.monitor.watch import WatchedHost, hosts_of
from autotune.services.base import Settings
from autotune.services.registry import expected_body
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.target.read import TargetFile
from autotune.transports.base import Transport

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Note = Callable[[str], None]
Refusals = Callable[[Part, Sequence[Settings]], Sequence[str | None]]
"""``refusals(part, settings)``: what the part's software says against each of these settings, in a
line; ``None`` where it accepts them."""


def overrides(file: TargetFile) -> Path | None:
    """The directory whose templates come before the shipped ones. Raises AutotuneError."""
    named = {tier.templates for tier in file.target.tiers.values() if tier.templates}
    if len(named) > 1:
        raise AutotuneError("all tiers must share one `templates:` directory")
    return (file.path.parent / named.pop()).resolve() if named else None


def rendered(file: TargetFile, part: Part, settings: Settings) -> dict[str, bytes]:
    """Path → content of the part's files. Raises RenderError."""
    return render(part.service, part.site, settings, file.target.data, overrides(file))


def without_refused(
    space: Space, parts: Sequence[Part], refusals: Refusals
) -> tuple[Space, tuple[str, ...]]:
    """The space without the choices that the installed programs were built without.

    With it everything that was dropped, a line each.
    """
    left, dropped = space, list(space.dropped)
    for dimension in space.tunable:
        service = dimension.name.removesuffix(f".{dimension.parameter.name}")
        part = next((p for p in parts if f"{p.site.tier}.{p.service.name}" == service), None)
        if part is None or not dimension.parameter.built_in:
            continue
        tried = [choice for choice in dimension.choices if choice != dimension.baseline]
        settings = [space.candidate({dimension.name: choice}).settings for choice in tried]
        messages = refusals(part, settings) if tried else []
        refused = {c: message for c, message in zip(tried, messages, strict=True) if message}
        for choice in refused:
            left = left.without(dimension.name, choice)
        if refused:
            names, message = ", ".join(map(str, refused)), next(iter(refused.values()))
            dropped.append(f"{dimension.name}: not built with {names} ({message})")
    return left, tuple(dropped)


def preview(
    file: TargetFile, stack: Stack, files: Callable[[Settings], Mapping[str, bytes]]
) -> Preview:
    return Preview(
        entry=f"http://{stack.entry}{file.target.load.path}",
        servers=tuple(part.name for part in stack.parts if part.service.programs),
        files=files,
    )


def headroom(file: TargetFile, load: Load, measured: Headroom, where: str) -> str:
    """What load the generator can make, in words."""
    needed = file.target.load.max_rate
    enough = f"{load.name} makes at least {min(measured.rate, needed):g} requests/s {where}"
    return measured.shortage(needed) or enough


def data_progress(note: Note) -> Callable[[int, int], None]:
    """Tells once when all data is loaded."""

    def loaded(done: int, total: int) -> None:
        if done == total:
            note(f"loading data: {done} of {total} pairs")

    return loaded


def load_session(
    file: TargetFile,
    fleet: Fleet,
    stack: Stack,
    load: Load,
    history: History,
    *,
    facts: Mapping[str, HostFacts],
    in_place: Callable[[], Settings],
    load_hosts: tuple[Transport, ...],
    transports: Mapping[str, Transport],
    generators: tuple[WatchedHost, ...] = (),
) -> LoadSession:
    """Deploying to ``fleet``, loading from ``load_hosts``, watching all hosts meanwhile."""
    target = file.target
    body = expected_body(target) if target.load.one_page else None
    meter = LoadMeter(
        load,
        Request(stack.entry, target.load.path, body),
        target.slo.slo,
        load_hosts,
        stack,
        hosts_of(stack, {name: host.cpus for name, host in facts.items()}, transports),
        timeout=target.load.timeout,
        in_place=in_place,
        generators=generators,
    )
    return LoadSession(fleet, meter, target.slo.slo, capacity_limits(target.load.max_rate), history)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP: what was changed is put back to the end."""
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
