"""The pages for developers name only modules, classes, members and functions that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from autotune.deploy.runtime import LockedHosts, Runtime, RuntimeHost
from autotune.loads.base import LoadGenerator
from autotune.services.base import Parameter, Service

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md",
         *sorted((ROOT / "docs").glob("adding-a-*.md"))]  # fmt: skip
NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\([^`]*\))?")
# Names of other software, and examples.
FOREIGN = {"BaseSampler", "None", "mod_php", "mpm_event", "fs.inotify.max_user_instances",
           "lb.nginx.worker_connections", "tier.NAME.parameter"}  # fmt: skip
FOLDERS = ("", "autotune", "autotune/services", "autotune/transports", "autotune/environments",
           "autotune/services/haproxy")  # fmt: skip
# Tables and sentences with members of a class: page, where they are, the class.
MEMBERS = [
    ("adding-a-service", r"^\| (`(?:name|deployment|packages|needs|config_paths)`.*?) \|", Service),
    ("adding-a-service", r"^\| (`(?:build_|unit_name|list_readbacks|forgets_on_restart).*?) \|", Service),
    ("adding-a-service", r"^\| (`(?:meaning|stock|low|recommended|when|derive)`.*?) \|", Parameter),
    ("adding-a-runtime", r"^\| (`(?!systemd|containers|embedded)[a-z_]+`[^|]*?) \| [^|]*\|$", Runtime),
    ("adding-a-runtime", r"^\d\. \*\*(`(?:layout|create_hosts)[^`]*`)", Runtime),
    ("adding-a-runtime", r"returns `LockedHosts`. autotune calls its (`lock`.*`unlock`)", LockedHosts),
    ("adding-a-runtime", r"^(`back_up`.*?) and others", RuntimeHost),
    ("adding-a-generator", r"^- (`\w+`)", LoadGenerator),
]  # fmt: skip


def find_code_words(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


@cache
def list_definitions() -> tuple[set[str], dict[str, set[str]]]:
    """Every name that the package defines or a call passes, and the members of its classes."""
    names, members = set[str](), defaultdict[str, set[str]](set)
    for path in (ROOT / "autotune").rglob("*.py"):
        names |= {*path.relative_to(ROOT).with_suffix("").parts}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {*names_of(node)}
            if isinstance(node, ast.ClassDef):
                members[node.name] |= {name for inner in node.body for name in names_of(inner)}
    return names, members


def names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def is_defined(name: str) -> bool:
    names, members = list_definitions()
    first, *others = name.split(".")
    if first in members and others:
        return others[0] in members[first]
    return {first, *others} <= names


def markers() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {line.partition(":")[0] for line in settings["tool"]["pytest"]["ini_options"]["markers"]}


def is_path(text: str) -> bool:
    return re.fullmatch(r"[\w./-]+(?:\.(?:py|md|toml|png|svg)|/)", text) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_in_backticks_exist(page: Path) -> None:
    known = FOREIGN | markers()
    names = [match[1] for text in find_code_words(page.read_text()) if not is_path(text)
             for match in [NAME.fullmatch(text)] if match]  # fmt: skip
    assert len(names) > 10
    assert [name for name in names if not is_defined(name) and name not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_in_backticks_exist(page: Path) -> None:
    paths = [text for text in find_code_words(page.read_text()) if is_path(text)]
    assert len(paths) > 3
    made = ("build/", "/etc/")  # by a command, on a host
    assert [path for path in paths if not path.startswith(made)
            and not any((ROOT / folder / path).exists() for folder in FOLDERS)] == []  # fmt: skip


@pytest.mark.parametrize(("page", "pattern", "owner"), MEMBERS)
def test_members_belong_to_their_class(page: str, pattern: str, owner: type) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    names = [
        name.partition("(")[0]
        for row in re.findall(pattern, text, re.M)
        for name in find_code_words(row)
    ]
    assert names
    known = {
        *dir(owner),
        *(key for base in owner.__mro__ for key in getattr(base, "__annotations__", {})),
    }
    assert [name for name in names if name not in known] == []
