"""Transport for the machine that runs autotune."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from autotune import durable_files
from autotune.errors import AutotuneError
from autotune.transports import wait_notices
from autotune.transports.base import Argv, CommandResult, HostUnreachable

NOT_FOUND_STATUS = 127  # a shell's exit status for a command that does not exist
NOT_EXECUTABLE_STATUS = 126
_EXIT_SECONDS = 1.0  # time in which a killed command closes its output


class LocalTransport:
    """Transport that runs commands as child processes. Each command runs in its own session, so that
    all of its processes can be killed.

    Unless autotune runs as root, ``sudo`` means ``sudo -n``, which never asks for a password.
    """

    name = "here"

    def __init__(self, name: str = "here") -> None:
        self.name = name

    def run(
        self,
        argv: Argv,
        *,
        input: bytes | None = None,  # noqa: A002  # subprocess uses this name
        timeout: float = 30.0,
        sudo: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        words = _build_sudo_command(argv, env or {}) if sudo and os.geteuid() != 0 else list(argv)
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
            # Return a shell's exit status, because the command failed and not the connection.
            status = (
                NOT_FOUND_STATUS if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE_STATUS
            )
            return CommandResult(tuple(argv), status, "", f"{error.filename}: {error.strerror}")
        try:
            with wait_notices.command(self.name, argv, timeout):
                out, stderr_bytes = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill_session(process)
            raise HostUnreachable(f"{words[0]} did not finish within {timeout:g} s") from None
        except BaseException:
            _kill_session(process)
            raise
        out_text, err_text = out.decode(errors="replace"), stderr_bytes.decode(errors="replace")
        return CommandResult(tuple(argv), process.returncode, out_text, err_text)

    def put(self, content: bytes, path: str, *, mode: int = 0o644, sudo: bool = False) -> None:
        """Write a file, keeping the owner and group of the file that it replaces.

        Raises AutotuneError if this account may not write to the file, or if the disk is full.
        """
        target_path = Path(path)
        if sudo and os.geteuid() != 0:
            self._put_as_root(content, target_path, mode)
            return
        try:
            durable_files.write_file(target_path, content, mode, keep_owner=True)
        except OSError as error:
            raise AutotuneError(f"{path} cannot be written: {error.strerror}") from error

    def _put_as_root(self, content: bytes, target: Path, mode: int) -> None:
        staged_path = target.with_name(f".{target.name}.{os.getpid()}.new")
        file_exists = self.run(["test", "-e", str(target)], sudo=True).ok
        owner_command = (
            ["chown", f"--reference={target}", "--", str(staged_path)] if file_exists else ["true"]
        )
        for argv, stdin in (
            (["install", f"--mode={mode:o}", "/dev/stdin", str(staged_path)], content),
            (owner_command, None),
            (["mv", "--no-target-directory", "--", str(staged_path), str(target)], None),
        ):
            command_result = self.run(argv, input=stdin, sudo=True)
            if not command_result.ok:
                raise AutotuneError(f"{target} cannot be written: {command_result.error_text}")

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        """Return the content of a file as bytes, or ``None`` if the file does not exist. Raises
        AutotuneError if this account may not read the file.
        """
        try:
            return Path(path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if not (sudo and os.geteuid() != 0 and isinstance(error, PermissionError)):
                raise AutotuneError(f"{path} cannot be read: {error.strerror}") from error
        test_result = self.run(["test", "-e", path], sudo=True)
        # Status 1 with a message means that sudo refused.
        if test_result.returncode == 1 and not test_result.stderr:
            return None
        # Encode the content in base64, because command output is text.
        command_result = self.run(["base64", "--", path], sudo=True)
        if not command_result.ok:
            raise AutotuneError(f"{path} cannot be read: {command_result.error_text}")
        return base64.b64decode(command_result.stdout)

    def close(self) -> None:
        return None


def _build_sudo_command(argv: Argv, env: Mapping[str, str]) -> list[str]:
    """Return the command that runs ``argv`` through sudo. sudo clears the environment, so ``env``
    is set after sudo.
    """
    variables = [f"{name}={value}" for name, value in env.items()]
    return ["sudo", "-n", "--", *(["env", *variables] if variables else []), *argv]


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and its children. As over SSH, a command that sudo runs as root is not killed."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        _close_streams(process)
        # The command may run for a long time, so another thread waits for its exit.
        threading.Thread(target=process.wait, name="command of root", daemon=True).start()
        return
    try:
        process.communicate(timeout=_EXIT_SECONDS)
    except subprocess.TimeoutExpired:  # a process that left the session holds the streams open
        _close_streams(process)
        process.wait()


def _close_streams(process: subprocess.Popen[bytes]) -> None:
    for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
        with contextlib.suppress(BrokenPipeError):
            stream.close()
