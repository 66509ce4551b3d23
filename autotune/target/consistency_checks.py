"""Checks that involve several keys of a target.

A target is a stack or a command, never a mixture.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter

from autotune.secret_detection import find_secrets, is_secret_assignment
from autotune.target.beds import ALL_BEDS, BED_PLACEHOLDER, build_bed_target
from autotune.target.messages import (
    format_scalars,
    format_value,
    is_same_value,
    suggest_choice,
    suggest_list,
    suggest_name,
)
from autotune.target.model import (
    MIN_TIMEOUT_LIMITS,
    REQUIRED_STACK_KEYS,
    Host,
    Load,
    ParameterRule,
    Scalar,
    Target,
)
from autotune.target.parameter_rule import WILDCARD
from autotune.target.quantities import (
    format_duration,
    format_fraction,
    format_rate,
    parse_magnitude,
)
from autotune.target.yaml_document import Location

# Keys that are valid only for a stack, and keys that are valid only for a command.
STACK_KEYS = (*REQUIRED_STACK_KEYS, "ssh", "project", "load", "data", "simulated", "replace", "services",
         "beds")  # fmt: skip
COMMAND_KEYS = ("maximize", "minimize", "unit", "timeout")
_STACK_GOAL_HINT = "remove it: autotune searches the highest load within `slo:`"
COMMAND_KEY_HINTS = {
    "maximize": _STACK_GOAL_HINT,
    "minimize": _STACK_GOAL_HINT,
    "unit": "remove it: the load of a stack is in requests/s",
    "timeout": "`load: {timeout: 2s}` limits a request",
}
# Keys that can replace `path`, and the content of their files
REQUEST_LIST_KEYS = {
    "uris": "a file of paths",
    "sessions": "a file of httperf sessions",
    "requests": "a file of weighted requests",
    "script": "a script for k6",
}
REQUEST_FILE_HINTS = {
    "requests": "the file of `requests` contains methods and bodies, and needs `generator`",
    "script": "the script sends its own requests with k6",
    "uris": "the paths in the file of `uris` are requested with GET",
    "sessions": "the file of `sessions` contains methods and bodies",
}
DECLARATION_KEYS = ("when", "unit", "meaning")
REQUIRED_KEY_EXAMPLES = {
    "slo": "slo: {p99: 50ms, errors: 0.1%}",
    "hosts": "hosts: {web1: {address: web1.example.org}}",
    "tiers": "tiers: {lb: {hosts: lb1, service: nginx}}",
}


@dataclass(frozen=True)
class TargetMistake:
    """A violated rule of a target, with its location in the file and a hint."""

    location: Location
    message: str
    hint: str | None = None


def find_mistakes(target: Target) -> Iterator[TargetMistake]:
    """Yield the violated rules. If keys do not fit the kind of target, only these keys are checked."""
    mistakes = list(
        _check_stack_keys(target) if target.command is None else _check_command_keys(target)
    )
    if mistakes or target.command:
        yield from mistakes
        yield from _check_command_secrets(("command",), target.command)
        return
    yield from _check_hosts(target)
    yield from _check_beds(target)
    yield from _check_load(target)
    yield from _check_declared_commands(target)
    yield from _check_tier_links(target)
    yield from _check_local_caches(target)
    yield from _list_cycles(target)
    yield from _check_ports(target)
    yield from _check_objective(target)


def _check_load(target: Target) -> Iterator[TargetMistake]:
    load = target.load
    yield from _check_request(load)
    yield from _check_command_secrets(("load", "command"), load.command)
    if load.command and "generator" in load.model_fields_set:
        yield TargetMistake(
            ("load", "command"),
            "`generator` and `command` cannot be combined",
            "remove `generator` to use your own program, or remove `command`",
        )
    for key, needed_generator in (("uris", "httperf"), ("sessions", "httperf"), ("script", "k6")):
        if getattr(load, key) is not None and (load.command or load.generator != needed_generator):
            yield TargetMistake(
                ("load", key),
                f"`{key}` needs `generator: {needed_generator}`",
                f"load: {{generator: {needed_generator}, {key}: …}}",
            )
    if load.requests_per_run is not None and load.script is None:
        yield TargetMistake(
            ("load", "requests_per_run"),
            "`requests_per_run` needs `script`",
            "load: {generator: k6, script: …, requests_per_run: …}",
        )
    if load.today is not None and load.today * (load.requests_per_run or 1) > load.max_rate:
        yield TargetMistake(
            ("load", "today"),
            f"`today` exceeds `max_rate` ({format_rate(load.max_rate)})",
            "raise `max_rate`, or lower `today`",
        )
    yield from _check_request_files(load)


def _check_request_files(load: Load) -> Iterator[TargetMistake]:
    """Yield keys that cannot be combined with a file of requests."""
    request_list_keys = [key for key in REQUEST_LIST_KEYS if getattr(load, key) is not None]
    if len(request_list_keys) > 1:
        first_key, second_key = request_list_keys[:2]
        yield TargetMistake(
            ("load", second_key),
            f"`{first_key}` and `{second_key}` cannot be combined",
            f"remove one: `{first_key}` is {REQUEST_LIST_KEYS[first_key]}, and `{second_key}` is "
            f"{REQUEST_LIST_KEYS[second_key]}",
        )
    for request_key, hint in REQUEST_FILE_HINTS.items():
        # A check of the generator refuses `command` with the other files.
        is_plain = request_key in ("uris", "sessions")
        keys = ("method", "body") if is_plain else ("command", "method", "body")
        for key in keys:
            if getattr(load, request_key) is not None and key in load.model_fields_set:
                yield TargetMistake(
                    ("load", key),
                    f"`{key}` and `{request_key}` cannot be combined",
                    f"remove `{key}`: {hint}",
                )


def _check_request(load: Load) -> Iterator[TargetMistake]:
    """Yield mistakes in the request, its expected response and its secrets."""
    if load.url is not None:
        for key in ("path", "host"):
            if key in load.model_fields_set:
                yield TargetMistake(
                    ("load", key),
                    f"`{key}` and `url` cannot be combined",
                    f"remove `{key}:`, and write the whole address in `url:`",
                )
        port_match = re.match(r"https?://(?:\[.*?\]|[^/:[]*):([0-9]+)", load.url)
        if port_match and not 1 <= int(port_match[1]) <= 65535:
            yield TargetMistake(
                ("load", "url"), f"url: invalid port {port_match[1]}", "use a port from 1 to 65535"
            )
    yield from _check_tls(load)
    yield from _check_expect(load)
    if load.body and load.method in ("GET", "HEAD"):
        yield TargetMistake(
            ("load", "body"), f"a {load.method} request has no body", "load: {method: POST, …}"
        )
    yield from _check_secrets(load)


def _check_expect(load: Load) -> Iterator[TargetMistake]:
    if load.expect and load.script:
        yield TargetMistake(
            ("load", "expect"),
            "`expect` and `script` cannot be combined",
            "`check()` in the script decides whether a response is correct",
        )
    if load.expect and load.expect.reads_body and load.method == "HEAD":
        yield TargetMistake(
            ("load", "expect"), "a response to HEAD has no body", "load: {method: GET}"
        )


def _check_secrets(load: Load) -> Iterator[TargetMistake]:
    for key, request_text in (("path", load.path), ("url", load.url), ("body", load.body)):
        if request_text and find_secrets(request_text):
            message = f"`{key}` may contain a secret, and targets and studies are shared"
            hint = 'send it in a header: `headers: {X-Token: "${TOKEN}"}`'
            yield TargetMistake(("load", key), message, hint)
    for header_name, header_value in load.headers.items():
        is_secret = is_secret_header_name(header_name) or is_secret_assignment(
            header_name, header_value
        )
        if is_secret and "${" not in header_value:
            message = f"{header_name!r} may contain a secret, and targets and studies are shared"
            hint = f"write `{header_name}: ${{TOKEN}}`, and set TOKEN in autotune's environment"
            yield TargetMistake(("load", "headers", header_name), message, hint)


def _check_declared_commands(target: Target) -> Iterator[TargetMistake]:
    """Yield the commands of declared services that may contain secrets. The commands run on the hosts."""
    hint = "let the command read it from a file on the host"
    for name, service in target.services.items():
        location: Location = ("services", name)
        yield from _check_command_secrets((*location, "check"), service.check, hint)
        for index, answers in enumerate(service.read):
            yield from _check_command_secrets(
                (*location, "read", index, "command"), answers.command, hint
            )
        if service.counters is not None:
            yield from _check_command_secrets(
                (*location, "counters", "command"), service.counters.command, hint
            )


def _check_command_secrets(
    location: Location,
    argv: Iterable[str] | None,
    hint: str = "let the command read it from a file or from its environment",
) -> Iterator[TargetMistake]:
    # The word after a switch such as `--no-auth-warning` is not its value.
    text = re.sub(r"(?<!\S)--no-[\w-]+(?=\s)", "--", " ".join(argv or ()))
    # A shell replaces `$(cat FILE)` with the content of a file, so it is not a secret.
    if any(not text.startswith(("$(", "`"), start) for start, _ in find_secrets(text)):
        message = f"`{location[-1]}` may contain a secret, and targets and studies are shared"
        yield TargetMistake(location, message, hint)


def _check_tls(load: Load) -> Iterator[TargetMistake]:
    if not load.uses_tls:
        for key in ("insecure", "ca", "http"):
            if key in load.model_fields_set and getattr(load, key) not in (False, "1.1"):
                yield TargetMistake(
                    ("load", key),
                    f"{key}: needs an https URL",
                    f"`load: {{url: https://…, {key}: …}}`, or remove `{key}`",
                )
    if load.insecure and load.ca:
        hint = (
            "remove `insecure` to check the certificate with `ca`, or remove `ca` to skip the check"
        )
        yield TargetMistake(("load", "insecure"), "`insecure` and `ca` cannot be combined", hint)


def is_secret_header_name(name: str) -> bool:
    return re.search("(?i)authorization|cookie|token|secret|passw|api-?key", name) is not None


def _check_hosts(target: Target) -> Iterator[TargetMistake]:
    for name, tier in target.tiers.items():
        yield from _check_names_exist(("tiers", name, "hosts"), "host", tier.hosts, target.hosts)
        yield from _check_duplicates(("tiers", name, "service"), tier.service)
    yield from _check_names_exist(("load", "hosts"), "host", target.load.hosts, target.hosts)
    host_by_address: dict[tuple[str, int | None], str] = {}
    for name, host in target.hosts.items():
        owner = host_by_address.setdefault((host.address.lower(), host.port), name)
        if owner != name and host.transport == "ssh":
            message = f"hosts {owner!r} and {name!r} have the same address {host.address}"
            hint = (
                f"remove {name!r}, and use {owner!r} in its tiers: a host may serve several tiers"
            )
            yield TargetMistake(("hosts", name, "address"), message, hint)


def _check_beds(target: Target) -> Iterator[TargetMistake]:
    """Yield mistakes in beds, such as an address that two real beds share."""
    if ALL_BEDS in target.beds:
        message = f"a bed cannot be called {ALL_BEDS!r}: `--beds {ALL_BEDS}` uses every bed"
        yield TargetMistake(("beds", ALL_BEDS), message, "give it another name")
    yield from _check_bed_hosts(target)
    if target.beds:
        return
    for host_name, host_model in target.hosts.items():
        if BED_PLACEHOLDER in host_model.address:
            message = f"{BED_PLACEHOLDER} in {host_model.address} needs `beds:`"
            yield TargetMistake(
                ("hosts", host_name, "address"), message, "such as `beds: {a: {}, b: {}}`"
            )


def _check_bed_hosts(target: Target) -> Iterator[TargetMistake]:
    bed_by_address: dict[str, str] = {}
    for bed_name, bed in target.beds.items():
        for host in bed.hosts:
            if host not in target.hosts:
                hint = suggest_name(host, target.hosts)
                yield TargetMistake(
                    ("beds", bed_name, "hosts", host), f"unknown host {host!r}", hint
                )
        if target.simulated is None and bed.simulated is not None:
            message = "`simulated:` of a bed needs `simulated:` in the target"
            hint = "add `simulated: {}` at the top level, or remove it here"
            yield TargetMistake(("beds", bed_name, "simulated"), message, hint)
        for host in target.hosts if target.simulated is None else ():
            address = build_bed_target(target, bed_name).hosts[host].address
            owner = bed_by_address.setdefault(address, bed_name)
            if owner != bed_name:
                message = (
                    f"bed {bed_name!r}: host {host!r} uses the address {address} of bed {owner!r}"
                )
                hint = (
                    "give the host another address: `hosts: {NAME: {address: …}}`, or use `{bed}`"
                )
                yield TargetMistake(("beds", bed_name), message, hint)


def _check_tier_links(target: Target) -> Iterator[TargetMistake]:
    for tier_name, tier in target.tiers.items():
        location = ("tiers", tier_name)
        other_tiers = {other: target.tiers[other] for other in target.tiers if other != tier_name}
        if tier_name in (tier.forwards_to, *tier.uses):
            key = "forwards_to" if tier.forwards_to == tier_name else "uses"
            message = f"tier {tier_name!r} cannot depend on itself"
            hint = f"remove `{key}:`, or name another tier"
            yield TargetMistake((*location, key), message, hint)
            continue
        if tier.forwards_to is not None and tier.forwards_to not in other_tiers:
            message = f"unknown tier {tier.forwards_to!r}"
            yield TargetMistake(
                (*location, "forwards_to"), message, suggest_name(tier.forwards_to, other_tiers)
            )
        yield from _check_names_exist((*location, "uses"), "tier", tier.uses, other_tiers)


def _check_names_exist(
    location: tuple[str, ...],
    noun: str,
    names: tuple[str, ...],
    existing_names: Mapping[str, object],
) -> Iterator[TargetMistake]:
    for index, name in enumerate(names):
        if name not in existing_names:
            message = f"unknown {noun} {name!r}"
            hint = (
                suggest_list(name, existing_names)
                or (_find_address_hint(name, existing_names) if noun == "host" else None)
                or _find_names_hint(name, existing_names)
                or suggest_name(name, existing_names)
            )
            yield TargetMistake((*location, index), message, hint)
    yield from _check_duplicates(location, names)


def _find_names_hint(name: str, existing_names: Collection[str]) -> str | None:
    """Return the hint for a pattern of several names: `web*`, `web1-2`, `web[1:2]` or `all`."""
    pattern = "*" if name.lower() in ("all", "any") else name
    matching_names = [n for n in existing_names if "*" in pattern and fnmatchcase(n, pattern)]
    series = re.fullmatch(r"([A-Za-z_-]{1,60}?)\[?([0-9]{1,4})(?:-|:|\.\.)([0-9]{1,4})\]?", name)
    if series:
        numbers = range(int(series[2]), int(series[3]) + 1)
        names = {f"{series[1]}{number}" for number in numbers}
        matching_names = [n for n in existing_names if n in names]
    if not matching_names or (series and len(matching_names) == 1):
        return None
    return f"patterns are not expanded: write `[{', '.join(matching_names)}]`"


def _find_address_hint(name: str, hosts: Mapping[str, object]) -> str | None:
    """Return the hint for an address in place of the name of a host."""
    for host_name, host in hosts.items():
        if isinstance(host, Host) and host.address == name:
            return f"write {host_name!r}, the name of the host with this address"
    if name in ("localhost", "127.0.0.1", "::1"):
        return "declare this machine: `hosts: {here: {transport: local}}`, and write `here`"
    if re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", name):
        return f"declare the host: `hosts: {{NAME: {{address: {name}}}}}`, and write NAME here"
    return None


def _check_duplicates(location: tuple[str, ...], names: tuple[str, ...]) -> Iterator[TargetMistake]:
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"{name!r} is listed twice"
            yield TargetMistake((*location, index), message, "remove one of them")


def _check_local_caches(target: Target) -> Iterator[TargetMistake]:
    for tier_name, tier in target.tiers.items():
        if tier.local_cache and not tier.app:
            message = f"tier {tier_name!r} has no `app:` to use a local cache"
            hint = "remove `local_cache:`"
            if owner := next((n for n, t in target.tiers.items() if t.app), None):
                hint = f"move `local_cache:` to tier {owner!r}, which sets `app:`"
                if target.tiers[owner].local_cache:
                    hint = f"remove it here: tier {owner!r} already sets it"
            yield TargetMistake(("tiers", tier_name, "local_cache"), message, hint)


def _list_cycles(target: Target) -> Iterator[TargetMistake]:
    # Another check reports a tier that depends on itself.
    needed_tiers = {
        name: [
            needed_tier
            for needed_tier in tier.required_tiers
            if needed_tier in target.tiers and needed_tier != name
        ]
        for name, tier in target.tiers.items()
    }
    if cycle := _find_cycle(needed_tiers):
        # Tiers are usually listed from the entry to the store, so the last link is probably wrong.
        *_, last_tier, first_tier = cycle
        message = f"dependency cycle between tiers: {' → '.join(cycle)}"
        hint = f"remove one of these links, such as {last_tier} → {first_tier}"
        yield TargetMistake(_find_link(target, last_tier, first_tier), message, hint)


def _find_link(target: Target, tier_name: str, other_tier: str) -> Location:
    """Return the location at which a tier names another tier that it needs."""
    tier = target.tiers[tier_name]
    if tier.forwards_to == other_tier:
        return ("tiers", tier_name, "forwards_to")
    return ("tiers", tier_name, "uses", tier.uses.index(other_tier))


def _find_cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names in a cycle, starting and ending with the same name; empty if no cycle
    exists.
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle_names: list[str] = error.args[1][
            :0:-1
        ]  # each tier comes before the tiers that it needs
        start_index = cycle_names.index(next(name for name in graph if name in cycle_names))
        return [*cycle_names[start_index:], *cycle_names[: start_index + 1]]
    return []


def _check_ports(target: Target) -> Iterator[TargetMistake]:
    tier_by_port: dict[tuple[str, int], str] = {}
    for tier_name, tier in target.tiers.items():
        for host in tier.hosts:
            if tier.port is None or host not in target.hosts:
                continue
            owner = tier_by_port.setdefault((target.hosts[host].address, tier.port), tier_name)
            if owner != tier_name:
                message = f"port {tier.port} on host {host!r} is already used by tier {owner!r}"
                hint = "remove `port:` to use a free port"
                yield TargetMistake(("tiers", tier_name, "port"), message, hint)


def _check_objective(target: Target) -> Iterator[TargetMistake]:
    slo, timeout = target.slo.objective, target.request_timeout
    # Short timeouts would hide the real latency and relieve an overloaded server.
    if timeout < MIN_TIMEOUT_LIMITS * slo.limit:
        min_timeout = format_duration(MIN_TIMEOUT_LIMITS * slo.limit)
        message = (
            f"timeout: {format_duration(timeout)} is too close to the latency limit "
            f"{format_duration(slo.limit)}"
        )
        yield TargetMistake(
            ("load", "timeout"), message, f"raise it: `load: {{timeout: {min_timeout}}}`"
        )
    # Errors also count as late (Slo.allowed_violations), so a larger error limit would have no
    # effect.
    if slo.errors > slo.allowed_violations + 1e-12:
        message = (
            f"errors: {format_fraction(slo.errors)} exceeds the "
            f"{slo.allowed_violations * 100:g}% of requests that may be late or fail"
        )
        yield TargetMistake(("slo", "errors"), message, "lower it, or use a lower percentile")


def _check_stack_keys(target: Target) -> Iterator[TargetMistake]:
    for key in COMMAND_KEYS:
        if key in target.model_fields_set:
            yield TargetMistake((key,), f"`{key}:` needs `command:`", COMMAND_KEY_HINTS[key])
    for parameter_name, rule in target.parameters.items():
        for key in DECLARATION_KEYS:
            if getattr(rule, key) is not None:
                message = f"`{key}:` applies only to parameters of a `command:`"
                hint = "remove it: `autotune params` lists the parameters of a stack"
                yield TargetMistake(("parameters", parameter_name, key), message, hint)
        if WILDCARD in parameter_name and not rule.drop:
            message = f"{parameter_name!r} is a pattern, which can only exclude parameters"
            yield TargetMistake(
                ("parameters", parameter_name), message, _suggest_own_rule(target, parameter_name)
            )
    for key in REQUIRED_STACK_KEYS:
        if key not in target.model_fields_set:
            yield TargetMistake(
                (), f"{key!r} is missing", f"such as `{REQUIRED_KEY_EXAMPLES[key]}`"
            )


def _suggest_own_rule(target: Target, pattern: str) -> str:
    """Return the hint for a pattern with values: the rule of one parameter, with the same values."""
    rule = target.parameters[pattern].model_dump(exclude_unset=True)
    keys = ", ".join(f"{key}: {format_scalars(value)}" for key, value in rule.items())
    names = [n for n in target.parameters if fnmatchcase(n, pattern) and WILDCARD not in n]
    if names:
        return (
            f"change the existing rule to `{names[0]}: {{{keys}}}`, and give other parameters their own "
            "rules; `autotune params` lists the names"
        )
    name = f"{pattern.partition('.')[0]}.SERVICE.PARAMETER"
    return (
        f"give each parameter its own rule, such as `{name}: {{{keys}}}`; "
        "`autotune params` lists the names"
    )


def _check_command_keys(target: Target) -> Iterator[TargetMistake]:
    for key in STACK_KEYS:
        if key in target.model_fields_set:
            message = f"`{key}:` and `command:` cannot be combined"
            hint = "remove it to tune the command, or remove `command:` to tune a stack"
            yield TargetMistake((key,), message, hint)
    if not isinstance(target.tune, str):
        message = "`tune:` lists parameters of tiers, and a command has none"
        yield TargetMistake(("tune",), message, "remove it, and set `fixed:` for other parameters")
    if target.maximize and target.minimize:
        message = "`maximize` and `minimize` cannot be combined"
        hint = "remove one of them"
        yield TargetMistake(("minimize",), message, hint)
    if not (target.maximize or target.minimize):
        message = "a command needs `maximize` or `minimize`"
        yield TargetMistake(("command",), message, "such as `maximize: throughput`")
    if not target.parameters:
        example = "such as `parameters: {threads: {range: [1, 16], default: 4}}`"
        yield TargetMistake(("parameters",), "nothing to tune: `parameters` is empty", example)
    for parameter_name, rule in target.parameters.items():
        yield from _check_declared_parameter(target, parameter_name, rule)
    conditions_by_parameter = {
        parameter_name: rule.when or () for parameter_name, rule in target.parameters.items()
    }
    graph = {
        parameter_name: [o for o in condition_names if o in conditions_by_parameter]
        for parameter_name, condition_names in conditions_by_parameter.items()
    }
    if cycle := _find_cycle(graph):
        *_, last_name, first_name = cycle
        message = f"condition cycle: {' → '.join(cycle)}"
        hint = f"remove one of these conditions, such as {first_name} in `when:` of {last_name}"
        yield TargetMistake(("parameters", last_name, "when", first_name), message, hint)


def _check_declared_parameter(
    target: Target, parameter_name: str, rule: ParameterRule
) -> Iterator[TargetMistake]:
    location = ("parameters", parameter_name)
    if rule.drop:
        yield TargetMistake(
            (*location, "drop"),
            f"{parameter_name}: `drop` applies only to parameters of the catalogue",
            "remove it",
        )
    elif rule.range is None and rule.choices is None and rule.fixed is None:
        message = f"{parameter_name} needs `range`, `choices` or `fixed`"
        yield TargetMistake(location, message, "such as `{range: [1, 16], default: 4}`")
    other_parameters = {
        condition_name: target.parameters[condition_name]
        for condition_name in target.parameters
        if condition_name != parameter_name
    }
    for condition_name, condition_values in (rule.when or {}).items():
        if condition_name not in other_parameters:
            hint = suggest_name(condition_name, other_parameters)
            yield TargetMistake(
                (*location, "when", condition_name), f"unknown parameter {condition_name!r}", hint
            )
            continue
        for value in condition_values:
            if value_hint := _find_condition_hint(other_parameters[condition_name], value):
                message = f"{condition_name} cannot be {format_value(value)}"
                yield TargetMistake((*location, "when", condition_name), message, value_hint)


def _find_condition_hint(rule: ParameterRule, value: Scalar) -> str | None:
    """Return the hint for a condition on a value that the parameter cannot have, or else ``None``."""
    if rule.choices is not None:
        is_choice = any(is_same_value(value, choice) for choice in rule.choices)
        return None if is_choice else suggest_choice(value, rule.choices)
    if rule.range is None:
        return None
    bounds = [parse_magnitude(bound) for bound in rule.range]
    try:
        magnitude = parse_magnitude(value)
    except ValueError:  # the number is too large for any parameter
        return f"its range is from {rule.range[0]} to {rule.range[1]}"
    if magnitude is None:
        return f"write a number from {rule.range[0]} to {rule.range[1]}"
    kinds = {bound[0] for bound in bounds if bound}
    amounts = [bound[1] for bound in bounds if bound]
    if kinds != {magnitude[0]} or amounts[0] <= magnitude[1] <= amounts[-1]:
        return None
    return f"its range is from {rule.range[0]} to {rule.range[1]}"
