"""Every command and option is documented, and the documentation is about nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from autotune.cli import app
from autotune.cli.help import GROUPS
from scripts import parameter_reference, reference_results
from scripts.cli_reference import FILE, MANUAL, REPOSITORY, commands, manual, text

DOCS = FILE.parent
SWEEPS = REPOSITORY / "targets" / "sweeps"
REFERENCE = text()


def test_the_reference_is_what_help_says() -> None:
    assert FILE.read_text() == REFERENCE, "run python -m scripts.cli_reference"


def test_the_man_page_is_what_help_says() -> None:
    assert MANUAL.read_text() == manual(), "run python -m scripts.cli_reference"
    for words in commands():
        assert f".SH AUTOTUNE {' '.join(words).upper()}\n" in MANUAL.read_text()


def test_the_page_of_parameters_is_the_catalogue() -> None:
    page = parameter_reference.FILE.read_text()
    assert page == parameter_reference.text(), "run python -m scripts.parameter_reference"


def test_the_page_of_reference_figures_is_what_was_recorded() -> None:
    page = reference_results.FILE.read_text()
    assert page == reference_results.text(), "run python -m scripts.reference_results"
    for name in reference_results.notes()["figures"]:
        assert (SWEEPS / f"lab-{name}.yaml").exists()


def test_help_has_every_command_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted({words[0] for words in commands()})


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_option_says_what_it_is_for(words: list[str]) -> None:
    section = REFERENCE.split(f"## `autotune {' '.join(words)}`\n")[1].split("\n## ")[0]
    options = re.findall(r"^  (-\S.*)$", section, re.M)
    assert options
    lines = section.splitlines()
    for option in options:
        following = lines[lines.index(f"  {option}") + 1]
        assert re.search(r"\S  +\S", option) or following.startswith("     "), option


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = re.findall(r"[\w-]+\.md", (REPOSITORY / "mkdocs.yml").read_text().split("nav:")[1])
    assert sorted(navigation) == sorted(page.name for page in DOCS.glob("*.md"))


def shell_lines() -> list[str]:
    """Commands in blocks of shell in README.md and docs, without comments."""
    pages = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
    blocks = [
        block for page in pages for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S)
    ]
    lines = [re.sub(r"\s#.*", "", line) for block in blocks for line in block.splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"&&|\|", line)]
    return sorted({part for part in parts if re.match(r"(sudo )?autotune ", part)})


@pytest.mark.parametrize("line", shell_lines())
def test_every_command_in_a_block_of_shell_is_one_that_can_be_typed(line: str) -> None:
    """Its options are there, and its arguments are as many as it takes; nothing is run."""
    words = shlex.split(line.removeprefix("sudo "))[1:]
    command = get_command(app)
    while isinstance(getattr(command, "commands", None), dict):
        if words[0].startswith("-"):
            return  # an option of autotune itself
        command = command.commands[words.pop(0)]
    assert command.make_context(command.name, words).params


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_commands_that_are_named_exist(page: Path) -> None:
    known = {words[0] for words in commands()}
    for name in re.findall(r"`autotune ([a-z]+)", page.read_text()):
        assert name in known, f"{page.name}: autotune {name}"
