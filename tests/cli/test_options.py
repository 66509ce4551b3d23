"""Commands agree: shared options, metavars of one form, exit status 2 for bad values, JSON."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune import exit_handling
from autotune.cli import app
from autotune.errors import (
    CHANGES_PRESENT_EXIT_CODE,
    INVALID_TARGET_EXIT_CODE,
    USAGE_EXIT_CODE,
)
from autotune.target.shipped_files import list_examples
from scripts.cli_reference import REPOSITORY, commands, help_of
from tests.printed import printed

STUDIES = str(REPOSITORY / "tests" / "report" / "studies")
PAPER = str(REPOSITORY / "targets" / "paper.yaml")
COMMAND = str(REPOSITORY / "targets" / "command.yaml")
# Commands with an option; the exceptions have no use for it.
WITH_OPTION = {
    "--json": {*map(" ".join, commands())} - {"schema", "lab ssh"},
    "--quiet": {"run", "resume", "worker", "measure", "sweep", "explain", "apply"},
    "--log-file": {"run", "resume", "worker", "measure", "sweep", "explain", "apply"},
    "--verbose": {"run", "resume", "worker", "measure", "sweep", "explain", "apply"},
    "--yes": {"run", "resume", "worker", "measure", "sweep", "explain", "apply"},
    "--studies": {"run", "resume", "worker", "measure", "sweep", "explain", "apply", "status",
                  "report", "diff", "export", "restore"},
    "--set": {"run", "check", "plan", "measure", "sweep"},
    "-o, --out": {"init", "export", "workload from-log"},
}  # fmt: skip
METAVAR = re.compile(r"\[?[A-Z]+(?:[@:=|\]]+[A-Z]+)*(?:,…)?")
BAD_VALUES = [
    ["check", PAPER, "--set", "lb.nginx.backlog"],
    ["check", PAPER, "--set", "lb.nginx.backlog=many"],
    ["plan", PAPER, "--set", "lb.nginx.backlog="],
    ["plan", PAPER, "--set", "lb.nginx.backlog=512", "--set", "lb.nginx.backlog=1024"],
    ["check", PAPER, "--beds", "a"],
    ["run", PAPER, "--time", "45"],
    ["run", PAPER, "--trials", "many"],
    ["run", PAPER, "--trials", "1"],
    ["run", PAPER, "--metrics-port", "web"],
    ["run", PAPER, "--storage", "postgresql://h/d"],
    ["measure", PAPER, "--at-least", "fast"],
    ["measure", PAPER, "--at-least", "1e9/s"],
    ["measure", PAPER, "--at-least", "0/s"],
    ["measure", PAPER, "--exit-code"],
    ["measure", PAPER, "--closed", "--concurrency", "0,5"],
    ["measure", PAPER, "--concurrency", "8"],
    ["measure", PAPER, "--concurrency", ""],
    ["measure", COMMAND, "--at-least", "100"],
    ["sweep", PAPER, "--over", "lb.nginx.backlog", "--peak"],
    ["sweep", PAPER, "--over", "lb.nginx.backlog=9:1:1", "--peak"],
    ["sweep", PAPER, "--over", "lb.nginx.backlog=,", "--peak"],
    ["sweep", PAPER, "--over", "lb.nginx.backlog=512,1024", "--rate", "fast"],
    ["sweep", PAPER, "--over", "lb.nginx.backlog=512,1024", "--rate", "0"],
    ["sweep", PAPER, "--hosts", "web=many", "--peak"],
    ["sweep", PAPER, "--peak"],
    ["report", "improved", "--studies", STUDIES, "--at", "0"],
    ["report", "improved", "--studies", STUDIES, "--at", "soon"],
    ["report", "improved", "--studies", STUDIES, "--csv", "trails"],
    ["report", "improved", "--studies", STUDIES, "--csv", "trials", "--json"],
    ["report", "improved", "--studies", STUDIES, "--csv", "trials", "--at", "100/s"],
    ["diff", "improved", "999", "--studies", STUDIES],
    ["export", "improved", "--studies", STUDIES, "--out", "new", "--format", "zip"],
    ["export", "improved", "--studies", STUDIES, "--out", "new", "--minimal", "--trial", "0"],
    ["status", "--watch", "--studies", STUDIES],
    ["init", "--example", "papr"],
    ["init", "--example", "paper", "--from", "web1"],
    ["init", "--ssh-config", "ssh.conf"],
    ["init", "--example", "paper", "--path", "/shop"],
    ["schema", "studies"],
    ["run", PAPER, "--quiet", "--verbose"],
    ["run", PAPER, "--keep"],
    ["run", PAPER, "--log-file", "nowhere/run.log"],
    ["run", PAPER, "--metrics-file", "nowhere/run.prom"],
    ["run", PAPER, "--studies", PAPER],
    ["measure", PAPER, "--against", "best"],
    ["measure", PAPER, "--against", "baseline"],
    ["measure", PAPER, "--config", "nowhere"],
    ["measure", PAPER, "--closed", "--tier", "cache"],
    ["sweep", PAPER, "--hosts", "web=9", "--peak"],
    ["sweep", PAPER, "--over", "lb.nginx.backlog=512,512", "--peak"],
    ["report", "improved", "--studies", STUDIES, "--html", "nowhere/report.html"],
    ["report", "imporved", "--studies", STUDIES],
    ["explain", "improved", "--studies", STUDIES, "--maximum", "20"],
    ["diff", "improved", "best", "best", "--studies", STUDIES],
    ["export", "improved", "--studies", STUDIES, "--out", "nowhere/winner"],
    ["init", "--example", "paper", "--out", "nowhere/paper.yaml"],
    ["init", "--from", "a:b:c"],
    ["params", "ngnix"],
    ["status", "--storage", "sqlite:///x.db"],
]


def run(*words: str) -> int:
    return exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=False)


@pytest.mark.parametrize("option", WITH_OPTION)
def test_commands_share_their_options(option: str) -> None:
    having = {" ".join(words) for words in commands() if f"{option} " in help_of(words)}
    assert having == WITH_OPTION[option]


def test_metavars_have_one_form() -> None:
    metavars = {
        match[1]
        for words in commands()
        for match in re.finditer(r"^  (?:-\w, )?--[\w-]+ (\S+)", help_of(words), re.M)
    }
    assert len(metavars) > 20
    assert [metavar for metavar in sorted(metavars) if not METAVAR.fullmatch(metavar)] == []


@pytest.mark.parametrize("words", BAD_VALUES, ids=" ".join)
def test_bad_values_of_options_exit_with_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(*words, *(["--yes"] if words[0] in WITH_OPTION["--yes"] else [])) == USAGE_EXIT_CODE
    printed_error = capsys.readouterr().err
    assert "Traceback" not in printed_error
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_init_lists_the_examples() -> None:
    text = " ".join(help_of(["init"]).split())
    assert f"Example to copy: {', '.join(list_examples())}." in text


def test_init_diff_export_and_restore_print_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("init", "--example", "paper", "-o", "mine.yaml", "--json") == 0
    assert printed("initialized", capsys.readouterr().out)["target"] == "mine.yaml"
    words = ("improved", "--studies", STUDIES, "--json")
    assert run("diff", *words) == 0
    difference = printed("diff", capsys.readouterr().out)
    assert (difference["a"], difference["b"]) == ("baseline", "best")
    assert "+++" in difference["diff"]
    assert run("diff", *words, "--exit-code") == CHANGES_PRESENT_EXIT_CODE
    assert printed("diff", capsys.readouterr().out) == difference
    assert run("diff", "improved", "baseline", "0", *words[1:], "--exit-code") == 0
    assert printed("diff", capsys.readouterr().out)["diff"] == ""
    assert run("export", *words, "-o", "winner", "--of-a-model") == 0
    exported = printed("exported", capsys.readouterr().out)
    assert exported["study"] == "improved"
    assert all(Path(file).is_file() for file in exported["files"])
    assert exported["files"]
    assert run("restore", "mine.yaml", "--json") == 0
    assert printed("restored", capsys.readouterr().out) == {"schema": 1, "restored": []}


@pytest.mark.parametrize(("text", "rate"), [("800", 800.0), ("800/s", 800.0), ("60/min", 1.0)])
def test_the_unit_of_rates_is_optional(text: str, rate: float) -> None:
    from autotune.cli.options import parse_rates

    assert parse_rates("--at", [text]) == [rate]


def test_a_study_needs_a_parameter_that_can_vary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.yaml").write_text(
        "name: rows\ncommand: [echo]\nmaximize: rows\nparameters: {batch: {fixed: 4}}\n"
    )
    for command in (("run", "rows.yaml", "--yes"), ("check", "rows.yaml")):
        assert run(*command) == INVALID_TARGET_EXIT_CODE
        printed_error = capsys.readouterr().err
        assert "rows.yaml:4:1: nothing to tune: every parameter is fixed" in printed_error
    assert [path.name for path in tmp_path.iterdir()] == ["rows.yaml"]


def test_a_variable_with_the_name_of_an_option_has_no_effect_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_STUDIES", "nowhere")
    monkeypatch.setenv("AUTOTUNE_TRIAL", "7")
    monkeypatch.setenv("AUTOTUNE_HOME", "/opt/autotune")
    assert run("status", "--studies", STUDIES) == 0
    printed_lines = capsys.readouterr().err.splitlines()
    assert [line for line in printed_lines if "AUTOTUNE" in line] == [
        "autotune: warning: AUTOTUNE_STUDIES has no effect: autotune has no variable for this option",
        "  hint: use --studies, and unset AUTOTUNE_STUDIES",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["report", "improved", "--studies", STUDIES, "--studies", STUDIES],
        ["report", "improved", "--studies", STUDIES, "--at", "800", "--at", "900"],
        ["check", PAPER, "--set", "lb.nginx.use=poll", "--set", "lb.service=nginx"],
        ["status", "--json", "--json", "--studies", STUDIES],
    ],
    ids=" ".join,
)
def test_repeated_options_that_lose_nothing_are_accepted(words: list[str]) -> None:
    assert run(*words) == 0


def test_a_name_that_is_too_long_for_a_file_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report", "improved", "x" * 5000) == USAGE_EXIT_CODE
    assert "takes only STUDY" in capsys.readouterr().err
