"""Following a study's state while its tuner writes it, without reading the journal all over."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.study.records import State, after


class Follow:
    """Called, it gives the state as of the last whole record on disk."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "events.jsonl"
        self._read = 0
        self._state = State()

    def __call__(self) -> State:
        if not self._path.exists():
            return self._state
        with self._path.open("rb") as events:
            events.seek(self._read)
            for line in events:
                if line.endswith(b"\n"):
                    self._state = after(self._state, json.loads(line))
                    self._read += len(line)
        return self._state
