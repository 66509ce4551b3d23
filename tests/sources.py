"""The syntax trees of the project's Python files, parsed only once for all tests."""

from __future__ import annotations

import ast
import functools
import tokenize
from pathlib import Path

_NO_CODE = {
    tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE,
    tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, starting with the module itself."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def code_lines(path: Path) -> frozenset[int]:
    """Return the lines with code in a Python file, without blank lines, comments and docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        line
        for node in nodes(path)
        if isinstance(node, owners) and ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in _NO_CODE]
    lines = {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}
    return frozenset(lines - docstrings)


def count_statements(path: Path) -> int:
    """Return the number of statements except docstrings; their formatting does not matter."""
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in nodes(path))


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def function_lengths(path: Path) -> dict[str, int]:
    """Return the number of lines of code in each function, by the function's name and first line."""
    functions = (node for node in nodes(path) if isinstance(node, ast.FunctionDef))
    return {
        f"{node.name}:{node.lineno}": len(
            code_lines(path) & {*range(node.lineno, (node.end_lineno or 0) + 1)}
        )
        for node in functions
    }
