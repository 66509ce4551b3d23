"""What every service keeps under every runtime, whoever adds it: see docs/adding-a-service.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.desired_state import render
from autotune.services import registry
from autotune.services.adoption import RunningHost
from autotune.services.base import (
    Endpoint,
    Readback,
    Role,
    Service,
    Settings,
    Site,
    TrialStart,
    config_files,
)
from autotune.services.config_files import Tree
from autotune.services.diagnosis import Resource
from autotune.services.registry import ALL, DEPLOYMENTS, SERVICES, placed
from autotune.space.facts import HostFacts
from autotune.space.space import of_tier
from autotune.target import runtimes
from autotune.target.model import Data, Tier

FIXTURES = Path(__file__).parent / "fixtures"
FACTS = HostFacts(2, 4 * 2**30, 65_536)
Case = tuple[Service, Site, Settings]


def tier_of(deployment: str, runtime: str) -> Tier:
    application = {role for _, role in DEPLOYMENTS[deployment]} & {Role.APP, Role.WEB}
    return Tier(hosts=("h1",), service=(deployment,), runtime=runtime,
                app="reference" if application else None, local_cache=bool(application))  # fmt: skip


def cases() -> Iterator[tuple[str, Case]]:
    """Every service in every deployment and under every runtime, at its stock values."""
    for deployment in DEPLOYMENTS:
        for runtime in runtimes.NAMES:
            if not runtimes.is_installed(runtime) and not all(
                part.runs_privately for part, _ in registry.parts(deployment)
            ):
                continue  # it is refused: see tests/space
            tier = tier_of(deployment, runtime)
            settings = {d.name: d.parameter.stock if d.baseline is None else d.baseline
                        for d in of_tier("t", tier, FACTS)}  # fmt: skip
            for place in placed("t", tier):
                case = (place.service, site_of(place.service, place.role, runtime), settings)
                yield f"{deployment}-{runtime}-{place.service.key}", case


def site_of(service: Service, role: Role, runtime: str) -> Site:
    programs = {name: f"/usr/sbin/{Path(some[0]).name}" for name, some in service.programs.items()}
    return Site(
        tier="t", host="h1", role=role, directory="/run/t.h1", listen=Endpoint("10.0.0.1", 8080),
        forwards_to=(Endpoint("10.0.0.2", 80),), caches=(Endpoint("10.0.0.3", 11_211),),
        stores=(Endpoint("10.0.0.4", 6379),), local=Endpoint("127.0.0.1", 11_311),
        user="www-data", group="www-data", installed=runtimes.is_installed(runtime), programs=programs,
        facts=dict(FACTS.names()),
    )  # fmt: skip


CASES = dict(cases())
EACH = pytest.mark.parametrize(("service", "site", "settings"), CASES.values(), ids=list(CASES))
BY_KEY = pytest.mark.parametrize("service", ALL, ids=lambda service: service.key)


def test_every_service_is_in_a_case() -> None:
    assert {service.key for service, _, _ in CASES.values()} == {service.key for service in ALL}


@EACH
def test_it_renders_and_is_validated(service: Service, site: Site, settings: Settings) -> None:
    files = render(service, site, settings, Data())
    assert set(files) == {file.path for file in config_files(service, site)}
    assert all(content.strip() for content in files.values())
    validation = service.validate(site, files)
    argv = validation.argv if isinstance(validation, TrialStart) else validation
    start = service.start(site, files)
    if service.unit(site) is None:
        assert argv is start is None
        assert service.socket(site) is None
        return
    assert argv is None or all(isinstance(word, str) and word for word in argv[:1])
    assert argv is not None or start is None  # switched off: nothing to start, nothing to judge
    assert service.socket(site)
    paths = [path.startswith("/") for path in files]
    assert all(paths) if site.installed else not any(paths)


def printed(service: Service, readback: Readback) -> str:
    """What the command printed on Debian 12: recorded in ``fixtures/PROGRAM.txt``, or for a program
    that several services are asked with (``curl``, ``sh``) in ``fixtures/KEY.txt``."""
    program = Path(readback.argv[0]).name
    if program == "ss":
        program = "ss-unix" if "-lxH" in readback.argv else "ss-tcp"
    recorded = [FIXTURES / f"{name}.txt" for name in (service.key, program)]
    return next(path for path in recorded[program.startswith("ss-") :] if path.exists()).read_text()


@EACH
def test_it_reads_back(service: Service, site: Site, settings: Settings) -> None:
    values: dict[str, object] = {}
    readbacks = service.effective(site)
    for readback in readbacks:
        assert readback.argv
        assert readback.parse("") == {}
        values |= readback.parse(printed(service, readback))
    assert set(values) <= {parameter.name for parameter in service.parameters}
    assert bool(values) == bool(readbacks)


@BY_KEY
def test_it_says_how_it_is_diagnosed(service: Service) -> None:
    declared = registry.folder_declares(service, "DIAGNOSIS")
    diagnosis = registry.diagnosis(service.name)
    if service.start.__func__ is not Service.start:  # type: ignore[attr-defined]  # it has processes
        assert declared is not None
    named = {p.name for s in registry.named(service.name) for p in s.parameters}
    limits = [diagnosis.threads, diagnosis.clients.parameter if diagnosis.clients else ""]
    assert {limit for limit in limits if limit} <= named
    assert all(isinstance(resource, Resource) for resource in diagnosis.moves)
    role = service.role
    for runtime in runtimes.NAMES:
        site = site_of(service, role, runtime)
        if diagnosis.counters:
            assert diagnosis.counters.command(site)
        if diagnosis.log and (log := diagnosis.log(site)):
            assert log.startswith("/") or log.endswith(".service")
    if diagnosis.lookups and diagnosis.counters:
        lookups = {diagnosis.lookups.gets, diagnosis.lookups.hits, diagnosis.lookups.misses}
        assert lookups <= diagnosis.counters.names


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.key)
def test_it_is_adopted_or_says_why_not(service: Service) -> None:
    adoption = registry.adoptions().get(service.key)
    # Of what the distribution does not have, neither units nor paths are known.
    assert (adoption is None) == bool(service.elsewhere)
    if adoption is not None:
        assert adoption.known_as
        assert adoption.version
        assert adoption.paths
        assert all(not path.startswith("/") for path in adoption.paths)
        assert all(unit.endswith(".service") for unit in adoption.units)
        assert list(adoption.find(RunningHost(tree=Tree()))) == []


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_its_deployment_can_be_reached(deployment: str) -> None:
    assert registry.PORTS[deployment] > 0
    front = registry.parts(deployment)[-1][0]
    assert front.packages or front.elsewhere
