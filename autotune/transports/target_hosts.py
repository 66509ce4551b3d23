"""Create a transport for each host of a target."""

from __future__ import annotations

from autotune.target.read_target import TargetFile
from autotune.transports.base import SshHost, Transport
from autotune.transports.local import LocalTransport


def create_transports(file: TargetFile) -> dict[str, Transport]:
    """Return a transport for each host, by host name. Each transport connects at its first use."""
    return {name: create_transport(file, name) for name in file.target.hosts}


def create_transport(file: TargetFile, host_name: str) -> Transport:
    """Return the transport to the host ``host_name``. Raises ``AutotuneError`` for an invalid
    address.
    """
    if file.target.hosts[host_name].transport == "local":
        return LocalTransport(host_name)
    # Import lazily, because the SSH libraries take a second to load.
    from autotune.transports.ssh import SshTransport

    return SshTransport(build_ssh_host(file, host_name))


def build_ssh_host(file: TargetFile, host_name: str) -> SshHost:
    """Return a host's SSH settings from the target."""
    host = file.target.hosts[host_name]
    config_path = file.target.ssh.locate_config(file.directory)
    config_file = str(config_path) if config_path else None
    return SshHost(host_name, host.address, host.user, host.port, config_file=config_file)
