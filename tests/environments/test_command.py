"""A benchmark of one's own, from `init` to `export`, as a user types it."""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import re
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.cli import app
from autotune.environments.command import prepare
from autotune.errors import TargetError
from autotune.exit_handling import run_command
from autotune.optimize.storage import COMPANION_SUFFIXES
from autotune.report.charts import build_chart_data
from autotune.report.studies import open_study
from autotune.report.view import build_study_view
from autotune.study import journal
from autotune.target.read_target import read_target
from tests.printed import printed

pytestmark = pytest.mark.long

TARGET = """
name: toy
command: [python3, bench.py]
maximize: throughput
unit: MB/s
parameters:
  x: {range: [1, 100], log: true, default: 5, unit: threads}
  mode: {choices: [slow, fast]}
  depth: {range: [0.0, 10.0], when: {mode: fast}}
try: [{x: 20, mode: fast}]
budget: {trials: 4, time: 10m}
search: {sampler: random}
"""
BENCH = """
import json, math, sys
told = json.load(sys.stdin)["parameters"]
height = 100 * math.exp(-0.2 * math.log(told["x"] / 20) ** 2)
print(json.dumps({"value": height * (1.3 if told["mode"] == "fast" else 1), "sd": 0.5}))
"""
# A call that is not among those allowed waits until it is ended.
LIMITED = """
import time
with open("begun", "a") as begun:
    begun.write(".")
    number = begun.tell()
while number > int(open("allowed").read()):
    time.sleep(0.01)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "bench.py").write_text(BENCH)
    (tmp_path / "toy.yaml").write_text(TARGET)
    return tmp_path


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def autotune(*words: str, cwd: Path) -> Done:
    """In this process: what is tested is not how long Python takes to start."""
    with contextlib.chdir(cwd), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["autotune", *words])
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = run_command(lambda: app(words, standalone_mode=False), as_json="--json" in words)
    return Done(code, out.getvalue(), said.getvalue())


def test_from_check_to_export(home: Path) -> None:
    checked = autotune("check", "toy.yaml", cwd=home)
    assert checked.returncode == 0, checked.stderr
    assert f"python3 bench.py in {home}" in checked.stdout
    planned = printed("plan", autotune("plan", "toy.yaml", "--json", cwd=home).stdout)
    assert planned["first"] == [
        {"mode": "slow", "x": 5},
        {"depth": 5.0, "mode": "fast", "x": 20},
    ]

    done = autotune("run", "toy.yaml", "--yes", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "MB/s" in done.stderr
    found = printed("study", done.stdout)
    assert found["verdict"] == "improved"
    assert found["goal"] == {"direction": "maximize", "name": "throughput", "unit": "MB/s"}

    said = autotune("report", "toy", cwd=home)
    assert said.returncode == 0, said.stderr
    assert "MB/s" in said.stdout
    assert "requests/s" not in said.stdout
    assert autotune("report", "toy", "--html", "toy.html", cwd=home).returncode == 0
    page = (home / "toy.html").read_text()
    assert re.search(r"[0-9] MB/s", page)
    shown = build_chart_data(build_study_view(open_study(home / "studies" / "toy")))
    assert shown["unit"] == {"name": "MB/s", "suffix": " MB/s", "from_zero": False}
    assert shown["quantity"] == "value"
    assert "requests/s" not in json.dumps(shown)
    assert autotune("status", "toy", cwd=home).returncode == 0
    assert "parameters.json" in autotune("diff", "toy", cwd=home).stdout

    for form, path in (("files", "files/parameters.json"), ("json", "settings.json")):
        out = home / form
        exported = autotune("export", "toy", "--format", form, "--out", str(out), cwd=home)
        assert exported.returncode == 0, exported.stderr
        assert "x" in (out / path).read_text()
    manifest = json.loads((home / "files" / "manifest.json").read_text())
    assert manifest["command"] == ["python3", "bench.py"]
    assert str(home / "toy.yaml") in manifest["verify"]
    assert all(reading["sd"] == 0.5 for reading in manifest["readings"])

    again = ("measure", "toy.yaml", "--config", "files", "--against", "baseline", "--yes", "--json")
    measured = autotune(*again, cwd=home)
    assert measured.returncode == 0, measured.stderr
    assert printed("measurement", measured.stdout)["gain"]["low"] > 1


def sit(home: Path, *words: str) -> None:
    """A tuner in a process of its own that has everything imported already."""
    os.chdir(home)
    # Ignored in whatever runs the tests in the background, the signal would be ignored here too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_command(lambda: app([*words, "--yes"], standalone_mode=False), as_json=False))


def calls(study: Path) -> int:
    return len(list(journal.read_records(study / "readings.jsonl")))


def damage_database(study: Path) -> None:
    """Write invalid content. A write-ahead log that an interrupted process left would repair it."""
    for suffix in COMPANION_SUFFIXES:
        (study / f"study.db{suffix}").unlink(missing_ok=True)
    (study / "study.db").write_bytes(b"no database")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_stopped_and_killed_it_goes_on_without_loss(home: Path) -> None:
    (home / "bench.py").write_text(LIMITED + BENCH)
    (home / "begun").touch()
    study = home / "studies" / "toy"
    words = ("run", "toy.yaml")
    forks = multiprocessing.get_context("fork")
    for how, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        before = calls(study)
        (home / "allowed").write_text(f"{(home / 'begun').stat().st_size + 2}")
        process = forks.Process(target=sit, args=(home, *words))
        process.start()
        deadline = time.monotonic() + 240
        while calls(study) <= before + 1:
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid or 0, how)
        process.join(240)
        assert process.exitcode == code
        words = ("resume", "toy")
    (home / "allowed").write_text("1000000")
    kept = calls(study)
    damage_database(study)
    damaged = autotune("resume", "toy", "--yes", cwd=home)
    assert damaged.returncode == 1
    assert "study.db cannot be used" in damaged.stderr
    assert "remove the database" in damaged.stderr
    (study / "study.db").unlink()
    done = autotune("resume", "toy", "--yes", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert sum(printed("study", done.stdout)["trials"].values()) == 4
    assert calls(study) > kept


def test_the_shipped_example_runs_where_it_is_put(tmp_path: Path) -> None:
    made = autotune("init", "--example", "command", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "targets" / "command.py").exists()
    done = autotune("measure", "targets/command.yaml", "--yes", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert printed("measurement", done.stdout)["peak"] > 0
    again = autotune("init", "--example", "command", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "targets/command.yaml already has this content" in again.stdout
    (tmp_path / "targets" / "command.py").write_text("mine")
    assert autotune("init", "--example", "command", cwd=tmp_path).returncode == 2
    assert (tmp_path / "targets" / "command.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "message", "hint"),
    [
        ("[./nothing]", "3:11: program './nothing' not found", None),
        ("[no-such-program-anywhere]", "program 'no-such-program-anywhere' not found", None),
        ("[./bench.py]", "./bench.py is not executable", "chmod +x"),
    ],
)
def test_a_program_that_cannot_be_run(
    home: Path, command: str, message: str, hint: str | None
) -> None:
    path = home / "toy.yaml"
    path.write_text(TARGET.replace("[python3, bench.py]", command))
    with pytest.raises(TargetError) as caught:
        prepare(read_target(path))
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (
            b"#!/bin/sh\r\necho\r\n",
            "3:11: ./bench.sh ends its lines with CR LF",
            "sed -i 's/\\r$//'",
        ),
        (b"echo\n", "./bench.sh does not start with `#!`", "#!/bin/sh"),
        (b"#!/usr/bin/python2.1\n", "needs the interpreter '/usr/bin/python2.1'", "install"),
    ],
)
def test_a_script_that_no_machine_can_start(
    home: Path, content: bytes, message: str, hint: str
) -> None:
    path, script = home / "toy.yaml", home / "bench.sh"
    path.write_text(TARGET.replace("[python3, bench.py]", "[./bench.sh]"))
    script.write_bytes(content)
    script.chmod(0o755)
    with pytest.raises(TargetError) as caught:
        prepare(read_target(path))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    script.write_bytes(b"#!/bin/sh\n")
    assert prepare(read_target(path)).argv == ("./bench.sh",)


def test_a_command_that_fails_stops_at_once_and_says_why(home: Path) -> None:
    (home / "bench.py").write_text("raise SystemExit('no such device')")
    done = autotune("run", "toy.yaml", "--yes", cwd=home)
    assert done.returncode == 1
    assert "no such device" in done.stderr
    assert "resume" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04\n\0\0\x08\0\0",  # a JAR file
        b"#!/usr/bin/env -S python3 -u\r\nprint(1)\r\n",
        b"#!/usr/bin/perl -w\r\nprint 1\r\n",
    ],
)
def test_a_program_that_the_kernel_may_start_is_not_refused(home: Path, content: bytes) -> None:
    path, program = home / "toy.yaml", home / "bench.sh"
    path.write_text(TARGET.replace("[python3, bench.py]", "[./bench.sh]"))
    program.write_bytes(content)
    program.chmod(0o755)
    assert prepare(read_target(path)).argv == ("./bench.sh",)
