"""The plan of a run, computed without changing any host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from autotune.deploy.changes import HostChanges
from autotune.environments.base import Environment, Preview
from autotune.parameter_name import ParameterName
from autotune.services.base import Action, Settings
from autotune.space.memory import HostMemory
from autotune.space.quantity_text import format_bytes
from autotune.space.rules import MEMORY_SHARE
from autotune.space.space import Candidate
from autotune.study import plan_documents
from autotune.study.alternation import MAX_PAIRS
from autotune.study.plan_documents import Plan
from autotune.study.time_budget import MIN_FINALISTS, compute_max_reserve_seconds
from autotune.target.messages import format_count
from autotune.transports.curl import describe_answer
from autotune.unified_diff import format_file_diff


def build_plan(environment: Environment) -> Plan:
    """Return the plan as one JSON object: files, actions, active rules, memory and budget."""
    if environment.file.target.command_goal is not None:
        return _build_command_plan(environment)
    target, space = environment.file.target, environment.space
    preview = environment.build_preview()
    baseline = space.complete_without_repair(space.baseline)
    recommended_candidate = space.build_candidate(space.preset_settings("recommended"))
    plan: Plan = {
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
        "bindings": [str(repaired_value) for repaired_value in recommended_candidate.repairs],
        "limits": [
            space.format_arithmetic(rule, recommended_candidate.settings)
            for rule in space.constraints
            if rule.is_built_in and rule.applies(recommended_candidate.settings)
        ],
        "memory": list(
            map(_encode_memory, space.compute_memory_use(recommended_candidate.settings))
        ),
        "actions": _group_services_by_action(environment, baseline, recommended_candidate),
        "diff": "",
        "budget": {**_describe_budget(environment), "max_rate": target.load.max_rate},
    }
    if preview.answer_checks:
        plan["right_answers"] = preview.answer_checks
    _add_differences(plan, preview, baseline.settings, recommended_candidate.settings)
    return plan


def _encode_memory(host: HostMemory) -> plan_documents.HostMemoryObject:
    return {
        "host": host.host,
        "rule": host.rule,
        "needed": host.needed,
        "allowed": host.allowed,
        "memory": host.memory,
        "of_baseline": host.of_baseline,
    }


def _add_differences(
    plan: Plan, preview: Preview, baseline_settings: Settings, recommended: Settings
) -> None:
    """Add to ``plan`` the changes by the recommended settings: changes on the hosts, or else relative
    to the baseline.
    """
    if preview.compute_changes is None:
        rendered_files = preview.render_files(baseline_settings), preview.render_files(recommended)
        plan["diff"] = format_file_diff(*rendered_files, "baseline", "recommended")
        return
    changes_by_host = preview.compute_changes(recommended)
    plan["diff"] = "".join(change.diff for change in changes_by_host.values())
    plan["hosts"] = encode_host_changes(changes_by_host)
    plan["may_restart"] = {unit: list(hosts) for unit, hosts in preview.restarted_units.items()}
    plan["requests"] = {
        url: describe_answer(answer) for url, answer in preview.request_answers().items()
    }


def encode_host_changes(
    changes: Mapping[str, HostChanges],
) -> dict[str, plan_documents.HostChangesObject]:
    """Return the changes of each host: files with diffs, kernel values (from → to), and units with
    action and reasons.
    """
    return {host_name: _encode_changes(change) for host_name, change in changes.items()}


def _encode_changes(changes: HostChanges) -> plan_documents.HostChangesObject:
    units: dict[str, plan_documents.UnitChangeObject] = {
        unit: {"action": change.action, "because": change.because}
        for unit, change in changes.units.items()
    }
    return {
        "diff": changes.diff,
        "files": changes.files,
        "sysctls": changes.sysctls,
        "units": units,
    }


def format_changes(changes: Mapping[str, plan_documents.HostChangesObject]) -> Iterator[str]:
    """Yield lines about units (action, hosts and reasons), then about kernel values. ``changes`` is in
    the JSON format.
    """
    hosts_by_change: dict[tuple[str, ...], list[str]] = {}
    for host, change in changes.items():
        for unit, unit_change in change["units"].items():
            hosts_by_change.setdefault(
                (unit_change["action"], unit, *unit_change["because"]), []
            ).append(host)
    for (action, unit, *reasons), host_names in hosts_by_change.items():
        yield f"  {action} {unit} on {_format_hosts(host_names)}, for {', '.join(reasons)}"
    for host, change in changes.items():
        for kernel_setting, (old, new) in change["sysctls"].items():
            yield f"  {host}: {kernel_setting} {old} → {new}"


def _format_hosts(hosts: Sequence[str]) -> str:
    """Return the hosts as one text, because a deployment acts on all hosts at once."""
    return ", ".join(hosts) + (f" ({len(hosts)} at once)" if len(hosts) > 1 else "")


def _build_command_plan(environment: Environment) -> Plan:
    """Return the plan of a benchmark command, which changes no host: the parameters of the first
    calls.
    """
    preview, space = environment.build_preview(), environment.space
    first_settings = [
        space.baseline,
        *({**space.baseline, **changed_settings} for changed_settings in space.try_first),
    ]
    candidates = [space.build_candidate(settings) for settings in first_settings]
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


def _describe_budget(environment: Environment) -> plan_documents.BudgetObject:
    budget = environment.file.target.budget
    return {
        "trials": budget.trials,
        "seconds": budget.time,
        "proof_seconds": compute_max_reserve_seconds(budget),
        "finalists": MIN_FINALISTS,
        "most_pairs": MAX_PAIRS,
    }


def format_plan(plan: Plan) -> str:
    """Return the plan as text, with the diffs at the end."""
    budget = plan["budget"]
    budget_text = (
        f"Budget: {format_count(budget['trials'], 'configuration')} of "
        f"{_format_parameter_counts(plan)} parameters in "
        f"{format_count(budget['seconds'] / 60, 'minute')}. Up to {budget['proof_seconds'] / 60:.1f} min "
        f"are reserved to confirm the best {budget['finalists']}."
    )
    rule_lines = [f"  rule: {binding_text}" for binding_text in plan["bindings"]]
    if "command" in plan:
        first_calls = [json.dumps(parameters, ensure_ascii=False) for parameters in plan["first"]]
        command_line = f"Command: {plan['command']}."
        return "\n".join([command_line, budget_text, "First calls:", *first_calls, *rule_lines])
    lines = [
        *_format_introduction(plan),
        budget_text,
        *_format_core_parameters(plan),
        *_format_actions(plan),
        *rule_lines,
        *(f"  within: {limit}" for limit in plan["limits"]),
        *_format_memory(plan["memory"]),
        *_format_deployments(plan["deployments"]),
        "",
        plan["diff"].rstrip("\n") or "No file would change.",
    ]
    return "\n".join(lines)


def _format_introduction(plan: Plan) -> Iterator[str]:
    servers_text = ", ".join(plan["servers"])
    if plan["simulated"]:
        yield "The stack is a model: no host is contacted, no load is sent, and time is virtual."
        yield f"Modelled servers: {servers_text}."
        return
    yield f"Load goes to {plan['entry']} only, up to {plan['budget']['max_rate']:g} requests/s."
    yield f"Correct responses: {plan['right_answers']}."
    if plan["installed"]:
        yield from _format_installed_services(plan)
    else:
        yield f"Private servers, stopped after the study: {servers_text}."


def _format_parameter_counts(plan: Plan) -> str:
    core_count, total_count = len(plan.get("core", plan["tunable"])), len(plan["tunable"])
    return f"{total_count}" if core_count == total_count else f"{core_count} of {total_count}"


def _format_core_parameters(plan: Plan) -> Iterator[str]:
    """Yield the parameters that are searched first, by service. All other parameters are searched
    later.
    """
    if len(plan["core"]) == len(plan["tunable"]):
        return
    names_by_service: dict[str, list[str]] = {}
    for name in plan["core"]:
        parameter_name = ParameterName.parse(name)
        names_by_service.setdefault(parameter_name.service_prefix, []).append(
            parameter_name.parameter or "which"
        )
    yield "Searched first, because they are known to matter (`tune: all` searches everything at once):"
    yield from (f"  {name}: {', '.join(names)}" for name, names in names_by_service.items())


def _format_installed_services(plan: Plan) -> Iterator[str]:
    """Yield lines about existing services that a study reconfigures, and about their restoration."""
    yield (
        f"Existing services to reconfigure: {', '.join(plan['servers'])}. They are reloaded or restarted "
        "during the study. Their files are restored at the end."
    )
    if plan["host_settings"]:
        yield (
            "Kernel settings changed during the study and restored at the end: "
            f"{', '.join(plan['host_settings'])}."
        )
    for unit, hosts in plan["may_restart"].items():
        yield f"A trial may restart {unit} on {_format_hosts(hosts)}."
    yield from (f"Now {url}: {answer_text}." for url, answer_text in plan["requests"].items())


def _format_actions(plan: Plan) -> Iterator[str]:
    if "hosts" not in plan:
        yield "From the baseline to the recommended settings:"
        yield from (
            f"  {action}: {', '.join(service_names)}"
            for action, service_names in plan["actions"].items()
            if service_names
        )
        return
    yield "Changes from the current state of the hosts to the recommended settings:"
    yield from format_changes(plan["hosts"])


def _describe_deployment(
    environment: Environment, preview: Preview, deployment_settings: Settings
) -> plan_documents.DeploymentObject:
    """Return the services of one deployment, and the rules that limit its recommended settings."""
    candidate = environment.space.build_candidate(
        environment.space.preset_settings("recommended", deployment_settings)
    )
    service_names = {path.partition("/")[0] for path in preview.render_files(candidate.settings)}
    return {
        "services": dict(deployment_settings),
        "servers": [server for server in preview.servers if server in service_names],
        "parameters": len(
            environment.space.active_parameters(candidate.settings)
            & {d.name for d in environment.space.tunable_dimensions}
        ),
        "bindings": [str(repaired_value) for repaired_value in candidate.repairs],
    }


def _format_memory(hosts: Sequence[plan_documents.HostMemoryObject]) -> Iterator[str]:
    for host in hosts:
        needed_text, allowed_text, memory_text = map(
            format_bytes, (host["needed"], host["allowed"], host["memory"])
        )
        if host["of_baseline"]:
            reason = f"no more than the baseline, which exceeds {MEMORY_SHARE} of {memory_text}"
        else:
            reason = f"{MEMORY_SHARE} of {memory_text}"
        yield f"  memory of {host['host']}: {needed_text} of the allowed {allowed_text} ({reason})"


def _format_deployments(deployments: Sequence[plan_documents.DeploymentObject]) -> Iterator[str]:
    if len(deployments) < 2:
        return
    yield f"{len(deployments)} choices of software. Each is tried with its recommended settings first:"
    for deployment_index, deployment in enumerate(deployments):
        services = deployment["services"]
        services_text = ", ".join(
            f"{service_name} {value}" for service_name, value in services.items()
        )
        baseline_note = " (the baseline's)" if deployment_index == 0 else ""
        servers, parameter_count = ", ".join(deployment["servers"]), deployment["parameters"]
        yield f"  {services_text}{baseline_note}: {servers}; {format_count(parameter_count, 'parameter')}"
        yield from (f"    rule: {binding_text}" for binding_text in deployment["bindings"])


def _group_services_by_action(
    environment: Environment, old_candidate: Candidate, new_candidate: Candidate
) -> dict[str, list[str]]:
    """Return the services by the action that their changed parameters need."""
    action_by_service: dict[str, Action] = {}
    active_names = environment.space.active_parameters(new_candidate.settings)
    for dimension in environment.space.dimensions:
        is_changed = (
            old_candidate.settings[dimension.name] != new_candidate.settings[dimension.name]
        )
        if is_changed and dimension.name in active_names:
            service = ParameterName.parse(dimension.name).service_prefix
            action_by_service[service] = max(
                action_by_service.get(service, Action.NONE), dimension.parameter.action
            )
    return {
        action.name.lower(): sorted(
            service_name for service_name, minimum in action_by_service.items() if minimum is action
        )
        for action in (Action.NONE, Action.RELOAD, Action.RESTART)
    }
