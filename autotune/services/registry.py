"""Registry of all services, deployments, and the services of a tier.

Each folder in this package declares its services in ``service.SERVICES``, and plug-ins declare
theirs. Services of a target are added when it is read: a process works with one target only.
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
from autotune.services.reference import Reference
from autotune.services.visible_directives import VisibleDirectives
from autotune.target.declared_service import ServiceSpec
from autotune.target.messages import find_nearest_name, suggest_name
from autotune.target.model import Target


def _load_shipped() -> Iterator[Service]:
    for folder in iter_modules(services.__path__):
        if folder.ispkg:
            yield from import_module(f"{services.__name__}.{folder.name}.service").SERVICES


def _load_plugins() -> Iterator[Service]:
    """Yield the services of other packages. Raises AutotuneError."""
    for plugin, some in plugins.iterate_plugins("services"):
        for service in some:
            plugins.check_name_free(plugin, "services", service.key, [s.key for s in ALL_SERVICES])
            yield service


# In the order of the roles, in which a request passes them.
ALL_SERVICES: list[Service] = []
# Services that form deployments, by key.
DEPLOYABLE_SERVICES: dict[str, Service] = {}
# Names for a tier's ``app``.
APPLICATIONS: dict[str, Service] = {}
# Names for a tier's ``service``, with the role of each part in starting order.
DEPLOYMENTS: dict[str, tuple[tuple[str, Role], ...]] = {}
# Default port of a deployment under its distribution's units.
DEPLOYMENT_PORTS: dict[str, int] = {}


def _list_deployments() -> Iterator[tuple[str, int, tuple[tuple[str, Role], ...]]]:
    """Yield name, port and services of each deployment, in starting order."""
    for service in DEPLOYABLE_SERVICES.values():
        if service.deployment:
            yield service.deployment, service.port, ((service.key, service.role),)
        for server in DEPLOYABLE_SERVICES.values():
            if server.gateway_protocol in service.gateway_protocols:
                together = ((server.key, server.role), (service.key, Role.WEB))
                yield f"{service.key}+{server.key}", service.port, together


def _add_services(services: Iterable[Service]) -> None:
    """Add services to the tables above. Each replaces an earlier one with the same key."""
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
# Names that a target's own services cannot use.
RESERVED_NAMES = frozenset(
    (*DEPLOYMENTS, *(name for s in ALL_SERVICES for name in (s.key, s.name)))
)


def add_declared(specs: Mapping[str, ServiceSpec]) -> None:
    """Add the services that a target declares, except for names of shipped services."""
    _add_services(
        declared.build_service(name, spec)
        for name, spec in specs.items()
        if name not in RESERVED_NAMES
    )
    find_diagnosis.cache_clear()


def suggest_deployment(name: str) -> str:
    """Return a hint for an unknown name in ``service:``: the software that people mean by it."""
    aliases = {other: s.key for s in DEPLOYABLE_SERVICES.values() for other in s.other_names}
    meant = "+".join(aliases.get(part, part) for part in name.lower().split("+"))
    if meant == name and find_nearest_name(name, DEPLOYMENTS):
        return suggest_name(name, DEPLOYMENTS)
    hint = f"did you mean {meant!r}?" if meant in DEPLOYMENTS else suggest_name(meant, DEPLOYMENTS)
    return f"{hint}{'' if hint.endswith('?') else '.'} Declare other software under `services:`"


def services_of(deployment: str) -> tuple[tuple[Service, Role], ...]:
    """Return the services of a deployment such as ``nginx+php-fpm``, in starting order."""
    return tuple((DEPLOYABLE_SERVICES[name], role) for name, role in DEPLOYMENTS[deployment])


def list_by_role(role: Role) -> tuple[Service, ...]:
    """Return the services with this role."""
    return tuple(service for service in ALL_SERVICES if service.role is role)


def select_companions(
    services: tuple[Service, ...], host_services: Iterable[Service]
) -> Iterator[Service]:
    """Yield the host services for these services, which run together in one deployment."""
    for service in host_services:
        if service.per_deployment and (own := service.for_deployment(services)):
            yield own


def list_by_name(name: str) -> tuple[Service, ...]:
    """Return the services of this name. Several exist if one program has several functions."""
    return tuple(service for service in ALL_SERVICES if service.name == name)


def any_speaks_protocol(deployments: Iterable[str], protocol: str) -> bool:
    """True if load generators for ``protocol`` can query one of these deployments."""
    return any(
        service.load_protocol == protocol for d in deployments for service, _ in services_of(d)
    )


def find_declaration(service: Service, name: str) -> object:
    """Return ``ADOPTION``, ``DIAGNOSIS`` or ``REFERENCE`` of a service, or None.

    Its own attribute overrides that of its folder's module, which overrides that of its
    `service.py`.
    """
    if (own := getattr(service, name.lower(), None)) is not None:
        return own
    own_module = type(service).__module__
    module = f"{own_module.rpartition('.')[0]}.{name.lower()}"
    declaring = module if module[0] != "." and find_spec(module) else own_module
    return getattr(import_module(declaring), name, None)


def map_adoptions() -> dict[str, Adoption]:
    """Return the adoptions by service key."""
    declared = {service.key: find_declaration(service, "ADOPTION") for service in ALL_SERVICES}
    return {key: adoption for key, adoption in declared.items() if isinstance(adoption, Adoption)}


def understood(service: Service) -> VisibleDirectives | None:
    """Return what may be shown of a service's files, or None if it adopts no files."""
    adoption = find_declaration(service, "ADOPTION")
    return adoption.visible if isinstance(adoption, Adoption) else None


