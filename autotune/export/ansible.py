"""Export an Ansible role that applies a trial's configuration, with validated files and as few
restarts as possible.

``ansible/`` contains ``site.yml``, ``inventory.yml`` and the role ``autotune``. The role's files are
the scripts of `--format shell`. A host's script validates and backs up all files before the first
change. The script writes one file per task, and rolls the host back if a task fails. Modules from
ansible-core load kernel values, act on units and check the services' health. Hosts with identical
tasks share a task file.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from autotune.deploy.backup import SYSCTL_FILE
from autotune.deploy.stack import list_start_order
from autotune.export.escaping import escape_line
from autotune.export.export_error import ExportError
from autotune.export.host_files import MODEL_NOTICE, ExportedHosts
from autotune.export.scripts import build_script, format_title
from autotune.report.studies import Study
from autotune.study import ownership
from autotune.study.study_state import Trial
from autotune.target.model import Host, Target

ROLE_DIRECTORY = "ansible/roles/autotune"
# Ansible variables that contain the script's output.
SHOWN_VARIABLE, WRITTEN_VARIABLE = "autotune_shown", "autotune_written"
UNITS_VARIABLE = "autotune_units"  # variable with the units to stop, if they exist on the host
# The module `service_facts` takes seconds, because it queries each of a host's hundreds of units. On a
# host without systemd, this script prints nothing. The script is a single line, because the YAML writer
# would break lines after a space.
EXISTING_UNITS_SCRIPT = (
    'for u; do case $(systemctl show --value -p LoadState "$u") in '
    'not-found|"") ;; *) echo "$u"; esac; done'
)
LOAD_KERNEL_HANDLER = "Load kernel values"
# Characters per line: the widths to try, and the maximum that linters allow.
LINE_WIDTHS, MAX_LINE_WIDTH = (120, 112, 104, 96, 88, 80), 160


class AnsibleTemplate(str):
    """Text that Ansible renders as a template. All other text is marked as unsafe, so that Ansible
    does not render it.
    """

    __slots__ = ()


def export_ansible(study: Study, trial: Trial, hosts: ExportedHosts) -> dict[str, bytes]:
    """Return the files of an Ansible role for the hosts that change, by relative path."""
    hosts_by_group = _group_alike_hosts(study.target, hosts)
    notice = MODEL_NOTICE if study.target.simulated else None
    host_scripts = {
        f"{ROLE_DIRECTORY}/files/{host}.sh": build_script(
            format_title(study, trial), host, hosts, notice
        ).encode()
        for host in hosts.units
    }
    backup_directory = format_backup_directory(study, trial)
    tasks = {
        f"{ROLE_DIRECTORY}/tasks/{group_name}.yml": list(
            _build_tasks(group_hosts[0], hosts, backup_directory)
        )
        for group_name, group_hosts in hosts_by_group.items()
    }
    documents: dict[str, Any] = tasks | {
        "ansible/inventory.yml": _build_inventory(study),
        "ansible/site.yml": [_build_playbook(study, trial, hosts)],
        f"{ROLE_DIRECTORY}/defaults/main.yml": {
            "autotune_overwrite": False,
            "autotune_health_url": "",
        },
        f"{ROLE_DIRECTORY}/tasks/main.yml": list(_build_include_tasks(hosts_by_group)),
        f"{ROLE_DIRECTORY}/handlers/main.yml": list(_build_handlers(hosts)),
        f"{ROLE_DIRECTORY}/meta/main.yml": _build_metadata(study),
    }
    notice_comment = f"# {notice}\n".encode() if notice else b""
    return host_scripts | {
        path: notice_comment + _format_document(document) for path, document in documents.items()
    }


def _build_playbook(study: Study, trial: Trial, hosts: ExportedHosts) -> dict[str, Any]:
    tiers = study.target.tiers
    return {
        "name": format_title(study, trial),
        # Hosts change in this order, so a load balancer gets more connections after its servers.
        "hosts": ":".join(
            tier
            for tier in list_start_order(study.target)
            if set(tiers[tier].hosts) & set(hosts.units)
        ),
        "become": True,
        "gather_facts": False,  # the role needs no facts
        "serial": 1,  # a failed host stops the play before the next host changes
        "roles": [{"role": "autotune"}],
    }


def _build_include_tasks(hosts_by_group: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yield the tasks that include the task file of each group of hosts."""
    for group_name, group_hosts in hosts_by_group.items():
        yield {
            "name": f"Configure {group_name}",
            "ansible.builtin.include_tasks": f"{group_name}.yml",
            "when": f"inventory_hostname in {list(group_hosts)}",
        }


