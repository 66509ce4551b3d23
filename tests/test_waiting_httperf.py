"""httperf for tests, without a server: each connection is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ports import free_port

REQUESTS = 50


@pytest.mark.stack
def test_it_sends_all_requests_and_waits_between_them(
    waiting_httperf: Path | None, tmp_path: Path
) -> None:
    if waiting_httperf is None:
        pytest.skip("no C compiler is installed")
    argv = ["httperf", "--server", "127.0.0.1", "--port", str(free_port()), "--rate", "50",
            "--num-conns", str(REQUESTS)]  # fmt: skip
    with (tmp_path / "out").open("w") as output, subprocess.Popen(argv, stdout=output) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    text = (tmp_path / "out").read_text()
    assert f"Total: connections {REQUESTS} " in text
    assert f"connrefused {REQUESTS} " in text
    assert used.ru_nvcsw > REQUESTS  # it gave up the CPU, which it never does if it polls
