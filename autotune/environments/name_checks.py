"""Check the names in a target before any host is contacted."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.deploy.stack import find_entry_tiers
from autotune.environments import declared_services, target_checks
from autotune.errors import AutotuneError, TargetError, TargetErrorCollector
from autotune.loads.registry import find_generator
from autotune.loads.target_request import find_foreign_address
from autotune.services.registry import SHIPPED, catalogue_of, choice_name
from autotune.space.service_checks import find_unknown_deployments
from autotune.space.value_checks import find_value_errors
from autotune.target.beds import needs_bed
from autotune.target.messages import find_nearest_name, suggest_name
from autotune.target.parameter_selection import (
    is_wildcard,
    list_prefixes,
    list_unmatched_patterns,
    unknown_parameter_error,
)
from autotune.target.read_target import TargetFile


def check_names(file: TargetFile) -> None:
    """Raise TargetError for unknown names or an ambiguous entry, and AutotuneError if the user must
    choose a bed.
    """
    if needs_bed(file.target):
        raise AutotuneError(
            f"{file.path}: the addresses of the hosts differ between beds",
            hint="`check` and `run` accept `--beds all`; other commands need a target with the addresses "
            "of one bed",
        )
    mistakes = TargetErrorCollector()
    with mistakes.collect():
        _check_sampler(file)
    if file.target.command is None:
        with mistakes.collect():
            find_generator(file)
        declaration_errors = list(declared_services.find_errors(file))
        for error in (
            *declaration_errors,
            *find_unknown_deployments(file),
            *_find_unknown_apps(file),
            *_find_ambiguous_entries(file),
            *find_foreign_address(file),
            *_find_missing_templates(file),
            *target_checks.find_stack_errors(file),
            *(_find_unknown_parameters(file) if not declaration_errors else ()),
        ):
            with mistakes.collect():
                raise error
    mistakes.raise_all()


def _check_sampler(file: TargetFile) -> None:
    sampler_name = file.target.search.sampler
    if sampler_name == "auto":
        return
    from autotune.optimize.samplers import SAMPLERS

    if sampler_name not in SAMPLERS:
        raise file.document.unknown_name_error(
            ["search", "sampler"], "sampler", ["auto", *SAMPLERS], sampler_name
        )


def _find_unknown_apps(file: TargetFile) -> Iterator[TargetError]:
    for tier_name, tier in file.target.tiers.items():
        if tier.app and tier.app not in SHIPPED.applications:
            message = f"unknown application {tier.app!r}"
            hint = "remove `app:` to tune your own site; `app: reference` is autotune's test application"
            if find_nearest_name(tier.app, SHIPPED.applications):
                hint = suggest_name(tier.app, SHIPPED.applications)
            yield file.document.build_error(["tiers", tier_name, "app"], message, hint=hint)


def _find_ambiguous_entries(file: TargetFile) -> Iterator[TargetError]:
    """Yield an error if requests could enter the stack through several tiers."""
    entry_names = find_entry_tiers(file.target)
    if len(entry_names) > 1:
        first_name, *other_names = entry_names
        yield file.document.build_error(
            ["tiers", other_names[0]],
            f"ambiguous entry tier: no tier forwards to or uses {' or '.join(entry_names)}",
            hint=f"connect the tiers, for example `{first_name}: {{…, forwards_to: {other_names[0]}}}` or"
            f" `{other_names[0]}: {{…, forwards_to: {first_name}}}`",
        )


def _find_missing_templates(file: TargetFile) -> Iterator[TargetError]:
    directory = file.directory
    for tier_name, tier in file.target.tiers.items():
        if tier.templates and not (directory / tier.templates).is_dir():
            yield file.document.build_error(
                ["tiers", tier_name, "templates"],
                f"directory {tier.templates!r} does not exist",
                hint=f"the path is relative to {directory}, the directory of this file",
            )


def _find_unknown_parameters(file: TargetFile) -> Iterator[TargetError]:
    """Yield an error for each unknown parameter and each invalid value, provided that all services are
    known.
    """
    tiers, catalogue = file.target.tiers, catalogue_of(file.target)
    if any(s not in catalogue.deployments for tier in tiers.values() for s in tier.service) or any(
        tier.app and tier.app not in catalogue.applications for tier in tiers.values()
    ):
        return
    parameter_names = {
        f"{tier_service.name}.{parameter.name}"
        for tier in tiers
        for tier_service in catalogue.list_tier_services(tier, tiers[tier])
        for parameter in tier_service.service.parameters
        if parameter.roles is None or tier_service.role in parameter.roles
    } | {choice_name(name) for name, tier in tiers.items() if len(tier.service) > 1}
    written_names = [
        ("parameters", name) for name in file.target.parameters if not is_wildcard(name)
    ]
    tried_names = [
        ("try", index, name) for index, c in enumerate(file.target.try_first) for name in c
    ]
    for location in (*written_names, *tried_names):
        if location[-1] not in parameter_names:
            yield unknown_parameter_error(file.document, location, parameter_names)
    for tier_service, pattern in list_unmatched_patterns(file.target, parameter_names):
        known_names = parameter_names | list_prefixes(parameter_names)
        yield unknown_parameter_error(file.document, tier_service, known_names, pattern)
    yield from find_value_errors(file)
