"""Every service there is, what deployments are made of, and which services a tier has.

Each folder beside this file declares its own in ``service.SERVICES``, plug-ins declare theirs. Services
that the target declares are added when it is read: a process works with one target only.
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
from autotune.services import declared
from autotune.services.adoption import Adoption
from autotune.services.base import Conditions, Role, Service
from autotune.services.diagnosis import NOTHING, Diagnosis
from autotune.services.understood import Understood
from autotune.target.model import Target
from autotune.target.service import ServiceSpec


def _shipped() -> Iterator[Service]:
    for folder in iter_modules(services.__path__):
        if folder.ispkg:
            yield from import_module(f"{services.__name__}.{folder.name}.service").SERVICES


def _plugged_in() -> Iterator[Service]:
    """The services of other packages. Raises AutotuneError."""
    for plugin, some in plugins.declared("services"):
        for service in some:
            plugins.check_new(plugin, "services", service.key, [s.key for s in ALL])
            yield service


# In the order in which a request passes them, which is that of the roles.
ALL: list[Service] = []
# What deployments are made of, by their keys.
SERVICES: dict[str, Service] = {}
# What a tier's ``app`` may say.
APPS: dict[str, Service] = {}
# What a tier's ``service`` may say, and the role each part of it plays there, in starting order.
DEPLOYMENTS: dict[str, tuple[tuple[str, Role], ...]] = {}
# Where a deployment listens under its distribution's units, unless the tier says otherwise.
PORTS: dict[str, int] = {}


def _deployments() -> Iterator[tuple[str, int, tuple[tuple[str, Role], ...]]]:
    """Name, port and services of each, these in starting order."""
    for service in SERVICES.values():
        if service.deployment:
            yield service.deployment, service.port, ((service.key, service.role),)
        for server in SERVICES.values():
            if server.gateway in service.gateways:
                together = ((server.key, server.role), (service.key, Role.WEB))
                yield f"{service.key}+{server.key}", service.port, together


def _add(some: Iterable[Service]) -> None:
    """Add services to everything above; each replaces the one that had its key."""
    by_key = {service.key: service for service in (*ALL, *some)}
    ALL[:] = sorted(by_key.values(), key=lambda s: (list(Role).index(s.role), s.key))
    SERVICES.update((s.key, s) for s in ALL if s.deployment or s.gateway)
    APPS.update((s.application, s) for s in ALL if s.application)
    for deployment, port, together in _deployments():
        DEPLOYMENTS[deployment], PORTS[deployment] = together, port


_add(_shipped())
_add([*_plugged_in()])
# Names that a target cannot give to services of its own.
SHIPPED = frozenset((*DEPLOYMENTS, *(name for s in ALL for name in (s.key, s.name))))


def declare(specs: Mapping[str, ServiceSpec]) -> None:
    """Add what a target declares; where autotune ships a service of that name, its own stays."""
    _add(declared.service(name, spec) for name, spec in specs.items() if name not in SHIPPED)
    diagnosis.cache_clear()


def parts(deployment: str) -> tuple[tuple[Service, Role], ...]:
    """The services of a deployment such as ``nginx+php-fpm``, in the order they start."""
    return tuple((SERVICES[name], role) for name, role in DEPLOYMENTS[deployment])


def of_role(role: Role) -> tuple[Service, ...]:
    """The services that have this role of their own."""
    return tuple(service for service in ALL if service.role is role)


def beside(services: tuple[Service, ...], of_host: Iterable[Service]) -> Iterator[Service]:
    """What a host has for these services, which run together in one deployment."""
    for service in of_host:
        if service.per_deployment and (own := service.beside(services)):
            yield own


def named(name: str) -> tuple[Service, ...]:
    """The services of this name: several where one program does different jobs."""
    return tuple(service for service in ALL if service.name == name)


def speaks(deployments: Iterable[str], protocol: str) -> bool:
    """Whether generators of load that speak ``protocol`` can ask one of these deployments."""
    return any(service.protocol == protocol for d in deployments for service, _ in parts(d))


def folder_declares(service: Service, name: str) -> object:
    """``ADOPTION`` or ``DIAGNOSIS`` of a service: its own attribute first, then that of the module of
    this name in its folder or, without one, of its `service.py`. None where it declares none."""
    if (own := getattr(service, name.lower(), None)) is not None:
        return own
    own_module = type(service).__module__
    module = f"{own_module.rpartition('.')[0]}.{name.lower()}"
    declaring = module if module[0] != "." and find_spec(module) else own_module
    return getattr(import_module(declaring), name, None)


def adoptions() -> dict[str, Adoption]:
    """How services are recognised on running hosts, by their keys."""
    declared = {service.key: folder_declares(service, "ADOPTION") for service in ALL}
    return {key: adoption for key, adoption in declared.items() if isinstance(adoption, Adoption)}


def understood(service: Service) -> Understood | None:
    """What a service understands of a host's own files; None for a service that adopts no files."""
    adoption = folder_declares(service, "ADOPTION")
    return adoption.understood if isinstance(adoption, Adoption) else None


