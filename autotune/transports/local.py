"""The machine autotune itself runs on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from autotune.transports.base import Argv, Completed
from autotune.transports.errors import HostUnreachable


class LocalTransport:
    """Commands as child processes, each in a session of its own so that all of it can be ended."""

    name = "here"

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # noqa: A002  # as subprocess calls it
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        words = [*(("sudo", "-n", "--") if sudo and os.geteuid() != 0 else ()), *argv]
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env={**os.environ, **env} if env else None,
                start_new_session=True,
            )
        except OSError as error:
            # As a shell would say it: the command is at fault, not the way to the host.
            return Completed(tuple(argv), 127, "", f"{words[0]}: {error.strerror}")
        try:
            out, err = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            raise HostUnreachable(f"{words[0]} was not done after {timeout:g} s") from None
        except BaseException:
            _end(process)
            raise
        return Completed(
            tuple(argv),
            process.returncode,
            out.decode(errors="replace"),
            err.decode(errors="replace"),
        )

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        target = Path(path)
        staged = target.with_name(f".{target.name}.{os.getpid()}.new")
        with staged.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        staged.chmod(mode)
        staged.replace(target)

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            return None

    def close(self) -> None:
        return None


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
