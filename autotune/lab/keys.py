"""SSH keys of a lab: one for logins, and one host key per host.

The keys are created before a host boots, so even the first connection can check the host's key. An
ssh_config(5) file maps hosts to keys, for `ssh -F` and for targets that reference the file under
`ssh:`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from autotune.lab.lock import run_checked
from autotune.lab.plan import LabNames, LabPlan

HOST_KEY_NAME = "ssh_host_ed25519_key"
_SSH_CONFIG_TEMPLATE = """\
Host {patterns}
    User root
    IdentityFile {key}
    IdentitiesOnly yes
    UserKnownHostsFile {known_hosts}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
"""


def make_keys(plan: LabPlan) -> None:
    """Create missing keys, and write the known_hosts file and the SSH configuration."""
    # Other accounts must not reach the disks, on which a host may have setuid programs of root.
    plan.names.machines_directory.mkdir(mode=0o700, exist_ok=True)
    _make_key(plan.names.key, _format_key_comment(plan.names))
    known_hosts_lines = []
    for host in plan.hosts:
        private_key = plan.names.get_machine_directory(host.name) / HOST_KEY_NAME
        _make_key(private_key, host.name)
        (key_type, public_key) = read_public_key(private_key).split()[:2]
        known_hosts_lines.append(f"{host.address},{host.name} {key_type} {public_key}\n")
    plan.names.known_hosts.write_text("".join(known_hosts_lines), encoding="ascii")
    plan.names.ssh_config.write_text(format_ssh_config(plan), encoding="utf-8")


def is_lab_key(lab_names: LabNames, public_key: bytes) -> bool:
    """True if a public key was created for this lab."""
    return public_key.strip().endswith(f" {_format_key_comment(lab_names)}".encode())


def _format_key_comment(lab_names: LabNames) -> str:
    return f"autotune-lab-{lab_names.tag}"


def format_ssh_config(plan: LabPlan) -> str:
    """Return the ssh_config(5) text for a lab's hosts, by name and by address."""
    host_blocks = [f"Host {host.name}\n    HostName {host.address}\n" for host in plan.hosts]
    host_patterns = " ".join(f"{host.name} {host.address}" for host in plan.hosts)
    (key, known_hosts) = (plan.names.key, plan.names.known_hosts)
    return "".join(
        [
            *host_blocks,
            _SSH_CONFIG_TEMPLATE.format(patterns=host_patterns, key=key, known_hosts=known_hosts),
        ]
    )


def read_public_key(private_key: Path) -> str:
    """Return the public key that belongs to ``private_key`` as one line of text."""
    return private_key.with_name(private_key.name + ".pub").read_text(encoding="utf-8").strip()


def _make_key(private_key: Path, key_comment: str) -> None:
    if private_key.exists() and private_key.with_name(private_key.name + ".pub").exists():
        return
    private_key.parent.mkdir(parents=True, exist_ok=True)
    # An interrupted run may have left only one of the two files.
    with contextlib.suppress(FileNotFoundError):
        private_key.unlink()
    run_checked(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key_comment, "-f", str(private_key)]
    )
