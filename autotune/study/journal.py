"""An append-only file of JSON lines that survives being killed at any instant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune import durable
from autotune.errors import AutotuneError
from autotune.strict import parse_json

Record = Mapping[str, Any]


class Journal:
    """One writer. A record is on disk when ``append`` returns; a torn last line is not a record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        durable.make_directory(path.parent, 0o700)
        self._cut_torn_line()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        durable.sync_directory(path.parent)

    def append(self, *records: Record) -> None:
        self.append_lines([line(record) for record in records])

    def append_lines(self, lines: Iterable[bytes]) -> None:
        """Append records that ``line`` has encoded."""
        content = b"".join(each + b"\n" for each in lines)
        if not content:
            return
        whole, written = os.fstat(self._file).st_size, 0
        try:
            with durable.naming(self.path):
                while written < len(content):
                    written += os.write(self._file, content[written:])
                os.fsync(self._file)
        except OSError:
            os.ftruncate(
                self._file, whole
            )  # a full disk leaves half a line: the next record must begin a new one
            raise

    def close(self) -> None:
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        # A write that was cut short was never reported as done: nobody has heard of it.
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)


def line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """All whole records of a journal, also while another process writes it.

    Raises AutotuneError where anything but a journal's writer has changed it.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, content in enumerate(lines, start=1):
            if content.endswith(b"\n"):
                yield parse(f"{path}:{number}", content)


def parse(where: str, content: bytes) -> dict[str, Any]:
    """The record on a line of a journal. Raises AutotuneError, naming ``where``, if it has none."""
    try:
        record = parse_json(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise AutotuneError(
            f"{where}: this line is no record: the study is damaged",
            hint="put the file back from a copy, or move the study's directory away",
        )
    return record
