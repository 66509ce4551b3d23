"""Make discovered tiers tunable: templates, baselines, and the parameters that are not tuned."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.config_text import escape_non_utf8
from autotune.discovery.tiers import DiscoveredTier
from autotune.errors import AutotuneError
from autotune.masking import list_placeholders, mask_secrets
from autotune.parameter_name import ParameterName, select_service_settings
from autotune.services.adoption import Adoption, RunningService
from autotune.services.base import AdoptedConfig, ConfigFile, Value
from autotune.services.directives import AdoptionResult, Edit, render_edits
from autotune.space.dimension import Dimension
from autotune.space.facts import find_common_facts
from autotune.space.tier_dimensions import build_tier_dimensions
from autotune.target.model import Tier
from autotune.target.runtimes import DEFAULT_RUNTIME

_PRINTED_PRECISION = 0.006  # because programs print fractions with two decimal places


@dataclass(frozen=True)
class AdoptedTier:
    """A tunable tier. ``templates`` are keyed by path below the template directory, and
    ``adopted_configs`` by instance name.

    ``baseline_values`` contains the baseline, and ``skipped`` contains the reasons why parameters
    are not tuned, both by ``SERVICE.NAME``.
    """

    discovered_tier: DiscoveredTier
    dimensions: tuple[Dimension, ...]
    templates: dict[str, str] = field(default_factory=dict)
    adopted_configs: dict[str, AdoptedConfig] = field(default_factory=dict)
    baseline_values: dict[str, Value] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def adopt_tier(tier: DiscoveredTier, runtime: str = DEFAULT_RUNTIME) -> AdoptedTier:
    """Return a tier whose files contain template variables in place of values that are the same on
    all hosts.
    """
    hosts = tuple(instance.host.name for instance in tier.instances)
    tier_model = Tier(hosts=hosts, service=(tier.deployment,), runtime=runtime)
    common_facts = find_common_facts(i.host.facts for i in tier.instances)
    dimensions = tuple(build_tier_dimensions(tier.name, tier_model, common_facts, tier.catalogue))
    adopted_tier = AdoptedTier(tier, dimensions)
    for tier_service in tier.catalogue.list_tier_services(tier.name, tier_model):
        service = tier_service.service
        if all(service.name in instance.services for instance in tier.instances):
            _adopt_service(adopted_tier, service.name)
        elif service.per_deployment and not service.isolated_only:
            # Units keep their own open-file limit, because a drop-in would be a new file.
            adopted_tier.adopted_configs.update(
                {f"{tier.name}.{host}.{service.name}": AdoptedConfig() for host in hosts}
            )
            parameter_names = (
                f"{service.name}.{parameter.name}" for parameter in service.parameters
            )
            reason = (
                "its files are not at Debian's paths"
                if service.interpreter
                else "autotune keeps the limits of existing units"
            )
            adopted_tier.skipped.update(dict.fromkeys(parameter_names, reason))
    return adopted_tier


def check_templates(tier: AdoptedTier) -> None:
    """Raise AutotuneError if a template does not reproduce its file."""
    from autotune.deploy import templates  # Jinja2 is slow to load

    adoptions = tier.discovered_tier.catalogue.map_adoptions()
    for instance in tier.discovered_tier.instances:
        for service, config in instance.configs.items():
            adopted_config = tier.adopted_configs[
                f"{tier.discovered_tier.name}.{instance.host.name}.{service}"
            ]
            baseline_values = _select_baseline(tier, service)
            for file in adopted_config.files:
                text = templates.render_text(tier.templates[file.template], baseline_values)
                running_service = instance.services[service]
                outliner = adoptions[running_service.key].visible.build_outliner(file.path)
                if text != mask_secrets(config.texts[file.path], outliner):
                    raise AutotuneError(f"a template cannot reproduce {file.path} exactly")


def format_key(dimension: Dimension) -> str:
    """Return ``service.parameter``, the key of a dimension's value in an adopted tier."""
    return ParameterName.parse(dimension.name).name_within_tier


def _select_baseline(tier: AdoptedTier, service: str) -> Mapping[str, object]:
    """Return a service's baseline values by bare parameter names. Derived values are calculated from
    the other values.
    """
    baseline_values = select_service_settings(tier.baseline_values, service)
    values_by_name = {
        d.name: value * d.unit_factor
        for d in tier.dimensions
        if isinstance(value := tier.baseline_values.get(format_key(d)), int | float)
    }
    for dimension in tier.dimensions:
        name = ParameterName.parse(dimension.name)
        if (
            name.service == service
            and dimension.expression
            and {*dimension.expression.names()} <= {*values_by_name}
        ):
            baseline_values.setdefault(
                name.parameter,
                round(dimension.expression.evaluate(values_by_name) / dimension.unit_factor),
            )
    return baseline_values