def format_backup_directory(study: Study, trial: Trial) -> str:
    """Return the directory on each host in which the role saves the files that it replaces."""
    # Templates and commands contain the study's name, so special characters in the name are replaced.
    safe_name = re.sub(r"[^A-Za-z0-9._-]", "_", study.name)
    return f"/var/backups/autotune-{safe_name}-{trial.number}"


def _group_alike_hosts(target: Target, hosts: ExportedHosts) -> dict[str, list[str]]:
    """Return groups of hosts with the same tasks, by name and in dependency order.

    A group has the name of a tier if it contains exactly the tier's hosts. Otherwise, a group has
    the name of its first host.
    """
    groups: dict[str, list[str]] = {}
    for tier in list_start_order(target):
        for host in (host for host in target.tiers[tier].hosts if host in hosts.units):
            files = [
                (f.path, f.mode, f.check, sorted(f.units.items())) for f in hosts.list_files(host)
            ]
            tiers = [tier_name for tier_name, spec in target.tiers.items() if host in spec.hosts]
            units = [(u, runs, hosts.needs_start(host, u)) for u, runs in hosts.units[host].items()]
            group_key = (tiers, files, sorted(units), sorted(hosts.sysctls[host]))
            group_hosts = groups.setdefault(repr(group_key), [])
            if host not in group_hosts:
                group_hosts.append(host)
    return {_name_group(target, group_hosts): group_hosts for group_hosts in groups.values()}


def _name_group(target: Target, group_hosts: list[str]) -> str:
    tiers = [tier for tier, spec in target.tiers.items() if set(spec.hosts) & set(group_hosts)]
    is_whole_tier = len(tiers) == 1 and set(target.tiers[tiers[0]].hosts) == set(group_hosts)
    return tiers[0] if is_whole_tier else group_hosts[0]


def _build_inventory(study: Study) -> dict[str, Any]:
    target = study.target
    tier_groups = {
        tier: {"hosts": {host: _build_connection(target.hosts[host]) for host in tier_spec.hosts}}
        for tier, tier_spec in target.tiers.items()
    }
    all_hosts: dict[str, Any] = {"children": tier_groups}
    if ssh_config := target.ssh.locate_config(study.target_path.parent):
        config_path = ssh_config.resolve()
        # An SSH configuration can contain commands, so a file that belongs to the study is refused.
        if config_path.is_relative_to(study.directory.resolve().parent):
            raise ExportError(
                study, f"the SSH configuration {config_path} is in the directory of studies"
            )
        if not ownership.is_own_study(study.directory):
            raise ExportError(
                study,
                f"the SSH configuration {config_path}, which can contain commands, was chosen by the "
                "author of the study",
                "use --format shell",
            )
        all_hosts["vars"] = {"ansible_ssh_common_args": f"-F {shlex.quote(str(config_path))}"}
    return {"all": all_hosts}


def _build_connection(host: Host) -> dict[str, Any]:
    if host.transport == "local":
        return {"ansible_connection": "local"}
    variables = {"ansible_host": host.address, "ansible_user": host.user, "ansible_port": host.port}
    return {variable_name: value for variable_name, value in variables.items() if value is not None}


def _build_tasks(host: str, hosts: ExportedHosts, backup: str) -> Iterator[dict[str, Any]]:
    yield _build_preview_task()
    yield {
        "name": "Show what changes",
        "ansible.builtin.debug": {"var": f"{SHOWN_VARIABLE}.stdout_lines"},
        "when": [
            "ansible_check_mode or ansible_diff_mode",
            f"{SHOWN_VARIABLE}.stdout_lines | length > 0",
        ],
    }
    yield _build_host_script(
        "Validate all files, and back up the files that they replace", "--prepare", backup
    ) | {
        "changed_when": False,
        "when": "not ansible_check_mode",
    }
    yield {
        "name": "Configure the host, or roll it back",
        "block": list(_build_configuration_tasks(host, hosts, backup)),
        "rescue": list(_build_rollback_tasks(backup)),
    }


