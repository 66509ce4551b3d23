"""Marks of tests that need more than Python, and the modules that contain such tests."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

NEEDS_PACKAGES = ("stack", "lab", "browser", "built", "containers", "long", "soak", "quiet")
_MARK_PATTERN = re.compile(rf"\bmark\.(?:{'|'.join(NEEDS_PACKAGES)})\b")


@functools.cache
def names_mark(module: Path) -> bool:
    """True if a module's text contains one of the marks."""
    return _MARK_PATTERN.search(module.read_text(encoding="utf-8")) is not None


@functools.cache
def excludes_unmarked(expression: str) -> bool:
    """True if an expression of ``-m`` selects no test without marks."""
    try:
        return bool(expression) and not Expression.compile(expression).evaluate(_has_none)
    except SyntaxError:  # pytest explains it
        return False


def _has_none(name: str, /, **options: object) -> bool:
    return False


def require_named_marks(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError if a test has a mark that is not written in its module.

    Otherwise, stages of marked tests would leave it out without a message.
    """
    for item in items:
        if not names_mark(item.path) and any(
            mark.name in NEEDS_PACKAGES for mark in item.iter_markers()
        ):
            raise pytest.UsageError(f"write the marks of {item.nodeid} in its module")
