"""The delaying proxy and the slow backend, as real processes on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scripts.workloads.catalogue import WORKLOADS_DIRECTORY
from tests.ports import free_port

pytestmark = pytest.mark.stack
SHARED = WORKLOADS_DIRECTORY / "shared"
DELAY = 0.05  # s, one way


@contextmanager
def program(name: str, *words: object) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(SHARED / name), *map(str, words)])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def fetch(port: int) -> tuple[bytes, float]:
    """The body of an answer, and the seconds until it was there."""
    begun = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/price/1", timeout=10) as answer:
        return answer.read(), time.monotonic() - begun


def fetch_soon(port: int) -> tuple[bytes, float]:
    for _ in range(200):
        try:
            return fetch(port)
        except OSError:
            time.sleep(0.05)
    return fetch(port)


def test_an_answer_takes_a_round_trip_to_connect_and_one_for_the_answer() -> None:
    backend, proxy = free_port(), free_port()
    with (
        program("slow_backend.py", backend, 20, 30),
        program("delay_proxy.py", proxy, "127.0.0.1", backend, 1000 * DELAY),
    ):
        body, seconds = fetch_soon(backend)
        assert body == b'{"price": 1250, "in_stock": true}\n'
        assert seconds >= 0.02
        delayed, seconds = fetch_soon(proxy)
        assert delayed == body
        assert seconds >= 4 * DELAY
