"""The commands as a user types them, on the real stack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.deploy.backup import BackupStore, HostBackup
from autotune.study import journal
from autotune.study.state_replay import replay_records
from autotune.study.study_state import COUNTED_PHASES
from tests.printed import printed

pytestmark = pytest.mark.stack
ROOT = Path(__file__).parents[2]
LOCAL = (ROOT / "targets" / "local.yaml").read_text()
FIGURES = {"p50", "p90", "p95", "p99", "p99.9", "goodput", "errors", "violations"}
CONTRACT = {
    "schema", "study", "verdict", "slo", "baseline", "best", "gain", "trials", "seconds",
    "bottleneck", "warnings",
}  # fmt: skip


def short(directory: Path, trials: int = 3, time: str = "40s", more: str = "") -> Path:
    """The local target with a small budget."""
    text = re.sub(r"budget: .*", f"budget: {{trials: {trials}, time: {time}}}", LOCAL)
    path = directory / "short.yaml"
    path.write_text(text.replace("name: local", "name: short") + more)
    return path


def shedding(directory: Path, rate: int = 150, time: str = "40s") -> Path:
    """The short target on a stack whose capacity is in its configuration.

    Its web server answers ``rate`` requests a second, and all others at once, with an error page;
    the requests are ones that any machine can answer, and the SLO one that only errors break.
    """
    templates = directory / "mine" / "nginx"
    templates.mkdir(parents=True)
    shipped = (ROOT / "templates" / "nginx" / "web.conf.j2").read_text()
    limited = shipped.replace(
        "    upstream php {",
        f"    limit_req_zone $server_port zone=all:1m rate={rate}r/s;\n"
        f"    limit_req zone=all burst={rate // 5} nodelay;\n    limit_req_status 502;\n"
        "    upstream php {",
    )
    assert limited != shipped
    (templates / "web.conf.j2").write_text(limited)
    target = short(directory, time=time)
    text = target.read_text()
    for old, new in (
        ("slo: {p99: 50ms, errors: 0.1%}", "slo: {p50: 100ms, errors: 1%}"),
        ("app: reference", "app: reference, templates: mine"),
        ("pairs: 100000, keys_per_request: 100", "pairs: 2000, keys_per_request: 1"),
    ):
        assert old in text
        text = text.replace(old, new)
    target.write_text(text)
    return target


def autotune(*words: str, cwd: Path, timeout: float = 560) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "autotune", *words]
    return subprocess.run(
        argv,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@contextmanager
def started(*words: str, cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the background, whose messages are in the file "messages".

    If the test fails, the command is interrupted, so that it stops its servers.
    """
    with (cwd / "messages").open("w") as messages:
        process = subprocess.Popen(
            [sys.executable, "-m", "autotune", *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            # A session of its own, so that a signal meant for it reaches nothing of the tests.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()


def readings(study: Path) -> int:
    return len(list(journal.read_records(study / "readings.jsonl")))


def wait_for_readings(study: Path, more_than: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 480
    while readings(study) <= more_than:
        assert process.poll() is None, "it ended before it took another reading"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def left_behind(directory: Path) -> list[str]:
    """Processes that work below a directory, or were started for something in it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink().is_relative_to(directory.resolve()):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.quiet
@pytest.mark.timeout(1800)  # a whole study, if a small one
def test_a_study_from_run_to_export(tmp_path: Path) -> None:
    # Two trials fit even where a noisy machine makes each peak search, and each wait for calm, as long
    # as it may be.
    target = short(tmp_path, time="8m")
    done = autotune("run", str(target), "--yes", "--json", cwd=tmp_path, timeout=1600)
    assert done.returncode == 0, done.stderr
    found = printed("study", done.stdout)
    assert set(found) >= CONTRACT
    assert found["verdict"] in ("improved", "no-improvement")
    assert found["baseline"]["parameters"]["web.php_fpm.max_children"] == 5
    assert set(found["seconds"]) == {"total", "load", "deploy", "search", "other"}
    assert found["trials"]["complete"] + found["trials"]["screened"] >= 1
    assert "nowhere else" in done.stderr
    study = tmp_path / "studies" / "short"
    assert not (study / "run").exists()
    assert left_behind(tmp_path) == []

    report = autotune("report", "short", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert autotune("status", "short", cwd=tmp_path).returncode == 0
    assert json.loads(autotune("report", "short", "--json", cwd=tmp_path).stdout) == found
    assert "max_children" in autotune("diff", "short", "0", "1", cwd=tmp_path).stdout

    out = tmp_path / "winner"
    exported = autotune("export", "short", "--out", str(out), "--trial", "1", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["parameters"]["web.php_fpm.pm"] == "static"
    assert "pm = static" in "".join(p.read_text() for p in out.rglob("php-fpm.conf"))

    finished = autotune("resume", "short", "--yes", cwd=tmp_path)
    assert finished.returncode == 1
    assert "is finished" in finished.stderr
    assert "autotune restore" not in finished.stderr
    BackupStore(tmp_path / "studies" / "short").write(HostBackup("web1", "short"))
    killed = autotune("resume", "short", "--yes", cwd=tmp_path)  # before its hosts were restored
    assert "`autotune restore short` restores them" in killed.stderr


@pytest.mark.timeout(1800)
def test_killed_and_resumed_it_loses_nothing(tmp_path: Path) -> None:
    target = shedding(tmp_path, time="60m")  # it is killed long before
    study = tmp_path / "studies" / "short"
    seen, words = 0, ("run", str(target))
    for readings_more in (1, 3):
        with started(*words, "--yes", cwd=tmp_path) as process:
            wait_for_readings(study, seen + readings_more, process)
            process.send_signal(signal.SIGKILL)
            process.wait()
        now = readings(study)
        assert now >= seen
        seen, words = now, ("resume", "short")
    for more in (25, 100, 400):  # seconds: on a busy machine too few for the baseline
        spent = replay_records(journal.read_records(study / "events.jsonl")).elapsed_seconds
        text = target.read_text()
        target.write_text(re.sub(r"time: \w+}", f"time: {spent + more:.0f}s}}", text))
        done = autotune(*words, "--yes", cwd=tmp_path)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr
    state = replay_records(journal.read_records(study / "events.jsonl"))
    assert state.verdict is not None
    assert len(state.list_finished_trials(*COUNTED_PHASES)) <= 3
    assert readings(study) > seen
    assert left_behind(tmp_path) == []


def test_a_stopped_study_puts_everything_back_and_says_how_to_go_on(tmp_path: Path) -> None:
    target = shedding(tmp_path, time="20m")  # it is stopped long before
    study = tmp_path / "studies" / "short"
    with started("run", str(target), "--yes", cwd=tmp_path) as process:
        wait_for_readings(study, 1, process)
        second = autotune("resume", "short", "--yes", cwd=tmp_path)
        assert second.returncode == 5, second.stderr
        assert f"process {process.pid}" in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=240) == 130
    said = (tmp_path / "messages").read_text()
    assert "autotune resume short" in said
    assert "Traceback" not in said
    assert left_behind(tmp_path) == []
    assert not (study / "run").exists()

    changed = target.read_text().replace("p50: 100ms", "p50: 10ms")
    target.write_text(changed)
    refused = autotune("resume", "short", "--yes", cwd=tmp_path)
    assert refused.returncode == 3
    assert "has changed" in refused.stderr
    assert "slo" in refused.stderr


def test_a_measurement_tells_its_ladder_and_502_that_are_fast_carry_nothing(tmp_path: Path) -> None:
    target = shedding(tmp_path, rate=40)
    done = autotune("measure", str(target), "--yes", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (peak,) = printed("measurement", done.stdout)["peaks"]
    assert peak["peak"] < 100
    assert "bottleneck" in peak
    assert len(peak["ladder"]) > 1
    for rung in peak["ladder"]:
        if not rung["cut_short"] and not rung["limited"]:
            assert rung["intended"] > 0
            assert rung.keys() >= FIGURES
    taken = list(journal.read_records(tmp_path / "studies" / "short-measured" / "readings.jsonl"))
    assert any(reading["errors"].get("5xx", 0) > 0 for reading in taken)
    for reading in taken:
        assert reading["violations"] >= reading["errors"].get("5xx", 0)
    # A machine whose CPUs are taken away may be too busy to be watched as well.
    if all(reading.get("hosts") for reading in taken) and any(r["met"] for r in peak["ladder"]):
        assert {"cpu", "load"} <= peak["hosts"]["here"].keys()


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("budgett: {trials: 3}\n", 3, "did you mean 'budget'?"),
        ("constraints: [web.php_fpm.max_childs <= 3]\n", 3, "web.php_fpm.max_children"),
    ],
)
def test_bad_targets_end_with_one_message(tmp_path: Path, text: str, code: int, said: str) -> None:
    done = autotune("check", str(short(tmp_path, more=text)), cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_variable_that_is_missing_is_said_before_anything_is_made(
    command: str, tmp_path: Path
) -> None:
    target = short(tmp_path)
    text = target.read_text()
    assert "load: {" in text
    target.write_text(text.replace("load: {", "load: {headers: {X-Token: '${NO_SUCH}'}, "))
    done = autotune(command, str(target), *(["--yes"] if command == "run" else []), cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "the environment variable NO_SUCH is not set" in done.stderr
    assert not (tmp_path / "studies").exists()


def test_a_port_in_use_is_the_environments_fault(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        target = short(tmp_path)
        target.write_text(
            target.read_text().replace("forwards_to: web", f"forwards_to: web, port: {port}")
        )
        done = autotune("check", str(target), cwd=tmp_path)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert re.search(r"short\.yaml:\d+:\d+:", done.stderr)


def test_missing_programs_are_named_with_the_command_that_brings_them(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", MISSING, str(short(tmp_path))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert "not installed: httperf" in done.stderr
    assert "apt-get install --no-install-recommends" in done.stderr


MISSING = """
import sys
from autotune.deploy import programs
programs.SYSTEM_PATH = ""
from autotune.transports import facts
from autotune.space.facts import HostFacts
from autotune.runtimes import embedded
embedded.read_host_facts = lambda transport: HostFacts(2, 2**32)
sys.argv = ["autotune", "check", sys.argv[1]]
from autotune.cli import main
main()
"""
