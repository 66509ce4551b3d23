"""The texts of the project by surface, and the rules that their sentences break."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from pydantic import BaseModel
from typer.main import get_command

from autotune import target
from autotune.cli import app
from scripts.prose import page_texts, python_texts, rules
from scripts.prose.python_texts import Text

ROOT = Path(__file__).parents[2]
SURFACES = ("README", "docs", "SECURITY", "CONTRIBUTING", "CHANGELOG", "templates", "help", "messages",
            "errors", "docstrings", "comments")  # fmt: skip
# Pages that contain only the output of commands.
PRINTED = ("cli.md",)
_PARAGRAPH = re.compile(r"\n\s*\n|\n\s*(?=[-*] |\d\. )")
# Allowed first words in the help of commands.
_IMPERATIVES = re.compile(
    "Add|Apply|Check|Compare|Continue|Convert|Create|Diff|Explain|Export|Join|List|Measure|Open|Print|Read"
    "|Remove|Report|Restore|Run|Set|Show|Start|Sweep|Try|Tune|Validate|Write"
)


@dataclass(frozen=True)
class Flag:
    """A sentence that breaks rules, and its place."""

    surface: str
    path: str
    line: int
    sentence: str
    rules: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{', '.join(self.rules)}] {self.sentence}"


def _callbacks() -> Iterator[tuple[str, str]]:
    """Yield the file and the function name of each command and command group."""
    commands = [get_command(app)]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        function = getattr(command.callback, "__wrapped__", command.callback)
        if function is not None:
            yield Path(function.__code__.co_filename).as_posix(), function.__name__


def _models() -> frozenset[str]:
    """Return the names of the target's models, whose docstrings are in the schema and the reference."""
    modules = [import_module(f"{target.__name__}.{module.name}")
               for module in iter_modules(target.__path__)]  # fmt: skip
    return frozenset(name for module in modules for name, value in vars(module).items()
                     if isinstance(value, type) and issubclass(value, BaseModel))  # fmt: skip


@cache
def texts_of_code(root: Path = ROOT) -> tuple[Text, ...]:
    """Return all texts of the modules in ``autotune``."""
    commands = list(_callbacks())
    models = _models()
    texts: list[Text] = []
    for path in sorted((root / "autotune").rglob("*.py")):
        names = [name for file, name in commands if file == path.as_posix()]
        of_target = models if path.parent.name == "target" else ()
        texts += python_texts.read(path, root, names, of_target)
    return tuple(texts)


def _pages(root: Path) -> Iterator[tuple[str, Path]]:
    for name in ("README", "SECURITY", "CONTRIBUTING", "CHANGELOG"):
        yield name, root / f"{name}.md"
    for path in sorted((root / "docs").rglob("*.md")):
        if path.name not in PRINTED:
            yield "docs", path


def blocks_of_templates(root: Path = ROOT) -> Iterator[tuple[str, page_texts.Block]]:
    """Yield each block in the templates of the report and the exports, with the template's path."""
    for path in sorted((root / "templates").rglob("*.*")):
        if path.parent.name in ("report", "export") and path.suffix in (".j2", ".js"):
            for block in page_texts.template(path.name, path.read_text(encoding="utf-8")):
                yield path.relative_to(root).as_posix(), block


def sentences(root: Path = ROOT) -> Iterator[tuple[str, str, int, str]]:
    """Yield the surface, file and line of every sentence that people read, and the sentence."""
    for surface, path in _pages(root):
        for block in page_texts.markdown(path.read_text(encoding="utf-8")):
            for sentence in rules.sentences(rules.plain(block.text)):
                yield surface, path.relative_to(root).as_posix(), block.line, sentence
    for name, block in blocks_of_templates(root):
        for sentence in rules.sentences(rules.plain(block.text)):
            yield "templates", name, block.line, sentence
    for text in texts_of_code(root):
        for paragraph in _PARAGRAPH.split(text.text):
            for sentence in rules.sentences(rules.plain(paragraph)):
                yield text.surface, text.path, text.line, sentence


def flags(root: Path = ROOT) -> Iterator[Flag]:
    """Yield every sentence, paragraph and command that breaks a rule."""
    for surface, path, line, sentence in sentences(root):
        if broken := rules.broken(surface, sentence):
            yield Flag(surface, path, line, sentence, broken)
    for surface, path in _pages(root):
        if surface in rules.PAGES:
            for block in page_texts.markdown(path.read_text(encoding="utf-8")):
                text = rules.plain(block.text)
                if broken := rules.broken_by_block(text, is_item=block.is_item):
                    name = path.relative_to(root).as_posix()
                    yield Flag(surface, name, block.line, f"{text[:60]} …", broken)
    yield from _commands_without_verb()


def _commands_without_verb() -> Iterator[Flag]:
    left = [("autotune", get_command(app))]
    while left:
        name, command = left.pop()
        left += [(f"{name} {key}", each) for key, each in getattr(command, "commands", {}).items()]
        text = (command.help or "").strip().split("\n")[0]
        if not _IMPERATIVES.fullmatch(text.split(" ")[0]):
            yield Flag("help", "autotune/cli/__init__.py", 1, f"`{name}`: {text}", ("imperative",))


def counts(root: Path = ROOT) -> Counter[tuple[str, str]]:
    """Return the number of flags by surface and file."""
    return Counter((flag.surface, flag.path) for flag in flags(root))
