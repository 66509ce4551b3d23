"""Paths with `~` are expanded, and unknown accounts are no reason for a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.home_directory import expand_home


@pytest.mark.parametrize(
    ("written", "expanded"),
    [
        ("~/.ssh/config", "/home/sre/.ssh/config"),
        ("/etc/ssh", "/etc/ssh"),
        ("keys/~me", "keys/~me"),
        ("~nobody-here/x", "~nobody-here/x"),
    ],
)
def test_a_path_is_expanded_or_stays(
    monkeypatch: pytest.MonkeyPatch, written: str, expanded: str
) -> None:
    monkeypatch.setenv("HOME", "/home/sre")
    assert expand_home(written) == Path(expanded)
