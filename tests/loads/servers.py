"""A private nginx for tests of generators, on a free port. It is stopped afterwards."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def nginx(directory: Path, config: str, seconds: int = 600) -> Iterator[subprocess.Popen[bytes]]:
    """Yield nginx's process once it serves ``config``. It exits after ``seconds`` at the latest."""
    (directory / "nginx.conf").write_text(config)
    process = subprocess.Popen(
        ["timeout", str(seconds), "nginx", "-p", f"{directory}/", "-c", "nginx.conf"],
        stderr=subprocess.DEVNULL,
    )
    try:
        pid = directory / "pid"
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        process.wait()
