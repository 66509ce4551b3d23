"""Documentation, docstrings and comments name only what is in the repository."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import pytest

from autotune.loads.base import LoadGenerator
from tests.sources import nodes

REPOSITORY = Path(__file__).parents[1]
FILE = re.compile(r"(?<![\w/.*<>{-])[\w./-]*\w\.(?:md|py)\b")
FOLDERS = ("", "autotune", "docs", "tests")
SUFFIXES = {".md", ".py", ".toml", ".yaml", ".j2", ".sh", ""}


@functools.cache
def list_tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return [Path(line) for line in listed.stdout.splitlines()]


@functools.cache
def prose(path: Path) -> tuple[str, ...]:
    """A document as a whole; of anything else its comments and docstrings."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    if path.suffix == ".md":
        return (text,)
    comments = re.findall(r"(?:^|\s)#(.*)", text)
    if path.suffix != ".py":
        return tuple(comments)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    owners = [node for node in nodes(REPOSITORY / path) if isinstance(node, documented)]
    return (*filter(None, map(ast.get_docstring, owners)), *comments)


def exists(name: str) -> bool:
    path = Path(name)
    if len(path.parts) == 1:
        return any(path.name == known.name for known in list_tracked_files())
    return any((REPOSITORY / folder / path).exists() for folder in FOLDERS)


@functools.cache
def places() -> list[Path]:
    return [
        path
        for path in list_tracked_files()
        if (
            path.suffix in SUFFIXES
            and path.parts[0] in {"autotune", "docs", "bench", "tests", "targets", "templates"}
            and "fixtures" not in path.parts
        )
        or path.suffix in {".md", ".toml"}
    ]


def test_every_file_that_is_named_is_there() -> None:
    named = {
        (str(path), name)
        for path in places()
        for text in prose(path)
        for name in FILE.findall(text)
        if not name.startswith(("./", "/"))
    }
    assert len(named) > 30
    assert [f"{path}: {name}" for path, name in sorted(named) if not exists(name)] == []


@pytest.mark.parametrize("word", ["REFERENCE", "SEARCH", "MEASUREMENT", "DESIGN"])
def test_no_document_of_ours_is_cited_that_users_do_not_have(word: str) -> None:
    cited = re.compile(rf"\b{word}\b(?!_)(?:\.md| [A-E]\b|:)")
    assert [str(p) for p in places() if any(cited.search(text) for text in prose(p))] == []


def test_the_table_of_packages_has_them_all() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \|", text, flags=re.MULTILINE)
    packages = (REPOSITORY / "autotune").glob("*/__init__.py")
    assert sorted(rows) == sorted(path.parent.name for path in packages)


def test_the_methods_of_a_load_generator_are_called_what_they_are() -> None:
    text = (REPOSITORY / "docs" / "adding-a-generator.md").read_text(encoding="utf-8")
    methods = re.findall(r"^- `(\w+)`", text, flags=re.MULTILINE)
    assert methods
    assert [name for name in methods if not hasattr(LoadGenerator, name)] == []
