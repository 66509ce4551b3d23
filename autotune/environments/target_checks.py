"""Checks of a target for which no host is needed: variables, files and links between tiers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from autotune.environments.base import Environment
from autotune.errors import TargetError
from autotune.loads import target_request
from autotune.services.base import Role
from autotune.services.registry import Catalogue, catalogue_of
from autotune.target.model import Target
from autotune.target.read_target import TargetFile

# Roles whose services run no application.
FORWARDING_ROLES = frozenset({Role.PROXY, Role.HTTP_CACHE})
# Roles whose services answer requests themselves.
FINAL_ROLES = frozenset({Role.CACHE, Role.STORE, Role.DATABASE})


def find_stack_errors(file: TargetFile) -> Iterator[TargetError]:
    """Yield the errors of a stack in keys that depend on the environment or on the catalogue."""
    yield from target_request.find_request_errors(file)
    yield from _find_missing_ssh_config(file)
    yield from _find_ignored_containers(file)
    yield from _find_final_tiers(file, catalogue_of(file.target))
    yield from _find_misplaced_apps(file, catalogue_of(file.target))


def check_can_search(environment: Environment) -> None:
    """Raise TargetError if no parameter can vary, so that a study would compare nothing."""
    if environment.space.tunable_dimensions:
        return
    target, document = environment.file.target, environment.file.document
    lists_parameters = not isinstance(target.tune, str)
    location = "tune" if lists_parameters else "parameters" if target.parameters else "tiers"
    hint = "give a parameter a range in `parameters:`"
    if lists_parameters:
        hint = "list a parameter without `fixed:` in `tune:`, or give one a range"
    raise document.build_error(
        (location,),
        "nothing to tune: every parameter is fixed or excluded",
        hint=f"{hint}; `autotune measure TARGET` measures the baseline alone",
    )


def _find_missing_ssh_config(file: TargetFile) -> Iterator[TargetError]:
    config, path = file.target.ssh.config, file.target.ssh.locate_config(file.directory)
    if path is None:
        return
    message = None
    hint = "name a file as ~/.ssh/config; `IdentityFile` in it names the key"
    if path.is_dir():
        message = f"{config!r} is a directory, not a file of SSH settings"
    elif _is_key(path):
        message = f"{config!r} is an SSH key, not a file of SSH settings"
    elif not path.exists():
        message = f"file {config!r} does not exist"
        if not path.name.startswith("id_"):
            hint = f"the path is relative to {file.directory}, the directory of this file"
    if message is not None:
        yield file.document.build_error(("ssh", "config"), message, hint=hint)


def _is_key(path: Path) -> bool:
    """True if a file contains a private or public SSH key."""
    try:
        with path.open("rb") as file:
            return file.read(20).startswith((b"-----BEGIN", b"ssh-", b"ecdsa-"))
    except OSError:
        return False


def _find_ignored_containers(file: TargetFile) -> Iterator[TargetError]:
    for name, tier in file.target.tiers.items():
        if tier.container is not None and not tier.isolated:
            yield file.document.build_error(
                ("tiers", name, "container"),
                f"`container:` does not apply to `runtime: {tier.runtime}`",
                hint="add `runtime: containers` to the tier, or remove `container:`",
            )


def _find_final_tiers(file: TargetFile, catalogue: Catalogue) -> Iterator[TargetError]:
    """Yield an error for each link from a cache, store or database to another tier."""
    for name, tier in file.target.tiers.items():
        deployments = [d for d in tier.service if d in catalogue.deployments]
        roles = {role for d in deployments for _, role in catalogue.deployments[d]}
        if not roles or not roles <= FINAL_ROLES:
            continue
        for key in ("forwards_to", "uses"):
            if getattr(tier, key):
                yield file.document.build_error(
                    ("tiers", name, key),
                    f"{key}: {tier.service[0]} calls no other tier",
                    hint=f"remove it: {_suggest_caller(file.target, name)}",
                )


def _find_misplaced_apps(file: TargetFile, catalogue: Catalogue) -> Iterator[TargetError]:
    """Yield an error for each application on a service that cannot run it."""
    for name, tier in file.target.tiers.items():
        deployments = [d for d in tier.service if d in catalogue.deployments]
        roles = {role for d in deployments for _, role in catalogue.deployments[d]}
        if tier.app and roles and roles <= FINAL_ROLES | FORWARDING_ROLES:
            yield file.document.build_error(
                ("tiers", name, "app"),
                f"{tier.service[0]} cannot run the application {tier.app!r}",
                hint="move `app:` to the tier of an application server, or remove it",
            )


def _suggest_caller(target: Target, name: str) -> str:
    callers = [caller for caller, tier in target.tiers.items() if name in tier.required_tiers]
    return f"{callers[0]} calls {name}" if callers else f"another tier calls it, `uses: {name}`"
