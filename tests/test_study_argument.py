"""How printed commands name a study: as briefly as possible, but so that a paste of the command works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from autotune.study.directory import find_study
from autotune.study_argument import format_studies_option, format_study_argument

# directory as the user gave it, and the expected words
PLACES = (
    ("studies/paper", "paper"),
    ("./studies/paper", "paper"),
    ("{home}/studies/paper", "paper"),
    ("elsewhere/../studies/paper", "paper"),
    ("studies/two words", "'two words'"),
    ("elsewhere/paper", "paper --studies elsewhere"),
    ("./elsewhere/paper", "paper --studies elsewhere"),
    ("studies/old/paper", "paper --studies studies/old"),
    ("my studies/paper", "paper --studies 'my studies'"),
    ("it's/paper", "paper --studies 'it'\"'\"'s'"),
    ("{home}/elsewhere/paper", "paper --studies {home}/elsewhere"),
    ("paper", "paper --studies ."),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the user works."""
    home = tmp_path.resolve()
    monkeypatch.chdir(home)
    return home


def create(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "events.jsonl").touch()


@pytest.mark.parametrize(("given", "words"), PLACES)
def test_a_study_outside_the_default_directory_has_the_option(
    given: str, words: str, home: Path
) -> None:
    directory = Path(given.format(home=home))
    assert format_study_argument(directory) == words.format(home=home)


@pytest.mark.parametrize("given", [given for given, _ in PLACES])
def test_the_words_find_the_study_again(given: str, home: Path) -> None:
    (home / "elsewhere").mkdir()
    directory = Path(given.format(home=home))
    create(directory)
    found = find_study(str(directory))
    name, *option = shlex.split(format_study_argument(found))
    root = Path(option[1]) if option else Path("studies")
    assert option[:1] in ([], ["--studies"])
    assert find_study(name, root).samefile(directory)


# from where, the name as typed, and the expected words
TYPED = (
    (".", "studies/paper", "paper"),
    (".", "paper", "paper"),
    ("studies/paper", ".", "paper --studies .."),
    ("studies/paper/configs", "..", "paper --studies ../.."),
    (".", "linked", "paper --studies {home}/archive"),
)


@pytest.mark.parametrize(("cwd", "typed", "words"), TYPED)
def test_a_study_is_named_as_it_was_typed(
    cwd: str, typed: str, words: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(home / "studies" / "paper")
    create(home / "archive" / "paper")
    (home / "studies" / "paper" / "configs").mkdir()
    (home / "linked").symlink_to(home / "archive" / "paper")
    monkeypatch.chdir(home / cwd)
    found = find_study(typed)
    assert found.name == "paper"
    assert format_study_argument(found) == words.format(home=home)
    printed = shlex.split(words.format(home=home))
    root = Path(printed[2]) if len(printed) > 1 else Path("studies")
    assert find_study(printed[0], root).samefile(found)


@pytest.mark.parametrize(
    ("studies", "option"),
    [("studies", ""), ("./studies", ""), ("a b", " --studies 'a b'"), (".", " --studies .")],
)
def test_the_option_alone(studies: str, option: str) -> None:
    assert format_studies_option(Path(studies)) == option


def test_a_shared_study_is_named_in_its_database(home: Path) -> None:
    directory = Path("elsewhere/shop")
    create(directory)
    shared = format_study_argument(directory, is_shared=True)
    assert shared == "shop --storage URL --studies elsewhere"
    (directory / "workers.json").write_text("[]")
    assert format_study_argument(directory) == "shop --storage URL"
