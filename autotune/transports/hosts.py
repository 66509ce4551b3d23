"""A transport for each host of a target, by the name the target gives it."""

from __future__ import annotations

from pathlib import Path

from autotune.target.read import TargetFile
from autotune.transports.base import SshHost, Transport
from autotune.transports.local import LocalTransport


def transports(file: TargetFile) -> dict[str, Transport]:
    """One transport for each host of the target. None is connected before its first use."""
    return {name: transport(file, name) for name in file.target.hosts}


def transport(file: TargetFile, name: str) -> Transport:
    """The transport to the host ``name``; raises ``AutotuneError`` for what is no address."""
    if file.target.hosts[name].transport == "local":
        return LocalTransport(name)
    # Its libraries take a second to load: a target without such hosts does without them.
    from autotune.transports.ssh import SshTransport

    return SshTransport(ssh_host(file, name))


def ssh_host(file: TargetFile, name: str) -> SshHost:
    """What the target says of how to reach a host over SSH."""
    host, config = file.target.hosts[name], file.target.ssh.config
    config_path = str(file.path.parent / Path(config).expanduser()) if config else None
    return SshHost(name, host.address, host.user, host.port, config=config_path)
