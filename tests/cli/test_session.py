from __future__ import annotations

import io
import sys

import pytest

from autotune.cli.session import confirm
from autotune.errors import AutotuneError


def test_nobody_to_ask_is_a_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(AutotuneError, match="without confirmation") as caught:
        confirm("Load goes to lb1.", yes=False)
    assert caught.value.hint == "pass --yes"
    assert capsys.readouterr().err == "Load goes to lb1.\n"


def test_yes_is_given_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    confirm("Load goes to \x1b[2Jlb1.", yes=True)
    assert capsys.readouterr().err == "Load goes to lb1.\n"
