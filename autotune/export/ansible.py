"""An Ansible role that applies a trial's configuration: validated files, least action.

``ansible/`` holds ``site.yml``, ``inventory.yml`` and the role ``autotune``. The role has the scripts of
`--format shell` as its files. The script of a host validates and backs up all files before the first
change. It writes one file for each task, and rolls the host back if a task fails. Kernel values, units
and the health check are modules of ansible-core. Hosts that are alike share their tasks.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from autotune.deploy.stack import start_order
from autotune.export.escaping import escape_line
from autotune.export.export_error import ExportError
from autotune.export.host_files import MODEL, SYSCTL_FILE, HostFile, Hosts
from autotune.export.scripts import build_script, format_title
from autotune.report.studies import Study
from autotune.study.study_state import Trial
from autotune.target.model import Host, Target

ROLE = "ansible/roles/autotune"
SHOWN, WRITTEN = "autotune_shown", "autotune_written"  # what the script printed
UNITS = "autotune_units"  # the units to stop that exist on the host
# `service_facts` knows them, too, but queries each of a host's hundreds of units, which takes seconds.
# Where there is no systemd there is nothing to stop. On one line: YAML would break it behind a blank.
THERE = (
    'for u; do case $(systemctl show --value -p LoadState "$u") in '
    'not-found|"") ;; *) echo "$u"; esac; done'
)
LOAD_KERNEL = "Load kernel values"
# Characters a line: those to break lines at, and the most that linters take.
WIDTHS, LONGEST = (120, 112, 104, 96, 88, 80), 160


class Template(str):
    """Text that Ansible fills in as a template; any other text is written so that it does not."""

    __slots__ = ()


def ansible(study: Study, trial: Trial, hosts: Hosts) -> dict[str, bytes]:
    """Relative path → content: a role for the hosts that change."""
    kinds = _alike(study.target, hosts)
    notice = MODEL if study.target.simulated else None
    content = {
        f"{ROLE}/files/{host}.sh": build_script(
            format_title(study, trial), host, hosts, notice
        ).encode()
        for host in hosts.units
    }
    tasks = {f"{ROLE}/tasks/{name}.yml": list(_tasks(names[0], hosts, backup_of(study, trial)))
             for name, names in kinds.items()}  # fmt: skip
    playbook = {
        "name": format_title(study, trial),
        "hosts": ":".join(tier for tier, of in study.target.tiers.items()
                          if set(of.hosts) & set(hosts.units)),
        "become": True,
        "gather_facts": False,  # the role asks what it needs to know itself
        "serial": 1,  # one host that fails ends the play before the next one changes
        "roles": [{"role": "autotune"}],
    }  # fmt: skip
    includes = [
        {
            "name": f"Configure {name}",
            "ansible.builtin.include_tasks": f"{name}.yml",
            "when": f"inventory_hostname in {list(names)}",
        }
        for name, names in kinds.items()
    ]
    documents: dict[str, Any] = tasks | {
        "ansible/inventory.yml": _inventory(study),
        "ansible/site.yml": [playbook],
        f"{ROLE}/defaults/main.yml": {"autotune_overwrite": False, "autotune_health_url": ""},
        f"{ROLE}/vars/main.yml": _variables(hosts),
        f"{ROLE}/tasks/main.yml": includes,
        f"{ROLE}/handlers/main.yml": list(_handlers(hosts)),
        f"{ROLE}/meta/main.yml": _meta(study),
    }
    comment = f"# {notice}\n".encode() if notice else b""
    return content | {path: comment + _linted(document) for path, document in documents.items()}


def backup_of(study: Study, trial: Trial) -> str:
    """Where the role keeps the files that it replaces, on each host."""
    # It is part of templates, and of commands: it has no signs that these read.
    name = re.sub(r"[^A-Za-z0-9._-]", "_", study.name)
    return f"/var/backups/autotune-{name}-{trial.number}"


def _variables(hosts: Hosts) -> dict[str, Any]:
    """Kernel values by host."""
    return {"autotune_kernel": {host: dict(values) for host, values in hosts.sysctls.items()}}


def _alike(target: Target, hosts: Hosts) -> dict[str, list[str]]:
    """Groups of hosts that get the same tasks, by name; hosts that others depend on come first.

    A group of all hosts of one tier, and of no other tier, has the tier's name; else the first host's.
    """
    kinds: dict[str, list[str]] = {}
    for tier in start_order(target):
        for host in (host for host in target.tiers[tier].hosts if host in hosts.units):
            files = [(f.path, f.mode, f.check, sorted(f.units.items())) for f in hosts.of(host)]
            tiers = [name for name, of in target.tiers.items() if host in of.hosts]
            units = [(u, runs, hosts.starts(host, u)) for u, runs in hosts.units[host].items()]
            kind = (tiers, files, sorted(units), sorted(hosts.sysctls[host]))
            names = kinds.setdefault(repr(kind), [])
            if host not in names:
                names.append(host)
    return {_name(target, names): names for names in kinds.values()}


def _name(target: Target, names: list[str]) -> str:
    tiers = [tier for tier, of in target.tiers.items() if set(of.hosts) & set(names)]
    alone = len(tiers) == 1 and set(target.tiers[tiers[0]].hosts) == set(names)
    return tiers[0] if alone else names[0]


def _inventory(study: Study) -> dict[str, Any]:
    target = study.target
    groups = {
        tier: {"hosts": {host: _connection(target.hosts[host]) for host in of.hosts}}
        for tier, of in target.tiers.items()
    }
    every: dict[str, Any] = {"children": groups}
    if target.ssh.config:
        config = (study.target_path.parent / Path(target.ssh.config).expanduser()).resolve()
        # It may name commands: a configuration that came with the study is not used.
        if config.is_relative_to(study.directory.resolve().parent):
            raise ExportError(study, f"its SSH configuration {config} lies among the studies")
        every["vars"] = {"ansible_ssh_common_args": f"-F {shlex.quote(str(config))}"}
    return {"all": every}


def _connection(host: Host) -> dict[str, Any]:
    if host.transport == "local":
        return {"ansible_connection": "local"}
    variables = {"ansible_host": host.address, "ansible_user": host.user, "ansible_port": host.port}
    return {name: value for name, value in variables.items() if value is not None}


def _tasks(host: str, hosts: Hosts, backup: str) -> Iterator[dict[str, Any]]:
    yield _format_value()
    yield {
        "name": "Show what changes",
        "ansible.builtin.debug": {"var": f"{SHOWN}.stdout_lines"},
        "when": ["ansible_check_mode or ansible_diff_mode", f"{SHOWN}.stdout_lines | length > 0"],
    }
    yield _build_host_script(
        "Validate all files, and back up what they replace", "--prepare", backup
    ) | {
        "changed_when": False,
        "when": "not ansible_check_mode",
    }
    yield {
        "name": "Configure the host, or leave it as it was",
        "block": list(_configured(host, hosts, backup)),
        "rescue": list(_rolled_back(backup)),
    }


def _build_host_script(name: str, request: str, *words: str) -> dict[str, Any]:
    """The host's script, requested to do something."""
    force = Template("{{ '--force' if autotune_overwrite | bool else '--no-force' }}")
    script = "lookup('ansible.builtin.file', inventory_hostname ~ '.sh')"
    return {
        "name": name,
        "ansible.builtin.command": {
            "argv": ["sh", "-s", "--", force, request, *words],
            "stdin": Template(f"{{{{ {script} }}}}"),
        },
    }


