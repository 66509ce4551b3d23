"""An Ansible role that makes a trial's configuration so: validated files, least action.

``ansible/`` holds ``site.yml``, ``inventory.yml`` and the role ``autotune``: per tier, units of other
deployments are stopped, files are copied (each judged by its own software before it replaces
anything), chosen units are enabled and started; handlers reload or restart what read a changed file.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from autotune.report.exports.handed import SYSCTL_FILE, Handed, Hosts, hosts_of, kernel_file
from autotune.report.studies import Study
from autotune.study.records import Trial
from autotune.target.model import Target

ROLE = "ansible/roles/autotune"
DROP_INS = "/etc/systemd/system/"
HERE = "{{ inventory_hostname }}"
Tasks = list[dict[str, Any]]


def ansible(study: Study, trial: Trial) -> dict[str, bytes]:
    """Relative path → content. Raises AutotuneError where there are no hosts to configure."""
    hosts = hosts_of(study, trial)
    tiers = study.target.tiers
    found = {f"{ROLE}/files/{file.host}{file.path}": file.content for file in hosts.files}
    found |= {
        f"{ROLE}/files/{host}{SYSCTL_FILE}": kernel_file(values)
        for host, values in hosts.sysctls.items()
        if values
    }
    documents: dict[str, Any] = {
        f"{ROLE}/tasks/{tier}.yml": list(_tasks(tier, tiers[tier].hosts, hosts)) for tier in tiers
    }
    documents |= {
        "ansible/inventory.yml": _inventory(study.target),
        "ansible/site.yml": _playbook(study, trial),
        f"{ROLE}/tasks/main.yml": [_import(tier) for tier in tiers],
        f"{ROLE}/handlers/main.yml": list(_handlers(hosts)),
        f"{ROLE}/meta/main.yml": _meta(study),
    }
    return found | {path: _yaml(document) for path, document in documents.items()}


def _inventory(target: Target) -> dict[str, Any]:
    groups = {
        tier: {"hosts": {host: {"ansible_host": target.hosts[host].address} for host in of.hosts}}
        for tier, of in target.tiers.items()
    }
    return {"all": {"children": groups}}


def _playbook(study: Study, trial: Trial) -> Tasks:
    return [
        {
            "name": f"Configuration of trial {trial.number} of study {study.name}",
            "hosts": ":".join(study.target.tiers),
            "become": True,
            "roles": [{"role": "autotune"}],
        }
    ]


def _import(tier: str) -> dict[str, Any]:
    return {
        "name": f"Configure tier {tier}",
        "ansible.builtin.include_tasks": f"{tier}.yml",
        "when": f"'{tier}' in group_names",
    }


def _tasks(tier: str, names: Iterable[str], hosts: Hosts) -> Iterator[dict[str, Any]]:
    """All hosts of a tier are alike but for what their files say of themselves."""
    first = next(iter(names))
    units, sysctls = hosts.units[first], hosts.sysctls[first]
    others = sorted(unit for unit, runs in units.items() if not runs)
    if others:
        yield {"name": "See which services there are", "ansible.builtin.service_facts": None}
    for unit in others:
        task = _unit(f"Stop {unit}, which another deployment needs", unit, "stopped", enabled=False)
        yield task | {"when": f"'{unit}' in ansible_facts.services"}
    files = [file for file in hosts.of(first) if file.tier == tier]
    for directory in sorted({file.path.rpartition("/")[0] for file in files}):
        yield {
            "name": f"Make sure of {directory}",
            "ansible.builtin.file": {
                "path": directory, "state": "directory", "owner": "root", "group": "root",
                "mode": _octal(0o755),
            },
        }  # fmt: skip
    yield from map(_copy, files)
    if sysctls:
        yield _kernel(units)
    for unit in sorted(unit for unit, runs in units.items() if runs):
        yield _unit(f"Run {unit}", unit, "started", enabled=True)


def _copy(file: Handed) -> dict[str, Any]:
    copy: dict[str, Any] = {
        "src": f"{HERE}{file.path}", "dest": file.path, "owner": "root", "group": "root",
        "mode": _octal(file.mode),
    }  # fmt: skip
    if file.check:
        copy["validate"] = shlex.join(file.check)
    task = {"name": f"Write {file.path}", "ansible.builtin.copy": copy}
    notified = [_handler(unit, action, file.path) for unit, action in sorted(file.units.items())]
    return task | ({"notify": notified} if notified else {})


def _kernel(units: Mapping[str, bool]) -> dict[str, Any]:
    running = sorted(unit for unit, runs in units.items() if runs)
    return {
        "name": "Write kernel values",
        "ansible.builtin.copy": {
            "src": f"{HERE}{SYSCTL_FILE}", "dest": SYSCTL_FILE, "owner": "root", "group": "root",
            "mode": _octal(0o644),
        },
        # A listening socket keeps the backlog that the kernel allowed when it was opened.
        "notify": ["Load kernel values", *(f"Restart {unit}" for unit in running)],
    }  # fmt: skip


def _handler(unit: str, action: str, path: str) -> str:
    if path.startswith(DROP_INS):
        return f"Restart {unit}"
    return f"{action.capitalize()} {unit}"


def _handlers(hosts: Hosts) -> Iterator[dict[str, Any]]:
    yield {
        "name": "Load kernel values",
        "ansible.builtin.command": {"argv": ["sysctl", "--load", SYSCTL_FILE]},
        "changed_when": True,
    }
    units = sorted({unit for of_host in hosts.units.values() for unit in of_host})
    for unit in units:
        yield _unit(f"Reload {unit}", unit, "reloaded")
    for unit in units:
        task = _unit(f"Restart {unit}", unit, "restarted")
        task["ansible.builtin.systemd_service"]["daemon_reload"] = True
        yield task


def _unit(name: str, unit: str, state: str, *, enabled: bool | None = None) -> dict[str, Any]:
    service: dict[str, Any] = {"name": unit, "state": state}
    if enabled is not None:
        service["enabled"] = enabled
    return {"name": name, "ansible.builtin.systemd_service": service}


def _meta(study: Study) -> dict[str, Any]:
    return {
        "galaxy_info": {
            "author": "autotune",
            "description": f"The configuration that study {study.name} found",
            "license": "MIT",
            "min_ansible_version": _quoted("2.15"),
            "platforms": [{"name": "Debian", "versions": ["bookworm", "trixie"]}],
        },
        "dependencies": [],
    }


def _octal(mode: int) -> str:
    # In quotes: YAML 1.1 would read the number in another base.
    return _quoted(f"0{mode:o}")


def _quoted(text: str) -> str:
    quoted: str = DoubleQuotedScalarString(text)
    return quoted


def _yaml(document: Any) -> bytes:
    writer = YAML()
    writer.explicit_start = True
    writer.width = 120
    writer.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    writer.dump(document, out)
    text = out.getvalue()
    if isinstance(document, list):
        # ruamel indents a list at the top as it does any other; yamllint wants that one at the edge.
        text = "".join(line.removeprefix("  ") for line in text.splitlines(keepends=True))
    return text.encode()
