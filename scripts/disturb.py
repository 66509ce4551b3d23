"""Run a command while its processes are stopped or all CPUs kept busy, at times that a seed determines.

    scripts/disturb.py SEED COMMAND...

The disturbances are chosen at random: the kernel's freezer stops all processes of the command, a signal
stops one of them, or other processes keep every CPU busy. The script needs root, and exits with the
status of the command.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

V1, V2 = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")
FILES = {V1: ("freezer.state", "FROZEN", "THAWED"), V2: ("cgroup.freeze", "1", "0")}
JOIN = 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"'
BUSY = "import sys, time; end = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


def frozen(group: Path, seconds: float) -> None:
    file, *states = FILES[group.parent]
    for state, wait in zip(states, (seconds, 0), strict=True):
        # With cgroup v2, lab hosts are not in the group of the command.
        for path in (group, *V2.glob("autotune-lab-*")):
            with contextlib.suppress(FileNotFoundError):  # a lab was removed meanwhile
                (path / file).write_text(state)
        time.sleep(wait)


def stopped(group: Path, seconds: float) -> None:
    with contextlib.suppress(OSError, IndexError), contextlib.ExitStack() as stack:
        pid = int(random.choice((group / "cgroup.procs").read_text().split()))
        stack.callback(os.close, handle := os.pidfd_open(pid))
        # Processes that a test has stopped must stay stopped.
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            signal.pidfd_send_signal(handle, signal.SIGSTOP)
            time.sleep(seconds)
            signal.pidfd_send_signal(handle, signal.SIGCONT)


def contended(_: Path, seconds: float) -> None:
    argv = [sys.executable, "-c", BUSY, str(seconds)]
    for competitor in [subprocess.Popen(argv) for _ in range(1 + (os.cpu_count() or 1))]:
        competitor.wait()


random.seed(sys.argv[1])
group = (V1 if V1.is_dir() else V2) / f"autotune-disturbed-{os.getpid()}"
group.mkdir()
process = subprocess.Popen(["sh", "-c", JOIN, "sh", group, *sys.argv[2:]])
signal.signal(signal.SIGTERM, lambda *_: process.terminate())
signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the command itself cleans up
while process.poll() is None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(random.uniform(2.0, 6.0))
        break
    random.choice((frozen, stopped, contended))(group, random.uniform(1.0, 5.0))
with contextlib.suppress(OSError):  # a process of the command is still running
    group.rmdir()
sys.exit(process.returncode)