def _adopt_service(adopted_tier: AdoptedTier, service: str) -> None:
    """Add the templates, baseline and skipped parameters of one service on every host to
    ``adopted_tier``.
    """
    tier = adopted_tier.discovered_tier
    dimensions = select_service_settings(
        {d.name: d for d in adopted_tier.dimensions}, f"{tier.name}.{service}"
    )
    adoption = tier.catalogue.map_adoptions()[tier.instances[0].services[service].key]
    results_by_host = _adopt_on_hosts(
        adoption,
        [i.services[service] for i in tier.instances],
        dimensions,
        [i.host.effective.get((i.deployment, i.port, service), {}) for i in tier.instances],
    )
    for instance, host_result in zip(tier.instances, results_by_host, strict=True):
        running_service, host = instance.services[service], instance.host
        new_modes = {
            host.tree.resolve(path): mode for path, mode in adoption.new_file_modes.items()
        }
        config_files = []
        for path, text in _build_templates(adoption, running_service, host_result.edits).items():
            template = f"{host.name}{path}.j2"
            adopted_tier.templates[template] = text
            is_new = path not in host.tree.files
            mode = new_modes.get(path, 0o644) if is_new else host.tree.modes.get(path, 0o644)
            config_files.append(ConfigFile(path, template, mode, optional=is_new))
        adopted_tier.adopted_configs[f"{tier.name}.{host.name}.{service}"] = AdoptedConfig(
            tuple(config_files),
            running_service.listen_address,
            running_service.restart_loss,
            running_service.unit,
            running_service.config.main_file if running_service.unit else "",
        )
    first_result = results_by_host[0]
    adopted_tier.baseline_values.update(
        {f"{service}.{name}": value for name, value in first_result.values.items()}
    )
    for name in dict.fromkeys((*dimensions, *first_result.skipped)):
        if name in first_result.skipped or name not in first_result.values:
            reason = first_result.skipped.get(name, "these files contain no line or section for it")
            adopted_tier.skipped[f"{service}.{name}"] = escape_non_utf8(reason)


def _adopt_on_hosts(
    adoption: Adoption,
    services: Sequence[RunningService],
    dimensions: Mapping[str, Dimension],
    effective_values: Sequence[Mapping[str, Value]],
) -> list[AdoptionResult]:
    """Return the tunable values on each host. A parameter with different values on the hosts of a tier
    is not tunable.

    ``effective_values`` contains the values that each running service reports.
    """

    def accepts(name: str, value: Value) -> bool:
        return name in dimensions and _is_valid_baseline(dimensions[name], value)

    first_results = [adoption.adopt(service, accepts) for service in services]
    differing_names = {
        name
        for name in {name for adoption_result in first_results for name in adoption_result.values}
        if len({(type(a.values.get(name)), a.values.get(name)) for a in first_results}) > 1
    }
    skipped_reasons = dict.fromkeys(differing_names, "the hosts have different values")
    masked_names = {
        name
        for s, adoption_result in zip(services, first_results, strict=True)
        for name in _find_masked_parameters(adoption, s, adoption_result)
    }
    skipped_reasons |= dict.fromkeys(masked_names, "the text around it is masked")
    for adoption_result, reported_values in zip(first_results, effective_values, strict=True):
        skipped_reasons |= _find_contradictions(adoption_result, reported_values, dimensions)
    if not skipped_reasons:
        return first_results
    second_results = [
        adoption.adopt(s, lambda name, v: name not in skipped_reasons and accepts(name, v))
        for s in services
    ]
    for adoption_result in second_results:
        adoption_result.skipped.update(skipped_reasons)
    return second_results


def _find_contradictions(
    adopted: AdoptionResult, reported: Mapping[str, Value], dimensions: Mapping[str, Dimension]
) -> dict[str, str]:
    """Return the parameters for which the running software reports a different value, with the
    reasons as text.
    """
    return {
        name: f"its files imply {value}, but the running software reports {reported[name]}"
        for name, value in adopted.values.items()
        if name in reported and not _is_same_value(value, reported[name], dimensions[name])
    }


def _is_same_value(written: Value, reported: Value, dimension: Dimension) -> bool:
    if isinstance(written, str | bool) or isinstance(reported, str | bool):
        return str(written).lower() == str(reported).lower()
    # The kernel shortens a queue that exceeds the kernel's limit, so a lower reported value is normal.
    is_lowered = bool(dimension.parameter.capped_by) and reported < written
    return is_lowered or math.isclose(written, reported, rel_tol=1e-3, abs_tol=_PRINTED_PRECISION)


def _find_masked_parameters(
    adoption: Adoption, service: RunningService, adoption_result: AdoptionResult
) -> set[str]:
    """Return the parameters whose edits overlap masked text."""
    masked_names = set[str]()
    for edit in adoption_result.edits:
        placeholders = list_placeholders(
            service.config.texts[edit.path], adoption.visible.build_outliner(edit.path)
        )
        placeholder_index = bisect_right(placeholders, edit.start, key=lambda place: place[0]) - 1
        contains_next_placeholder = (
            placeholder_index + 1 < len(placeholders)
            and placeholders[placeholder_index + 1][0] < edit.end
        )
        if contains_next_placeholder or (
            placeholder_index >= 0
            and edit.start < placeholders[placeholder_index][1]
            and edit.end > placeholders[placeholder_index][0]
        ):
            masked_names |= {
                name for name in adoption_result.values if re.search(rf"\b{name}\b", edit.text)
            }
    return masked_names


def _is_valid_baseline(dimension: Dimension, value: Value) -> bool:
    """True if a value can be the baseline of a dimension. The value may be outside of the range."""
    if choices := (*dimension.choices, *dimension.parameter.choices):
        return any(value == choice and type(value) is type(choice) for choice in choices)
    if isinstance(value, bool | str) or (dimension.is_logarithmic and value <= 0):
        return False
    return not dimension.is_integer or value == int(value)


def _build_templates(
    adoption: Adoption, running_service: RunningService, edits: Iterable[Edit]
) -> dict[str, str]:
    """Return templates of the files by path, with variables for tunable values. Text of unknown syntax
    is masked.
    """
    config = running_service.config
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for edit in dict.fromkeys(edits):  # a file may be included twice
        if edit.path not in pieces:
            outliner = adoption.visible.build_outliner(edit.path)
            pieces[edit.path] = [*list_placeholders(config.texts[edit.path], outliner)]
        pieces[edit.path].append((edit.start, edit.end, edit.text))
    return {
        path: render_edits(config.texts[path], file_pieces) for path, file_pieces in pieces.items()
    }
