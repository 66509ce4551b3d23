"""A private nginx for tests of generators, on a free port. It is stopped afterwards."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.deploy.programs import find_local_programs
from autotune.services.php_fpm.service import PhpFpm

_PHP_POOL = """[global]
daemonize = no
error_log = {directory}/fpm.log
[www]
user = root
listen = {directory}/fpm.sock
pm = static
pm.max_children = {children}
"""


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


@contextmanager
def php_pool(directory: Path, page: str, children: int, seconds: int) -> Iterator[None]:
    """PHP-FPM for ``page.php`` at ``fpm.sock`` in ``directory``; it ends by itself after so many
    seconds."""
    (directory / "page.php").write_text(page)
    config = directory / "fpm.conf"
    config.write_text(_PHP_POOL.format(directory=directory, children=children))
    program = find_local_programs([PhpFpm()])["php-fpm"]
    process = subprocess.Popen(["timeout", str(seconds), program, "-R", "-y", str(config)])
    try:
        while not (directory / "fpm.sock").exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()
