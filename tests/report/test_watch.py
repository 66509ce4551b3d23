from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

from autotune.report.status import watch
from autotune.study.directory import Lock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_study_that_nobody_runs_is_shown_once(copied: Callable[[str], Path]) -> None:
    out = io.StringIO()
    watch(copied("improved"), out)
    assert out.getvalue().count("improved: finished") == 1


def test_a_running_study_is_shown_again_when_it_has_changed(copied: Callable[[str], Path]) -> None:
    directory, out, looks = copied("killed"), Terminal(), []
    lock = Lock(directory / "lock")

    def meanwhile(_: float) -> None:
        looks.append(out.getvalue().count("\x1b[H"))
        if len(looks) == 1:
            journal = directory / "events.jsonl"
            whole, _, _ = journal.read_text().rpartition("\n")  # without the line that was torn
            more = json.dumps({"event": "spent", "seconds": {"load": 600.0}})
            journal.write_text(f"{whole}\n{more}\n")
        elif len(looks) == 3:
            lock.__exit__(None, None, None)

    lock.__enter__()
    watch(directory, out, meanwhile)
    assert looks == [1, 2, 2]
    assert out.getvalue().count("\x1b[H") == 3
    assert "stopped (no process holds the lock)" in out.getvalue()
