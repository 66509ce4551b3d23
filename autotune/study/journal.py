"""An append-only file of JSON lines that survives being killed at any instant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from autotune import durable_files, foreign_files
from autotune.errors import AutotuneError
from autotune.strict_parsing import parse_json

Record = Mapping[str, Any]
DAMAGED_HINT = "put the file back from a copy, or move the study's directory away"
MAX_LINE_BYTES = 1 << 24  # bytes of a record: the largest ones of long studies have a tenth of that


class Journal:
    """One writer. A record is on disk when ``append`` returns; a torn last line is not a record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        durable_files.make_directory(path.parent, 0o700)
        foreign_files.check_writable_path(path.parent, path.name)
        self._cut_torn_line()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        durable_files.sync_directory(path.parent)

    def append(self, *records: Record) -> None:
        self.append_lines([encode_record(record) for record in records])

    def append_lines(self, lines: Iterable[bytes]) -> None:
        """Append records that ``encode_record`` has encoded."""
        content = b"".join(each + b"\n" for each in lines)
        if not content:
            return
        whole, written = os.fstat(self._file).st_size, 0
        try:
            with durable_files.with_path(self.path):
                while written < len(content):
                    written += os.write(self._file, content[written:])
                os.fsync(self._file)
        except OSError:
            # A full disk leaves half a line: the next record must begin a new one.
            os.ftruncate(self._file, whole)
            raise

    def close(self) -> None:
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        # A write that was cut short was never reported as done: nobody has heard of it.
        try:
            content = foreign_files.read_bytes(
                self.path.parent, self.path.name, foreign_files.MAX_JOURNAL_BYTES
            )
        except FileNotFoundError:
            return
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)


def encode_record(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """All whole records of a journal, also while another process writes it.

    Raises AutotuneError where anything but a journal's writer has changed it, and if it is no file.
    """
    try:
        with open_journal(path) as journal:
            for number, content in enumerate(read_lines(path, journal), start=1):
                yield parse_record(f"{path}:{number}", content)
    except FileNotFoundError:
        return


def open_journal(path: Path) -> AbstractContextManager[BinaryIO]:
    """A journal of a study, which other people may have written. Raises as `foreign_files.read_bytes`."""
    return foreign_files.open_file(path.parent, path.name, foreign_files.MAX_JOURNAL_BYTES)


def read_lines(path: Path, journal: BinaryIO) -> Iterator[bytes]:
    """The whole lines from here on. Raises AutotuneError for one longer than any record."""
    while content := journal.readline(MAX_LINE_BYTES):
        if content.endswith(b"\n"):
            yield content
        elif len(content) == MAX_LINE_BYTES:
            raise AutotuneError(
                f"{path} has a line of more than {MAX_LINE_BYTES:,} bytes: the study is damaged",
                hint=DAMAGED_HINT,
            )


def parse_record(location: str, content: bytes) -> dict[str, Any]:
    """The record on a line of a journal. Raises AutotuneError, naming ``location``, if it has none."""
    try:
        record = parse_json(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise AutotuneError(
            f"{location}: this line is no record: the study is damaged",
            hint=DAMAGED_HINT,
        )
    return record
