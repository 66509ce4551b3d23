"""Read the baselines and choices of kernel settings from hosts, and exclude settings that cannot be
tuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from autotune.parameter_name import ParameterName
from autotune.services.base import Settings, Value
from autotune.services.readback import parse_number
from autotune.services.sysctl.service import (
    ALLOWED_CHOICES_KEYS,
    AVAILABLE_CHOICES_KEYS,
    HOST_ONLY_KEY,
    Sysctl,
)
from autotune.space.dimension import AdoptedValues, Dimension
from autotune.space.facts import HostFacts
from autotune.target.model import Target


def with_host_value(dimension: Dimension, facts: HostFacts) -> Dimension:
    """Return the dimension of a kernel setting with the host's current value as its baseline."""
    kernel_key = dimension.parameter.name
    if kernel_key not in facts.kernel_values:
        return dimension
    host_value = facts.kernel_values[kernel_key]
    current_value = (
        parse_number(host_value) if isinstance(dimension.parameter.stock, int) else host_value
    )
    if not dimension.choices:
        return replace(dimension.widen_to_include(int(current_value)), baseline=int(current_value))
    # The kernel lists the choices that this host offers.
    offered_choices = facts.kernel_values.get(
        AVAILABLE_CHOICES_KEYS.get(kernel_key, ""), ""
    ).split()
    if (
        HOST_ONLY_KEY not in facts.kernel_values
        and ALLOWED_CHOICES_KEYS.get(kernel_key) in facts.kernel_values
    ):
        allowed_choices = facts.kernel_values[ALLOWED_CHOICES_KEYS[kernel_key]].split()
        offered_choices = [choice for choice in offered_choices if choice in allowed_choices]
    choices = dict.fromkeys((current_value, *(offered_choices or dimension.choices)))
    return replace(dimension, baseline=current_value, choices=tuple(choices))


def find_kernel_parameter(target: Target, host: str, kernel_key: str) -> str:
    """Return the full name of the parameter that would tune this kernel setting on the host."""
    tier = next(tier_name for tier_name, tier in target.tiers.items() if host in tier.hosts)
    return f"{tier}.{Sysctl.name}.{kernel_key}"


def list_kernel_values(target: Target, settings: Settings) -> dict[str, dict[str, str]]:
    """Return the kernel values that these settings set, by host."""
    kernel_values: dict[str, dict[str, str]] = {}
    for tier_name, tier in target.tiers.items():
        name_prefix = f"{tier_name}.{Sysctl.name}."
        values_by_key = {
            parameter_name.removeprefix(name_prefix): str(value)
            for parameter_name, value in settings.items()
            if parameter_name.startswith(name_prefix)
        }
        for host in tier.hosts:
            kernel_values[host] = {**values_by_key, **kernel_values.get(host, {})}
    return kernel_values


def list_host_values(
    target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, HostFacts]
) -> dict[str, Value]:
    """Return the values of the kernel settings on the hosts, for the record of a study.

    A baseline may differ from them, because the target may set it. The order of choices and the range
    depend on the value of the host.
    """
    first_hosts = {tier_name: tier.hosts[0] for tier_name, tier in target.tiers.items()}
    return {
        d.name: with_host_value(d, facts[first_hosts[ParameterName.parse(d.name).tier]]).baseline
        for d in dimensions
        if _is_kernel_setting(d)
    }


def with_recorded_values(
    target: Target, facts: Mapping[str, HostFacts], recorded_values: Settings
) -> dict[str, HostFacts]:
    """Return the facts with the kernel values that a study recorded when it started.

    A killed session may have left other values on the hosts.
    """
    kernel_values = list_kernel_values(target, recorded_values)
    return {
        host: replace(
            host_facts,
            kernel_values={
                key: kernel_values.get(host, {}).get(key, value)
                for key, value in host_facts.kernel_values.items()
            },
        )
        for host, host_facts in facts.items()
    }