def outliner(service: Service, path: str) -> Outliner | None:
    """What of a host's own file of a service may be shown; None for a service that adopts no files."""
    syntax = understood(service)
    return syntax.outliner(path) if syntax else None


def programs() -> tuple[Adoption, ...]:
    """An adoption for each program: services that are found together are looked for once."""
    return tuple({adoption.find: adoption for adoption in adoptions().values()}.values())


@cache
def diagnosis(name: str) -> Diagnosis:
    """What diagnosing needs of the services of this name; nothing of an unknown one."""
    declared = (folder_declares(service, "DIAGNOSIS") for service in named(name))
    return next((d for d in declared if isinstance(d, Diagnosis)), NOTHING)


def expected_body(target: Target) -> bytes | None:
    """The body that proves a request was served right, where the application is one of ours."""
    apps = (APPS[tier.app] for tier in target.tiers.values() if tier.app in APPS)
    return next((body for app in apps if (body := app.expected_body(target.data))), None)


class Tier(Protocol):
    """The part of a `target.model.Tier` that decides which services it has."""

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
class Placed:
    """A service in a tier: what it does there, and the settings under which it is there.

    ``when`` are conditions on the study's settings, by their full names; empty means always.
    """

    tier: str
    service: Service
    role: Role
    when: Conditions = ()

    @property
    def name(self) -> str:
        """``tier.service``, which the full names of its parameters begin with."""
        return f"{self.tier}.{self.service.name}"

    @property
    def runs(self) -> Conditions:
        """When it runs: ``when``, and any conditions on its own parameters. Those parameters also mean
        something while it does not run, for they decide whether it does."""
        own = ((f"{self.name}.{name}", values) for name, values in self.service.runs_when)
        return (*self.when, *own)


def choice_of(tier: str) -> str:
    """The setting that says which of a tier's deployments runs."""
    return f"{tier}.service"


def placed(name: str, tier: Tier) -> tuple[Placed, ...]:
    """The services of a tier: its hosts' kernels and its application's files first, then those of
    each deployment, the limits of its units before them.

    A service that several deployments share is there once. Raises KeyError for an unknown deployment
    or application.
    """
    deployments: dict[tuple[Service, Role], tuple[str, ...]] = {}
    for service, role, deployment in _services(tier):
        of_others = deployments.get((service, role), ())
        deployments[service, role] = (*of_others, deployment) if deployment else ()
    is_choice = len(tier.service) > 1
    return tuple(
        Placed(name, service, role, ((choice_of(name), some),) if some and is_choice else ())
        for (service, role), some in deployments.items()
    )


def places(target: Target) -> Iterator[Placed]:
    """The services of all tiers."""
    for name, tier in target.tiers.items():
        yield from placed(name, tier)


def _services(tier: Tier) -> Iterator[tuple[Service, Role, str]]:
    """Services with their roles and deployments; no deployment (``""``) for what is always there."""
    of_host = [service for service in of_role(Role.HOST)
               if tier.installed and service.contained == tier.isolated]  # fmt: skip
    yield from ((service, Role.HOST, "") for service in of_host if not service.per_deployment)
    if tier.app:
        yield APPS[tier.app], Role.APP, ""
    if tier.local_cache:
        yield from ((service, Role.LOCAL, "") for service in of_role(Role.LOCAL))
    for deployment in tier.service:
        services = tuple(service for service, _ in parts(deployment))
        yield from ((service, Role.HOST, deployment) for service in beside(services, of_host))
        yield from ((service, role, deployment) for service, role in parts(deployment))
