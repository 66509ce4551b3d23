"""The registry of all services and deployments, and the services in a tier.

Each folder in this package declares its services in ``service.SERVICES``, as plug-ins do. The
services that a target declares are added when the target is read, because a process works with only
one target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Protocol

from autotune import plugins, services
from autotune.masking import Outliner
from autotune.services import declared_service as declared
from autotune.services.adoption import Adoption
from autotune.services.base import Conditions, Role, Service
from autotune.services.diagnosis import EMPTY_DIAGNOSIS, Diagnosis
from autotune.services.reference import ServiceReference
from autotune.services.visible_directives import VisibleDirectives
from autotune.target.declared_service import ServiceSpec
from autotune.target.messages import find_nearest_name, suggest_name
from autotune.target.model import Target


def _load_shipped() -> Iterator[Service]:
    for folder in iter_modules(services.__path__):
        if folder.ispkg:
            yield from import_module(f"{services.__name__}.{folder.name}.service").SERVICES


def _load_plugins() -> Iterator[Service]:
    """Yield the services from plug-ins. Raises AutotuneError."""
    for plugin, some in plugins.iterate_plugins("services"):
        for service in some:
            plugins.check_name_free(plugin, "services", service.key, [s.key for s in ALL_SERVICES])
            yield service


# All services in the order of their roles, which is the order in which a request passes through
# them.
ALL_SERVICES: list[Service] = []
# Services that can form deployments, by key.
DEPLOYABLE_SERVICES: dict[str, Service] = {}
# Names that can appear under a tier's ``app``.
APPLICATIONS: dict[str, Service] = {}
# Names that can appear under a tier's ``service``, with the role of each service in start order.
DEPLOYMENTS: dict[str, tuple[tuple[str, Role], ...]] = {}
# The default port of each deployment with its distribution's units.
DEPLOYMENT_PORTS: dict[str, int] = {}


def _list_deployments() -> Iterator[tuple[str, int, tuple[tuple[str, Role], ...]]]:
    """Yield the name, port and services of each deployment. The services are in start order."""
    for service in DEPLOYABLE_SERVICES.values():
        if service.deployment:
            yield service.deployment, service.port, ((service.key, service.role),)
        for server in DEPLOYABLE_SERVICES.values():
            if server.gateway_protocol in service.gateway_protocols:
                joint_roles = ((server.key, server.role), (service.key, Role.WEB))
                yield f"{service.key}+{server.key}", service.port, joint_roles


def _add_services(services: Iterable[Service]) -> None:
    """Add services to the tables above. A service replaces an earlier one with the same key."""
    by_key = {service.key: service for service in (*ALL_SERVICES, *services)}
    ALL_SERVICES[:] = sorted(by_key.values(), key=lambda s: (list(Role).index(s.role), s.key))
    DEPLOYABLE_SERVICES.update(
        (s.key, s) for s in ALL_SERVICES if s.deployment or s.gateway_protocol
    )
    APPLICATIONS.update((s.application, s) for s in ALL_SERVICES if s.application)
    for deployment, port, together in _list_deployments():
        DEPLOYMENTS[deployment], DEPLOYMENT_PORTS[deployment] = together, port


_add_services(_load_shipped())
_add_services([*_load_plugins()])
# Names that services declared in a target cannot use.
RESERVED_NAMES = frozenset(
    (*DEPLOYMENTS, *(name for s in ALL_SERVICES for name in (s.key, s.name)))
)


def add_declared(specs: Mapping[str, ServiceSpec]) -> None:
    """Add the services that a target declares, except those with the name of a shipped service."""
    _add_services(
        declared.build_service(name, spec)
        for name, spec in specs.items()
        if name not in RESERVED_NAMES
    )
    find_diagnosis.cache_clear()


def suggest_deployment(name: str) -> str:
    """Return a hint for an unknown name under ``service:``, with the software that people mean by
    it.
    """
    aliases = {other: s.key for s in DEPLOYABLE_SERVICES.values() for other in s.other_names}
    meant_deployment = "+".join(aliases.get(part, part) for part in name.lower().split("+"))
    if meant_deployment == name and find_nearest_name(name, DEPLOYMENTS):
        return suggest_name(name, DEPLOYMENTS)
    hint = (
        f"did you mean {meant_deployment!r}?"
        if meant_deployment in DEPLOYMENTS
        else suggest_name(meant_deployment, DEPLOYMENTS)
    )
    return f"{hint}{'' if hint.endswith('?') else '.'} Declare other software under `services:`"


def services_of(deployment: str) -> tuple[tuple[Service, Role], ...]:
    """Return the services of a deployment such as ``nginx+php-fpm``, in start order."""
    return tuple((DEPLOYABLE_SERVICES[name], role) for name, role in DEPLOYMENTS[deployment])


def list_by_role(role: Role) -> tuple[Service, ...]:
    """Return the services with this role."""
    return tuple(service for service in ALL_SERVICES if service.role is role)


def select_companions(
    services: tuple[Service, ...], host_services: Iterable[Service]
) -> Iterator[Service]:
    """Yield the host services that belong to these services, which run together in one
    deployment.
    """
    for service in host_services:
        if service.per_deployment and (own := service.for_deployment(services)):
            yield own


def list_by_name(name: str) -> tuple[Service, ...]:
    """Return the services with this name. There are several if one program has several
    functions.
    """
    return tuple(service for service in ALL_SERVICES if service.name == name)


def any_speaks_protocol(deployments: Iterable[str], protocol: str) -> bool:
    """True if load generators for ``protocol`` can test one of these deployments."""
    return any(
        service.load_protocol == protocol for d in deployments for service, _ in services_of(d)
    )


def find_declaration(service: Service, name: str) -> object:
    """Return the ``ADOPTION``, ``DIAGNOSIS`` or ``REFERENCE`` of a service, or None.

    The service's own attribute takes precedence over its folder's module (``adoption.py``, for
    example), and the module over its ``service.py``.
    """
    if (own := getattr(service, name.lower(), None)) is not None:
        return own
    own_module = type(service).__module__
    module = f"{own_module.rpartition('.')[0]}.{name.lower()}"
    declaring_module = module if module[0] != "." and find_spec(module) else own_module
    return getattr(import_module(declaring_module), name, None)


def map_adoptions() -> dict[str, Adoption]:
    """Return the adoptions by service key."""
    declared_adoptions = {
        service.key: find_declaration(service, "ADOPTION") for service in ALL_SERVICES
    }
    return {
        key: adoption
        for key, adoption in declared_adoptions.items()
        if isinstance(adoption, Adoption)
    }


def find_visible_directives(service: Service) -> VisibleDirectives | None:
    """Return the rules for showing a service's files, or None if the service adopts no files."""
    adoption = find_declaration(service, "ADOPTION")
    return adoption.visible if isinstance(adoption, Adoption) else None


