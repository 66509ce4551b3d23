"""The lab of a target: its hosts made here, in a directory named after the target."""

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
    """Where a lab is kept and what of it runs. ``name`` is that of the target it was made for."""

    name: str
    directory: Path
    hosts: tuple[HostStatus, ...]

    @property
    def ssh_config(self) -> Path:
        """What reaches the hosts: by ``ssh -F``, or from a target that names it under ``ssh:``."""
        return names(self.directory).ssh_config


@dataclass(frozen=True)
class Raised:
    """A lab that is up: the hosts that ``started`` for it, and the ``seconds`` that took.

    ``unnamed``: the target does not say to reach its hosts through the lab's SSH configuration.
    ``site``: the target's application was put on them.
    """

    lab: Lab
    started: frozenset[str]
    seconds: float
    unnamed: bool
    site: bool


def hosts(target: Target) -> list[LabHost]:
    """What a lab makes for ``target``: every host but those that are this machine."""
    return [
        LabHost(name, host.address, host.cpus, int(host.memory) if host.memory else None)
        for name, host in target.hosts.items()
        if host.transport == "ssh"
    ]


def up(path: Path, directory: Path | None = None) -> Raised:
    """Make and boot the hosts of the target in ``path``, and put up its application where the target is
    to find one; raises ``AutotuneError``."""
    from autotune.lab import site  # all that deploys is slow to load

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
    """Remove a lab; the answer is what ran of it before. Raises ``AutotuneError``."""
    prerequisites.require_root()
    (name, place) = _place(what, directory)
    hosts: tuple[HostStatus, ...] = ()
    with contextlib.suppress(AutotuneError):  # a record that cannot be read is no reason to stop
        hosts = status(place)
    lifecycle.down(place)
    with contextlib.suppress(OSError):  # there may be other labs, and originals of this host
        LABS.rmdir()
        LABS.parent.rmdir()
    return Lab(name, place, hosts)


def look(what: str, directory: Path | None = None) -> Lab:
    """A lab as it is now; without hosts if there is none. Raises ``AutotuneError``."""
    prerequisites.require_root()
    (name, place) = _place(what, directory)
    return Lab(name, place, status(place))


def terminal(what: str, host: str | None, directory: Path | None = None) -> list[str]:
    """The argv of an SSH session on a host of a lab, its only one if none is named."""
    lab = look(what, directory)
    if host is None and not lab.hosts:
        raise AutotuneError(f"the lab of {what} is not up", hint=f"autotune lab up {what}")
    if host is None and len(lab.hosts) > 1:
        names = ", ".join(host.name for host in lab.hosts)
        raise AutotuneError(f"say which host of {lab.name}", hint=f"it has {names}")
    return ssh_command(lab.directory, host or lab.hosts[0].name)


def _place(what: str, directory: Path | None) -> tuple[str, Path]:
    """A lab's name and directory, by its target's file or, where that is gone, by its name."""
    by_name = re.fullmatch(NAME, what) and not Path(what).exists()
    name = what if by_name else read(Path(what)).target.name
    return name, (directory or LABS / name).resolve()