def find_outliner(service: Service, path: str) -> Outliner | None:
    """Return the outliner of a service's file, or None for a service that adopts no files."""
    syntax = understood(service)
    return syntax.build_outliner(path) if syntax else None


def references() -> dict[str, Reference]:
    """The texts of the reference pages by the names of services, of those that have one."""
    declared = {s.name: find_declaration(s, "REFERENCE") for s in reversed(ALL_SERVICES)}
    return {name: text for name, text in declared.items() if isinstance(text, Reference)}


def list_programs() -> tuple[Adoption, ...]:
    """Return one adoption per program, so services that are found together are searched once."""
    return tuple(
        {adoption.find_services: adoption for adoption in map_adoptions().values()}.values()
    )


@cache
def find_diagnosis(name: str) -> Diagnosis:
    """Return the diagnosis of the services of this name, or an empty one if unknown."""
    declared = (find_declaration(service, "DIAGNOSIS") for service in list_by_name(name))
    return next((d for d in declared if isinstance(d, Diagnosis)), EMPTY_DIAGNOSIS)


def expected_body(target: Target) -> bytes | None:
    """Return the body of a correct response, if the application is autotune's own."""
    apps = (APPLICATIONS[tier.app] for tier in target.tiers.values() if tier.app in APPLICATIONS)
    return next((body for app in apps if (body := app.expected_body(target.data))), None)


class TierLike(Protocol):
    """The part of a `target.model.Tier` that determines its services."""

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

    ``when`` contains conditions on the study's settings by full name. Empty means always.
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
        """Return the conditions under which it runs: ``when``, and conditions on its own
        parameters.

        Those parameters are also active while it is stopped, because they decide whether it runs.
        """
        own = ((f"{self.name}.{name}", values) for name, values in self.service.runs_when)
        return (*self.when, *own)


def choice_name(tier: str) -> str:
    """Return the name of the setting that selects a tier's deployment."""
    return f"{tier}.service"


def list_tier_services(name: str, tier: TierLike) -> tuple[TierService, ...]:
    """Return the services of a tier: kernels, application files, then each deployment's services.

    Limits of units come before their deployment. A service shared by several deployments appears
    once. Raises KeyError for an unknown deployment or application.
    """
    deployments: dict[tuple[Service, Role], tuple[str, ...]] = {}
    for service, role, deployment in _iterate_services(tier):
        of_others = deployments.get((service, role), ())
        deployments[service, role] = (*of_others, deployment) if deployment else ()
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
    """Yield services with roles and deployments. The deployment is ``""`` for permanent services."""
    of_host = [service for service in list_by_role(Role.HOST)
               if tier.installed and service.isolated_only == tier.isolated]  # fmt: skip
    yield from ((service, Role.HOST, "") for service in of_host if not service.per_deployment)
    if tier.app:
        yield APPLICATIONS[tier.app], Role.APP, ""
    if tier.local_cache:
        yield from ((service, Role.LOCAL, "") for service in list_by_role(Role.LOCAL))
    for deployment in tier.service:
        services = tuple(service for service, _ in services_of(deployment))
        yield from (
            (service, Role.HOST, deployment) for service in select_companions(services, of_host)
        )
        yield from ((service, role, deployment) for service, role in services_of(deployment))
