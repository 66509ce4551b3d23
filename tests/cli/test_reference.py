"""Every command and option is documented, and the documentation is about nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotune.cli.help import GROUPS
from scripts.cli_reference import FILE, MANUAL, commands, manual, text

DOCS = FILE.parent
REFERENCE = text()


def test_the_reference_is_what_help_says() -> None:
    assert FILE.read_text() == REFERENCE, "run python -m scripts.cli_reference"


def test_the_man_page_is_what_help_says() -> None:
    assert MANUAL.read_text() == manual(), "run python -m scripts.cli_reference"
    for words in commands():
        assert f".SH AUTOTUNE {' '.join(words).upper()}\n" in MANUAL.read_text()


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


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_commands_that_are_named_exist(page: Path) -> None:
    known = {words[0] for words in commands()}
    for name in re.findall(r"`autotune ([a-z]+)", page.read_text()):
        assert name in known, f"{page.name}: autotune {name}"
