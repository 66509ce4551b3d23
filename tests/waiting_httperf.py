"""httperf for tests: it waits for responses instead of polling, which would occupy a CPU.

A library gives select() the timeout that httperf has if it is compiled with DONT_POLL: the interval
of its timers. A response ends the wait at once.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from autotune.transports.base import Transport

LIBRARY_NAME = "waiting.so"
LIBRARY = """\
#include <sys/select.h>
int select(int count, fd_set *readable, fd_set *writable, fd_set *failed, struct timeval *polling)
{
    struct timespec interval = {0, 1000000};
    return pselect(count, readable, writable, failed, &interval, 0);
}
"""
PROGRAM = """\
#!/bin/sh
export LD_PRELOAD={library}
exec {httperf} "$@"
"""


def build_waiting_httperf(directory: Path) -> Path | None:
    """Return ``directory`` with an httperf that waits, or ``None`` without httperf or a C compiler."""
    httperf, library = shutil.which("httperf"), str(directory / LIBRARY_NAME)
    if httperf is None or shutil.which("cc") is None:
        return None
    compiler = ["cc", "-shared", "-fPIC", "-O2", "-o", library, "-x", "c", "-"]
    if subprocess.run(
        compiler, input=LIBRARY, text=True, capture_output=True, check=False
    ).returncode:
        return None  # a compiler without the headers of the C library
    program = directory / "httperf"
    program.write_text(PROGRAM.format(library=shlex.quote(library), httperf=shlex.quote(httperf)))
    program.chmod(0o755)
    return directory


def install_waiting_httperf(directory: Path, host: Transport) -> None:
    """Replace httperf on a lab host."""
    library, httperf = "/usr/lib/waiting.so", "/usr/lib/httperf"
    assert host.run(["mv", "/usr/bin/httperf", httperf]).ok
    host.put((directory / LIBRARY_NAME).read_bytes(), library)
    program = PROGRAM.format(library=library, httperf=httperf)
    host.put(program.encode(), "/usr/bin/httperf", mode=0o755)