def _build_host_script(task_name: str, script_option: str, *arguments: str) -> dict[str, Any]:
    """Return a task that runs the host script with ``script_option`` (such as `--check`) and
    ``arguments``.
    """
    force_option = AnsibleTemplate("{{ '--force' if autotune_overwrite | bool else '--no-force' }}")
    script = "lookup('ansible.builtin.file', inventory_hostname ~ '.sh')"
    return {
        "name": task_name,
        "ansible.builtin.command": {
            "argv": ["sh", "-s", "--", force_option, script_option, *arguments],
            "stdin": AnsibleTemplate(f"{{{{ {script} }}}}"),
        },
    }


def _build_preview_task() -> dict[str, Any]:
    """Return a task that compares the host with the configuration. The task changes nothing, but
    fails if the script would refuse a file or path.
    """
    return _build_host_script("Compare the host with the configuration", "--check") | {
        "register": SHOWN_VARIABLE,
        "changed_when": False,
        "check_mode": False,
    }


def _build_rollback_tasks(backup_directory: str) -> Iterator[dict[str, Any]]:
    """Yield the tasks that run after a failure. The play then fails, so that no other host changes."""
    yield _build_host_script("Roll back", "--restore", backup_directory) | {"changed_when": True}
    yield {
        "name": "Report the failed task",
        "ansible.builtin.fail": {
            "msg": AnsibleTemplate(
                "{{ inventory_hostname }} was rolled back, because this task failed: "
                "{{ ansible_failed_task.name }}"
            )
        },
    }


def _build_configuration_tasks(
    host: str, hosts: ExportedHosts, backup: str
) -> Iterator[dict[str, Any]]:
    units = hosts.units[host]
    stopped_units = sorted(unit for unit, is_running in units.items() if not is_running)
    if stopped_units:
        yield {
            "name": "List the services to stop",
            "ansible.builtin.command": {
                "argv": ["sh", "-c", EXISTING_UNITS_SCRIPT, "sh", *stopped_units]
            },
            "register": UNITS_VARIABLE,
            "changed_when": False,
            "check_mode": False,
        }
    for unit in stopped_units:
        unit_task = _build_unit_task(
            f"Stop {unit} of another deployment", unit, "stopped", enabled=False
        )
        yield unit_task | {"when": f"{unit!r} in {UNITS_VARIABLE}.stdout_lines"}
    for file in hosts.list_files(host):
        handlers = [_name_handler(host, unit, hosts) for unit in sorted(file.units)]
        yield _build_write_task(file.path, backup, handlers)
    running_units = sorted(unit for unit, is_running in units.items() if is_running)
    if hosts.sysctls[host]:
        # A listening socket keeps the backlog limit that applied when it was opened.
        handlers = [LOAD_KERNEL_HANDLER, *(f"Restart {unit}" for unit in running_units)]
        yield _build_write_task(SYSCTL_FILE, backup, handlers)
    # Handlers run first, so that units start with their new limits and kernel values.
    yield {"name": "Reload or restart services", "ansible.builtin.meta": "flush_handlers"}
    for unit in running_units:
        yield _build_unit_task(
            f"Run {unit}", unit, "started", enabled=hosts.needs_start(host, unit) or None
        )
    if hosts.list_files(host) or hosts.sysctls[host]:
        yield _build_host_script("Record that services use their new files", "--acted", backup) | {
            "changed_when": False,
            "when": "not ansible_check_mode",
        }
    yield from _build_health_check_tasks(running_units)


