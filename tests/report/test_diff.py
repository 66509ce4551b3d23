from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from autotune import unified_diff
from autotune.errors import AutotuneError, UsageError
from autotune.report.diff import (
    find_trial,
    format_diff,
    read_host_files,
    read_rendered_files,
    style_diff_lines,
)
from autotune.report.studies import Study, open_study
from autotune.target.model import Target
from autotune.target.read_target import TargetFile, read_recorded_target
from autotune.unified_diff import format_file_diff

Files = dict[str, bytes]

BEDS = """\
name: shop
slo: {p99: 50ms}
hosts: {web1: {address: "web1.{bed}.example.org"}}
tiers: {web: {hosts: web1, service: nginx}}
beds: {a: {}, b: {}}
"""
CASES: dict[str, tuple[Files, Files]] = {
    "changed": ({"a/x.conf": b"one\ntwo\nthree\n"}, {"a/x.conf": b"one\n2\nthree\n"}),
    "end of line added": ({"x": b"one\ntwo"}, {"x": b"one\ntwo\n"}),
    "end of line lost": ({"x": b"one\ntwo\n"}, {"x": b"one\ntwo"}),
    "without end on both sides": ({"x": b"one"}, {"x": b"two"}),
    "new file": ({}, {"d/new": b"hello\n"}),
    "file gone": ({"d/old": b"hello\n", "y": b"y\n"}, {"y": b"y\n"}),
    "form feed and carriage return are no line ends": ({"x": b"a\x0cb\r\n"}, {"x": b"a\x0cc\r\n"}),
    "not UTF-8": ({"x": b"\xff\xfe\nend\n"}, {"x": b"\xff\xfd\nend\n"}),
    "thousands of equal lines": ({"x": b"a\n" * 3000}, {"x": b"b\na\n" * 3000}),
    "thousands of equal lines without end": ({"x": b"a\n" * 3000 + b"a"}, {"x": b"b\na\n" * 3000}),
    "blank lines": ({"x": b"\n\n\na\n"}, {"x": b"\n\na\n"}),
}


@pytest.mark.parametrize("is_pruned", [True, False])
def test_a_comparison_of_equal_lines_is_bounded(is_pruned: bool) -> None:
    old, new = ["a\n"] * 3000, ["b\n", "a\n"] * 3000
    matcher = unified_diff._BoundedMatcher(old, new, autojunk=is_pruned)
    matcher.list_opcodes()
    assert matcher.comparison_count <= unified_diff.MAX_COMPARISONS + len(old) * len(new)
    hunks = unified_diff.find_hunks(*("".join(lines).encode() for lines in (old, new, old, new)))
    assert hunks is not None
    assert [line for hunk in hunks for line in hunk.added].count("b\n") >= 1


