"""The labs of targets. The name of a lab's directory is the target's name."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import lifecycle, prerequisites
from autotune.lab.lifecycle import HostStatus, list_host_status, ssh_command
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

    file = read_target(path)
    prerequisites.require_prerequisites()
    location = directory or LABS_DIRECTORY / file.target.name
    hosts_before = list_host_status(location)
    start_time = time.monotonic()
    lifecycle.start_lab(build_lab_hosts(file.target), location)
    seconds_taken = time.monotonic() - start_time
    lab = Lab(file.target.name, location.resolve(), list_host_status(location))
    config = file.target.ssh.config
    names_lab_config = (
        config and (path.parent / Path(config).expanduser()).resolve() == lab.ssh_config
    )
    running_before = {(host.name, host.pid) for host in hosts_before}
    started_hosts = frozenset(
        host.name for host in lab.hosts if (host.name, host.pid) not in running_before
    )
    return StartedLab(
        lab,
        started_hosts,
        seconds_taken,
        not names_lab_config,
        site.deploy_site(file, derive_names(location)),
    )


def remove_target_lab(lab_or_target: str, directory: Path | None = None) -> Lab:
    """Remove a lab, and return its description from before the removal. Raises ``AutotuneError``."""
    prerequisites.require_root()
    (name, location) = _locate_lab(lab_or_target, directory)
    hosts: tuple[HostStatus, ...] = ()
    with contextlib.suppress(AutotuneError):  # remove the lab even if its record is unreadable
        hosts = list_host_status(location)
    lifecycle.remove_lab(location)
    # The directory may also contain other labs, or backups of this machine.
    with contextlib.suppress(OSError):
        LABS_DIRECTORY.rmdir()
        LABS_DIRECTORY.parent.rmdir()
    return Lab(name, location, hosts)


def read_lab(lab_or_target: str, directory: Path | None = None) -> Lab:
    """Return the current state of a lab. The result lists no hosts if the lab does not exist.
    Raises ``AutotuneError``.
    """
    prerequisites.require_root()
    (name, location) = _locate_lab(lab_or_target, directory)
    return Lab(name, location, list_host_status(location))


def build_ssh_command(
    lab_or_target: str, host: str | None, directory: Path | None = None
) -> list[str]:
    """Return the command for an SSH session on a lab host. ``host`` is optional if the lab has only
    one host.
    """
    lab = read_lab(lab_or_target, directory)
    if host is None and not lab.hosts:
        raise AutotuneError(
            f"the lab of {lab_or_target} is not running",
            hint=f"run `autotune lab up {lab_or_target}`",
        )
    if host is None and len(lab.hosts) > 1:
        names = ", ".join(host.name for host in lab.hosts)
        raise AutotuneError(f"lab {lab.name} contains several hosts", hint=f"name one of {names}")
    return ssh_command(lab.directory, host or lab.hosts[0].name)


def _locate_lab(lab_or_target: str, directory: Path | None) -> tuple[str, Path]:
    """Return a lab's name and directory, from its target file or from its name."""
    is_lab_name = re.fullmatch(NAME_PATTERN, lab_or_target) and not Path(lab_or_target).exists()
    name = lab_or_target if is_lab_name else read_target(Path(lab_or_target)).target.name
    return name, (directory or LABS_DIRECTORY / name).resolve()
