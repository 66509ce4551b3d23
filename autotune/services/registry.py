"""Catalogues of services and deployments, and the services in a tier.

Each folder in this package declares its services in ``service.SERVICES``, as plug-ins do. A target
may declare further services, which are added to its catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
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

Deployment = tuple[tuple[str, Role], ...]


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All available services, sorted by role, in the order in which a request passes through the roles.

    - ``deployable``: services that can form deployments, by key.
    - ``applications``: names that can appear under a tier's ``app``.
    - ``deployments``: names that can appear under a tier's ``service``, with the services of the
      deployment and their roles, in start order.
    - ``deployment_ports``: the default port of each deployment that consists of the distribution's
      units.
    """

    services: tuple[Service, ...]
    deployable: Mapping[str, Service]
    applications: Mapping[str, Service]
    deployments: Mapping[str, Deployment]
    deployment_ports: Mapping[str, int]

    @classmethod
    def create(cls, services: Iterable[Service]) -> Catalogue:
        """Return the catalogue of ``services``. A service replaces an earlier service with the same
        key.
        """
        services_by_key = {service.key: service for service in services}
        ordered_services = sorted(
            services_by_key.values(),
            key=lambda service: (list(Role).index(service.role), service.key),
        )
        deployable_services = {
            service.key: service
            for service in ordered_services
            if service.deployment or service.gateway_protocol
        }
        deployments = list(_list_deployments(deployable_services.values()))
        return cls(
            tuple(ordered_services),
            deployable_services,
            {service.application: service for service in ordered_services if service.application},
            {name: roles_by_service for name, _, roles_by_service in deployments},
            {name: port for name, port, _ in deployments},
        )

    def suggest_deployment(self, written_name: str) -> str:
        """Return a hint for an unknown name under ``service:``, with the deployment that was
        probably meant.
        """
        deployments = self.deployments
        aliases = {
            alias: service.key
            for service in self.deployable.values()
            for alias in service.other_names
        }
        # Names of units, versions and image tags
        plain_name = re.sub(r"\.service$|[/:@][\w.-]{1,50}$|\s", "", written_name.lower())
        meant_services = [aliases.get(word, word) for word in plain_name.split("+")]
        meant_deployment = next(
            (d for d in deployments if sorted(d.split("+")) == sorted(meant_services)),
            "+".join(meant_services),
        )
        if meant_deployment == written_name and find_nearest_name(written_name, deployments):
            return suggest_name(written_name, deployments)
        hint = (
            f"did you mean {meant_deployment!r}?"
            if meant_deployment in deployments
            else suggest_name(meant_deployment, deployments)
        )
        return f"{hint}{'' if hint.endswith('?') else '.'} Declare other software under `services:`"

    def services_of(self, deployment: str) -> tuple[tuple[Service, Role], ...]:
        """Return the services of a deployment such as ``nginx+php-fpm``, in start order."""
        return tuple((self.deployable[name], role) for name, role in self.deployments[deployment])

    def list_by_role(self, role: Role) -> tuple[Service, ...]:
        """Return the services with this role."""
        return tuple(service for service in self.services if service.role is role)

    def list_by_name(self, service_name: str) -> tuple[Service, ...]:
        """Return the services with this name. A program with several roles, such as Apache, is
        declared as several services with the same name.
        """
        return tuple(service for service in self.services if service.name == service_name)

    def loses_cache(self, instance_name: str) -> bool:
        """True if a restart empties the cache of the service instance with this name."""
        matching_services = self.list_by_name(instance_name.rpartition(".")[2])
        return any(service.forgets_on_restart for service in matching_services)

    def any_speaks_protocol(self, deployments: Iterable[str], protocol: str) -> bool:
        """True if load generators for ``protocol`` can test one of ``deployments``."""
        return any(
            service.load_protocol == protocol
            for deployment in deployments
            for service, _ in self.services_of(deployment)
        )

    def map_adoptions(self) -> dict[str, Adoption]:
        """Return the adoption of each service that can be adopted, by service key."""
        adoptions = {service.key: find_adoption(service) for service in self.services}
        return {key: adoption for key, adoption in adoptions.items() if adoption is not None}

    def list_programs(self) -> tuple[Adoption, ...]:
        """Return one adoption per program, so that a host is searched only once for services that
        share a program.
        """
        adoptions = self.map_adoptions().values()
        return tuple({adoption.find_services: adoption for adoption in adoptions}.values())

    def find_diagnosis(self, service_name: str) -> Diagnosis:
        """Return the diagnosis of the services with this name, or an empty diagnosis."""
        return self._diagnoses.get(service_name, EMPTY_DIAGNOSIS)

    @cached_property
    def _diagnoses(self) -> Mapping[str, Diagnosis]:
        own_diagnoses = (
            (service.name, find_own_diagnosis(service)) for service in reversed(self.services)
        )
        return {
            name: diagnosis for name, diagnosis in own_diagnoses if diagnosis is not EMPTY_DIAGNOSIS
        }

    def list_tier_services(self, tier_name: str, tier: TierLike) -> tuple[TierService, ...]:
        """Return the services in a tier: kernel settings, application files, then the services of
        each deployment.

        The host services of a deployment, such as unit limits, precede its other services. A
        service that several deployments share appears once. Raises KeyError for an unknown
        deployment or application.
        """
        deployments_by_service: dict[tuple[Service, Role], tuple[str, ...]] = {}
        for service, role, deployment in self._iterate_services(tier):
            earlier_deployments = deployments_by_service.get((service, role), ())
            deployments_by_service[service, role] = (
                (*earlier_deployments, deployment) if deployment else ()
            )
        is_choice = len(tier.service) > 1
        return tuple(
            TierService(
                tier_name,
                service,
                role,
                ((choice_name(tier_name), own_deployments),)
                if own_deployments and is_choice
                else (),
            )
            for (service, role), own_deployments in deployments_by_service.items()
        )

    def _iterate_services(self, tier: TierLike) -> Iterator[tuple[Service, Role, str]]:
        """Yield the services in a tier with their roles and deployments. The deployment of a
        service that always runs is ``""``.
        """
        host_services = [
            service
            for service in self.list_by_role(Role.HOST)
            if tier.installed and service.isolated_only == tier.isolated
        ]
        yield from (
            (service, Role.HOST, "") for service in host_services if not service.per_deployment
        )
        if tier.app:
            yield self.applications[tier.app], Role.APP, ""
        if tier.local_cache:
            yield from ((service, Role.LOCAL, "") for service in self.list_by_role(Role.LOCAL))
        for deployment in tier.service:
            services = tuple(service for service, _ in self.services_of(deployment))
            yield from (
                (service, Role.HOST, deployment)
                for service in select_companions(services, host_services)
            )
            yield from (
                (service, role, deployment) for service, role in self.services_of(deployment)
            )


