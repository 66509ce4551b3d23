"""What a shell is offered, asked as a shell asks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.cli.completion import EXPORT_FORMATS
from autotune.export.writer import ALL_FORMATS as WRITTEN
from tests.space.targets import FLEET
from tests.test_cli import HEAVY

STUDIES = Path(__file__).parents[1] / "report" / "studies"
TARGETS = Path(__file__).parents[2] / "targets"
COMMAND = """\
name: toy
command: [./bench.py]
maximize: throughput
parameters: {threads: {range: [1, 9]}, mode: {choices: [slow, fast]}}
"""
# What a description from someone else's target may contain, and what a shell shows of it.
DESCRIPTIONS = {
    r"plain `touch x`": "plain touch x",
    r"a \`touch x #\`": "a touch x #",
    r"a \$(touch x)": "a (touch x)",
    r"a \"; touch x; \"": "a ; touch x; ",
    r"a server's [/limit]": "a server's /limit]",
    "a \x9b2J": "a ",
}
# Typer itself checks words with pydantic.
OURS = tuple(name for name in HEAVY if name != "pydantic")
Complete = Callable[[str], list[str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with recorded studies and targets of several kinds."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STUDIES, tmp_path / "studies")
    text = FLEET.replace("service: nginx, forwards", "service: [nginx, apache], forwards")
    (tmp_path / "fleet.yaml").write_text(text)
    (tmp_path / "toy.yaml").write_text(COMMAND)
    (tmp_path / "figure.yaml").write_text("target: fleet.yaml\nover: {service: all}\n")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "more").mkdir()
    return tmp_path


@pytest.fixture
def complete(home: Path) -> Complete:
    """What bash is offered for the last word of a line."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        environment = {
            "_AUTOTUNE_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
        done = CliRunner(env=environment).invoke(app, prog_name="autotune")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.stderr == ""
        return done.stdout.split()

    return ask


NAMES = sorted(path.name for path in STUDIES.iterdir() if (path / "events.jsonl").exists())


@pytest.mark.parametrize(
    "line",
    ["report ", "resume ", "status ", "diff ", "export ", "explain ", "run fleet.yaml --from "],
)
def test_studies_by_name(line: str, complete: Complete) -> None:
    assert complete(f"autotune {line}") == NAMES


def test_studies_of_another_directory(home: Path, complete: Complete) -> None:
    (home / "studies").rename(home / "others")
    assert complete("autotune report ") == []
    assert complete("autotune report --studies others ") == NAMES
    assert complete("autotune report --studies others impr") == ["improved"]


def test_trials_of_the_study_that_is_named(complete: Complete) -> None:
    first, second, *numbers = complete("autotune diff improved ")
    assert (first, second) == ("baseline", "best")
    assert numbers[:3] == ["0", "1", "2"]
    assert complete("autotune diff improved baseline ") == [first, second, *numbers]
    assert complete("autotune export improved --trial b") == ["baseline", "best"]
    assert complete("autotune diff nothing ") == []


def test_parameters_of_the_target_that_is_named(complete: Complete) -> None:
    everything = complete("autotune sweep fleet.yaml --over ")
    for name in (
        "lb.service", "lb.nginx.worker_connections", "lb.apache.ServerLimit",
        "web.php_fpm.max_children", "cache.memcached.threads", "web.sysctl.net.core.somaxconn",
    ):  # fmt: skip
        assert name in everything
    assert complete("autotune sweep fleet.yaml --set web.php_fpm.max_c") == [
        "web.php_fpm.max_children"
    ]
    assert complete("autotune sweep figure.yaml --over ") == everything
    assert complete("autotune sweep toy.yaml --over ") == ["mode", "threads"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("measure fleet.yaml --against ", ["baseline", "recommended", "advised", "published"]),
        ("measure fleet.yaml --tier ", ["cache"]),
        ("sweep fleet.yaml --hosts ", ["lb=", "web=", "cache=", "store="]),
        ("export improved --format ", list(EXPORT_FORMATS)),
        ("params mem", ["memcached"]),
        ("params ngi", ["nginx"]),
        ("init --example pap", ["paper", "paper-3x3"]),
        ("check f", ["figure.yaml", "fleet.yaml"]),
        ("check ", ["figure.yaml", "fleet.yaml", "more/", "studies/", "toy.yaml"]),
        ("restore im", ["improved"]),
        ("restore t", ["toy.yaml"]),
        ("lab up fl", ["fleet.yaml"]),
    ],
)
def test_other_names(line: str, offered: list[str], complete: Complete) -> None:
    assert complete(f"autotune {line}") == offered


