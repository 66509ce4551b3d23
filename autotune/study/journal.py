"""An append-only file of JSON lines that stays valid if the writer is killed at any time."""

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

JournalLine = Mapping[str, Any]  # a line as JSON, whose fields are not checked yet
DAMAGED_HINT = "restore the file from a copy, or move the study's directory away"
MAX_LINE_BYTES = 1 << 24  # the largest records of long studies are a tenth of this size
MAX_RECORDS = 500_000  # enough for 100,000 configurations; a record takes about 1 KB of memory
FULL_HINT = "continue in a new study: `autotune run TARGET --from STUDY`"
LONG_RECORD_HINT = (
    "the study records the hosts' configuration files: make them smaller, or tune fewer tiers"
)
CHUNK_BYTES = 1 << 20


class Journal:
    """The only writer of a journal. A record is on disk once ``append_record`` returns.

    An incomplete last line does not count as a record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        durable_files.make_directory(path.parent, 0o700)
        foreign_files.check_writable_path(path.parent, path.name)
        self._record_count = self._remove_incomplete_line()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        durable_files.sync_directory(path.parent)

    def append_record(self, *records: Mapping[str, object]) -> None:
        self.append_lines([encode_record(record) for record in records])

    def append_lines(self, lines: Iterable[bytes]) -> None:
        """Append records that were encoded with ``encode_record``.

        Raises AutotuneError if no reader would accept the longer journal.
        """
        content = b"".join(line + b"\n" for line in lines)
        if not content:
            return
        old_size, written_bytes = os.fstat(self._file).st_size, 0
        record_count = self._record_count + content.count(b"\n")
        _check_journal_size(self.path, old_size + len(content), record_count)
        try:
            with durable_files.set_error_path(self.path):
                while written_bytes < len(content):
                    written_bytes += os.write(self._file, content[written_bytes:])
                os.fsync(self._file)
        except OSError:
            # A full disk leaves an incomplete line, and the next record must start on a new line.
            os.ftruncate(self._file, old_size)
            raise
        self._record_count = record_count

    def close(self) -> None:
        os.close(self._file)

    def _remove_incomplete_line(self) -> int:
        """Return the number of complete records."""
        # No reader depends on an incomplete write, because it was never acknowledged.
        record_count = size = complete_size = 0
        try:
            with open_journal(self.path) as journal:
                while chunk := journal.read(CHUNK_BYTES):
                    record_count += chunk.count(b"\n")
                    if b"\n" in chunk:
                        complete_size = size + chunk.rindex(b"\n") + 1
                    size += len(chunk)
        except FileNotFoundError:
            return 0
        if complete_size < size:
            os.truncate(self.path, complete_size)
        return record_count


def _check_journal_size(path: Path, size: int, record_count: int) -> None:
    """Raise AutotuneError if a journal exceeds the limits of its readers."""
    if size > foreign_files.MAX_JOURNAL_BYTES:
        raise AutotuneError(
            f"{path} would exceed {foreign_files.MAX_JOURNAL_BYTES:,} bytes", hint=FULL_HINT
        )
    if record_count > MAX_RECORDS:
        raise AutotuneError(
            f"{path} would contain more than {MAX_RECORDS:,} records", hint=FULL_HINT
        )


def encode_record(record: Mapping[str, object]) -> bytes:
    """Return a record as a line of the journal, without the newline.

    Path bytes that are not UTF-8 are escaped, because no reader of journals accepts invalid UTF-8.
    Raises ValueError for a number that no reader accepts, and AutotuneError for a record that is too
    long for readers.
    """
    try:
        line = json.dumps(record, separators=(",", ":"), allow_nan=False)
        if "\\ud" in line:  # a lone surrogate stands for an invalid byte, a pair for a character
            line = json.dumps(_escape_lone_surrogates(record), separators=(",", ":"))
    except RecursionError:
        raise AutotuneError("a record of the study is nested too deeply") from None
    if len(line) >= MAX_LINE_BYTES:  # a line of the journal also contains a newline
        raise AutotuneError(
            f"a record of the study would exceed {MAX_LINE_BYTES:,} bytes", hint=LONG_RECORD_HINT
        )
    return line.encode()


def _escape_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {
            _escape_lone_surrogates(key): _escape_lone_surrogates(contained_value)
            for key, contained_value in value.items()
        }
    if isinstance(value, list | tuple):
        return [_escape_lone_surrogates(contained_value) for contained_value in value]
    return value


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield all complete records of a journal, even while another process writes to the journal.

    Raises AutotuneError if something other than a journal's writer changed the file, or if the journal
    is not a regular file.
    """
    try:
        with open_journal(path) as journal:
            for line_number, content in enumerate(read_lines(path, journal), start=1):
                if line_number > MAX_RECORDS:
                    raise AutotuneError(
                        f"{path} contains more than {MAX_RECORDS:,} records", hint=DAMAGED_HINT
                    )
                yield parse_record(f"{path}:{line_number}", content)
    except FileNotFoundError:
        return


def has_records(path: Path) -> bool:
    """True if a journal contains a complete record. Raises the errors of ``read_records``."""
    return next(read_records(path), None) is not None


def open_journal(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open a journal that other users may have written. Raises the errors of `read_bytes`."""
    return foreign_files.open_file(path.parent, path.name, foreign_files.MAX_JOURNAL_BYTES)


def read_lines(path: Path, journal: BinaryIO) -> Iterator[bytes]:
    """Yield the complete lines from the current position. Raises AutotuneError if a line is too long
    for a record.
    """
    while content := journal.readline(MAX_LINE_BYTES):
        if content.endswith(b"\n"):
            yield content
        elif len(content) == MAX_LINE_BYTES:
            raise AutotuneError(
                f"a line of {path} exceeds {MAX_LINE_BYTES:,} bytes: the study is damaged",
                hint=DAMAGED_HINT,
            )


def parse_record(location: str, content: bytes) -> dict[str, Any]:
    """Return the record in a line of a journal. Raises AutotuneError, with ``location``, if the record
    is invalid.
    """
    try:
        record = parse_json(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise AutotuneError(
            f"invalid record at {location}; the study is damaged",
            hint=DAMAGED_HINT,
        )
    return record
