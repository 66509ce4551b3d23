"""A server that replaces its worker on SIGHUP. The old worker runs until its connections are
closed.

Arguments: the listening socket, and the mode: an old worker closes the socket (`closes`), keeps it
open (`keeps`), or no new worker is started (`alone`).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path


def work(listener: socket.socket, replaced: str) -> None:
    """Serve one connection at a time, each until the client closes it."""

    def retire(*_: object) -> None:
        if replaced == "closes":
            listener.close()

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, retire)
    while True:
        client, _ = listener.accept()
        client.sendall(f"{os.getpid()}\n".encode())
        while client.recv(100):
            client.sendall(b"still here\n")


def main(path: str, replaced: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    workers: list[int] = []

    def fork() -> None:
        if (pid := os.fork()) == 0:
            work(listener, replaced)
        workers.append(pid)

    def renew(*_: object) -> None:
        for worker in workers:
            os.kill(worker, signal.SIGUSR1)
        if replaced != "alone":
            fork()

    signal.signal(signal.SIGHUP, renew)
    fork()
    Path(f"{path}.up").touch()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