def test_formats_are_those_that_are_written() -> None:
    assert EXPORT_FORMATS == WRITTEN


@pytest.mark.parametrize(
    "line",
    ["diff improved ", "export improved --trial ", "sweep fleet.yaml --over ", "check nowhere/x"],
)
def test_what_is_broken_offers_nothing(line: str, home: Path, complete: Complete) -> None:
    (home / "studies" / "improved" / "events.jsonl").write_bytes(b"\xff{no journal\n")
    (home / "fleet.yaml").write_bytes(b"\0\xfftiers: [")
    assert complete(f"autotune {line}") == []


@pytest.mark.parametrize("text", ["", "tiers: 5\n", "tiers: {lb: 5}\n", "tiers: {lb: {}}\n", "[]"])
def test_a_target_that_is_half_written_offers_nothing(
    text: str, home: Path, complete: Complete
) -> None:
    (home / "fleet.yaml").write_text(text)
    assert complete("autotune sweep fleet.yaml --over ") == []


@pytest.mark.parametrize(
    "line", ["report ", "diff improved ", "sweep fleet.yaml --over ", "params ", "init --example "]
)
def test_nothing_heavy_is_loaded(line: str, home: Path) -> None:
    code = (
        "import sys; sys.argv = ['autotune']\n"
        "from autotune.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {OURS!r} if name in sys.modules], file=sys.stderr)"
    )
    environment = {
        **os.environ,
        "_AUTOTUNE_COMPLETE": "complete_bash",
        "COMP_WORDS": f"autotune {line}",
        "COMP_CWORD": str(len(line.split(" "))),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", [
    "$(touch x)", "`touch x`", "a;touch x", "a b", "-rf", "a'b", "a*", "a\nb", "\x1b[2J", "a|b", "~root",
    "\u202ea",
])  # fmt: skip
def test_no_word_that_a_shell_would_expand_is_offered(
    name: str, home: Path, complete: Complete
) -> None:
    shutil.copytree(STUDIES / "killed", home / "studies" / name)
    shutil.copytree(STUDIES / "killed", home / "studies" / "caf\u00e9-2")
    offered = {*complete("autotune report ")}
    assert "caf\u00e9-2" in offered
    assert not offered - {"caf\u00e9-2"} - {path.name for path in STUDIES.iterdir()}


@pytest.fixture(params=DESCRIPTIONS)
def described(request: pytest.FixtureRequest, home: Path) -> str:
    """Write a target that describes a parameter with this text. Return what is shown of the text."""
    text = (TARGETS / "declared.yaml").read_text()
    described = re.sub(
        "(backlog:\n +meaning: ).*", lambda m: m[1] + json.dumps(request.param), text
    )
    assert described != text
    (home / "declared.yaml").write_text(described)
    return DESCRIPTIONS[request.param]


def ask_about_parameters(**environment: str) -> str:
    line = "autotune sweep declared.yaml --over web.lighttpd.backl"
    environment["_TYPER_COMPLETE_ARGS"] = line
    done = CliRunner(env=environment).invoke(app, prog_name="autotune")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


def test_no_description_contains_what_a_shell_evaluates(described: str) -> None:
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    offered = ask_about_parameters(_AUTOTUNE_COMPLETE="complete_fish", **action)
    assert offered.rstrip("\n") == f"web.lighttpd.backlog\t{described}"


@pytest.mark.stack
def test_zsh_runs_nothing_that_a_description_contains(described: str, home: Path) -> None:
    offered = ask_about_parameters(_AUTOTUNE_COMPLETE="complete_zsh")
    # As in zsh's own `_arguments`.
    shell = 'action=${1#*: :}; eval ws=\\( "${action[3,-3]}" \\); print -rn -- "$ws"'
    script = f"_arguments() {{ {shell}; }}; eval $(cat)"
    done = subprocess.run(
        ["zsh", "-f", "-c", script], input=offered, capture_output=True, text=True, check=True
    )
    shown = f"web.lighttpd.backlog:{described}".replace(
        "'", ""
    )  # Typer's quotes remove apostrophes
    assert done.stdout.split() == shown.split()
    assert not (home / "x").exists()
