"""The lab's own SSH keys: one to log in with, one per host to be known by.

They are made before a host boots, so that its key is known on the first connection and checked
like that of any other host.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from autotune.lab.plan import LabPlan
from autotune.lab.programs import ran

HOST_KEY = "ssh_host_ed25519_key"


def make_keys(plan: LabPlan) -> None:
    """Make the keys that are not there yet, and ``known_hosts`` from those of the hosts."""
    _make(plan.names.key, f"autotune-lab-{plan.names.tag}")
    lines = []
    for host in plan.hosts:
        private = plan.names.machine(host.name) / HOST_KEY
        _make(private, host.name)
        (kind, key) = public(private).split()[:2]
        lines.append(f"{host.address},{host.name} {kind} {key}\n")
    plan.names.known_hosts.write_text("".join(lines), encoding="ascii")


def public(private: Path) -> str:
    """The public half of a key, as one line of text."""
    return private.with_name(private.name + ".pub").read_text(encoding="utf-8").strip()


def _make(private: Path, comment: str) -> None:
    if private.exists() and private.with_name(private.name + ".pub").exists():
        return
    private.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # the first half of a pair whose making was cut
        private.unlink()
    ran(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(private)])
