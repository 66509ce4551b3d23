"""`tests/messages.txt` lists what users can read, so a change of wording is a diff."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from scripts import user_messages
from scripts.prose.python_texts import texts
from tests import sources

CALL_PATTERN = re.compile(r"\{\w[\w.]*\([^{}]*\)\}")

MODULE = '''
"""Not for users."""
import re
PATTERN = re.compile(r"no message at all")
SHELL = "systemctl show -P MainPID -- $1"


def deploy(host, why):
    """Also not for users."""
    assert host, "a bug of a programmer"
    print(f"deployed to {host.name} " + why + " and checked")
    raise AutotuneError(f"{host} refused", hint="see its log")
'''


def test_the_list_is_up_to_date() -> None:
    listed = user_messages.FILE.read_text(encoding="utf-8")
    assert listed == user_messages.text(), "run python -m scripts.user_messages"


def test_messages_errors_and_hints_are_read_from_the_code() -> None:
    shown = [(text.surface, text.text) for text in texts("m.py", MODULE)
             if text.surface in user_messages.SHOWN]  # fmt: skip
    assert shown == [
        ("messages", "deployed to {host.name} {…} and checked"),
        ("errors", "{host} refused"),
        ("errors", "see its log"),
    ]


def test_no_text_contains_a_call_that_should_have_been_formatted() -> None:
    unformatted = []
    for path in sorted((Path(__file__).parents[1] / "autotune").rglob("*.py")):
        nodes = sources.nodes(path)
        formatted = {id(part) for node in nodes if isinstance(node, ast.JoinedStr)
                     for part in ast.walk(node)}  # fmt: skip
        unformatted += [
            f"{path.name}:{node.lineno}: {node.value}"
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in formatted
            and CALL_PATTERN.search(node.value)
        ]
    assert unformatted == []