def _list_deployments(services: Collection[Service]) -> Iterator[tuple[str, int, Deployment]]:
    """Yield the name and port of each deployment, and its services in start order."""
    for service in services:
        if service.deployment:
            yield service.deployment, service.port, ((service.key, service.role),)
        for application_server in services:
            if application_server.gateway_protocol in service.gateway_protocols:
                role_pairs = (
                    (application_server.key, application_server.role),
                    (service.key, Role.WEB),
                )
                yield f"{service.key}+{application_server.key}", service.port, role_pairs


def _load_shipped_services() -> Iterator[Service]:
    for service_package in iter_modules(services.__path__):
        if service_package.ispkg:
            yield from import_module(f"{services.__name__}.{service_package.name}.service").SERVICES


def _load_plugin_services(shipped_services: Sequence[Service]) -> Iterator[Service]:
    """Yield the services from plug-ins. Raises AutotuneError."""
    used_keys = {service.key for service in shipped_services}
    for plugin, plugin_services in plugins.iterate_plugins("services"):
        for service in plugin_services:
            plugins.check_name_free(plugin, "services", service.key, used_keys)
            used_keys.add(service.key)
            yield service


def _load_catalogue() -> Catalogue:
    """Return the catalogue of the services in this package and in plug-ins. Raises AutotuneError."""
    shipped_services = list(_load_shipped_services())
    return Catalogue.create([*shipped_services, *_load_plugin_services(shipped_services)])


SHIPPED = _load_catalogue()
# Names that services declared in a target cannot use.
RESERVED_NAMES = frozenset(
    (*SHIPPED.deployments, *(name for s in SHIPPED.services for name in (s.key, s.name)))
)


def extend_catalogue(specs: Mapping[str, ServiceSpec]) -> Catalogue:
    """Return the shipped catalogue, extended by the services in ``specs`` whose names no shipped
    service uses.
    """
    return _extend_catalogue(_CacheableSpecs(specs)) if specs else SHIPPED


def catalogue_of(target: Target) -> Catalogue:
    """Return the catalogue of a target."""
    return extend_catalogue(target.services)


