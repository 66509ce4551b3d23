"""Check that the services of each tier are known, support its runtime, and can replace each other."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.errors import TargetError
from autotune.services.base import Role
from autotune.services.registry import catalogue_of
from autotune.target import runtimes
from autotune.target.messages import suggest_list
from autotune.target.model import Tier
from autotune.target.read_target import TargetFile

DATABASE_KIND = "a database"
# Software of one kind can take the place of other software of this kind. All other roles serve HTTP.
ROLE_KINDS = {Role.CACHE: "a cache", Role.STORE: "a store", Role.DATABASE: DATABASE_KIND}
HOST_RUNTIME_HINT = (
    f"write `runtime: {runtimes.DEFAULT_RUNTIME}` in all tiers to tune the services of the hosts"
)


def find_unknown_deployments(file: TargetFile) -> Iterator[TargetError]:
    """Yield an error for each service of a tier that is unknown or does not support the tier's
    runtime.
    """
    catalogue = catalogue_of(file.target)
    for tier_name, tier in file.target.tiers.items():
        for index, deployment in enumerate(tier.service):
            if deployment not in catalogue.deployments:
                yield file.document.build_error(
                    ["tiers", tier_name, "service", index],
                    f"unknown service {deployment!r}",
                    hint=suggest_list(deployment, catalogue.deployments)
                    or catalogue.suggest_deployment(deployment),
                )
            elif any(service.keeps_data for service, _ in catalogue.services_of(deployment)):
                yield from _find_data_mismatch(file, tier_name, tier, deployment)
            elif not tier.installed and not all(
                service.can_run_privately for service, _ in catalogue.services_of(deployment)
            ):
                yield file.document.build_error(
                    ["tiers", tier_name, "service", index],
                    f"{deployment} can run only as a unit of its hosts",
                    hint=HOST_RUNTIME_HINT,
                )
        yield from _find_name_clashes(file, tier_name, tier)
        yield from _find_mixed_roles(file, tier_name, tier)


def _find_mixed_roles(file: TargetFile, tier_name: str, tier: Tier) -> Iterator[TargetError]:
    """Yield an error for the first service that cannot take the place of the tier's first service.
    Databases have their own error.
    """
    catalogue = catalogue_of(file.target)
    kinds = [
        (index, key, ROLE_KINDS.get(catalogue.deployments[key][-1][1], "an HTTP server"))
        for index, key in enumerate(tier.service)
        if key in catalogue.deployments
    ]
    if any(kind == DATABASE_KIND for *_, kind in kinds):
        return
    for index, key, kind in kinds:
        _, first_key, first_kind = kinds[0]
        if kind != first_kind:
            yield file.document.build_error(
                ["tiers", tier_name, "service", index],
                f"{first_key} and {key} cannot be alternatives in one tier: {first_key} is {first_kind}, "
                f"and {key} is {kind}",
                hint=f"use `service: {first_key}`, or a separate tier for {key}",
            )
            return


def _find_name_clashes(file: TargetFile, tier_name: str, tier: Tier) -> Iterator[TargetError]:
    """Yield an error for a choice between two services with the same name. Parameters are called
    ``tier.service.parameter``, so different parameters would have the same name.
    """
    catalogue = catalogue_of(file.target)
    deployments = [
        (index, key) for index, key in enumerate(tier.service) if key in catalogue.deployments
    ]
    for deployment_position, (index, other) in enumerate(deployments):
        keys_by_name = {service.name: service.key for service, _ in catalogue.services_of(other)}
        for _, first_deployment in deployments[:deployment_position]:
            for service, _ in catalogue.services_of(first_deployment):
                if keys_by_name.get(service.name, service.key) != service.key:
                    yield file.document.build_error(
                        ["tiers", tier_name, "service", index],
                        f"{first_deployment} and {other} cannot be alternatives in one tier: both have "
                        f"parameters called"
                        f" {tier_name}.{service.name}.…, but these differ",
                        hint=f"use `service: {first_deployment}`, or a separate target for each",
                    )


def _find_data_mismatch(
    target_file: TargetFile, tier_name: str, tier: Tier, deployment: str
) -> Iterator[TargetError]:
    location, message = ["tiers", tier_name, "service"], f"{deployment} must run where its data is"
    if not tier.installed:
        yield target_file.document.build_error(
            location, f"{message}, not as `runtime: {tier.runtime}`", hint=HOST_RUNTIME_HINT
        )
    if len(tier.service) > 1:
        hint = f"use `service: {deployment}`, or a separate target for each"
        yield target_file.document.build_error(
            location, f"{message}: another service does not have this data", hint=hint
        )