def _format_value() -> dict[str, Any]:
    """It fails if a file is not as expected, or its place is not safe; it changes nothing."""
    return _build_host_script("See what would change", "--check") | {
        "register": SHOWN,
        "changed_when": False,
        "check_mode": False,
    }


def _rolled_back(backup: str) -> Iterator[dict[str, Any]]:
    """The play fails even after the rollback, so that no other host changes."""
    yield _build_host_script("Roll back", "--restore", backup) | {"changed_when": True}
    yield {
        "name": "Say what failed",
        "ansible.builtin.fail": {
            "msg": Template(
                "{{ inventory_hostname }} is rolled back, as this failed: "
                "{{ ansible_failed_task.name }}"
            )
        },
    }


def _configured(host: str, hosts: Hosts, backup: str) -> Iterator[dict[str, Any]]:
    units = hosts.units[host]
    others = sorted(unit for unit, runs in units.items() if not runs)
    if others:
        yield {
            "name": "See which services there are",
            "ansible.builtin.command": {"argv": ["sh", "-c", THERE, "sh", *others]},
            "register": UNITS,
            "changed_when": False,
            "check_mode": False,
        }
    for unit in others:
        task = _unit(f"Stop {unit}, which another deployment needs", unit, "stopped", enabled=False)
        yield task | {"when": f"{unit!r} in {UNITS}.stdout_lines"}
    for file in hosts.of(host):
        yield _written(file, hosts, backup)
    running = sorted(unit for unit, runs in units.items() if runs)
    if hosts.sysctls[host]:
        yield _kernel_values(running)
    # Handlers act first, so that units start with their new limits and kernel values.
    yield {"name": "Act on what has changed", "ansible.builtin.meta": "flush_handlers"}
    for unit in running:
        yield _unit(f"Run {unit}", unit, "started", enabled=hosts.starts(host, unit) or None)
    if hosts.of(host):
        yield _build_host_script("Note that services have read their files", "--acted", backup) | {
            "changed_when": False,
            "when": "not ansible_check_mode",
        }
    yield from _health(running)


