"""TCP proxy that behaves like a long network: delay_proxy.py PORT HOST HOST_PORT DELAY (one way, in ms).

It stands in for netem, which many kernels lack. Bytes arrive one delay later in each direction. A new
connection costs one round trip before its first byte is sent, like a TCP handshake.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable

PORT, HOST, HOST_PORT = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
DELAY = float(sys.argv[4]) / 1000  # s


class Link(asyncio.Protocol):
    """One direction's receiver: bytes from its socket go to the other end after the delay."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Link | None = None
        self.queue: deque[Callable[[], None]] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.schedule(lambda: self.forward(data))

    def connection_lost(self, error: Exception | None) -> None:
        self.schedule(self.hang_up)

    def schedule(self, action: Callable[[], None]) -> None:
        """Run ``action`` one delay from now, after all earlier actions."""
        self.queue.append(action)
        asyncio.get_running_loop().call_later(DELAY, self.run_next)

    def run_next(self) -> None:
        self.queue.popleft()()

    def forward(self, data: bytes) -> None:
        if self.peer and self.peer.transport and not self.peer.transport.is_closing():
            self.peer.transport.write(data)

    def hang_up(self) -> None:
        if self.peer and self.peer.transport:
            self.peer.transport.close()


class Client(Link):
    """The client's end. The host sees its connection when the first bytes may arrive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.early: list[Callable[[], None]] = []  # actions before the host is connected
        self.opening = asyncio.get_running_loop().create_task(self.connect())

    def schedule(self, action: Callable[[], None]) -> None:
        if self.peer is None:
            self.early.append(action)
        else:
            super().schedule(action)

    async def connect(self) -> None:
        await asyncio.sleep(
            3 * DELAY
        )  # a round trip for the handshake, and the way of the first bytes
        try:
            _, server = await asyncio.get_running_loop().create_connection(Link, HOST, HOST_PORT)
        except OSError:
            assert self.transport is not None
            self.transport.abort()
            return
        self.peer, server.peer = server, self
        for action in self.early:
            action()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Client, port=PORT, backlog=4096)
    await server.serve_forever()


asyncio.run(main())
