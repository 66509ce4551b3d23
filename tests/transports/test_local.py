from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path

import pytest

from autotune.errors import AutotuneError
from autotune.transports.base import HostUnreachable
from autotune.transports.local import LocalTransport

HERE = LocalTransport()


def test_a_command_says_how_it_ended() -> None:
    done = HERE.run(["sh", "-c", "cat; echo oops >&2; exit 3"], input=b"a\r\nb")
    assert (done.returncode, done.stdout, done.stderr) == (3, "a\r\nb", "oops\n")
    assert not done.ok


def test_words_never_pass_through_a_shell() -> None:
    assert HERE.run(["printf", "%s", "$(id); *"]).stdout == "$(id); *"


def test_where_and_with_what(tmp_path: Path) -> None:
    done = HERE.run(["sh", "-c", 'pwd; echo "$LADDER"'], cwd=str(tmp_path), env={"LADDER": "7"})
    assert done.stdout.split() == [str(tmp_path), "7"]


def test_a_command_without_input_gets_none() -> None:
    assert HERE.run(["cat"]).stdout == ""


@pytest.mark.parametrize(("mode", "status"), [(None, 127), (0o600, 126)])
def test_a_program_that_cannot_be_started(tmp_path: Path, mode: int | None, status: int) -> None:
    program = tmp_path / "program"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    done = HERE.run([str(program)])
    assert done.returncode == status
    assert str(program) in done.error_text


def run_out_of_time(script: str, directory: Path) -> int:
    """Return the process ID that the script wrote to the file `child` before its time was over."""
    for seconds in (1, 4, 16, 64):
        with pytest.raises(HostUnreachable, match=f"{seconds} s"):
            HERE.run(["sh", "-c", script], cwd=str(directory), timeout=seconds)
        if (directory / "child").exists():  # it came that far in its time
            break
    return int((directory / "child").read_text())


def test_a_command_out_of_time_is_ended_with_all_it_started(tmp_path: Path) -> None:
    child = run_out_of_time("sleep 300 & echo $! > part; mv part child; sleep 300", tmp_path)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}/stat").exists() and time.monotonic() < deadline:
        if ") Z " in Path(f"/proc/{child}/stat").read_text():
            break
        time.sleep(0.01)
    else:
        assert not Path(f"/proc/{child}/stat").exists()


def test_a_process_that_left_the_session_is_not_waited_for(tmp_path: Path) -> None:
    script = "setsid sh -c 'echo $$ > part; mv part child; exec sleep 300' & exit"
    os.kill(run_out_of_time(script, tmp_path), signal.SIGKILL)  # it still ran


def run_as_nobody(words: list[str], seconds: float) -> type[Exception] | None:
    """Return what `run` raises in a process of an account without privileges."""
    received, sent = multiprocessing.Pipe(duplex=False)
    if os.fork() == 0:
        outcome: type[Exception] | None = None
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            HERE.run(words, timeout=seconds)
        except (AutotuneError, OSError) as error:
            outcome = type(error)
        finally:
            sent.send(outcome)
            os._exit(0)
    os.wait()
    raised: type[Exception] | None = received.recv()
    return raised


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes programs that run as root")
def test_a_command_of_root_that_is_out_of_time_is_an_error_of_the_host() -> None:
    """Without privileges, `sudo` cannot be killed."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        as_root = shutil.copy("/usr/bin/setpriv", place)
        Path(as_root).chmod(0o4755)
        script = f"echo $$ >{place}/part; mv {place}/part {place}/pid; exec sleep 300 </dev/null"
        words = [as_root, "--reuid=0", "--clear-groups", "sh", "-c", script]
        for seconds in (1, 4, 16, 64):
            raised = run_as_nobody(words, seconds)
            if (pid := Path(place, "pid")).exists():  # it came that far in its time
                os.kill(int(pid.read_text()), signal.SIGKILL)
                break
        assert raised is HostUnreachable


def test_a_file_is_replaced_whole_and_has_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    path.write_text("old")
    umask = os.umask(0o077)
    try:
        with path.open() as held:
            HERE.put(b"new\x00\xff", str(path), mode=0o664)
            assert held.read() == "old"
    finally:
        os.umask(umask)
    assert HERE.get(str(path)) == b"new\x00\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(AutotuneError, match="cannot be written"):
        HERE.put(b"", str(tmp_path / "there"))
    with pytest.raises(AutotuneError, match="cannot be written"):
        HERE.put(b"", str(tmp_path / "missing" / "file"))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_no_file_and_no_reading_it(tmp_path: Path) -> None:
    assert HERE.get(str(tmp_path / "missing")) is None
    assert HERE.get(str(tmp_path / "missing" / "deeper")) is None
    with pytest.raises(AutotuneError, match="cannot be read"):
        HERE.get(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_replaced_stays_whose_it_was(tmp_path: Path) -> None:
    path = tmp_path / "redis.conf"
    path.write_text("old")
    os.chown(path, 12345, 54321)
    HERE.put(b"new", str(path), mode=0o640)
    there = path.stat()
    assert (there.st_uid, there.st_gid, stat.S_IMODE(there.st_mode)) == (12345, 54321, 0o640)
