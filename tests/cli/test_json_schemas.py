"""What `autotune schema` publishes is what commands print; longer runs are held to it where they are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from typer.testing import CliRunner

from autotune.cli import app
from autotune.cli.completion import SCHEMA_NAMES
from autotune.cli.json_schemas import OUTPUT_OBJECTS
from autotune.target.schema import build_schema
from scripts.cli_reference import REPOSITORY, commands, help_of
from tests.printed import printed

STUDIES = REPOSITORY / "tests" / "report" / "studies"
PAPER = str(REPOSITORY / "targets" / "paper.yaml")


def autotune(*words: str) -> str:
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def cases() -> Iterator[tuple[str, list[str]]]:
    for directory in sorted(STUDIES.iterdir()):
        for rates in ([], ["--at", "800/s", "--at", "90000/s"]):
            yield "study", ["report", directory.name, "--studies", str(STUDIES), *rates]
    yield "status", ["status", "--studies", str(STUDIES)]
    yield "check", ["check", PAPER]
    yield "plan", ["plan", PAPER]
    yield "plan", ["plan", str(REPOSITORY / "targets" / "command.yaml")]
    yield "parameters", ["params"]


@pytest.mark.parametrize(("name", "words"), [*cases()])
def test_what_is_printed_is_as_its_schema_says(name: str, words: list[str]) -> None:
    assert printed(name, autotune(*words, "--json"))


def test_a_workload_is_as_its_schema_says(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_text('1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-"\n')
    words = ("workload", "from-log", str(log), "--out", str(tmp_path / "visits.yaml"), "--json")
    assert printed("workload", autotune(*words))["pages"] == 1


def test_every_command_with_json_has_a_schema() -> None:
    named = " ".join(about for _, about in OUTPUT_OBJECTS.values())
    having_json = [words for words in commands() if "\n  --json " in help_of(words)]
    assert len(having_json) > 10
    assert [words for words in having_json if not re.search(rf"\b{words[-1]}\b", named)] == []


def test_every_schema_is_held_against_what_a_command_printed() -> None:
    """Somewhere in the tests; a name that none of them uses is published on trust alone."""
    tests = "".join(path.read_text() for path in (REPOSITORY / "tests").rglob("*.py"))
    used = {*re.findall(r'printed\(\s*"(\w+)"', tests), *(name for name, _ in cases())}
    assert {*OUTPUT_OBJECTS} - used == set()


@pytest.mark.parametrize("name", OUTPUT_OBJECTS)
def test_a_published_schema_is_one_and_allows_what_may_be_added(name: str) -> None:
    published = json.loads(autotune("schema", name))
    Draft202012Validator.check_schema(published)
    assert "additionalProperties" not in published


def test_what_is_otherwise_than_its_schema_says_is_found() -> None:
    status = json.loads(autotune("status", "--studies", str(STUDIES), "--json"))
    for change in ({"added": 1}, {"verdict": 5}, {"state": "asleep"}):
        altered = {**status, "studies": [{**status["studies"][0], **change}]}
        with pytest.raises(ValidationError):
            printed("status", json.dumps(altered))


def test_names_are_listed_with_their_commands() -> None:
    names = [*OUTPUT_OBJECTS, "target"]
    assert tuple(names) == SCHEMA_NAMES
    assert [line.split()[0] for line in autotune("schema").splitlines()] == names


def test_the_schema_of_targets_is_printed_too() -> None:
    assert json.loads(autotune("schema", "target")) == build_schema()
