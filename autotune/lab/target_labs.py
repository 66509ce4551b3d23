"""Labs of targets, each in a directory named after its target."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import lifecycle, prerequisites
from autotune.lab.lifecycle import HostStatus, ssh_command, status
from autotune.lab.plan import LabHost, names
from autotune.target.fields import NAME
from autotune.target.model import Target
from autotune.target.read import read

LABS = Path("/var/lib/autotune/labs")


@dataclass(frozen=True)
class Lab:
    """A lab's directory and its hosts. ``name`` is the name of its target."""

    name: str
    directory: Path
    hosts: tuple[HostStatus, ...]

    @property
    def ssh_config(self) -> Path:
        """Return the SSH configuration of the hosts, for ``ssh -F`` or ``ssh:`` in a target."""
        return names(self.directory).ssh_config


@dataclass(frozen=True)
class Raised:
    """Result of starting a lab: the hosts that ``started``, and the ``seconds`` this took.

    ``unnamed`` is true if the target does not reference the lab's SSH configuration. ``site`` is
    true if the target's application was installed.
    """

    lab: Lab
    started: frozenset[str]
    seconds: float
    unnamed: bool
    site: bool


def hosts(target: Target) -> list[LabHost]:
    """Return the hosts that a lab creates for ``target``: all except this machine."""
    return [
        LabHost(name, host.address, host.cpus, int(host.memory) if host.memory else None)
        for name, host in target.hosts.items()
        if host.transport == "ssh"
    ]


def up(path: Path, directory: Path | None = None) -> Raised:
    """Create and boot the hosts of the target in ``path``, and install its application if needed.

    Raises ``AutotuneError``.
    """
    from autotune.lab import site  # deployment code loads slowly

    file = read(path)
    prerequisites.require()
    place = directory or LABS / file.target.name
    before = status(place)
    begun = time.monotonic()
    lifecycle.up(hosts(file.target), place)
    took = time.monotonic() - begun
    lab = Lab(file.target.name, place.resolve(), status(place))
    config = file.target.ssh.config
    named = config and (path.parent / Path(config).expanduser()).resolve() == lab.ssh_config
    running = {(host.name, host.pid) for host in before}
    started = frozenset(host.name for host in lab.hosts if (host.name, host.pid) not in running)
    return Raised(lab, started, took, not named, site.put_up(file, names(place)))


def down(what: str, directory: Path | None = None) -> Lab:
    """Remove a lab and return its state before. Raises ``AutotuneError``."""
    prerequisites.require_root()
    (name, place) = _place(what, directory)
    hosts: tuple[HostStatus, ...] = ()
    with contextlib.suppress(AutotuneError):  # remove the lab even if its record is unreadable
        hosts = status(place)
    lifecycle.down(place)
    with contextlib.suppress(OSError):  # other labs and backups of this host may remain
        LABS.rmdir()
        LABS.parent.rmdir()
    return Lab(name, place, hosts)


def look(what: str, directory: Path | None = None) -> Lab:
    """Return the current state of a lab, without hosts if none exists. Raises ``AutotuneError``."""
    prerequisites.require_root()
    (name, place) = _place(what, directory)
    return Lab(name, place, status(place))


def terminal(what: str, host: str | None, directory: Path | None = None) -> list[str]:
    """Return the argv of an SSH session on a lab host. ``host`` is optional for labs with one host."""
    lab = look(what, directory)
    if host is None and not lab.hosts:
        raise AutotuneError(
            f"the lab of {what} is not running", hint=f"run `autotune lab up {what}`"
        )
    if host is None and len(lab.hosts) > 1:
        names = ", ".join(host.name for host in lab.hosts)
        raise AutotuneError(f"lab {lab.name} contains several hosts", hint=f"name one of {names}")
    return ssh_command(lab.directory, host or lab.hosts[0].name)


def _place(what: str, directory: Path | None) -> tuple[str, Path]:
    """Return a lab's name and directory from its target file, or from its name without a file."""
    by_name = re.fullmatch(NAME, what) and not Path(what).exists()
    name = what if by_name else read(Path(what)).target.name
    return name, (directory or LABS / name).resolve()
