"""Loading a data set into a store: pairs/s, and the memory of the loader and of the store.

python -m bench loading [PAIRS]

A private Redis on loopback is filled with PAIRS pairs in the same way as in a study. Time and memory
are extrapolated to 100 million pairs, as in the reference measurements, from the pairs/s of the second
half and the bytes per pair.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from autotune.deploy.dataset import load_dataset
from autotune.deploy.stack import ServiceInstance
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.redis.service import Redis
from autotune.target.model import Data
from autotune.transports.local import LocalTransport
from tests.ports import free_port

PAIRS, REFERENCE = 10_000_000, 100_000_000


def main(arguments: Sequence[str] = ()) -> None:
    total = int(arguments[0]) if arguments else PAIRS
    seconds = {0: 0.0}
    with _redis() as (part, server):
        before, began = getrusage(RUSAGE_SELF).ru_maxrss, time.monotonic()

        def progress(done: int, _: int) -> None:
            seconds[done] = time.monotonic() - began

        load_dataset(part, Data(pairs=total), LocalTransport(), progress)
        grown = getrusage(RUSAGE_SELF).ru_maxrss - before
        resident = _resident(server)
    half = max(done for done in seconds if 2 * done <= total)
    rate = (total - half) / (seconds[total] - seconds[half])
    print(f"{total:,} pairs in {seconds[total]:.0f} s; {rate:,.0f} pairs/s in the second half")
    print(
        f"what loads them grew by {grown / 2**10:.1f} MB; the store has {resident / 2**20:,.0f} MB, "
        f"{resident / total:.0f} bytes a pair"
    )
    print(
        f"extrapolated to {REFERENCE:,} pairs: {REFERENCE / rate / 60:.0f} min, and "
        f"{REFERENCE * resident / total / 2**30:.1f} GiB in the store"
    )


@contextmanager
def _redis() -> Iterator[tuple[ServiceInstance, int]]:
    """Yield an empty store and its process ID. The store stops when this process ends."""
    programs = {name: shutil.which(name) or name for name in ("redis-server", "redis-cli")}
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", programs["redis-server"], "--port", str(port),
             "--bind", "127.0.0.1", "--save", "", "--dir", directory],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        ping = (programs["redis-cli"], "-p", str(port), "PING")
        try:
            while subprocess.run(ping, capture_output=True, check=False).returncode:
                assert server.poll() is None
                time.sleep(0.02)
            site = Placement(tier="store", host="here", role=Role.STORE, directory=directory,
                        listen=Endpoint("127.0.0.1", port), programs=programs)  # fmt: skip
            yield ServiceInstance(Redis(), site), server.pid
        finally:
            server.terminate()
            server.wait()


def _resident(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")
    )
