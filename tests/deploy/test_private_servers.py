"""Servers that listen themselves, and those whose children do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autotune.deploy.private_servers import Running, is_up, stop
from autotune.services.base import Endpoint

LISTENS = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
WAITS = "import sys; sys.stdout.flush(); sys.stdin.read()"


@pytest.mark.parametrize("by_child", [True, False])
def test_it_is_up_whichever_of_its_processes_listens(tmp_path: Path, by_child: bool) -> None:
    argv = [sys.executable, "-c", f"{LISTENS}; {WAITS}"]
    if by_child:
        argv = [sys.executable, "-c", f"import subprocess; subprocess.run({argv!r})"]
    with subprocess.Popen(
        argv, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        running = Running("server", process, tmp_path, tmp_path / "log")
        assert is_up(running, Endpoint("127.0.0.1", port))
        assert not is_up(running, Endpoint("127.0.0.1", 1))
        assert not is_up(running, "none.sock")
        stop(running, seconds=0.5)  # a child that ignores its parent's end is killed
