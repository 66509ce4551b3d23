"""Commands are really called here: small ones, by the interpreter that runs the tests."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.measure.benchmark import (
    Benchmark,
    BenchmarkAnswer,
    BenchmarkFault,
    BenchmarkValue,
    UnusableConfiguration,
    parse_answer,
)

ECHO = """
import json, os, sys
asked = json.load(sys.stdin)
print("talking")
environment = {key: value for key, value in os.environ.items() if key.startswith("AUTOTUNE_")}
found = {"asked": asked, "cwd": os.getcwd(), "leads": os.getpgrp() == os.getpid()}
print(json.dumps({"value": asked["parameters"]["x"], **found, **environment}))
"""


def benchmark(directory: Path, code: str, timeout: float = 240.0) -> Benchmark:
    return Benchmark((sys.executable, "-c", code), directory, timeout, "toy")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 240
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


@pytest.fixture
def pid_file(tmp_path: Path) -> Path:
    return tmp_path / "pid"


def test_it_is_told_and_answers(tmp_path: Path) -> None:
    code = ECHO.replace("print(json.dumps", "open('said', 'w').write(json.dumps")
    code += "print(json.dumps({'value': 3.5}))"
    with benchmark(tmp_path, code) as called:
        assert called.call_program(7, {"x": 1, "mode": "fast"}) == BenchmarkValue(3.5)
    said = json.loads((tmp_path / "said").read_text())
    assert said["asked"] == {"schema": 1, "trial": 7, "parameters": {"x": 1, "mode": "fast"}}
    assert said["cwd"] == str(tmp_path)
    assert said["leads"]
    assert said["AUTOTUNE_STUDY"] == "toy"
    assert said["AUTOTUNE_TRIAL"] == "7"


@pytest.mark.parametrize(
    ("code", "why", "said"),
    [
        (
            "import sys; print('{\"value\": 1}'); sys.exit('no disk')",
            "exit status 1",
            "no disk",
        ),
        ("import os; os.kill(os.getpid(), 9)", "signal 9 (Killed)", ""),
        ("print('hello')", "not JSON: hello", ""),
        ("", "no result", ""),
    ],
)
def test_its_faults_come_with_its_last_words(
    tmp_path: Path, code: str, why: str, said: str
) -> None:
    with benchmark(tmp_path, code) as called:
        answer = called.call_program(0, {})
    assert isinstance(answer, BenchmarkFault)
    assert why in answer.why
    assert said in answer.said


def test_it_may_say_that_a_configuration_cannot_be_used(tmp_path: Path) -> None:
    with benchmark(tmp_path, 'print(\'{"infeasible": "too big"}\')') as called:
        assert called.call_program(0, {}) == UnusableConfiguration("too big")


def test_a_program_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with Benchmark(("./nothing",), tmp_path, 5.0, "toy") as called:
        answer = called.call_program(0, {})
    assert isinstance(answer, BenchmarkFault)
    assert "cannot start " in answer.why


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"])
with open("pid.part", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename("pid.part", "pid")
"""


