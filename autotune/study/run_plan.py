"""What a run would do, worked out without doing any of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autotune.deploy.changes import HostChanges
from autotune.environments.base import Environment, Preview
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Settings
from autotune.space.rules import MEMORY_SHARE, format_bytes
from autotune.space.space import Candidate
from autotune.study.schedule import MAX_PAIRS, MIN_FINALISTS, max_reserve_seconds
from autotune.target.messages import format_count
from autotune.transports.curl import describe_answer
from autotune.unified_diff import format_file_diff


def build_plan(environment: Environment) -> dict[str, Any]:
    """Files, actions, binding rules, memory and budget, as one JSON object."""
    if environment.file.target.command_goal is not None:
        return _build_command_plan(environment)
    target, space = environment.file.target, environment.space
    preview = environment.build_preview()
    stock = space.complete_unrepaired(space.baseline)
    recommended = space.build_candidate(space.preset_settings("recommended"))
    return {
        "schema": 1,
        "target": target.name,
        "simulated": target.simulated is not None,
        "entry": preview.entry,
        "servers": list(preview.servers),
        "host_settings": list(preview.host_settings),
        "installed": preview.is_installed,
        "tunable": [dimension.name for dimension in space.tunable_dimensions],
        "core": [dimension.name for dimension in space.core_dimensions],
        "deployments": [
            _describe_deployment(environment, preview, chosen) for chosen in space.deployments
        ],
        "bindings": [str(binding) for binding in recommended.repairs],
        "limits": [
            space.format_arithmetic(rule, recommended.settings)
            for rule in space.constraints
            if rule.is_built_in and rule.applies(recommended.settings)
        ],
        "memory": [asdict(of_host) for of_host in space.compute_memory_use(recommended.settings)],
        **({"right_answers": preview.answer_checks} if preview.answer_checks else {}),
        "actions": _group_services_by_action(environment, stock, recommended),
        **_describe_differences(preview, stock.settings, recommended.settings),
        "budget": {**_describe_budget(environment), "max_rate": target.load.max_rate},
    }


def _describe_differences(
    preview: Preview, stock: Settings, recommended: Settings
) -> dict[str, Any]:
    """How the recommended settings differ from the hosts as they are, or else from the baseline."""
    if preview.compute_changes is None:
        files = preview.render_files(stock), preview.render_files(recommended)
        return {"diff": format_file_diff(*files, "baseline", "recommended")}
    changes = preview.compute_changes(recommended)
    return {
        "diff": "".join(change.diff for change in changes.values()),
        "hosts": changes_to_json(changes),
        "may_restart": {unit: list(hosts) for unit, hosts in preview.restarted_units.items()},
        "requests": {
            url: describe_answer(answer) for url, answer in preview.request_answers().items()
        },
    }


def changes_to_json(changes: Mapping[str, HostChanges]) -> dict[str, Any]:
    """By host: files and their diff, kernel values from → to, units with action and reasons."""
    return {name: asdict(change) for name, change in changes.items()}


def format_changes(changes: Mapping[str, Any]) -> Iterator[str]:
    """Units with action, hosts and reasons, then kernel values; ``changes`` as in JSON."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host, change in changes.items():
        for unit, of_unit in change["units"].items():
            hosts.setdefault((of_unit["action"], unit, *of_unit["because"]), []).append(host)
    for (action, unit, *because), names in hosts.items():
        yield f"  {action} {unit} on {_format_hosts(names)}, for {', '.join(because)}"
    for host, change in changes.items():
        for key, (old, new) in change["sysctls"].items():
            yield f"  {host}: {key} {old} → {new}"


def _format_hosts(hosts: Sequence[str]) -> str:
    """A deployment acts on all hosts together."""
    return ", ".join(hosts) + (f", {len(hosts)} at once" if len(hosts) > 1 else "")


def _build_command_plan(environment: Environment) -> dict[str, Any]:
    """A benchmark command changes nothing by itself: its plan has the parameters of the first calls."""
    preview, space = environment.build_preview(), environment.space
    first = [space.baseline, *({**space.baseline, **changes} for changes in space.try_first)]
    candidates = [space.build_candidate(settings) for settings in first]
    return {
        "schema": 1,
        "target": environment.file.target.name,
        "command": preview.entry,
        "tunable": [dimension.name for dimension in space.tunable_dimensions],
        "bindings": [str(binding) for candidate in candidates for binding in candidate.repairs],
        "first": [
            json.loads(content)
            for candidate in candidates
            for content in preview.render_files(candidate.settings).values()
        ],
        "diff": "",
        "budget": _describe_budget(environment),
    }


def _describe_budget(environment: Environment) -> dict[str, Any]:
    budget = environment.file.target.budget
    return {
        "trials": budget.trials,
        "seconds": budget.time,
        "proof_seconds": max_reserve_seconds(budget),
        "finalists": MIN_FINALISTS,
        "most_pairs": MAX_PAIRS,
    }