def _kernel_values(running: Iterable[str]) -> dict[str, Any]:
    return {
        "name": "Write kernel values",
        "ansible.builtin.lineinfile": {
            "path": SYSCTL_FILE, "create": True, "owner": "root", "group": "root",
            "mode": _octal(0o644),
            "regexp": Template(r"^\s*{{ item.key | regex_escape }}\s*="),
            "line": Template("{{ item.key }} = {{ item.value }}"),
        },
        "loop": Template("{{ autotune_kernel[inventory_hostname] | dict2items }}"),
        # A listening socket keeps the backlog that the kernel allowed when it was opened.
        "notify": [LOAD_KERNEL, *(f"Restart {unit}" for unit in running)],
    }  # fmt: skip


def _health(running: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A service that ends right after its start is noticed before the next host changes."""
    if running:
        yield {"name": "Give services time to fail", "ansible.builtin.wait_for": {"timeout": 2}}
        yield {
            "name": "See that services stay up",
            "ansible.builtin.command": {"argv": ["systemctl", "is-active", Template("{{ item }}")]},
            "loop": list(running),
            "changed_when": False,
        }
    yield {
        "name": "Ask for the health check's address",
        "ansible.builtin.uri": {"url": Template("{{ autotune_health_url }}")},
        "delegate_to": "localhost",
        "become": False,
        "register": "autotune_health",
        "until": "autotune_health is success",
        "retries": 5,
        "delay": 2,
        "when": ["autotune_health_url | length > 0", "not ansible_check_mode"],
    }


def _written(file: HostFile, hosts: Hosts, backup: str) -> dict[str, Any]:
    """The script writes one file, or in check mode only compares it."""
    request = Template("{{ '--compare' if ansible_check_mode else '--write' }}")
    notified = [_handler(file.host, unit, hosts) for unit in sorted(file.units)]
    return {
        **_build_host_script(f"Write {file.path}", request, backup, file.path),
        "register": WRITTEN,
        "changed_when": f"{WRITTEN}.stdout_lines[-1:] == ['changed']",
        "check_mode": False,
        **({"notify": notified} if notified else {}),
    }


def _handler(host: str, unit: str, hosts: Hosts) -> str:
    return f"Reload {unit}" if hosts.reloads(host, unit) else f"Restart {unit}"


def _handlers(hosts: Hosts) -> Iterator[dict[str, Any]]:
    """In the order in which they are to act, whatever notified them."""
    if any(hosts.sysctls.values()):
        yield {
            "name": LOAD_KERNEL,
            "ansible.builtin.command": {"argv": ["sysctl", "--load", SYSCTL_FILE]},
            "changed_when": True,
        }
    # If files were not those expected, nobody knows what runs: a reload may not change it.
    reloaded = Template("{{ 'restarted' if autotune_overwrite | bool else 'reloaded' }}")
    handlers = {(_handler(host, unit, hosts), unit) for host, units in hosts.units.items()
                for unit, runs in units.items() if runs}  # fmt: skip
    for name, unit in sorted(handlers):
        task = _unit(name, unit, reloaded if name.startswith("Reload") else "restarted")
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
            "description": f"The configuration that study {escape_line(study.name)} found",
            "license": "Apache-2.0",
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


def _inert(document: Any) -> Any:
    """With `!unsafe` on text, such as a name on a host, that Ansible would take for a template."""
    if isinstance(document, dict):
        return {key: _inert(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_inert(value) for value in document]
    if isinstance(document, Template):
        return str(document)
    if isinstance(document, str) and re.search(r"\{[{%#]", document):
        return TaggedScalar(document, '"', "!unsafe")
    return document


def _linted(document: Any) -> bytes:
    """At the first of the widths where linters find nothing, or else at the last. The writer breaks a
    line behind the word that goes beyond the width, however long it is, and may leave a space there."""
    for width in WIDTHS:
        content = _yaml(document, width)
        lines = content.decode().splitlines()
        if all(len(line) <= LONGEST and line == line.rstrip() for line in lines):
            break
    return content


def _yaml(document: Any, width: int) -> bytes:
    document = _inert(document)
    writer = YAML()
    writer.explicit_start = True
    writer.width = width
    writer.representer.ignore_aliases = lambda *_: True  # a person reads it
    writer.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    writer.dump(document, out)
    text = out.getvalue()
    if isinstance(document, list):
        # ruamel indents a list at the top as it does any other; yamllint wants that one at the edge.
        text = "".join(line.removeprefix("  ") for line in text.splitlines(keepends=True))
        text = text.replace("\n- name:", "\n\n- name:").replace("---\n\n", "---\n", 1)
    return text.encode()