class _CacheableSpecs:
    """Declared services as a hashable cache key. Specs with equal text declare equal services."""

    def __init__(self, specs: Mapping[str, ServiceSpec]) -> None:
        self.specs, self._text = specs, repr(specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CacheableSpecs) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=8)
def _extend_catalogue(specs: _CacheableSpecs) -> Catalogue:
    declared_services = (
        declared.build_service(name, spec)
        for name, spec in specs.specs.items()
        if name not in RESERVED_NAMES
    )
    return Catalogue.create([*SHIPPED.services, *declared_services])


def list_target_services(target: Target) -> Iterator[TierService]:
    """Yield the services of all tiers in a target."""
    catalogue = catalogue_of(target)
    for tier_name, tier in target.tiers.items():
        yield from catalogue.list_tier_services(tier_name, tier)


def expected_body(target: Target) -> bytes | None:
    """Return the body of a correct response if the application is autotune's own, or else None."""
    shipped_applications = SHIPPED.applications
    application_names = (tier.app for tier in target.tiers.values() if tier.app)
    application_services = (
        shipped_applications[name] for name in application_names if name in shipped_applications
    )
    return next(
        (body for app in application_services if (body := app.expected_body(target.data))), None
    )


def select_companions(
    services: tuple[Service, ...], host_services: Iterable[Service]
) -> Iterator[Service]:
    """Yield the per-deployment host services for ``services``, which run together in one
    deployment.
    """
    for service in host_services:
        if service.per_deployment and (companion := service.for_deployment(services)):
            yield companion


def find_declaration(service: Service, declaration_name: str) -> object:
    """Return the ``ADOPTION``, ``DIAGNOSIS`` or ``REFERENCE`` of a service, or None.

    The service's own attribute takes precedence over its folder's module (``adoption.py``, for
    example), and this module takes precedence over ``service.py``.
    """
    if (own_declaration := getattr(service, declaration_name.lower(), None)) is not None:
        return own_declaration
    return _find_in_folder(type(service).__module__, declaration_name)


@cache
def _find_in_folder(service_module: str, declaration_name: str) -> object:
    declaration_module = f"{service_module.rpartition('.')[0]}.{declaration_name.lower()}"
    declaring_module = (
        declaration_module
        if declaration_module[0] != "." and find_spec(declaration_module)
        else service_module
    )
    return getattr(import_module(declaring_module), declaration_name, None)


def find_adoption(service: Service) -> Adoption | None:
    """Return the adoption of a service, or None if autotune cannot adopt the service."""
    adoption = find_declaration(service, "ADOPTION")
    return adoption if isinstance(adoption, Adoption) else None


def find_own_diagnosis(service: Service) -> Diagnosis:
    """Return the diagnosis that a service defines, or an empty diagnosis."""
    diagnosis = find_declaration(service, "DIAGNOSIS")
    return diagnosis if isinstance(diagnosis, Diagnosis) else EMPTY_DIAGNOSIS


def find_visible_directives(service: Service) -> VisibleDirectives | None:
    """Return the rules for showing a service's files, or None if autotune adopts no file of the
    service.
    """
    adoption = find_adoption(service)
    return adoption.visible if adoption else None


def find_outliner(service: Service, path: str) -> Outliner | None:
    """Return the function that finds the visible parts of a service's file, or None if autotune
    adopts none of the service's files.
    """
    visible_directives = find_visible_directives(service)
    return visible_directives.build_outliner(path) if visible_directives else None


def load_references() -> dict[str, ServiceReference]:
    """Return the texts for reference pages by service name. Services without a reference page are
    omitted.
    """
    references_by_name = {
        service.name: find_declaration(service, "REFERENCE")
        for service in reversed(SHIPPED.services)
    }
    return {
        name: reference
        for name, reference in references_by_name.items()
        if isinstance(reference, ServiceReference)
    }


class TierLike(Protocol):
    """Protocol with the attributes of a `target.model.Tier` that determine the tier's services."""

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
    """A service in a tier, its role, and the settings with which the tier includes it.

    ``when`` contains conditions on the study's settings, by full name. If ``when`` is empty, the
    service always exists.
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
        """Return the conditions under which the service runs: those in ``when``, and those on the
        service's own parameters.

        The service's own parameters in its conditions are active even while the service is stopped,
        because they decide whether the service runs.
        """
        own_conditions = (
            (f"{self.name}.{name}", values) for name, values in self.service.runs_when
        )
        return (*self.when, *own_conditions)


def choice_name(tier: str) -> str:
    """Return the name of the setting that selects a tier's deployment."""
    return f"{tier}.service"
