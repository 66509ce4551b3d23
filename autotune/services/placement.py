"""Which services a tier has, in the order they start, and under which settings each is active."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from autotune.services.base import Conditions, Role, Service
from autotune.services.registry import APPS, of_role, parts


@dataclass(frozen=True)
class Placed:
    """A service in a tier: what it does there, and the settings it is there under.

    ``when`` is about the study's settings, by their full names; empty means always. Its parameters
    mean something then; it ``runs`` if they do not themselves say otherwise.
    """

    service: Service
    role: Role
    when: Conditions = ()
    runs: Conditions = ()


class Tier(Protocol):
    """What decides which services there are, of a `target.model.Tier`."""

    @property
    def service(self) -> tuple[str, ...]: ...

    @property
    def installed(self) -> bool: ...

    @property
    def app(self) -> str | None: ...

    @property
    def local_cache(self) -> bool: ...


def choice_of(tier: str) -> str:
    """The setting that says which of a tier's deployments runs."""
    return f"{tier}.service"


def placed(name: str, tier: Tier) -> tuple[Placed, ...]:
    """The services of a tier: its hosts' kernels and its application's files first, then those of
    each deployment, the limits of its units before them.

    A service that several deployments share is there once. Raises KeyError for an unknown one.
    """
    places: list[Placed] = []
    _add_all(places, tier, name)
    return tuple(replace(place, runs=_runs(name, place)) for place in places)


def _add_all(places: list[Placed], tier: Tier, name: str) -> None:
    of_host = of_role(Role.HOST) if tier.installed else ()
    places += [Placed(service, Role.HOST) for service in of_host if not service.per_deployment]
    if tier.app:
        places.append(Placed(APPS[tier.app], Role.APP))
    if tier.local_cache:
        places += [Placed(service, Role.LOCAL) for service in of_role(Role.LOCAL)]
    for deployment in tier.service:
        when: Conditions = ((choice_of(name), (deployment,)),) if len(tier.service) > 1 else ()
        services = parts(deployment)
        for limit in (service for service in of_host if service.per_deployment):
            beside = limit.beside(tuple(service for service, _ in services))
            _add(places, Placed(beside, Role.HOST, when))
        for service, role in services:
            _add(places, Placed(service, role, when))


def _runs(tier: str, place: Placed) -> Conditions:
    prefix = f"{tier}.{place.service.name}."
    return (*place.when, *((prefix + name, values) for name, values in place.service.runs_when))


def _add(places: list[Placed], new: Placed) -> None:
    for index, old in enumerate(places):
        if (old.service, old.role) == (new.service, new.role):
            places[index] = replace(old, when=_either(old.when, new.when))
            return
    places.append(new)


def _either(one: Conditions, other: Conditions) -> Conditions:
    """Both speak of the same choice: one of the values of either will do."""
    return tuple(
        (name, (*values, *(v for v in more if v not in values)))
        for (name, values), (_, more) in zip(one, other, strict=True)
    )
