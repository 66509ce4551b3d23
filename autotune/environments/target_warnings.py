"""Warnings of `check`, `plan` and `run`: settings of a valid target that are probably mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import PurePath

from autotune.environments.command_warnings import SHELLS, find_command_doubts
from autotune.environments.condition_warnings import find_settings_without_effect
from autotune.environments.constraint_warnings import find_constraint_doubts
from autotune.environments.host_warnings import find_host_doubts
from autotune.environments.request_warnings import find_request_doubts
from autotune.environments.size_warnings import find_unusual_sizes
from autotune.environments.value_warnings import find_value_doubts, has_single_value
from autotune.errors import TargetError
from autotune.services.registry import catalogue_of
from autotune.target.consistency_checks import TargetMistake
from autotune.target.messages import format_count, suggest_name
from autotune.target.model import Load, Target
from autotune.target.overrides import list_assigned_parameters
from autotune.target.parameter_selection import matches_pattern
from autotune.target.quantities import format_duration
from autotune.target.read_target import TargetFile
from autotune.target.yaml_document import Location

VARIABLE_PATTERN = re.compile(r"\$(?:\{\w+\}|[A-Za-z_]\w*)")
# In headers, `${NAME}` is replaced.
HEADER_VARIABLE_PATTERN = re.compile(r"\$[A-Za-z_]\w*|\$\{(?!\w+\})|\$\(|%[A-Z_]{4,}%")
USUAL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE")
# Each match starts at the last opening before an end, so that the time is linear in the text's length.
TEMPLATE_PATTERN = re.compile(r"\{\{(?:(?!\{\{).)*?\}\}|\{%(?:(?!\{%).)*?%\}")


def find_warnings(file: TargetFile) -> list[TargetError]:
    """Return a warning for each setting that is probably a mistake, in the order of the file."""
    warnings = [
        file.document.build_error(mistake.location, mistake.message, hint=mistake.hint)
        for mistake in (
            *_find_doubts(file),
            *_find_missing_reloads(file.target),
            *_find_empty_values(file.document.root, ()),
            *find_unusual_sizes(file.target),
            *find_settings_without_effect(file),
            *find_value_doubts(file),
            *find_constraint_doubts(file),
            *_find_unmodelled_values(file),
        )
    ]
    return sorted(warnings, key=lambda warning: warning.place)


def _find_unmodelled_values(file: TargetFile) -> Iterator[TargetMistake]:
    """Yield values from `--set`, values to search and values to try, of parameters that a model
    ignores. A target with an error has no such warnings.
    """
    target = file.target
    locations: dict[str, Location] = {
        name: ("try", index, name) for index, c in enumerate(target.try_first) for name in c
    }
    searched_names = (
        name for name, rule in target.parameters.items() if rule.range or rule.choices
    )
    for name in (*searched_names, *list_assigned_parameters(file.document)):
        locations[name] = ("parameters", name)
    if target.simulated is None or not locations:
        return
    from autotune.environments.simulated import prepare
    from autotune.simulate.topology import is_modelled

    try:
        environment = prepare(file)
    except (TargetError, KeyError):
        return
    for name, location in locations.items():
        is_parameter = name in environment.space.baseline and name.count(".") > 1
        if is_parameter and not is_modelled(environment.topology, name):
            hint = "omit it, or use the target of real hosts"
            yield TargetMistake(location, f"the model ignores {name}", hint)


def _find_empty_values(value: object, location: Location) -> Iterator[TargetMistake]:
    """Yield keys without a value: autotune uses the default of such a key."""
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for step, entry in entries:
        if entry is None:
            message = f"`{step}:` has no value, so its default applies"
            yield TargetMistake((*location, step), message, "give a value, or remove the key")
        yield from _find_empty_values(entry, (*location, step))


def _find_doubts(file: TargetFile) -> Iterator[TargetMistake]:
    target = file.target
    if target.command is not None:
        yield from _find_command_doubts(target)
        yield from find_command_doubts(file)
        return
    yield from find_host_doubts(target)
    yield from _find_empty_templates(file)
    yield from find_request_doubts(file)
    yield from _find_unused_hosts(target)
    yield from _find_ignored_keys(target)
    yield from _find_tier_doubts(target)
    yield from _find_load_doubts(target)
    yield from _find_ignored_tuning(target)
    yield from _find_single_choices(target)
    yield from _find_empty_configurations(target)


def _find_empty_templates(file: TargetFile) -> Iterator[TargetMistake]:
    for name, tier in file.target.tiers.items():
        directory = file.directory / (tier.templates or "")
        if tier.templates and directory.is_dir() and not any(directory.iterdir()):
            message = (
                f"directory {tier.templates!r} contains no template, so autotune's own are used"
            )
            hint = (
                "`autotune init --from` writes templates; remove the key to edit files on the hosts"
            )
            yield TargetMistake(("tiers", name, "templates"), message, hint)


def _find_command_doubts(target: Target) -> Iterator[TargetMistake]:
    yield from _find_missing_defaults(target)
    if "timeout" in target.model_fields_set and target.timeout > target.budget.time:
        message = (
            f"`timeout: {format_duration(target.timeout)}` exceeds the budget of "
            f"{format_duration(target.budget.time)}"
        )
        hint = "lower it, or raise `budget: {time: …}`: one call could use the whole budget"
        yield TargetMistake(("timeout",), message, hint)
    if "ready" in target.model_fields_set:
        yield TargetMistake(("ready",), "`ready:` has no effect with `command:`", "remove it")
    yield from _find_unexpanded_arguments(("command",), target.command or ())
    yield from _find_single_choices(target)
    yield from _find_empty_configurations(target)


def _find_missing_defaults(target: Target) -> Iterator[TargetMistake]:
    """Yield one mistake for all parameters whose baseline autotune chooses."""
    names = [
        name
        for name, rule in target.parameters.items()
        if rule.default is None and (rule.range or rule.choices)
    ]
    if not names:
        return
    further_text = f" (and {format_count(len(names) - 1, 'other parameter')})" if names[1:] else ""
    is_range = target.parameters[names[0]].range is not None
    baseline = "the middle of the range" if is_range else "the first choice"
    message = f"{names[0]}{further_text} has no `default:`, so its baseline is {baseline}"
    hint = "set `default:` to the value that you use today: the gain is relative to it"
    yield TargetMistake(("parameters", names[0]), message, hint)


def _find_unexpanded_arguments(
    location: tuple[str, ...], arguments: Iterable[str]
) -> Iterator[TargetMistake]:
    """Yield variables and templates in arguments of a program that is not started in a shell."""
    program, *further_arguments = (*arguments, "")
    if PurePath(program).name in SHELLS:
        return
    for index, argument in enumerate((program, *further_arguments)):
        match = VARIABLE_PATTERN.search(argument) or TEMPLATE_PATTERN.search(argument)
        if match:
            hint = 'write the value, or start a shell: `[sh, -c, "…"]`'
            message = f"{match[0]!r} is passed on without being replaced"
            yield TargetMistake((*location, index), message, hint)


def _find_unused_hosts(target: Target) -> Iterator[TargetMistake]:
    used_hosts = {host for tier in target.tiers.values() for host in tier.hosts}
    for name, host in target.hosts.items():
        is_used = name in used_hosts | {*target.load.hosts}
        if is_used and host.lab_only:
            message = f"`lab_only:` has no effect: {name!r} is a host of a tier or of `load:`"
            yield TargetMistake(("hosts", name, "lab_only"), message, "remove it")
        elif not is_used and not host.lab_only:
            hint = (
                "add it to `hosts:` of a tier or of `load:`, or remove it. `lab_only: true` allows a lab "
                "host without a tier"
            )
            yield TargetMistake(("hosts", name), f"no tier uses host {name!r}", hint)
    for index, name in enumerate(target.load.hosts):
        if name in used_hosts and target.hosts[name].transport == "ssh":
            tiers = [tier for tier in target.tiers if name in target.tiers[tier].hosts]
            message = f"the load host {name!r} also serves tier {tiers[0]!r}"
            hint = "use another host: the generator takes CPU time from the tier"
            yield TargetMistake(("load", "hosts", index), message, hint)


def _find_ignored_keys(target: Target) -> Iterator[TargetMistake]:
    """Yield keys that have no effect together with the other keys of the target."""
    for name, host in target.hosts.items():
        for key in ("user", "port", "lab_only"):
            if host.transport == "local" and getattr(host, key):
                message = f"`{key}:` has no effect with `transport: local`"
                yield TargetMistake(("hosts", name, key), message, "remove it, or use ssh")
    tiers = target.tiers.values()
    if target.project is not None and not any(tier.isolated for tier in tiers):
        message = "`project:` has no effect: no tier uses `runtime: containers`"
        yield TargetMistake(("project",), message, "add the runtime to its tiers, or remove it")
    is_data_used = target.simulated is not None or any(tier.app for tier in tiers)
    if "data" in target.model_fields_set and not is_data_used:
        message = "`data:` has no effect: no tier serves `app: reference`"
        yield TargetMistake(("data",), message, "remove it: your own site has its own data")
    if target.ssh.config and all(host.transport == "local" for host in target.hosts.values()):
        message = "`ssh:` has no effect: every host uses `transport: local`"
        yield TargetMistake(("ssh",), message, "remove it")


def _find_tier_doubts(target: Target) -> Iterator[TargetMistake]:
    """Yield unused services, repeated links, and units that two tiers share."""
    used_services = {service for tier in target.tiers.values() for service in tier.service}
    for name in target.services:
        if name not in used_services:
            message = f"no tier uses the declared service {name!r}"
            hint = f"write `service: {name}` in a tier, or remove the declaration"
            yield TargetMistake(("services", name), message, hint)
    owners: dict[tuple[str, str], str] = {}
    catalogue = catalogue_of(target)
    for name, tier in target.tiers.items():
        if tier.forwards_to in tier.uses:
            message = f"`uses:` repeats {tier.forwards_to!r}, to which the tier forwards"
            yield TargetMistake(("tiers", name, "uses"), message, "remove it from `uses:`")
        is_unit = tier.installed and not tier.isolated
        deployments = [d for d in tier.service if is_unit and d in catalogue.deployments]
        services = {service.name for d in deployments for service, _ in catalogue.services_of(d)}
        for host, service in product(tier.hosts, sorted(services)):
            owner = owners.setdefault((target.hosts[host].address, service), name)
            if owner != name:
                message = f"tiers {owner!r} and {name!r} share the unit and files of {service}"
                hint = f"use different hosts: both tiers list {host!r}"
                yield TargetMistake(("tiers", name, "hosts"), message, hint)


def _find_missing_reloads(target: Target) -> Iterator[TargetMistake]:
    """Yield parameters that need a reload of a declared service without one."""
    for service_name, spec in target.services.items():
        for name, parameter in spec.parameters.items():
            if parameter.action == "reload" and not spec.reload:
                message = f"a change of {name} restarts {service_name}, which has no `reload: true`"
                hint = "add `reload: true` if the unit can reload, or remove `action: reload`"
                location = ("services", service_name, "parameters", name, "action")
                yield TargetMistake(location, message, hint)


def _find_single_choices(target: Target) -> Iterator[TargetMistake]:
    for name, rule in target.parameters.items():
        if rule.choices is not None and len(rule.choices) == 1:
            message = f"{name} is not searched: `choices:` lists only one value"
            hint = f"list more values, or write `fixed: {rule.choices[0]}`"
            yield TargetMistake(("parameters", name, "choices"), message, hint)


def _find_load_doubts(target: Target) -> Iterator[TargetMistake]:
    load = target.load
    yield from _find_unexpanded_arguments(("load", "command"), load.command or ())
    yield from _find_unexpanded_texts(load)
    names_by_case: dict[str, str] = {}
    for name in load.headers:
        first_name = names_by_case.setdefault(name.lower(), name)
        if first_name != name:
            message = f"header {name!r} repeats {first_name!r}: case does not matter"
            yield TargetMistake(("load", "headers", name), message, "remove one of them")
    if load.method not in USUAL_METHODS:
        message = f"{load.method!r} is not a usual HTTP method"
        hint = suggest_name(load.method, USUAL_METHODS)
        yield TargetMistake(("load", "method"), message, hint)
    for key in ("path", "url"):
        if "#" in (getattr(load, key) or ""):
            message = f"`{key}` contains a fragment, which browsers do not send"
            yield TargetMistake(("load", key), message, "remove the '#' and the text after it")


def _find_unexpanded_texts(load: Load) -> Iterator[TargetMistake]:
    """Yield variables and templates in texts of a request that autotune does not expand."""
    texts: list[tuple[Location, str, re.Pattern[str]]] = [
        (("load", key), getattr(load, key) or "", VARIABLE_PATTERN)
        for key in ("path", "url", "body")
    ]
    texts += [
        (("load", "headers", name), text, HEADER_VARIABLE_PATTERN)
        for name, text in load.headers.items()
    ]
    for location, text, pattern in texts:
        match = pattern.search(text) or TEMPLATE_PATTERN.search(text)
        if match:
            message = f"{match[0]!r} is sent without being replaced"
            hint = "write the value; `load: {headers: …}` reads variables, as `${NAME}`"
            yield TargetMistake(location, message, hint)


def _find_ignored_tuning(target: Target) -> Iterator[TargetMistake]:
    """Yield patterns of `tune:` that select only parameters with `fixed:` or `drop:`."""
    catalogue = catalogue_of(target)
    names = [
        f"{tier_service.name}.{parameter.name}"
        for tier_name, tier in target.tiers.items()
        if all(service in catalogue.deployments for service in tier.service)
        and (not tier.app or tier.app in catalogue.applications)
        for tier_service in catalogue.list_tier_services(tier_name, tier)
        for parameter in tier_service.service.parameters
    ]
    for index, pattern in enumerate(() if isinstance(target.tune, str) else target.tune):
        selected_names = [name for name in names if matches_pattern(name, pattern)]
        if selected_names and all(has_single_value(target, name) for name in selected_names):
            message = f"`tune:` lists {pattern}, but `parameters:` fixes or excludes it"
            hint = "give it a `range:`, or remove it from `tune:`"
            yield TargetMistake(("tune", index), message, hint)


def _find_empty_configurations(target: Target) -> Iterator[TargetMistake]:
    for index, settings in enumerate(target.try_first):
        if not settings:
            message = "this configuration is empty, and equal to the baseline"
            yield TargetMistake(("try", index), message, "list its settings, or remove it")
