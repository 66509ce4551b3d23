"""The page of error messages and their hints, which are collected from the code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.prose.python_texts import PLACEHOLDER, shown
from scripts.prose.surfaces import ROOT
from scripts.reference.markdown import page, section, table

PATH = Path("docs") / "troubleshooting.md"
HEAD = """\
An error message describes a failure, and its hint shows what to do. On this page, words in capital
letters replace names and numbers in your message, and `…` replaces other text. Search this page for
a part of your message without names and numbers.

`autotune check TARGET` finds most of these errors without changing a host."""
AREAS = {
    "cli": "Command line",
    "target": "Target file",
    "space": "Parameters and constraints",
    "services": "Services",
    "discovery": "Reading hosts",
    "transports": "Reaching hosts",
    "deploy": "Changing hosts",
    "runtimes": "Changing hosts",
    "loads": "Load",
    "environments": "Checks before a study",
    "measure": "Measuring",
    "optimize": "Search",
    "study": "Studies",
    "report": "Reports",
    "export": "Exports",
    "sweep": "Sweeps",
    "lab": "Labs",
}
OTHER = "Files and plug-ins"
_NAME = re.compile(r"(\w+)(?:\(\))?$")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*$")


def pages() -> Mapping[Path, str]:
    """Return the content of the page by its path in a checkout."""
    rows: dict[str, dict[tuple[str, str], None]] = {title: {} for title in AREAS.values()}
    package = ROOT / "autotune"
    trees = {
        path.relative_to(package): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(package.rglob("*.py"))
    }
    constants = {constant for tree in trees.values() for constant in _constants(tree)}
    counts = Counter(name for name, _ in constants)
    values = {name: value for name, value in constants if counts[name] == 1}
    for path, tree in trees.items():
        area = rows.setdefault(AREAS.get(path.parts[0], OTHER), {})
        area |= dict.fromkeys(errors_with_hints(tree, values))
    sections = [section(title, table(("Message", "What to do"), entries))
                for title, entries in rows.items()]  # fmt: skip
    return {PATH: page("Troubleshooting", HEAD, *sections)}


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each constant of a module that is a literal."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)) if (
                _CONSTANT.match(name)
            ):
                yield name, str(value)


def errors_with_hints(tree: ast.AST, constants: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the message and the hint of each error whose texts are literal strings. ``constants`` maps
    the names of constants to their values.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        hint = next((keyword.value for keyword in node.keywords if keyword.arg == "hint"), None)
        texts = [text for argument in node.args if (text := shown(argument)) is not None]
        if hint is not None and texts and (advice := shown(hint)):
            yield _with_names(texts[0], constants), _with_names(advice, constants)


def _with_names(text: str, constants: Mapping[str, str]) -> str:
    """Return a text with its placeholders as words: `{host.name}` becomes NAME, and
    `{study.argument}` becomes STUDY. Constants are replaced by their values.
    """

    def word(match: re.Match[str]) -> str:
        return constants.get(match[0][1:-1].rpartition(".")[2]) or _word(match)

    return re.sub("…+", "…", PLACEHOLDER.sub(word, text))


def _word(match: re.Match[str]) -> str:
    before = match.string[: match.start()]
    if before.endswith("}") or before[-1:].isalpha():
        return "…"  # an optional addition to the word before it, such as a reason
    if re.search("(study|resume)[a-z_.]*argument", match[0]):
        return "STUDY"
    name = _NAME.search(match[0][1:-1])
    return name[1].strip("_").upper() if name and "…" not in match[0] else "…"
