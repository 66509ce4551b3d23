"""A private SSH server on loopback, with a separate key."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.transports.base import SshHost
from tests.ports import free_port


def new_key(path: Path, kind: str = "ed25519") -> None:
    short = ("-b", "2048") if kind == "rsa" else ()  # longer keys take half a second
    words = ["ssh-keygen", "-q", "-t", kind, *short, "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def ssh_server(directory: Path, *lines: str) -> Iterator[SshHost]:
    """Yield an sshd with the directory's key `host`, and further ``lines`` of configuration."""
    for name in ("host", "login"):
        if not (directory / name).exists():
            new_key(directory / name)
    shutil.copy(directory / "login.pub", directory / "authorized_keys")
    port = free_port()
    kind, data = (directory / "host.pub").read_text().split()[:2]
    (directory / "known_hosts").write_text(f"[localhost]:{port} {kind} {data}\n")
    (directory / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\n"
        f"AuthorizedKeysFile {directory}/authorized_keys\n"
        "PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        + "".join(f"{line}\n" for line in lines)
    )
    Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
    sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", directory / "sshd_config"])
    try:
        _await(port)
        yield SshHost(
            name="web1",
            address="localhost",
            port=port,
            identity_file=str(directory / "login"),
            known_hosts=str(directory / "known_hosts"),
        )
    finally:
        sshd.terminate()
        sshd.wait()


def _await(port: int) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return
