"""The labs of targets. The name of a lab's directory is the target's name."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError, UsageError
from autotune.lab import lifecycle, prerequisites
from autotune.lab.lifecycle import HostStatus, build_host_ssh_command, list_host_status
from autotune.lab.plan import LabHost, derive_names
from autotune.target.field_types import NAME_PATTERN
from autotune.target.model import Target
from autotune.target.read_target import read_target

LABS_DIRECTORY = Path("/var/lib/autotune/labs")


@dataclass(frozen=True)
class Lab:
    """A lab's directory and hosts. ``name`` is the name of the lab's target."""

    name: str
    directory: Path
    hosts: tuple[HostStatus, ...]

    @property
    def ssh_config(self) -> Path:
        """Return the SSH configuration for the hosts, for ``ssh -F`` or for ``ssh:`` in a
        target.
        """
        return derive_names(self.directory).ssh_config


@dataclass(frozen=True)
class StartedLab:
    """Result of starting a lab: the ``started_hosts``, and how many ``seconds`` the start took.

    ``is_unnamed`` is true if the target does not reference the lab's SSH configuration. ``has_site`` is
    true if the target's application was installed.
    """

    lab: Lab
    started_hosts: frozenset[str]
    seconds: float
    is_unnamed: bool
    has_site: bool


def build_lab_hosts(target: Target) -> list[LabHost]:
    """Return the hosts that a lab creates for ``target``: all of its hosts except this machine."""
    return [
        LabHost(name, host.address, host.cpus, int(host.memory) if host.memory else None)
        for name, host in target.hosts.items()
        if host.transport == "ssh"
    ]


def start_target_lab(path: Path, directory: Path | None = None) -> StartedLab:
    """Create and boot the hosts of the target in ``path``. If needed, install the target's application.

    Raises ``AutotuneError``.
    """
    from autotune.lab import site  # deployment code loads slowly

    target_file = read_target(path)
    if target_file.target.simulated:
        raise UsageError(
            f"{path} is a model, so no host is needed",
            hint="name a target of hosts; `autotune init --example lab` writes one",
        )
    prerequisites.require_prerequisites()
    lab_directory = directory or LABS_DIRECTORY / target_file.target.name
    hosts_before = list_host_status(lab_directory)
    start_time = time.monotonic()
    lifecycle.start_lab(build_lab_hosts(target_file.target), lab_directory)
    seconds_taken = time.monotonic() - start_time
    lab = Lab(target_file.target.name, lab_directory.resolve(), list_host_status(lab_directory))
    ssh_config = target_file.target.ssh.locate_config(target_file.directory)
    references_lab_config = ssh_config is not None and ssh_config.resolve() == lab.ssh_config
    hosts_running_before = {(host.name, host.pid) for host in hosts_before}
    started_hosts = frozenset(
        host.name for host in lab.hosts if (host.name, host.pid) not in hosts_running_before
    )
    return StartedLab(
        lab,
        started_hosts,
        seconds_taken,
        not references_lab_config,
        site.deploy_site(target_file, derive_names(lab_directory)),
    )


def remove_target_lab(lab_or_target: str, directory: Path | None = None) -> Lab:
    """Remove a lab, and return its description from before the removal. Raises ``AutotuneError``."""
    prerequisites.require_root()
    (lab_name, lab_directory) = _locate_lab(lab_or_target, directory)
    host_statuses: tuple[HostStatus, ...] = ()
    with contextlib.suppress(AutotuneError):  # remove the lab even if its record is unreadable
        host_statuses = list_host_status(lab_directory)
    lifecycle.remove_lab(lab_directory)
    # The directory may also contain other labs, or backups of this machine.
    with contextlib.suppress(OSError):
        LABS_DIRECTORY.rmdir()
        LABS_DIRECTORY.parent.rmdir()
    return Lab(lab_name, lab_directory, host_statuses)


def has_lab(lab_or_target: str, directory: Path | None = None) -> bool:
    """True if the directory of a lab contains a lab. Raises ``AutotuneError``."""
    prerequisites.require_root()
    return lifecycle.contains_lab(derive_names(_locate_lab(lab_or_target, directory)[1]))


def list_lab_names() -> tuple[str, ...]:
    """Return the names of the labs in the default directory."""
    if not LABS_DIRECTORY.is_dir():
        return ()
    return tuple(sorted(path.name for path in LABS_DIRECTORY.iterdir()))


def read_lab(lab_or_target: str, directory: Path | None = None) -> Lab:
    """Return the current state of a lab. The result lists no hosts if the lab does not exist.
    Raises ``AutotuneError``.
    """
    prerequisites.require_root()
    (lab_name, lab_directory) = _locate_lab(lab_or_target, directory)
    return Lab(lab_name, lab_directory, list_host_status(lab_directory))


def build_ssh_command(
    lab_or_target: str, host: str | None, directory: Path | None = None
) -> list[str]:
    """Return the command for an SSH session on a lab host. ``host`` is optional if the lab has only
    one host.
    """
    lab = read_lab(lab_or_target, directory)
    if host is None and not lab.hosts:
        if Path(lab_or_target).exists():
            raise AutotuneError(
                f"the lab of {lab_or_target} is not running",
                hint=f"run `autotune lab up {shlex.quote(lab_or_target)}`",
            )
        if lab_names := ", ".join(list_lab_names()):
            raise AutotuneError(
                f"no lab is called {lab_or_target}",
                hint=f"write `autotune lab ssh LAB {lab_or_target}` with an existing lab: {lab_names}",
            )
        raise AutotuneError(
            f"no lab is called {lab_or_target}",
            hint=f"write `autotune lab ssh TARGET {lab_or_target}`, after `autotune lab up TARGET`",
        )
    if host is None and len(lab.hosts) > 1:
        host_names = ", ".join(host.name for host in lab.hosts)
        raise AutotuneError(
            f"lab {lab.name} contains several hosts", hint=f"name one of {host_names}"
        )
    return build_host_ssh_command(lab.directory, host or lab.hosts[0].name)


def _locate_lab(lab_or_target: str, directory: Path | None) -> tuple[str, Path]:
    """Return a lab's name and directory, from its target file or from its name."""
    is_lab_name = re.fullmatch(NAME_PATTERN, lab_or_target) and not Path(lab_or_target).exists()
    lab_name = lab_or_target if is_lab_name else read_target(Path(lab_or_target)).target.name
    return lab_name, (directory or LABS_DIRECTORY / lab_name).resolve()
