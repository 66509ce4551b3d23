"""Mistakes as data: what users type, and whether they are told what, where and how to mend it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from autotune import errors, outcome
from autotune.cli import app

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "targets" / "paper.yaml").read_text()
MISTAKES = YAML(typ="safe").load((Path(__file__).parent / "mistakes.yaml").read_text())
BAR = 0.9
ENDINGS = (errors.OPERATIONAL, errors.USAGE, errors.INVALID_TARGET)


def where(mistake: dict[str, str], text: str) -> str:
    """The place that the message has to name."""
    if "run" in mistake:
        return re.escape(mistake["where"])
    lines = [line for line in mistake["now"].split("\n") if line] if "line" not in mistake else []
    at = text.index(mistake.get("line") or lines[0])
    return rf"t\.yaml:{text.count(chr(10), 0, at) + 1}:\d+: "


def missing(mistake: dict[str, str], code: int, printed: str, text: str) -> list[str]:
    if mistake.get("fine"):
        return [] if code == 0 else ["fine"]
    patterns = {"what": re.escape(mistake["what"]), "where": where(mistake, text),
                "fix": re.escape(mistake["fix"])}  # fmt: skip
    return [name for name, pattern in patterns.items() if not re.search(pattern, printed)]


def test_nothing_crashes_and_nearly_all_say_what_where_and_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "report" / "studies", tmp_path / "studies")
    (tmp_path / "paper.yaml").write_text(PAPER)
    wanting = []
    for mistake in MISTAKES:
        text = PAPER
        if "was" in mistake:
            assert mistake["was"] in PAPER, mistake
            text = PAPER.replace(mistake["was"], mistake["now"], 1)
        (tmp_path / "t.yaml").write_text(text)
        words = shlex.split(mistake.get("run", "check t.yaml"))
        code = outcome.end(lambda w=words: app(w, standalone_mode=False), as_json=False)
        printed = capsys.readouterr().err
        assert "Traceback" not in printed
        assert "hunter2" not in printed
        assert code in ENDINGS or (mistake.get("fine") and code == 0), (code, printed)
        if lacks := missing(mistake, code, printed, text):
            wanting.append(f"{mistake.get('run') or mistake['now']}: {lacks}\n{printed}")
    share = 1 - len(wanting) / len(MISTAKES)
    print(
        f"{share:.1%} of {len(MISTAKES)} mistakes say what, where and the fix", *wanting, sep="\n"
    )
    assert len(MISTAKES) >= 83
    assert share >= BAR
