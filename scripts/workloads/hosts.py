"""Boot the hosts of a workload and install its site, as an administrator would."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from autotune.errors import AutotuneError
from autotune.lab import target_labs
from autotune.lab.lifecycle import build_ssh_host
from autotune.lab.plan import derive_names
from autotune.transports.ssh import SshTransport
from scripts.workloads import packages
from scripts.workloads.catalogue import HostSetup, Workload

_INSTALL_SECONDS = 600.0  # seconds for a host's script, which may fill a database
# Name of a file next to a host's disk, which contains a digest of the installed content.
_MARKER = "workload"


@contextmanager
def running_hosts(workload: Workload) -> Iterator[None]:
    """Keep the hosts of a workload running, and remove them at the end."""
    start_hosts(workload)
    try:
        yield
    finally:
        remove_hosts(workload)


def start_hosts(workload: Workload) -> None:
    """Boot the hosts of a workload and install its content, unless it is installed already.

    Hosts with an older version of the content are replaced. Raises ``AutotuneError`` if the installation
    fails; all hosts are then removed.
    """
    digest = _compute_digest(workload)
    markers = [_marker(workload, host) for host in workload.hosts]
    installed = [marker.read_text(encoding="ascii") for marker in markers if marker.exists()]
    if any(text != digest for text in installed):
        remove_hosts(workload)
        installed = []
    target_labs.start_target_lab(workload.target)
    if len(installed) == len(markers):
        return
    try:
        for host, setup in workload.hosts.items():
            _install_host(workload, host, setup)
            _marker(workload, host).write_text(digest, encoding="ascii")
    except BaseException:
        remove_hosts(workload)  # because scripts must run on new hosts
        raise


def remove_hosts(workload: Workload) -> None:
    """Remove the hosts of a workload and everything on them."""
    target_labs.remove_target_lab(str(workload.target))


def _marker(workload: Workload, host: str) -> Path:
    names = derive_names(target_labs.LABS_DIRECTORY / workload.name)
    return names.get_machine_directory(host) / _MARKER


def _compute_digest(workload: Workload) -> str:
    digest = hashlib.sha256(workload.target.read_bytes())
    for host, setup in workload.hosts.items():
        digest.update(repr((host, setup.packages, [*setup.files])).encode())
        for path in (*setup.files.values(), *filter(None, [setup.script])):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _install_host(workload: Workload, host: str, setup: HostSetup) -> None:
    transport = SshTransport(build_ssh_host(target_labs.LABS_DIRECTORY / workload.name, host))
    try:
        with TemporaryDirectory(prefix="autotune-packages-") as directory:
            packages.download_packages(setup.packages, Path(directory))
            packages.install_packages(transport, Path(directory))
        for path, source in setup.files.items():
            transport.run(["mkdir", "-p", str(Path(path).parent)])
            transport.put(source.read_bytes(), path, mode=0o644)
        if setup.script is not None:
            script = ["sh", "-euc", setup.script.read_text(encoding="utf-8")]
            run = transport.run(script, timeout=_INSTALL_SECONDS)
            if not run.ok:
                raise AutotuneError(f"{workload.name}, {host}: {run.stdout}{run.stderr}"[-2000:])
    finally:
        transport.close()