def _build_health_check_tasks(running_units: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield tasks that fail if a service stops soon after its start. The tasks run before the next
    host changes.
    """
    if running_units:
        yield {
            "name": "Wait for services that fail late",
            "ansible.builtin.wait_for": {"timeout": 2},
        }
        yield {
            "name": "Check that services run",
            "ansible.builtin.command": {
                "argv": ["systemctl", "is-active", AnsibleTemplate("{{ item }}")]
            },
            "loop": list(running_units),
            "changed_when": False,
        }
    yield {
        "name": "Request the address of the health check",
        "ansible.builtin.uri": {"url": AnsibleTemplate("{{ autotune_health_url }}")},
        "delegate_to": "localhost",
        "become": False,
        "register": "autotune_health",
        "until": "autotune_health is success",
        "retries": 5,
        "delay": 2,
        "when": ["autotune_health_url | length > 0", "not ansible_check_mode"],
    }


def _build_write_task(path: str, backup: str, handlers: Sequence[str]) -> dict[str, Any]:
    """Return a task in which the script writes one file. In check mode, the script only compares the
    file with the new content.
    """
    script_option = AnsibleTemplate("{{ '--compare' if ansible_check_mode else '--write' }}")
    return {
        **_build_host_script(f"Write {path}", script_option, backup, path),
        "register": WRITTEN_VARIABLE,
        "changed_when": f"{WRITTEN_VARIABLE}.stdout_lines[-1:] == ['changed']",
        "check_mode": False,
        **({"notify": list(handlers)} if handlers else {}),
    }


def _name_handler(host: str, unit: str, hosts: ExportedHosts) -> str:
    return f"Reload {unit}" if hosts.needs_reload_only(host, unit) else f"Restart {unit}"


def _build_handlers(hosts: ExportedHosts) -> Iterator[dict[str, Any]]:
    """Yield the handlers in the order in which they run."""
    if any(hosts.sysctls.values()):
        yield {
            "name": LOAD_KERNEL_HANDLER,
            "ansible.builtin.command": {"argv": ["sysctl", "--load", SYSCTL_FILE]},
            "changed_when": True,
        }
    # If files were overwritten, the running configuration is unknown, and a reload may not apply all
    # changes.
    unit_state = AnsibleTemplate("{{ 'restarted' if autotune_overwrite | bool else 'reloaded' }}")
    handlers = {
        (_name_handler(host, unit, hosts), unit)
        for host, units in hosts.units.items()
        for unit, is_running in units.items()
        if is_running
    }
    for handler_name, unit in sorted(handlers):
        unit_task = _build_unit_task(
            handler_name, unit, unit_state if handler_name.startswith("Reload") else "restarted"
        )
        unit_task["ansible.builtin.systemd_service"]["daemon_reload"] = True
        yield unit_task


def _build_unit_task(
    task_name: str, unit: str, state: str, *, enabled: bool | None = None
) -> dict[str, Any]:
    service_arguments: dict[str, Any] = {"name": unit, "state": state}
    if enabled is not None:
        service_arguments["enabled"] = enabled
    return {"name": task_name, "ansible.builtin.systemd_service": service_arguments}


def _build_metadata(study: Study) -> dict[str, Any]:
    return {
        "galaxy_info": {
            "author": "autotune",
            "description": f"Configuration of study {escape_line(study.name)}",
            "license": "Apache-2.0",
            "min_ansible_version": _quote_string("2.15"),
            "platforms": [{"name": "Debian", "versions": ["bookworm", "trixie"]}],
        },
        "dependencies": [],
    }


def _quote_string(text: str) -> str:
    quoted_text: str = DoubleQuotedScalarString(text)
    return quoted_text


def _mark_templates_unsafe(document: Any) -> Any:
    """Return a document in which text that only looks like a template is tagged `!unsafe`."""
    if isinstance(document, dict):
        return {key: _mark_templates_unsafe(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_mark_templates_unsafe(value) for value in document]
    if isinstance(document, AnsibleTemplate):
        return str(document)
    if isinstance(document, str) and re.search(r"\{[{%#]", document):
        return TaggedScalar(document, '"', "!unsafe")
    return document


def _format_document(document: Any) -> bytes:
    """Return YAML, wrapped at the first line width whose result linters accept, or else at the last
    width.

    The YAML writer breaks a line only after the word that exceeds the width, and may leave a
    trailing space.
    """
    for width in LINE_WIDTHS:
        yaml_content = _dump_yaml(document, width)
        lines = yaml_content.decode().splitlines()
        if all(len(line) <= MAX_LINE_WIDTH and line == line.rstrip() for line in lines):
            break
    return yaml_content


def _dump_yaml(document: Any, width: int) -> bytes:
    document = _mark_templates_unsafe(document)
    writer = YAML()
    writer.explicit_start = True
    writer.width = width
    writer.representer.ignore_aliases = lambda *_: True  # aliases would be hard for people to read
    writer.indent(mapping=2, sequence=4, offset=2)
    text_stream = io.StringIO()
    writer.dump(document, text_stream)
    yaml_text = text_stream.getvalue()
    if isinstance(document, list):
        # ruamel also indents a top-level list, but yamllint requires such a list not to be indented.
        yaml_text = "".join(line.removeprefix("  ") for line in yaml_text.splitlines(keepends=True))
        yaml_text = yaml_text.replace("\n- name:", "\n\n- name:").replace("---\n\n", "---\n", 1)
    return yaml_text.encode()