def find_outliner(service: Service, path: str) -> Outliner | None:
    """Return the function that finds the visible parts of a service's file, or None if the service
    adopts no files.
    """
    syntax = find_visible_directives(service)
    return syntax.build_outliner(path) if syntax else None


def references() -> dict[str, ServiceReference]:
    """Return the texts for reference pages by service name. Some services have none."""
    declared_references = {s.name: find_declaration(s, "REFERENCE") for s in reversed(ALL_SERVICES)}
    return {
        name: text
        for name, text in declared_references.items()
        if isinstance(text, ServiceReference)
    }


def list_programs() -> tuple[Adoption, ...]:
    """Return one adoption per program, so that a host is searched only once for services that share
    a program.
    """
    return tuple(
        {adoption.find_services: adoption for adoption in map_adoptions().values()}.values()
    )


@cache
def find_diagnosis(name: str) -> Diagnosis:
    """Return the diagnosis of the services with this name; an empty one if the name is unknown."""
    declared_diagnoses = (find_declaration(service, "DIAGNOSIS") for service in list_by_name(name))
    return next((d for d in declared_diagnoses if isinstance(d, Diagnosis)), EMPTY_DIAGNOSIS)


def expected_body(target: Target) -> bytes | None:
    """Return the body of a correct response if the application is autotune's own, or else None."""
    apps = (APPLICATIONS[tier.app] for tier in target.tiers.values() if tier.app in APPLICATIONS)
    return next((body for app in apps if (body := app.expected_body(target.data))), None)


class TierLike(Protocol):
    """The attributes of a `target.model.Tier` that determine its services."""

    @property
    def service(self) -> tuple[str, ...]: ...

    @property
    def installed(self) -> bool: ...

    @property
    def isolated(self) -> bool: ...

    @property
    def app(self) -> str | None: ...

    @property
    def local_cache(self) -> bool: ...


@dataclass(frozen=True)
class TierService:
    """A service in a tier, its role, and the settings under which it exists.

    ``when`` contains conditions on the study's settings, by full name. If it is empty, the service
    always exists.
    """

    tier: str
    service: Service
    role: Role
    when: Conditions = ()

    @property
    def name(self) -> str:
        """Return ``tier.service``, the prefix of its parameters' full names."""
        return f"{self.tier}.{self.service.name}"

    @property
    def run_conditions(self) -> Conditions:
        """Return the conditions under which the service runs: ``when``, and conditions on its own
        parameters.

        Those parameters are active even while the service is stopped, because they decide whether
        it runs.
        """
        own_conditions = (
            (f"{self.name}.{name}", values) for name, values in self.service.runs_when
        )
        return (*self.when, *own_conditions)


def choice_name(tier: str) -> str:
    """Return the name of the setting that selects a tier's deployment."""
    return f"{tier}.service"


def list_tier_services(name: str, tier: TierLike) -> tuple[TierService, ...]:
    """Return the services in a tier: kernels, application files, then the services of each
    deployment.

    Limits for units precede their deployment. A service that several deployments share appears
    once. Raises KeyError for an unknown deployment or application.
    """
    deployments: dict[tuple[Service, Role], tuple[str, ...]] = {}
    for service, role, deployment in _iterate_services(tier):
        other_deployments = deployments.get((service, role), ())
        deployments[service, role] = (*other_deployments, deployment) if deployment else ()
    is_choice = len(tier.service) > 1
    return tuple(
        TierService(name, service, role, ((choice_name(name), some),) if some and is_choice else ())
        for (service, role), some in deployments.items()
    )


def list_target_services(target: Target) -> Iterator[TierService]:
    """Yield the services of all tiers."""
    for name, tier in target.tiers.items():
        yield from list_tier_services(name, tier)


def _iterate_services(tier: TierLike) -> Iterator[tuple[Service, Role, str]]:
    """Yield services with their roles and deployments. Permanent services have the deployment
    ``""``.
    """
    host_services = [service for service in list_by_role(Role.HOST)
               if tier.installed and service.isolated_only == tier.isolated]  # fmt: skip
    yield from ((service, Role.HOST, "") for service in host_services if not service.per_deployment)
    if tier.app:
        yield APPLICATIONS[tier.app], Role.APP, ""
    if tier.local_cache:
        yield from ((service, Role.LOCAL, "") for service in list_by_role(Role.LOCAL))
    for deployment in tier.service:
        services = tuple(service for service, _ in services_of(deployment))
        yield from (
            (service, Role.HOST, deployment)
            for service in select_companions(services, host_services)
        )
        yield from ((service, role, deployment) for service, role in services_of(deployment))
