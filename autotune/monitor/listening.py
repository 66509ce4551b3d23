"""Connections that wait at listening TCP sockets: asked of this kernel, or read off ``ss``.

``/proc/net/tcp`` would show them too, below tens of thousands of lines about TIME-WAIT; the
kernel's sock_diag(7), which ``ss`` uses, answers for listening sockets alone in microseconds.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

from autotune.monitor.sample import Queue

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
LISTEN = 10  # TCP_LISTEN, a bit in the mask of states asked for
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
# inet_diag_msg: family, state; source port; ...; for a listener rqueue waits, wqueue is the backlog
_ANSWER = struct.Struct("=BB2xH2s44xIIII4x")


def tcp_queues() -> tuple[Queue, ...]:
    """This network namespace's listening TCP sockets; none where the kernel will not say."""
    found: list[Queue] = []
    with (
        contextlib.suppress(OSError, struct.error),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel,
    ):
        kernel.settimeout(0.2)
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << LISTEN)
            header = _HEADER.pack(
                _HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0
            )
            kernel.send(header + request)
            found += _answers(kernel)
    return tuple(found)


def _answers(kernel: socket.socket) -> Iterator[Queue]:
    while True:
        data = kernel.recv(1 << 16)
        while len(data) >= _HEADER.size:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                return
            yield decode(data[_HEADER.size : length])
            data = data[(length + 3) & ~3 :]


def decode(message: bytes) -> Queue:
    """One ``inet_diag_msg`` about a listening socket."""
    _, _, port, _, _, waiting, backlog, _ = _ANSWER.unpack_from(message)
    return Queue(f":{socket.ntohs(port)}", waiting, backlog)


def parse_ss(text: str) -> Iterator[Queue]:
    """``ss -ltnH``: state, Recv-Q (waiting), Send-Q (backlog), local address and port, peer."""
    for line in text.splitlines():
        fields = line.split()
        numeric = all(field.isdigit() for field in fields[1:3])
        if len(fields) >= 5 and fields[0] == "LISTEN" and numeric:
            yield Queue(":" + fields[3].rpartition(":")[2], int(fields[1]), int(fields[2]))
