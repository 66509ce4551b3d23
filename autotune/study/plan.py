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
from autotune.space.rules import MEMORY_SHARE, figure
from autotune.space.space import Candidate
from autotune.study.schedule import FINALISTS, MOST_PAIRS, most_reserved
from autotune.target.messages import plural
from autotune.transports.curl import in_words
from autotune.unified_diff import file_diff


def plan(environment: Environment) -> dict[str, Any]:
    """Files, actions, binding rules, memory and budget, as one JSON object."""
    if environment.file.target.goal is not None:
        return _of_command(environment)
    target, space = environment.file.target, environment.space
    preview = environment.preview()
    stock = space.as_given(space.baseline)
    recommended = space.candidate(space.preset("recommended"))
    return {
        "schema": 1,
        "target": target.name,
        "simulated": target.simulated is not None,
        "entry": preview.entry,
        "servers": list(preview.servers),
        "host_settings": list(preview.host_settings),
        "installed": preview.installed,
        "tunable": [dimension.name for dimension in space.tunable],
        "core": [dimension.name for dimension in space.core],
        "deployments": [_deployment(environment, preview, chosen) for chosen in space.deployments],
        "bindings": [str(binding) for binding in recommended.bindings],
        "limits": [
            space.arithmetic(rule, recommended.settings)
            for rule in space.constraints
            if rule.built_in and rule.applies(recommended.settings)
        ],
        "memory": [asdict(of_host) for of_host in space.memory(recommended.settings)],
        "actions": _actions(environment, stock, recommended),
        **_differences(preview, stock.settings, recommended.settings),
        "budget": {**_budget(environment), "max_rate": target.load.max_rate},
    }


def _differences(preview: Preview, stock: Settings, recommended: Settings) -> dict[str, Any]:
    """How the recommended settings differ from the hosts as they are, or else from the baseline."""
    if preview.changes is None:
        files = preview.files(stock), preview.files(recommended)
        return {"diff": file_diff(*files, "baseline", "recommended")}
    changes = preview.changes(recommended)
    return {
        "diff": "".join(change.diff for change in changes.values()),
        "hosts": changes_json(changes),
        "may_restart": {unit: list(hosts) for unit, hosts in preview.restarts.items()},
        "requests": {url: in_words(answer) for url, answer in preview.answers().items()},
    }


def changes_json(changes: Mapping[str, HostChanges]) -> dict[str, Any]:
    """By host: files and their diff, kernel values from → to, units with action and reasons."""
    return {name: asdict(change) for name, change in changes.items()}


