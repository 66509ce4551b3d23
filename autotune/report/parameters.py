"""Parameters as shown to users: catalogue entries, full names, and settings that differ."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from autotune.errors import UsageError
from autotune.parameter_name import ParameterName, select_service_settings
from autotune.report import documents
from autotune.report import format as fmt
from autotune.services.base import (
    Action,
    Effect,
    LoadTrait,
    Parameter,
    Role,
    Service,
    Settings,
    Value,
)
from autotune.services.registry import SHIPPED, Catalogue, catalogue_of, choice_name
from autotune.space.dimension import DEPLOYMENT_PARAMETER, is_deployment_choice
from autotune.target.messages import is_same_value, suggest_name
from autotune.target.model import ParameterRule, Target

NO_SETTINGS: Settings = {}


@dataclass(frozen=True)
class DeclaredParameters:
    """The parameters that a target declares: ``rules`` for its command, and the ``catalogue`` of its
    services.
    """

    rules: Mapping[str, ParameterRule] = field(default_factory=dict)
    catalogue: Catalogue = SHIPPED


NO_DECLARED_PARAMETERS = DeclaredParameters()
TEXT_INDENT = 6 * " "
EFFECT_TEXTS = {
    Effect.CAPACITY: "on capacity (searched first)",
    Effect.SMALL: "small",
    Effect.COSMETIC: "negligible",
}
TRAIT_LABELS = {
    LoadTrait.TLS: "TLS",
    LoadTrait.TLS_REUSE: "several requests on a TLS connection",
    LoadTrait.CHURN: "a connection for each request",
}
ACTION_LABELS: Mapping[Action, documents.ActionLabel] = {
    Action.NONE: "none",
    Action.RELOAD: "reload",
    Action.RESTART: "restart",
}
ACTION_TEXTS = {
    Action.NONE: "a change takes effect immediately",
    Action.RELOAD: "a change needs a reload",
    Action.RESTART: "a change needs a restart",
}
DIRECTION_TEXTS = {
    "": "",
    "+": ", guides recommend higher values",
    "-": ", guides recommend lower values",
}


@dataclass(frozen=True)
class CatalogueEntry:
    """A parameter in the catalogue. If ``deployments`` is empty, the parameter applies to all
    deployments of its service.
    """

    parameter: Parameter
    deployments: tuple[str, ...] = ()


def list_catalogue_entries(
    service_name: str | None = None, catalogue: Catalogue = SHIPPED
) -> dict[str, list[CatalogueEntry]]:
    """Return the parameters by service, for one service or for all services with parameters.

    A service with two kinds, such as Apache with threads or processes, appears once, with the
    parameters of both. Raises UsageError for an unknown service, with the nearest name as a hint.
    """
    service_kinds: dict[str, list[Service]] = {}
    for service in catalogue.services:
        service_kinds.setdefault(service.name, []).append(service)
    if service_name is None:
        return {
            listed_name: _merge_service_kinds(services)
            for listed_name, services in service_kinds.items()
            if services[0].parameters
        }
    deployable_service = catalogue.deployable.get(service_name)
    listed_name = deployable_service.name if deployable_service else service_name
    if listed_name not in service_kinds:
        # The name may be the full name of a parameter, `tier.service.parameter`, or without the tier.
        name_parts = service_name.split(".")
        searched_name = next(filter(service_kinds.get, name_parts), name_parts[:2][-1])
        raise UsageError(
            f"unknown service {service_name!r}",
            hint=suggest_name(searched_name, sorted(service_kinds)),
        )
    return {listed_name: _merge_service_kinds(service_kinds[listed_name])}


def _merge_service_kinds(service_kinds: list[Service]) -> list[CatalogueEntry]:
    """Return the parameters that all kinds share, then the parameters that differ by kind."""
    shared_parameters = [
        p
        for p in service_kinds[0].parameters
        if all(p in service_kind.parameters for service_kind in service_kinds)
    ]
    kind_entries = [
        CatalogueEntry(parameter, (service_kind.deployment or service_kind.key,))
        for service_kind in service_kinds
        for parameter in service_kind.parameters
        if parameter not in shared_parameters
    ]
    return [*map(CatalogueEntry, shared_parameters), *kind_entries]


def build_catalogue_json(
    service_name: str | None = None, catalogue: Catalogue = SHIPPED
) -> documents.ParameterCatalogue:
    """Return each service's parameters, with all fields of the catalogue.

    Raises AutotuneError for an unknown service.
    """
    return {
        "schema": 1,
        "services": {
            service: [_build_entry_json(entry) for entry in entries]
            for service, entries in list_catalogue_entries(service_name, catalogue).items()
        },
    }


def _build_entry_json(entry: CatalogueEntry) -> documents.ParameterObject:
    parameter = entry.parameter
    return {
        "name": parameter.name,
        "meaning": parameter.meaning,
        "unit": parameter.unit,
        "stock": parameter.stock,
        "recommended": parameter.recommended,
        "published": {str(role): value for role, value in parameter.published.items()},
        "low": parameter.low,
        "high": parameter.high,
        "log": parameter.log,
        "choices": list(parameter.choices),
        "when": {other_name: list(allowed_values) for other_name, allowed_values in parameter.when},
        "roles": sorted(map(str, parameter.roles)) if parameter.roles else None,
        "action": ACTION_LABELS[parameter.action],
        "effect": str(parameter.effect),
        "direction": parameter.direction,
        "safe": list(parameter.safe) if parameter.safe else None,
        "source": parameter.source,
        "deployments": list(entry.deployments),
    }


def format_catalogue(
    service_name: str | None = None, catalogue: Catalogue = SHIPPED, width: int = 100
) -> str:
    """Return the catalogue as text, a few lines per parameter.

    Raises AutotuneError for an unknown service.
    """
    catalogue_lines: list[str] = []
    for service, entries in list_catalogue_entries(service_name, catalogue).items():
        catalogue_lines += [service, "=" * len(service)]
        for entry in entries:
            catalogue_lines += _format_entry(entry, width)
        catalogue_lines.append("")
    return "\n".join(catalogue_lines)


def _format_entry(entry: CatalogueEntry, width: int) -> Iterator[str]:
    parameter = entry.parameter
    yield f"  {parameter.name}: {format_range(parameter)}"
    yield from textwrap.wrap(
        parameter.meaning, width, initial_indent=TEXT_INDENT, subsequent_indent=TEXT_INDENT
    )
    yield f"{TEXT_INDENT}{format_presets(parameter)}; {ACTION_TEXTS[parameter.action]}"
    yield f"{TEXT_INDENT}effect: {format_effect(parameter)}"
    yield from (f"{TEXT_INDENT}{sentence}" for sentence in format_conditions(entry))
    yield f"{TEXT_INDENT}source: {parameter.source}"


def format_range(parameter: Parameter) -> str:
    """Return the choices or the range of a parameter as text."""
    if parameter.choices:
        return " | ".join(map(fmt.format_setting, parameter.choices))
    unit = f" {parameter.unit}" if parameter.unit else ""
    return f"{parameter.low} … {parameter.high}{unit}{', log scale' if parameter.log else ''}"


def format_presets(parameter: Parameter) -> str:
    """Return the stock value and the values recommended by presets and guides, as text."""
    presets = {"stock": parameter.stock, "recommended": parameter.recommended}
    presets |= {f"published for {role}": value for role, value in parameter.published.items()}
    return ", ".join(
        f"{preset_name} {fmt.format_setting(value, parameter.unit)}"
        for preset_name, value in presets.items()
        if value is not None
    )


def format_effect(parameter: Parameter) -> str:
    """Return a parameter's expected effect, recommended direction and safe range, and the loads with
    which it matters.
    """
    safe_text = f"; safe from {parameter.safe[0]} to {parameter.safe[1]}" if parameter.safe else ""
    load_text = "".join(
        f"; matters with {TRAIT_LABELS[trait]}" for trait in sorted(parameter.decides)
    )
    return f"{EFFECT_TEXTS[parameter.effect]}{DIRECTION_TEXTS[parameter.direction]}{safe_text}{load_text}"


def format_conditions(entry: CatalogueEntry) -> Iterator[str]:
    """Yield the conditions under which a parameter has an effect."""
    if entry.deployments:
        yield f"in {' and '.join(entry.deployments)} only"
    conditions = [
        f"{other_name} is {' or '.join(map(fmt.format_setting, allowed_values))}"
        for other_name, allowed_values in entry.parameter.when
    ]
    if conditions:
        yield f"has an effect only if {' and '.join(conditions)}"


@dataclass(frozen=True)
class SettingChange:
    """A setting with different values in two configurations; ``parameter`` is its catalogue entry, if
    any.
    """

    name: str
    before: Value | None
    after: Value
    parameter: Parameter | None = None

    @property
    def unit(self) -> str:
        return self.parameter.unit if self.parameter else ""

    @property
    def meaning(self) -> str:
        return self.parameter.meaning if self.parameter else ""

    @property
    def value_texts(self) -> tuple[str, str]:
        """Return the old and the new value as text."""
        before_text = "–" if self.before is None else fmt.format_setting(self.before, self.unit)
        return before_text, fmt.format_setting(self.after, self.unit)


def find_declared_parameters(target: Target) -> DeclaredParameters:
    """Return the parameters of a target: the declared parameters of its command, or the parameters of
    its services.
    """
    if target.command is not None:
        return DeclaredParameters(target.parameters)
    return DeclaredParameters(catalogue=catalogue_of(target))


def find_parameter(
    full_name: str,
    settings: Settings = NO_SETTINGS,
    declared_parameters: DeclaredParameters = NO_DECLARED_PARAMETERS,
) -> Parameter | None:
    """Return the catalogue's entry for ``tier.service.parameter``, or the target's own declaration.

    Two kinds of a service can have the same name, such as Apache with processes or threads. The entry
    then comes from the kind with the most parameters in ``settings``.
    """
    if rule := declared_parameters.rules.get(full_name):
        return Parameter(
            name=full_name,
            stock="",
            action=Action.NONE,
            meaning=rule.meaning or "",
            source="the target",
            unit=rule.unit or "",
        )
    if is_deployment_choice(full_name):
        return DEPLOYMENT_PARAMETER
    parameter_name = ParameterName.parse(full_name)
    services_by_parameter = _index_by_parameter(declared_parameters.catalogue.services)
    service_kinds = services_by_parameter.get(parameter_name.name_within_tier)
    if not service_kinds:
        return None
    service_kind = service_kinds[0]
    if len(service_kinds) > 1:
        service_settings = select_service_settings(settings, parameter_name.service_prefix)
        service_kind = max(
            service_kinds,
            key=lambda service_kind: sum(
                p.name in service_settings for p in service_kind.parameters
            ),
        )
    return next(p for p in service_kind.parameters if p.name == parameter_name.parameter)


@lru_cache(maxsize=8)
def _index_by_parameter(services: tuple[Service, ...]) -> dict[str, tuple[Service, ...]]:
    """Return, by ``service.parameter``, the kinds of the service that have this parameter."""
    kinds_by_parameter: dict[str, tuple[Service, ...]] = {}
    for service in services:
        for parameter in service.parameters:
            full_name = f"{service.name}.{parameter.name}"
            kinds_by_parameter[full_name] = (*kinds_by_parameter.get(full_name, ()), service)
    return kinds_by_parameter


def list_active_parameters(
    settings: Settings, declared_parameters: DeclaredParameters = NO_DECLARED_PARAMETERS
) -> frozenset[str]:
    """Return the names of the parameters that have an effect under ``settings``."""
    return frozenset(name for name in settings if has_effect(name, settings, declared_parameters))


def has_effect(
    full_name: str,
    settings: Settings,
    declared_parameters: DeclaredParameters = NO_DECLARED_PARAMETERS,
) -> bool:
    """True if the parameter has an effect under ``settings``."""
    return (
        _are_rule_conditions_met(full_name, settings, declared_parameters)
        if declared_parameters.rules
        else _are_catalogue_conditions_met(full_name, settings, declared_parameters)
    )


def _are_rule_conditions_met(
    full_name: str, settings: Settings, declared_parameters: DeclaredParameters
) -> bool:
    rule = declared_parameters.rules.get(full_name)
    conditions = (rule.when or {}) if rule else {}
    return all(
        settings.get(other_name) in allowed_values
        and _are_rule_conditions_met(other_name, settings, declared_parameters)
        for other_name, allowed_values in conditions.items()
    )


def _are_catalogue_conditions_met(
    full_name: str, settings: Settings, declared_parameters: DeclaredParameters
) -> bool:
    """True if the parameter's conditions are met and the tier's deployment uses the service."""
    parameter = find_parameter(full_name, settings, declared_parameters)
    if parameter is None or is_deployment_choice(full_name):
        return True
    parameter_name = ParameterName.parse(full_name)
    if any(
        settings.get(f"{parameter_name.service_prefix}.{other_name}") not in allowed_values
        for other_name, allowed_values in parameter.when
    ):
        return False
    deployment = str(settings.get(choice_name(parameter_name.tier)))
    roles_by_deployment = _index_roles_by_deployment(
        declared_parameters.catalogue, parameter_name.service
    )
    deployment_roles = roles_by_deployment.get(deployment)
    if deployment_roles is None:
        return True
    return bool(deployment_roles if parameter.roles is None else deployment_roles & parameter.roles)


@lru_cache(maxsize=256)
def _index_roles_by_deployment(catalogue: Catalogue, service: str) -> dict[str, set[Role]]:
    """Return the service's roles in each deployment; empty if no deployment uses the service."""
    roles_by_deployment = {
        deployment: {
            role
            for service_part, role in catalogue.services_of(deployment)
            if service_part.name == service
        }
        for deployment in catalogue.deployments
    }
    return roles_by_deployment if any(roles_by_deployment.values()) else {}


def list_setting_changes(
    before: Settings,
    after: Settings,
    declared_parameters: DeclaredParameters = NO_DECLARED_PARAMETERS,
) -> tuple[SettingChange, ...]:
    """Return the settings of ``after`` that have an effect and differ from ``before``."""
    return tuple(
        SettingChange(
            name, before.get(name), value, find_parameter(name, after, declared_parameters)
        )
        for name, value in after.items()
        if not is_same_value(before.get(name), value)
        and has_effect(name, after, declared_parameters)
    )
