"""HTTP server that answers every request after a pause: slow_backend.py PORT LOWEST HIGHEST (in ms).

It handles any number of requests concurrently, like a remote service with a long latency.
"""

import asyncio
import random
import sys

PORT, LOWEST, HIGHEST = (int(word) for word in sys.argv[1:4])
BODY = b'{"price": 1250, "in_stock": true}\n'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s"


class Connection(asyncio.Protocol):
    """One client's connection. Requests have no body."""

    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while b"\r\n\r\n" in self.received:
            head, _, self.received = self.received.partition(b"\r\n\r\n")
            keeps = b" HTTP/1.1" in head and b"connection: close" not in head.lower()
            answer = self.answer if keeps else self.answer_and_close
            pause = random.uniform(LOWEST, HIGHEST) / 1000
            asyncio.get_running_loop().call_later(pause, answer)

    def answer(self) -> None:
        self.transport.write(ANSWER % (len(BODY), b"", BODY))

    def answer_and_close(self) -> None:
        self.transport.write(ANSWER % (len(BODY), b"Connection: close\r\n", BODY))
        self.transport.close()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, port=PORT, backlog=4096)
    await server.serve_forever()


asyncio.run(main())
