"""What every service keeps under every runtime, whoever adds it: see docs/adding-a-service.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.deploy.desired_state import render_files
from autotune.services import registry
from autotune.services.adoption import RunningHost
from autotune.services.base import (
    Endpoint,
    Placement,
    Readback,
    Role,
    Service,
    Settings,
    TrialStart,
    resolve_config_files,
)
from autotune.services.config_files import FileTree
from autotune.services.diagnosis import Resource
from autotune.services.registry import SHIPPED
from autotune.services.unit_files import ADMIN_DIRECTORY, parse_directives
from autotune.space.facts import HostFacts
from autotune.space.tier_dimensions import build_tier_dimensions
from autotune.target import runtimes
from autotune.target.model import Data, Tier

FIXTURES = Path(__file__).parent / "fixtures"
FACTS = HostFacts(2, 4 * 2**30, 65_536)
Case = tuple[Service, Placement, Settings]


def tier_of(deployment: str, runtime: str) -> Tier:
    application = {role for _, role in SHIPPED.deployments[deployment]} & {Role.APP, Role.WEB}
    return Tier(hosts=("h1",), service=(deployment,), runtime=runtime,
                app="reference" if application else None, local_cache=bool(application))  # fmt: skip


def cases() -> Iterator[tuple[str, Case]]:
    """Every service in every deployment and under every runtime, at its stock values."""
    for deployment in SHIPPED.deployments:
        for runtime in runtimes.RUNTIME_NAMES:
            if not runtimes.RUNTIMES[runtime].installed and not all(
                part.can_run_privately for part, _ in registry.SHIPPED.services_of(deployment)
            ):
                continue  # it is refused: see tests/space
            tier = tier_of(deployment, runtime)
            settings = {d.name: d.parameter.stock if d.baseline is None else d.baseline
                        for d in build_tier_dimensions("t", tier, FACTS)}  # fmt: skip
            for place in SHIPPED.list_tier_services("t", tier):
                case = (place.service, site_of(place.service, place.role, runtime), settings)
                yield f"{deployment}-{runtime}-{place.service.key}", case


def site_of(service: Service, role: Role, runtime: str) -> Placement:
    programs = {name: f"/usr/sbin/{Path(some[0]).name}" for name, some in service.programs.items()}
    return Placement(
        tier="t", host="h1", role=role, directory="/run/t.h1", listen=Endpoint("10.0.0.1", 8080),
        forwards_to=(Endpoint("10.0.0.2", 80),), caches=(Endpoint("10.0.0.3", 11_211),),
        stores=(Endpoint("10.0.0.4", 6379),), local_cache=Endpoint("127.0.0.1", 11_311),
        user="www-data", group="www-data", installed=runtimes.RUNTIMES[runtime].installed,
        programs=programs, facts=dict(FACTS.to_names()),
    )  # fmt: skip


CASES = dict(cases())
EACH = pytest.mark.parametrize(("service", "site", "settings"), CASES.values(), ids=list(CASES))
BY_KEY = pytest.mark.parametrize("service", SHIPPED.services, ids=lambda service: service.key)


def test_every_service_is_in_a_case() -> None:
    assert {service.key for service, _, _ in CASES.values()} == {
        service.key for service in SHIPPED.services
    }


@EACH
def test_it_renders_and_is_validated(service: Service, site: Placement, settings: Settings) -> None:
    files = render_files(service, site, settings, Data())
    assert set(files) == {file.path for file in resolve_config_files(service, site)}
    assert all(content.strip() for content in files.values())
    validation = service.build_validation(site, files)
    argv = validation.argv if isinstance(validation, TrialStart) else validation
    start = service.build_start_command(site, files)
    if service.get_unit(site) is None:
        assert argv is start is None
        assert service.get_socket(site) is None
        return
    assert argv is None or all(isinstance(word, str) and word for word in argv[:1])
    assert argv is not None or start is None  # switched off: nothing to start, nothing to judge
    assert service.get_socket(site)
    paths = [path.startswith("/") for path in files]
    assert all(paths) if site.installed else not any(paths)


@EACH
def test_a_unit_that_it_brings_can_be_enabled(
    service: Service, site: Placement, settings: Settings
) -> None:
    unit = f"{ADMIN_DIRECTORY}/{service.get_unit(site)}"
    files = render_files(service, site, settings, Data())
    lines = parse_directives(files.get(unit, b"").decode())
    is_enabled = any(line.name.text == "WantedBy" for line in lines)
    assert is_enabled == (unit in files)


def printed(service: Service, readback: Readback) -> str:
    """What the command printed on Debian 12: recorded in ``fixtures/PROGRAM.txt``, or for a program
    that several services are asked with (``curl``, ``sh``) in ``fixtures/KEY.txt``."""
    program = Path(readback.argv[0]).name
    if program == "ss":
        program = "ss-unix" if "-lxH" in readback.argv else "ss-tcp"
    recorded = [FIXTURES / f"{name}.txt" for name in (service.key, program)]
    return next(path for path in recorded[program.startswith("ss-") :] if path.exists()).read_text()


@EACH
def test_it_reads_back(service: Service, site: Placement, settings: Settings) -> None:
    values: dict[str, object] = {}
    readbacks = service.list_readbacks(site)
    for readback in readbacks:
        assert readback.argv
        assert readback.parse("") == {}
        values |= readback.parse(printed(service, readback))
    assert set(values) <= {parameter.name for parameter in service.parameters}
    assert bool(values) == bool(readbacks)


@BY_KEY
def test_it_says_how_it_is_diagnosed(service: Service) -> None:
    declared = registry.find_declaration(service, "DIAGNOSIS")
    diagnosis = registry.SHIPPED.find_diagnosis(service.name)
    if service.build_start_command.__func__ is not Service.build_start_command:  # type: ignore[attr-defined]  # it has processes
        assert declared is not None
    named = {p.name for s in registry.SHIPPED.list_by_name(service.name) for p in s.parameters}
    limits = [
        diagnosis.threads_parameter,
        diagnosis.client_limit.parameter if diagnosis.client_limit else "",
    ]
    assert {limit for limit in limits if limit} <= named
    assert all(isinstance(resource, Resource) for resource in diagnosis.recommended_changes)
    role = service.role
    for runtime in runtimes.RUNTIME_NAMES:
        site = site_of(service, role, runtime)
        if diagnosis.counter_query:
            assert diagnosis.counter_query.build_command(site)
        if diagnosis.find_log and (log := diagnosis.find_log(site)):
            assert log.startswith("/") or log.endswith(".service")
    if diagnosis.lookup_counters and diagnosis.counter_query:
        lookups = {
            diagnosis.lookup_counters.gets,
            diagnosis.lookup_counters.hits,
            diagnosis.lookup_counters.misses,
        }
        assert lookups <= diagnosis.counter_query.counter_names


@pytest.mark.parametrize("service", SHIPPED.deployable.values(), ids=lambda service: service.key)
def test_it_is_adopted_or_says_why_not(service: Service) -> None:
    adoption = registry.SHIPPED.map_adoptions().get(service.key)
    # Of what the distribution does not have, neither units nor paths are known.
    assert (adoption is None) == bool(service.package_source)
    if adoption is not None:
        assert adoption.title
        assert adoption.version_script
        assert adoption.paths
        assert all(not path.startswith("/") for path in adoption.paths)
        assert all(unit.endswith(".service") for unit in adoption.units)
        assert list(adoption.find_services(RunningHost(tree=FileTree()))) == []


@pytest.mark.parametrize("deployment", SHIPPED.deployments)
def test_its_deployment_can_be_reached(deployment: str) -> None:
    assert registry.SHIPPED.deployment_ports[deployment] > 0
    front = registry.SHIPPED.services_of(deployment)[-1][0]
    assert front.packages or front.package_source