@pytest.mark.parametrize("name", CASES)
def test_a_patch_turns_one_tree_into_the_other(name: str, tmp_path: Path) -> None:
    before, after = CASES[name]
    for path, content in before.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    patch = format_file_diff(before, after, "a", "b").encode("utf-8", "surrogateescape")
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-p1", "-"], cwd=tmp_path, input=patch, check=True,
        env={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    found = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == after


def test_the_same_files_have_no_diff() -> None:
    assert format_file_diff({"x": b"1\n"}, {"x": b"1\n"}, "a", "b") == ""


def test_baseline_against_best_by_default(study: Callable[[str], Study]) -> None:
    said = format_diff(study("improved"))
    assert said.startswith("--- trial-0/cache.here.memcached/memcached.conf\n")
    assert "\n-pm.max_children = 5\n" in said
    assert "\n+pm.max_children = 16\n" in said
    assert format_diff(study("improved"), "best", "1") == ""


def test_a_command_has_no_hosts_to_compare_with(
    study: Callable[[str], Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.study.ownership.check_own_study", lambda *_: None)
    keys = {"name": "toy", "command": ["cat"], "maximize": "rows"}
    target = Target.model_validate({**keys, "parameters": {"threads": {"range": [1, 8]}}})
    with pytest.raises(UsageError, match="study improved tuned a command, which has no hosts"):
        read_host_files(replace(study("improved"), target=target), {"parameters.json": b"{}"})


def test_the_hosts_of_a_trial_are_those_of_its_bed(
    study: Callable[[str], Study], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: TargetFile, host: str) -> None:
        raise AutotuneError(file.target.hosts[host].address)

    monkeypatch.setattr("autotune.study.ownership.check_own_study", lambda *_: None)
    monkeypatch.setattr("autotune.transports.target_hosts.create_transport", refuse)
    (tmp_path / "target.yaml").write_text(BEDS)
    target = read_recorded_target(tmp_path).target
    opened = replace(study("improved"), directory=tmp_path, target=target)
    with pytest.raises(AutotuneError, match=r"^web1\.b\.example\.org$"):
        read_host_files(opened, {"web.web1.nginx/etc/nginx/nginx.conf": b""}, "b")


def test_parameters_that_matter(study: Callable[[str], Study]) -> None:
    said = format_diff(study("improved"), "0", "1", parameters=True)
    assert said.startswith("--- trial-0\n+++ trial-1\n")
    assert "-web.php_fpm.pm: dynamic\n+web.php_fpm.pm: static\n" in said
    assert "start_servers" not in said


def test_trials_by_name_and_number(study: Callable[[str], Study]) -> None:
    state = study("improved").state
    assert find_trial(state, "baseline").number == 0
    assert find_trial(state, "best").number == 1
    assert find_trial(state, "#3").number == 3


@pytest.mark.parametrize("name", ["99", "bset", ""])
def test_a_trial_there_is_not(name: str, study: Callable[[str], Study]) -> None:
    with pytest.raises(AutotuneError) as caught:
        find_trial(study("improved").state, name)
    assert "0 to" in (caught.value.hint or "")


def test_a_trial_that_was_never_deployed(copied: Callable[[str], Path]) -> None:
    opened = open_study(copied("infeasible"))
    failed = next(trial for trial in opened.state.trials if trial.failure)
    with pytest.raises(AutotuneError, match="out of memory"):
        format_diff(opened, str(failed.number), "best")


def test_files_that_were_lost_or_changed_since_are_not_handed_out(
    copied: Callable[[str], Path],
) -> None:
    directory = copied("improved")
    (trial,) = (t for t in open_study(directory).state.trials if t.number == 0)
    files = read_rendered_files(directory, trial)
    digests = {path: sha256(content).hexdigest() for path, content in files.items()}
    trial = replace(trial, files=digests)
    assert read_rendered_files(directory, trial) == files
    path = directory / "configs" / "0" / next(iter(files))
    path.write_bytes(b"")
    with pytest.raises(AutotuneError, match=f"{path.name} differs from the deployed file"):
        read_rendered_files(directory, trial)
    path.unlink()
    with pytest.raises(AutotuneError, match=f"{path.name} is missing"):
        read_rendered_files(directory, trial)


def test_a_study_without_a_best(study: Callable[[str], Study]) -> None:
    with pytest.raises(AutotuneError, match="this study has no best configuration") as caught:
        format_diff(study("unmeetable"))
    assert caught.value.hint == "expected one of: baseline, 0 to 3"


def test_colour_marks_lines_and_changes_nothing_else() -> None:
    plain = format_file_diff({"x": b"1\n"}, {"x": b"2\n"}, "a", "b")
    lines = list(style_diff_lines(plain))
    assert ("-1", "red") in lines
    assert ("+2", "green") in lines
    assert ("--- a/x", "bold") in lines
    assert "".join(f"{line}\n" for line, _ in lines) == plain


def test_files_of_another_deployment_come_and_go() -> None:
    before = {
        "web.here.nginx/nginx.conf": b"worker_processes 2;\n",
        "lb.here.nginx/nginx.conf": b"x\n",
    }
    after = {"web.here.apache/apache.conf": b"ServerLimit 16\n", "lb.here.nginx/nginx.conf": b"x\n"}
    assert format_file_diff(before, after, "trial-0", "trial-7").splitlines() == [
        "--- /dev/null",
        "+++ trial-7/web.here.apache/apache.conf",
        "@@ -0,0 +1 @@",
        "+ServerLimit 16",
        "--- trial-0/web.here.nginx/nginx.conf",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-worker_processes 2;",
    ]


@pytest.mark.parametrize(("size", "count"), [(17 << 20, 1), (15 << 20, 5)])
def test_files_that_are_too_large_for_configurations_are_not_read(
    copied: Callable[[str], Path], size: int, count: int
) -> None:
    directory = copied("improved")
    for number in range(count):
        sparse = directory / "configs" / "1" / f"sparse{number}"
        sparse.touch()
        os.truncate(sparse, size)
    study = open_study(directory)
    with pytest.raises(AutotuneError, match=r"configs/1.* is larger than"):
        read_rendered_files(directory, find_trial(study.state, "1"))
