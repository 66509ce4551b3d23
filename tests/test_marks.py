from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.marks import excludes_unmarked, names_mark, require_named_marks


@pytest.mark.parametrize(
    ("expression", "is_excluding"),
    [
        ("", False),
        ("not lab and not soak", False),
        ("lab or not soak", False),
        ("(long or lab) and not soak", True),
        ("soak and not built", True),
        ("lab and (", False),
    ],
)
def test_only_expressions_that_need_a_mark_leave_modules_out(
    expression: str, is_excluding: bool
) -> None:
    assert excludes_unmarked(expression) is is_excluding


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("@pytest.mark.lab\n", True),
        ("pytestmark = [pytest.mark.timeout(9), pytest.mark.soak]\n", True),
        ("@pytest.mark.timeout(9)\n", False),
        ("@pytest.mark.laboratory\n", False),
    ],
)
def test_a_module_names_a_mark(text: str, is_named: bool, tmp_path: Path) -> None:
    module = tmp_path / "test_it.py"
    module.write_text(text)
    assert names_mark(module) is is_named


def test_marks_from_elsewhere_are_refused(tmp_path: Path) -> None:
    module = tmp_path / "test_it.py"
    module.write_text("from others import mine\n")
    item: Any = SimpleNamespace(
        path=module, nodeid="test_it", iter_markers=lambda: [pytest.mark.lab]
    )
    with pytest.raises(pytest.UsageError, match="write the marks of test_it in its module"):
        require_named_marks([item])