def exclude_kernel_values(adopted_values: AdoptedValues) -> AdoptedValues:
    """Return the values without kernel settings, which the facts of the hosts contain."""
    values = {
        name: value
        for name, value in adopted_values.values.items()
        if ParameterName.parse(name).service != Sysctl.name
    }
    return replace(adopted_values, values=values)


def find_unsettable_settings(
    target: Target, dimensions: Iterable[Dimension], facts: Mapping[str, HostFacts]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of kernel settings that are not tuned, and lines with the reasons.

    If several tiers are on a host, the host's kernel is tuned as part of the first tier.
    """
    tier_by_host: dict[str, str] = {}
    for tier_name, tier in target.tiers.items():
        for host in tier.hosts:
            tier_by_host.setdefault(host, tier_name)
    kernel_settings = [dimension for dimension in dimensions if _is_kernel_setting(dimension)]
    kept_settings, excluded_names = list[Dimension](), dict[tuple[str, str, str], list[str]]()
    for dimension in kernel_settings:
        if reason := next(_find_exclusion_reasons(target, dimension, tier_by_host, facts), None):
            service = dimension.name.removesuffix(f".{dimension.parameter.name}")
            excluded_names.setdefault((service, *reason), []).append(dimension.parameter.name)
        elif not dimension.parameter.on_demand or dimension.name in target.parameters:
            kept_settings.append(dimension)
    unsettable_names = {d.name for d in kernel_settings} - {d.name for d in kept_settings}
    return frozenset(unsettable_names), (
        *_format_excluded_settings(excluded_names),
        *_describe_differences(target, kept_settings, facts),
    )


def _format_excluded_settings(excluded: Mapping[tuple[str, str, str], list[str]]) -> Iterator[str]:
    """Yield the excluded settings as text: one line for all tiers with the same settings and reason."""
    locations_by_reason: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for (service, reason, host), names in excluded.items():
        subject_text = f"without {', '.join(names)}: " if host else ""
        locations_by_reason.setdefault((subject_text, reason), []).append((service, host))
    for (subject_text, reason), locations in locations_by_reason.items():
        services, hosts = (
            ", ".join(dict.fromkeys(names)) for names in zip(*locations, strict=True)
        )
        yield f"{services}: {subject_text}{reason}" + (f" ({hosts})" if hosts else "")


def _is_kernel_setting(dimension: Dimension) -> bool:
    return ParameterName.parse(dimension.name).service == Sysctl.name


def _find_exclusion_reasons(
    target: Target,
    dimension: Dimension,
    tier_by_host: Mapping[str, str],
    facts: Mapping[str, HostFacts],
) -> Iterator[tuple[str, str]]:
    """Yield each reason why the setting cannot be tuned, with the host. If the host is empty, the reason
    applies to every kernel setting of the tier.
    """
    tier = ParameterName.parse(dimension.name).tier
    kernel_key = dimension.parameter.name
    for host in target.tiers[tier].hosts:
        if tier_by_host[host] != tier:
            yield f"the kernel of {host} is tuned as part of tier {tier_by_host[host]}", ""
        elif kernel_key in facts[host].unsettable:
            yield facts[host].unsettable[kernel_key], host
        elif kernel_key not in facts[host].kernel_values:
            yield "its value cannot be read", host


def _describe_differences(
    target: Target, kernel_settings: Iterable[Dimension], facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Yield a line for each kernel setting that now differs between a tier's hosts. In a study, these
    hosts share one value.
    """
    for dimension in kernel_settings:
        first_host, *other_hosts = target.tiers[ParameterName.parse(dimension.name).tier].hosts
        kernel_key = dimension.parameter.name
        first_value = facts[first_host].kernel_values[kernel_key]
        for host in other_hosts:
            value = facts[host].kernel_values[kernel_key]
            if value != first_value:
                yield (
                    f"{dimension.name} is {first_value} on {first_host} and {value} on {host}: the "
                    f"baseline uses the value of {first_host}"
                )