def test_a_call_that_takes_too_long_is_ended_with_all_it_started(
    tmp_path: Path, pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.measure.benchmark.GRACE_SECONDS", 0.2)
    for timeout in (1.0, 4.0, 16.0, 64.0):
        with benchmark(tmp_path, STUBBORN + "time.sleep(300)", timeout) as called:
            answer = called.call_program(0, {})
        assert isinstance(answer, BenchmarkFault)
        assert f"within {timeout:g} s" in answer.why
        if pid_file.exists():  # it came that far in its time
            break
    for pid in map(int, pid_file.read_text().split()):
        wait_until_gone(pid)


def test_what_it_leaves_behind_ends_with_the_call(tmp_path: Path, pid_file: Path) -> None:
    with benchmark(tmp_path, STUBBORN + "print('{\"value\": 1}')") as called:
        # The child still has the output open: nobody waits for that.
        assert called.call_program(0, {}) == BenchmarkValue(1.0)
    for pid in map(int, pid_file.read_text().split()):
        wait_until_gone(pid)


class KeptProcess(subprocess.Popen[bytes]):
    """A process that a test can stop and reap itself."""

    started: list[KeptProcess]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.started.append(self)


def refuse_signal(group: int, sent_signal: int) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_command_of_another_account_is_called_as_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo` belongs to root even after it has ended, so its group cannot be signalled."""
    monkeypatch.setattr(os, "killpg", refuse_signal)
    with benchmark(tmp_path, "print('{\"value\": 3}')") as called:
        assert called.call_program(0, {}) == BenchmarkValue(3.0)


def test_a_command_that_cannot_be_stopped_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.measure.benchmark.GRACE_SECONDS", 0.1)
    monkeypatch.setattr(os, "killpg", refuse_signal)
    KeptProcess.started = []
    monkeypatch.setattr(subprocess, "Popen", KeptProcess)
    with (
        pytest.raises(AutotuneError, match="this account cannot stop it"),
        benchmark(tmp_path, "import time; time.sleep(300)", 0.1) as called,
    ):
        called.call_program(0, {})
    for process in KeptProcess.started:
        process.kill()
        process.wait()


def test_a_time_limit_of_months_is_accepted(tmp_path: Path) -> None:
    with benchmark(tmp_path, "print('{\"value\": 3}')", timeout=1e8) as called:
        assert called.call_program(0, {}) == BenchmarkValue(3.0)


def test_only_the_end_of_a_long_output_is_read(tmp_path: Path) -> None:
    code = "import sys; print('x' * 3_000_000); print('{\"value\": 3}')"
    with benchmark(tmp_path, code) as called:
        assert called.call_program(0, {}) == BenchmarkValue(3.0)
    with benchmark(tmp_path, "import sys; sys.exit('\\r'.join(['50 %'] * 100_000))") as called:
        answer = called.call_program(0, {})
    assert isinstance(answer, BenchmarkFault)
    assert answer.why == "exit status 1"
    assert len(answer.said) < 10_000


TUNER = """
import signal, sys
# Ignored in whatever runs the tests in the background, it would be ignored here too.
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from autotune.measure.benchmark import Benchmark
with Benchmark((sys.executable, "-c", sys.argv[1]), Path("."), 100.0, "toy") as called:
    called.call_program(0, {})
"""


@pytest.mark.long  # the grace period between SIGTERM and SIGKILL has to pass
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_it_never_outlives_the_tuner(tmp_path: Path, pid_file: Path, how: signal.Signals) -> None:
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, STUBBORN + "time.sleep(300)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 240
    while not pid_file.exists():
        assert tuner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    tuner.send_signal(how)
    tuner.wait(timeout=240)
    for pid in map(int, pid_file.read_text().split()):
        wait_until_gone(pid)


@pytest.mark.parametrize(
    ("printed", "answer"),
    [
        ('{"value": 41.2}\n', BenchmarkValue(41.2)),
        ('{"value": 7, "sd": 0.5}', BenchmarkValue(7.0, 0.5)),
        ('{"value": -1e3, "sd": null, "note": "kept"}', BenchmarkValue(-1000.0)),
        ('warming up\n{"progress": 1}\n{"value": 0}\n\n', BenchmarkValue(0.0)),
        ('{"infeasible": "out of memory"}', UnusableConfiguration("out of memory")),
        ('{"infeasible": true}', UnusableConfiguration("no reason given")),
    ],
)
def test_answers(printed: str, answer: BenchmarkAnswer) -> None:
    assert parse_answer(printed) == answer


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "it printed no result"),
        ("\n \n", "it printed no result"),
        ('{"value": 1}\ndone\n', "the last line of output is not JSON: done"),
        ("41.2", "the last line of output must be"),
        ("[1]", "the last line of output must be"),
        ('{"valeu": 1}', "the last line of output must be"),
        ('{"value": 1, "infeasible": "both"}', "the last line of output must be"),
        ('{"value": "41"}', '"value" is not a finite number: "41"'),
        ('{"value": true}', '"value" is not a finite number: true'),
        ('{"value": NaN}', '"value" is not a finite number: NaN'),
        ('{"value": 1e999}', '"value" is not a finite number: Infinity'),
        ('{"value": 1' + "0" * 400 + "}", '"value" is not a finite number'),
        ('{"value": 1, "sd": -1}', '"sd" is negative or not a number: -1'),
        ('{"value": 1, "sd": "x"}', '"sd" is negative or not a number'),
        ('{"infeasible": null}', '"infeasible" must be a reason in words'),
    ],
)
def test_what_cannot_be_read_is_the_commands_fault(printed: str, why: str) -> None:
    answer = parse_answer(printed)
    assert isinstance(answer, BenchmarkFault)
    assert why in answer.why
    assert len(answer.why) < 250
