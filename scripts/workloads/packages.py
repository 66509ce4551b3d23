"""Packages of the distribution that lab hosts need and this machine lacks.

The packages are downloaded once and installed only on the hosts. This machine is not changed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.transports.ssh import SshTransport

# Packages that would replace a server that runs on the hosts.
_EXCLUDED_PACKAGES = ("libapache2-mod-php-",)
_INSTALL_SCRIPT = """
set -e
[ "$(ls /root/packages)" ] || exit 0 # this machine has all of them
exec 2>&1
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
dpkg --force-confold --force-depends --unpack /root/packages/*.deb
dpkg --force-confold --configure -a
rm -rf /root/packages /usr/sbin/policy-rc.d
"""


def download_packages(names: Iterable[str], directory: Path) -> None:
    """Download the packages that this machine lacks to ``directory``, with their dependencies."""
    (directory / "partial").mkdir(parents=True, exist_ok=True)
    if not (needed := tuple(names)):
        return
    subprocess.run(
        ["apt-get", "-y", "--no-install-recommends", "--download-only",
         "-o", f"Dir::Cache::archives={directory}", "install", *needed, *_EXCLUDED_PACKAGES],
        check=True, capture_output=True,
    )  # fmt: skip


def install_packages(host: SshTransport, directory: Path) -> None:
    """Install the packages in ``directory`` on ``host``. Raises ``AutotuneError``."""
    host.run(["mkdir", "-p", "/root/packages"])
    for package in sorted(directory.glob("*.deb")):
        host.put(package.read_bytes(), f"/root/packages/{package.name}")
    installation = host.run(["sh", "-c", _INSTALL_SCRIPT], timeout=300.0)
    if not installation.ok:
        raise AutotuneError(f"{host.name}: {installation.stdout}{installation.stderr}")
