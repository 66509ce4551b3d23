"""The CPU cost of probes on this host, by number of watched processes.

    python -m bench.probes

Idle processes in a separate session represent the workers of a service, because the cost of probing a
process does not depend on the work of the process. The CPU time of the probes on the watched machine
(`times` of the stream) and that of this process are printed, as shares of a core.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autotune.deploy.private_servers import PID_SUFFIX
from autotune.deploy.stack import ServiceInstance
from autotune.monitor.host_watch import HostWatch, WatchedHost
from autotune.services.base import Endpoint, Placement, Role
from autotune.services.nginx.service import Nginx

SECONDS = 6


@contextmanager
def workers(count: int, directory: Path) -> Iterator[None]:
    program = directory / "nginx"  # probes recognise a service by the name of its program
    program.symlink_to(str(shutil.which("sleep")))
    script = 'i=0; while [ "$i" -lt "$1" ]; do "$2" 60 & i=$((i + 1)); done; wait'
    argv = ["sh", "-c", script, "sh", str(count), str(program)]
    leader = subprocess.Popen(argv, start_new_session=True)
    (directory / f"nginx{PID_SUFFIX}").write_text(str(leader.pid))
    time.sleep(0.5)
    try:
        yield
    finally:
        os.killpg(leader.pid, signal.SIGTERM)
        leader.wait()


def main(_: Sequence[str] = ()) -> None:
    print(f"{'processes':>9} {'stream':>7} {'reading':>9} {'samples':>7}   (% of a CPU)")
    for count in (10, 64, 128, 256):
        with tempfile.TemporaryDirectory() as place:
            site = Placement(
                tier="lb", host="a", role=Role.PROXY, directory=place,
                listen=Endpoint("127.0.0.1", 1),
            )  # fmt: skip
            host = WatchedHost("a", 2.0, (ServiceInstance(Nginx(), site),))
            with workers(count, Path(place)):
                before = time.process_time()
                with HostWatch([host], SECONDS) as watch:
                    time.sleep(SECONDS)
                spent = time.process_time() - before
                seen = watch.observations
        here = 100 * seen.sampling_cpu_seconds["a"] / SECONDS
        print(f"{count:>9} {here:>7.2f} {100 * spent / SECONDS:>9.2f} {len(seen.samples['a']):>7}")


if __name__ == "__main__":
    main()