def format_plan(plan: dict[str, Any]) -> str:
    """The plan for a person, diffs last."""
    budget = plan["budget"]
    spent = (
        f"Up to {format_count(budget['trials'], 'configuration')} of "
        f"{_format_parameter_counts(plan)} parameters "
        f"within {format_count(budget['seconds'] / 60, 'minute')}; up to "
        f"{budget['proof_seconds'] / 60:.1f} min of it are reserved to confirm the winner, of the "
        f"{budget['finalists']} best."
    )
    if "command" in plan:
        first = [json.dumps(parameters, ensure_ascii=False) for parameters in plan["first"]]
        rules = [f"  rule: {binding}" for binding in plan["bindings"]]
        return "\n".join(
            [f"{plan['command']} is called.", spent, "First of all with", *first, *rules]
        )
    servers = ", ".join(plan["servers"])
    about = (
        "The stack is a model: no host is touched, no load is sent, and time is virtual.",
        f"Modelled servers: {servers}.",
    ) if plan["simulated"] else (
        f"Load goes to {plan['entry']} only, up to {budget['max_rate']:g} requests/s.",
        f"Right answers: {plan['right_answers']}.",
        *(_format_installed_services(plan) if plan["installed"] else
          (f"Private servers, ended afterwards: {servers}.",)),
    )  # fmt: skip
    lines = [
        *about,
        spent,
        *_format_core_parameters(plan),
        *_format_actions(plan),
        *(f"  rule: {binding}" for binding in plan["bindings"]),
        *(f"  within: {limit}" for limit in plan["limits"]),
        *_format_memory(plan["memory"]),
        *_format_deployments(plan["deployments"]),
        "",
        plan["diff"].rstrip("\n") or "No file would differ.",
    ]
    return "\n".join(lines)


def _format_parameter_counts(plan: dict[str, Any]) -> str:
    """How many parameters are searched, and how many of them first."""
    core, every = len(plan.get("core", plan["tunable"])), len(plan["tunable"])
    return f"{every}" if core == every else f"{core} of {every}"


def _format_core_parameters(plan: dict[str, Any]) -> Iterator[str]:
    """What is searched first, by service; the rest joins when that is exhausted."""
    if len(plan["core"]) == len(plan["tunable"]):
        return
    services: dict[str, list[str]] = {}
    for name in plan["core"]:
        parsed = ParameterName.parse(name)
        services.setdefault(parsed.service_prefix, []).append(parsed.parameter or "which")
    yield "Searched first, as known to matter (`tune: all` searches everything at once):"
    yield from (f"  {name}: {', '.join(bare)}" for name, bare in services.items())


def _format_installed_services(plan: dict[str, Any]) -> Iterator[str]:
    """Whose servers they are, and what becomes of them."""
    yield (
        f"The hosts' own services, not ended: {', '.join(plan['servers'])}. Meanwhile their files "
        "are changed and they are reloaded or restarted; at the end their files are restored."
    )
    if plan["host_settings"]:
        yield f"Set meanwhile and restored at the end, too: {', '.join(plan['host_settings'])}."
    for unit, hosts in plan["may_restart"].items():
        yield f"A trial may restart {unit} on {_format_hosts(hosts)}."
    yield from (f"Now {url}: {words}." for url, words in plan["requests"].items())


def _format_actions(plan: dict[str, Any]) -> Iterator[str]:
    if "hosts" not in plan:
        yield "From the baseline to the recommended settings:"
        yield from (f"  {what}: {', '.join(names)}"
                    for what, names in plan["actions"].items() if names)  # fmt: skip
        return
    yield "From what the hosts have now to the recommended settings:"
    yield from format_changes(plan["hosts"])


def _describe_deployment(
    environment: Environment, preview: Preview, chosen: Settings
) -> dict[str, Any]:
    """What one choice of software runs, and the rules that limit its recommended settings."""
    candidate = environment.space.build_candidate(
        environment.space.preset_settings("recommended", chosen)
    )
    having_files = {path.partition("/")[0] for path in preview.render_files(candidate.settings)}
    return {
        "services": dict(chosen),
        "servers": [server for server in preview.servers if server in having_files],
        "parameters": len(
            environment.space.active_parameters(candidate.settings)
            & {d.name for d in environment.space.tunable_dimensions}
        ),
        "bindings": [str(binding) for binding in candidate.repairs],
    }


def _format_memory(hosts: list[dict[str, Any]]) -> Iterator[str]:
    """What the recommended settings use at most, by host, and what they may use."""
    for of_host in hosts:
        needed, allowed, memory = (
            format_bytes(of_host[key]) for key in ("needed", "allowed", "memory")
        )
        if of_host["of_baseline"]:
            reason = f"no more than the baseline, which exceeds {MEMORY_SHARE} of {memory}"
        else:
            reason = f"{MEMORY_SHARE} of {memory}"
        yield f"  memory of {of_host['host']}: at most {needed} of the allowed {allowed} ({reason})"


def _format_deployments(deployments: list[dict[str, Any]]) -> Iterator[str]:
    if len(deployments) < 2:
        return
    yield f"{len(deployments)} deployments, each tried with its recommended settings first:"
    for number, deployment in enumerate(deployments):
        services = deployment["services"]
        chosen = ", ".join(f"{name} {value}" for name, value in services.items())
        note = " (the baseline's)" if number == 0 else ""
        servers, count = ", ".join(deployment["servers"]), deployment["parameters"]
        yield f"  {chosen}{note}: {servers}; {format_count(count, 'parameter')}"
        yield from (f"    rule: {binding}" for binding in deployment["bindings"])


def _group_services_by_action(
    environment: Environment, old: Candidate, new: Candidate
) -> dict[str, list[str]]:
    """Services by the action their changed parameters need."""
    needed: dict[str, Action] = {}
    acting = environment.space.active_parameters(new.settings)
    for dimension in environment.space.dimensions:
        changed = old.settings[dimension.name] != new.settings[dimension.name]
        if changed and dimension.name in acting:
            service = ParameterName.parse(dimension.name).service_prefix
            needed[service] = max(needed.get(service, Action.NONE), dimension.parameter.action)
    return {
        action.name.lower(): sorted(name for name, minimum in needed.items() if minimum is action)
        for action in (Action.NONE, Action.RELOAD, Action.RESTART)
    }
