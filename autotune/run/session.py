"""One sitting of a study: everything opened, the study run as far as it goes, everything put back."""

from __future__ import annotations

import platform
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from autotune import __version__
from autotune.deploy import ground, ports, ready, stack
from autotune.deploy.embedded import EmbeddedFleet
from autotune.deploy.render import render
from autotune.deploy.stack import Stack
from autotune.deploy.validate import Invalid, validate
from autotune.errors import AutotuneError
from autotune.loads.base import Request
from autotune.loads.registry import LOADS
from autotune.measure.capacity import Limits
from autotune.measure.drain import drain
from autotune.measure.watch import hosts_of
from autotune.run.clock import Clock
from autotune.run.gauge import Gauge
from autotune.run.narrator import Narrator
from autotune.run.studies import clear_left_behind
from autotune.run.trial import Bench
from autotune.services.base import Value
from autotune.services.registry import expected_body, parts
from autotune.space import space as spaces
from autotune.space.dimension import Dimension
from autotune.space.facts import HostFacts
from autotune.space.space import Space
from autotune.study.lock import Lock
from autotune.study.store import Store
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import host_facts
from autotune.transports.local import LocalTransport

# Servers are asked for at most this much by a single peak search, in seconds under load.
LOAD_SECONDS = 60.0
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Prepared:
    """A target understood on its hosts: what may be tried and where it would run."""

    file: TargetFile
    space: Space
    transport: Transport
    programs: dict[str, str]
    facts: dict[str, HostFacts]
    dropped: tuple[str, ...] = ()


def prepare(file: TargetFile) -> Prepared:
    """Look at the hosts and work out the space; read-only.

    Raises TargetError for a target that does not fit its hosts, AutotuneError for missing programs.
    """
    for name, tier in file.target.tiers.items():
        if tier.runtime != "embedded":
            raise file.document.error(
                ["tiers", name], f"tier {name}: only `runtime: embedded` can be run so far"
            )
    transport = LocalTransport()
    here = host_facts(transport)
    facts = {name: here.within(host) for name, host in file.target.hosts.items()}
    space = spaces.build(file, facts)
    used: list[ground.NeedsPrograms] = [service for tier in file.target.tiers.values()
            for deployment in tier.service for service, _ in parts(deployment)]  # fmt: skip
    load = LOADS.get(file.target.load.generator)
    if load is None:
        raise file.document.unknown(["load", "generator"], "generator", LOADS)
    programs = ground.programs([*used, load])
    return _as_built(Prepared(file, space, transport, programs, facts))


def _as_built(prepared: Prepared) -> Prepared:
    """Without the choices that the programs of these hosts were built without."""
    space, dropped = prepared.space, []
    with tempfile.TemporaryDirectory(prefix="autotune-choices-") as directory:
        Path(directory).chmod(0o755)
        laid = lay_out(prepared, directory)
        for dimension in prepared.space.tunable:
            refused = _refused(prepared, laid, dimension)
            for choice in refused:
                space = space.without(dimension.name, choice)
            if refused:
                names, said = ", ".join(map(str, refused)), next(iter(refused.values()))
                dropped.append(f"{dimension.name}: not built with {names} ({said})")
    return replace(prepared, space=space, dropped=tuple(dropped))


def _refused(prepared: Prepared, laid: Stack, dimension: Dimension) -> dict[Value, str]:
    """The choices that the program refuses, each with its words."""
    tried = dimension.choices if dimension.parameter.built_in else ()
    answers = {choice: refusal(prepared, laid, dimension.name, choice) for choice in tried}
    return {c: said for c, said in answers.items() if said and c != dimension.baseline}


def refusal(prepared: Prepared, laid: Stack, name: str, value: Value) -> str | None:
    """What the service says against one value on top of the baseline; ``None`` if nothing."""
    settings = prepared.space.candidate({name: value}).settings
    for part in laid.parts:
        if name.startswith(f"{part.site.tier}.{part.service.name}."):
            files = render(
                part.service, part.site, settings, prepared.file.target.data,
                overrides(prepared.file),
            )  # fmt: skip
            try:
                validate(part, files, Path(part.site.directory), prepared.transport)
            except Invalid as error:
                return error.message.splitlines()[0]
    return None


def lay_out(prepared: Prepared, directory: str) -> Stack:
    """The stack below ``directory``, on ports that are free now. Raises AutotuneError."""
    owner = ground.account()
    grounds = stack.Grounds(
        directory,
        ports.allocate(prepared.file),
        prepared.programs,
        prepared.facts,
        *(owner or (None, None)),
    )
    return stack.build(prepared.file.target, grounds)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put back what was changed even if somebody loses patience meanwhile."""
    kept = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextmanager
def opened(prepared: Prepared, directory: Path, narrator: Narrator) -> Iterator[Bench]:
    """The study's lock held, its store open and its fleet at hand; all given back at the end.

    Raises LockedError when another tuner has the study.
    """
    target = prepared.file.target
    for line in prepared.dropped:
        narrator.note(line)
    for left in clear_left_behind(directory.parent):
        narrator.note(f"ended a server that a killed tuner had left: {left}")
    with Lock(directory / "lock"):
        store = Store(directory)
        try:
            where = ground.run_directory(directory, ground.account())
            laid = lay_out(prepared, str(where))
            body = expected_body(target)
            fleet = EmbeddedFleet(
                target,
                prepared.space,
                laid,
                directory,
                prepared.transport,
                expect=body,
                overrides=overrides(prepared.file),
                progress=lambda done, total: (
                    narrator.note(f"loading data: {done} of {total} pairs")
                    if done == total
                    else None
                ),
            )
            try:
                yield _bench(prepared, laid, fleet, store, narrator, body)
            finally:
                with uninterrupted():
                    fleet.restore()
        finally:
            store.close()


def _bench(
    prepared: Prepared,
    laid: Stack,
    fleet: EmbeddedFleet,
    store: Store,
    narrator: Narrator,
    body: bytes | None,
) -> Bench:
    target = prepared.file.target
    slo = target.slo.slo
    gauge = Gauge(
        LOADS[target.load.generator],
        Request(laid.entry, target.load.path, body),
        slo,
        prepared.transport,
        laid,
        hosts_of(laid, {n: f.cpus for n, f in prepared.facts.items()}, {}),
        timeout=target.load.timeout,
    )
    return Bench(
        space=prepared.space,
        slo=slo,
        fleet=fleet,
        store=store,
        clock=Clock(),
        narrator=narrator,
        limits=Limits(max_rate=target.load.max_rate, load_seconds=LOAD_SECONDS),
        take=gauge.take,
        diagnose=gauge.diagnose,
        lookups=gauge.lookups,
        drain=lambda: _drain(laid, target.load.path, slo.limit),
    )


def _drain(laid: Stack, path: str, limit: float) -> None:
    drain(lambda: ready.latency(laid.entry, path), limit)


def overrides(file: TargetFile) -> Path | None:
    """The directory whose templates come before the shipped ones. Raises AutotuneError."""
    named = {tier.templates for tier in file.target.tiers.values() if tier.templates}
    if len(named) > 1:
        raise AutotuneError("all tiers must share one `templates:` directory")
    return (file.path.parent / named.pop()).resolve() if named else None


def versions() -> dict[str, str]:
    """What the study's numbers depend on beside the settings."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