def changes_text(changes: Mapping[str, Any]) -> Iterator[str]:
    """Units with action, hosts and reasons, then kernel values; ``changes`` as in JSON."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for host, change in changes.items():
        for unit, of_unit in change["units"].items():
            hosts.setdefault((of_unit["action"], unit, *of_unit["because"]), []).append(host)
    for (action, unit, *because), names in hosts.items():
        yield f"  {action} {unit} on {_at_once(names)}, for {', '.join(because)}"
    for host, change in changes.items():
        for key, (old, new) in change["sysctls"].items():
            yield f"  {host}: {key} {old} → {new}"


def _at_once(hosts: Sequence[str]) -> str:
    """A deployment acts on all hosts together."""
    return ", ".join(hosts) + (f", {len(hosts)} at once" if len(hosts) > 1 else "")


def _of_command(environment: Environment) -> dict[str, Any]:
    """A benchmark command changes nothing by itself: its plan has the parameters of the first calls."""
    preview, space = environment.preview(), environment.space
    first = [space.baseline, *({**space.baseline, **changes} for changes in space.try_first)]
    candidates = [space.candidate(settings) for settings in first]
    return {
        "schema": 1,
        "target": environment.file.target.name,
        "command": preview.entry,
        "tunable": [dimension.name for dimension in space.tunable],
        "bindings": [str(binding) for candidate in candidates for binding in candidate.bindings],
        "first": [
            json.loads(content)
            for candidate in candidates
            for content in preview.files(candidate.settings).values()
        ],
        "diff": "",
        "budget": _budget(environment),
    }


def _budget(environment: Environment) -> dict[str, Any]:
    budget = environment.file.target.budget
    return {
        "trials": budget.trials,
        "seconds": budget.time,
        "proof_seconds": most_reserved(budget),
        "finalists": FINALISTS,
        "most_pairs": MOST_PAIRS,
    }


def text(planned: dict[str, Any]) -> str:
    """The plan for a person, diffs last."""
    budget = planned["budget"]
    spent = (
        f"Up to {plural(budget['trials'], 'configuration')} of {_searched(planned)} parameters "
        f"within {plural(budget['seconds'] / 60, 'minute')}; up to "
        f"{budget['proof_seconds'] / 60:.1f} min of it are reserved to confirm the winner, of the "
        f"{budget['finalists']} best."
    )
    if "command" in planned:
        first = [json.dumps(parameters, ensure_ascii=False) for parameters in planned["first"]]
        rules = [f"  rule: {binding}" for binding in planned["bindings"]]
        return "\n".join(
            [f"{planned['command']} is called.", spent, "First of all with", *first, *rules]
        )
    servers = ", ".join(planned["servers"])
    about = (
        "The stack is a model: no host is touched, no load is sent, and time is virtual.",
        f"Modelled servers: {servers}.",
    ) if planned["simulated"] else (
        f"Load goes to {planned['entry']} only, up to {budget['max_rate']:g} requests/s.",
        *(_installed(planned) if planned["installed"] else
          (f"Private servers, ended afterwards: {servers}.",)),
    )  # fmt: skip
    lines = [
        *about,
        spent,
        *_core_in_words(planned),
        *_actions_in_words(planned),
        *(f"  rule: {binding}" for binding in planned["bindings"]),
        *(f"  within: {limit}" for limit in planned["limits"]),
        *_memory_in_words(planned["memory"]),
        *_deployments_in_words(planned["deployments"]),
        "",
        planned["diff"].rstrip("\n") or "No file would differ.",
    ]
    return "\n".join(lines)


def _searched(planned: dict[str, Any]) -> str:
    """How many parameters are searched, and how many of them first."""
    core, every = len(planned.get("core", planned["tunable"])), len(planned["tunable"])
    return f"{every}" if core == every else f"{core} of {every}"


def _core_in_words(planned: dict[str, Any]) -> Iterator[str]:
    """What is searched first, by service; the rest joins when that is exhausted."""
    if len(planned["core"]) == len(planned["tunable"]):
        return
    services: dict[str, list[str]] = {}
    for name in planned["core"]:
        parsed = ParameterName.parse(name)
        services.setdefault(parsed.owner, []).append(parsed.parameter or "which")
    yield "Searched first, as known to matter (`tune: all` searches everything at once):"
    yield from (f"  {name}: {', '.join(bare)}" for name, bare in services.items())


def _installed(planned: dict[str, Any]) -> Iterator[str]:
    """Whose servers they are, and what becomes of them."""
    yield (
        f"The hosts' own services, not ended: {', '.join(planned['servers'])}. Meanwhile their files "
        "are changed and they are reloaded or restarted; at the end their files are restored."
    )
    if planned["host_settings"]:
        yield f"Set meanwhile and restored at the end, too: {', '.join(planned['host_settings'])}."
    for unit, hosts in planned["may_restart"].items():
        yield f"A trial may restart {unit} on {_at_once(hosts)}."
    yield from (f"Now {url}: {words}." for url, words in planned["requests"].items())


def _actions_in_words(planned: dict[str, Any]) -> Iterator[str]:
    if "hosts" not in planned:
        yield "From the baseline to the recommended settings:"
        yield from (f"  {what}: {', '.join(names)}"
                    for what, names in planned["actions"].items() if names)  # fmt: skip
        return
    yield "From what the hosts have now to the recommended settings:"
    yield from changes_text(planned["hosts"])


def _deployment(environment: Environment, preview: Preview, chosen: Settings) -> dict[str, Any]:
    """What one choice of software runs, and the rules that limit its recommended settings."""
    candidate = environment.space.candidate(environment.space.preset("recommended", chosen))
    having_files = {path.partition("/")[0] for path in preview.files(candidate.settings)}
    return {
        "services": dict(chosen),
        "servers": [server for server in preview.servers if server in having_files],
        "parameters": len(
            environment.space.active(candidate.settings)
            & {d.name for d in environment.space.tunable}
        ),
        "bindings": [str(binding) for binding in candidate.bindings],
    }


def _memory_in_words(hosts: list[dict[str, Any]]) -> Iterator[str]:
    """What the recommended settings use at most, by host, and what they may use."""
    for of_host in hosts:
        needed, allowed, memory = (figure(of_host[key]) for key in ("needed", "allowed", "memory"))
        if of_host["of_baseline"]:
            why = f"no more than the baseline, which exceeds {MEMORY_SHARE} of {memory}"
        else:
            why = f"{MEMORY_SHARE} of {memory}"
        yield f"  memory of {of_host['host']}: at most {needed} of the allowed {allowed} ({why})"


def _deployments_in_words(deployments: list[dict[str, Any]]) -> Iterator[str]:
    if len(deployments) < 2:
        return
    yield f"{len(deployments)} deployments, each tried with its recommended settings first:"
    for number, deployment in enumerate(deployments):
        services = deployment["services"]
        chosen = ", ".join(f"{name} {value}" for name, value in services.items())
        note = " (the baseline's)" if number == 0 else ""
        servers, count = ", ".join(deployment["servers"]), deployment["parameters"]
        yield f"  {chosen}{note}: {servers}; {plural(count, 'parameter')}"
        yield from (f"    rule: {binding}" for binding in deployment["bindings"])


def _actions(environment: Environment, old: Candidate, new: Candidate) -> dict[str, list[str]]:
    """Services by the action their changed parameters need."""
    needed: dict[str, Action] = {}
    acting = environment.space.active(new.settings)
    for dimension in environment.space.dimensions:
        changed = old.settings[dimension.name] != new.settings[dimension.name]
        if changed and dimension.name in acting:
            service = ParameterName.parse(dimension.name).owner
            needed[service] = max(needed.get(service, Action.NONE), dimension.parameter.action)
    return {
        action.name.lower(): sorted(name for name, least in needed.items() if least is action)
        for action in (Action.NONE, Action.RELOAD, Action.RESTART)
    }
