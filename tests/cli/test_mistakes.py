"""Mistakes as data: what users type, and whether they are told what, where and how to mend it."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune import errors, exit_handling
from autotune.cli import app

ROOT = Path(__file__).parents[2]
BASES = {
    name: (ROOT / "targets" / f"{name}.yaml").read_text()
    for name in ("paper", "command", "declared")
}
PAPER = BASES["paper"]
MISTAKES = YAML(typ="safe").load((Path(__file__).parent / "mistakes.yaml").read_text())
BAR = 0.9
# Files that are not targets
OTHER_FILES = {
    "winner/manifest.json": '{"kind": "autotune-export", "slo": {}, "study": "improved",'
    ' "parameters": {}}',
    "winner/changes.diff": "--- a\n+++ b\n",
    "error.log": '2026/11/29 09:00:00 [error] 12#12: *1 open() "/srv/x" failed (2: No such file)\n',
    "shop.requests.yaml": "requests:\n- {path: /, weight: 3}\n",
    "sweep.yaml": "target: paper.yaml\nover: {lb.nginx.use: [epoll, poll]}\nrates: [100/s]\n",
    "settings.yaml": "parameters:\n  lb.nginx.use: {fixed: poll}\n",
    "compose.yaml": "services:\n  web: {image: nginx}\n",
    "service.yaml": "role: web\nport: 80\nunit: lighttpd.service\nfiles: {/etc/lighttpd.conf: {}}\n",
    "access.log": '10.0.0.1 - - [22/Nov/2026:08:00:01 +0000] "GET / HTTP/1.1" 200 1\n',
}
ENDINGS = (errors.OPERATIONAL_EXIT_CODE, errors.USAGE_EXIT_CODE, errors.INVALID_TARGET_EXIT_CODE)


def where(mistake: dict[str, Any], text: str) -> str:
    """The place that the message has to name."""
    if "where" in mistake:
        return re.escape(str(mistake["where"]))
    lines = [line for line in mistake["now"].split("\n") if line] if "line" not in mistake else []
    at = text.index(mistake.get("line") or lines[0])
    return rf"t\.yaml:{text.count(chr(10), 0, at) + 1}:\d+: "


def missing(mistake: dict[str, Any], code: int, printed: str, text: str) -> list[str]:
    if mistake.get("fine"):
        return [] if code == 0 else ["fine"]
    patterns = {"what": re.escape(mistake["what"]), "where": where(mistake, text),
                "fix": re.escape(mistake["fix"])}  # fmt: skip
    return [name for name, pattern in patterns.items() if not re.search(pattern, printed)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user works: recorded studies, and a target without a mistake."""
    directory = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(ROOT / "tests" / "report" / "studies", directory / "studies")
    (directory / "paper.yaml").write_text(PAPER)
    (directory / "winner").mkdir()
    for name, content in OTHER_FILES.items():
        (directory / name).write_text(content)
    sweep = ["sweep", str(directory / "paper.yaml"), "--over", "lb.apache.ServerLimit=100,200",
             "--rate", "100", "--repeat", "1", "--yes", "-q"]  # fmt: skip
    app([*sweep, "--studies", str(directory / "studies")], standalone_mode=False)
    return directory


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: str(m.get("run") or m["now"])[:60])
def test_nothing_crashes_and_what_where_and_how_are_said(
    mistake: dict[str, Any],
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(directory)
    text = PAPER
    if "was" in mistake:
        base = BASES[mistake.get("base", "paper")]
        assert mistake["was"] in base, mistake
        text = base.replace(mistake["was"], mistake["now"], 1)
    (directory / "t.yaml").write_text(text, encoding=mistake.get("encoding"))
    for name, content in mistake.get("files", {}).items():
        (directory / name).write_text(content)
    words = shlex.split(mistake.get("run", "check t.yaml"))
    code = exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=False)
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert "hunter2" not in printed
    is_valid = mistake.get("fine") or mistake.get("warns")
    expected = (mistake["code"],) if "code" in mistake else ENDINGS
    assert (code == 0) if is_valid else (code in expected), (code, printed)
    assert missing(mistake, code, printed, text) == mistake.get("lacks", []), printed


def test_nearly_all_say_everything() -> None:
    share = 1 - sum("lacks" in mistake for mistake in MISTAKES) / len(MISTAKES)
    print(f"{share:.1%} of {len(MISTAKES)} mistakes say what, where and the fix")
    assert len(MISTAKES) >= 200
    assert share >= BAR
