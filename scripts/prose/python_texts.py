"""Texts in a Python file: docstrings, comments, help, errors and messages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

PLACEHOLDER = re.compile(r"\{[^{}]*\}")
# Strings for programs: shell commands, SQL, markup and regular expressions.
_CODE = re.compile(
    r"\$[\w({\"@*#]|</|<\?|<<|\\[\\dwsbB.(\[|]|\(\?[:!=<P]|\b(?:SELECT|INSERT INTO|CREATE|COPY|GRANT)\b"
    r"|;\s*(?:do|then|done|fi)\b|^\s*#!|\[\^|\]\+|\bexec \"|function\s*\(|^\s*local \w+,|=>|%[sd]\b"
    r"|;\s*\n|&& \{|; :$|\w=\d+;|^[a-z]+; "
)
_TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,:;]? [a-z]{2,}")
_WORD = re.compile(r"[A-Za-z]{3,}")
_ERROR = re.compile(r"(?:Error|Unusable|Refused|Infeasible|Unreadable|error|finding|at|unknown)$")
_PRAGMA = re.compile(r"#\s*(?:fmt|type|noqa|mypy|ruff|pragma)\b|#!")
WIDEST = 32  # maximum length of an expression that is shown; longer expressions are shown as `…`


@dataclass(frozen=True)
class Text:
    """A text that people read, and its place. ``surface`` is the kind of text, such as ``errors``."""

    surface: str
    path: str
    line: int
    text: str


def texts(
    path: str, source: str, commands: Collection[str] = (), models: Collection[str] = ()
) -> Iterator[Text]:
    """Yield every text of a module, in the order of its lines.

    Docstrings of the functions ``commands`` are texts of help; docstrings of the classes ``models``
    are messages.
    """
    tree = ast.parse(source)
    walk = _Strings(commands, models)
    walk.visit(tree)
    found = [Text(surface, path, line, text) for surface, line, text in walk.texts]
    found += [Text("comments", path, line, text) for line, text in comments(source)]
    return iter(sorted(found, key=lambda text: text.line))


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module. Comments on consecutive lines are one text."""
    first, block, last = 0, "", 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _PRAGMA.match(token.string):
            continue
        text = token.string.lstrip("#: ").split("  #")[0]
        is_whole_line = not token.line[: token.start[1]].strip()
        if block and is_whole_line and token.start[0] == last + 1:
            block = f"{block} {text}"
        else:
            if block:
                yield first, block
            first, block = token.start[0], text
        last = token.start[0] if is_whole_line else -1
    if block:
        yield first, block


def shown(node: ast.expr) -> str | None:
    """Return the text of a string, with `{name}` for values in f-strings; None if not a string."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(
                part.value if isinstance(part, ast.Constant) else _expression(part)
                for part in values
                if isinstance(part, ast.Constant | ast.FormattedValue)
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = shown(left), shown(right)
            if parts == (None, None):
                return None
            return "".join("{…}" if part is None else part for part in parts)
    return None


def _expression(part: ast.FormattedValue) -> str:
    match part.value:
        case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant()), args=[joined]):
            source = ast.unparse(joined)
        case ast.Call(func=ast.Name(id="plural"), args=[_, ast.Constant(value=str(noun)), *_]):
            source = f"N {noun}s"
        case value:
            source = ast.unparse(value)
    return f"{{{source}}}" if len(source) <= WIDEST and not set("'{}") & set(source) else "{…}"


class _Strings(ast.NodeVisitor):
    """A visitor that collects the strings of a module. Their positions determine their surfaces."""

    def __init__(self, commands: Collection[str], models: Collection[str]) -> None:
        self.texts: list[tuple[str, int, str]] = []
        self._commands, self._models = commands, models
        self._surface = "messages"
        self._documented = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._define(node, "help" if node.name in self._commands else "docstrings")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._define(node, "messages" if node.name in self._models else "docstrings")

    def _define(self, node: ast.FunctionDef | ast.ClassDef, surface: str) -> None:
        before, self._documented = self._documented, surface
        self.generic_visit(node)
        self._documented = before

    def visit_Expr(self, node: ast.Expr) -> None:
        """Collect docstrings of modules, classes, functions and attributes."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            surface = self._documented or "docstrings"
            self.texts.append((surface, node.lineno, node.value.value))
        else:
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._within("errors", node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip the messages of assertions, because only programmers see them."""

    def visit_keyword(self, node: ast.keyword) -> None:
        surface = {"help": "help", "hint": "errors"}.get(node.arg or "", self._surface)
        self._within(surface, node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Skip annotations except `Annotated`, which can contain the help of an option."""
        self._options(node.annotation)
        if node.value:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation:
            self._options(node.annotation)

    def _options(self, annotation: ast.expr) -> None:
        for call in ast.walk(annotation):
            if isinstance(call, ast.Call):
                for keyword in call.keywords:
                    if keyword.arg == "help":
                        self.visit(keyword)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name.startswith(("re.", "ast.")) or name == "cast":
            return
        if _ERROR.search(name) and self._surface != "help":
            self._within("errors", node)
        else:
            self.generic_visit(node)

    def _within(self, surface: str, node: ast.AST) -> None:
        before, self._surface = self._surface, surface
        self.generic_visit(node)
        self._surface = before

    def visit_Constant(self, node: ast.Constant) -> None:
        self._add(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._add(node)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if shown(node) is None:
            self.generic_visit(node)
        else:
            self._add(node)

    def _add(self, node: ast.expr) -> None:
        text = shown(node)
        if text is None or _CODE.search(text):
            return
        plain = PLACEHOLDER.sub("", text)
        enough = _TWO_WORDS if self._surface == "messages" else _WORD
        if enough.search(plain) and (" " in text.strip() or self._surface == "help"):
            self.texts.append((self._surface, node.lineno, text))


def read(path: Path, root: Path, commands: Collection[str], models: Collection[str]) -> list[Text]:
    """Return the texts of a file below ``root``."""
    place = path.relative_to(root).as_posix()
    return list(texts(place, path.read_text(encoding="utf-8"), commands, models))
