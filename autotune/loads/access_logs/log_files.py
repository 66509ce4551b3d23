"""Read the lines of plain or compressed log files, or of standard input, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, Protocol, cast

from autotune.errors import AutotuneError
from autotune.target.messages import find_nearest_name

STANDARD_INPUT = Path("-")
MAX_LINE_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20
_ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


_DECOMPRESSORS: Mapping[bytes, Callable[[Any], _Stream]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}


@dataclass(frozen=True)
class ReadProgress:
    """The number of lines read so far in a file. ``share`` is the fraction of the file that was read,
    if known.
    """

    name: str
    line_count: int
    share: float | None


ProgressListener = Callable[[ReadProgress], object]


def read_lines(path: Path, listener: ProgressListener) -> Iterator[bytes]:
    """Yield the lines of a file without line ends. Raises AutotuneError.

    Lines are cut off after ``MAX_LINE_BYTES`` + 1 bytes.
    """
    line_count = 0
    try:
        with _open_raw(path) as raw:
            file_size = 0 if path == STANDARD_INPUT else path.stat().st_size
            for lines in _split_blocks(_decompress(path, raw)):
                yield from lines
                line_count += len(lines)
                read_share = min(1.0, raw.tell() / file_size) if file_size else None
                listener(ReadProgress(describe_path(path), line_count, read_share))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = _find_read_hint(path, error)
        raise AutotuneError(f"cannot read {describe_path(path)}: {reason}", hint=hint) from error


def _find_read_hint(path: Path, error: Exception) -> str:
    """Return the hint for a log that cannot be read."""
    if isinstance(error, FileNotFoundError):
        nearest_name = find_nearest_name(path.name, _list_names(path.parent))
        if nearest_name:
            return f"did you mean {str(path.parent / nearest_name)!r}?"
        return "name access logs, such as /var/log/nginx/access.log"
    if isinstance(error, IsADirectoryError):
        return f"name the logs in it, such as {path}/access.log"
    if isinstance(error, PermissionError):
        return "use an account that may read it, or `sudo cat LOG | autotune workload from-log -`"
    return "the file may be damaged: get a complete copy"


def _list_names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []


def describe_path(path: Path) -> str:
    """Return the path of a log, or "standard input"."""
    return "standard input" if path == STANDARD_INPUT else str(path)


@contextmanager
def _open_raw(path: Path) -> Iterator[BufferedReader[Any]]:
    """Open a log, and close it at the end unless it is standard input."""
    if path != STANDARD_INPUT:
        with BufferedReader(FileIO(path)) as log_file:
            yield log_file
        return
    stream: BufferedReader[Any] = BufferedReader(cast("RawIOBase", sys.stdin.buffer))
    try:
        yield stream
    finally:
        stream.detach()


def _decompress(path: Path, raw_stream: BufferedReader[Any]) -> _Stream:
    """Return a stream of a log's uncompressed text. The compression is detected from the first
    bytes, because names of rotated logs vary.
    """
    magic = raw_stream.peek(6)[:6]
    if magic.startswith(_ZSTANDARD_MAGIC):
        log_name = describe_path(path)
        raise AutotuneError(
            f"cannot read {log_name}: it is compressed with Zstandard",
            hint="decompress it: `zstdcat LOG | autotune workload from-log -`",
        )
    for magic_prefix, decompressor in _DECOMPRESSORS.items():
        if magic.startswith(magic_prefix):
            return decompressor(raw_stream)
    return raw_stream


def _split_blocks(stream: _Stream) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, as one list per block. The rest of an overlong line is skipped."""
    unfinished_line, is_overlong = b"", False
    while block := stream.read(_BLOCK_BYTES):
        *lines, line_remainder = (unfinished_line + block).split(b"\n")
        if is_overlong and lines:  # the rest of a line whose start was already yielded
            del lines[0]
            is_overlong = False
        elif is_overlong:
            line_remainder = b""
        if len(line_remainder) > MAX_LINE_BYTES:
            lines.append(line_remainder)
            line_remainder, is_overlong = b"", True
        unfinished_line = line_remainder
        yield [_truncate_line(line) if len(line) > MAX_LINE_BYTES else line for line in lines]
    if unfinished_line and not is_overlong:
        yield [_truncate_line(unfinished_line)]


def _truncate_line(line: bytes) -> bytes:
    return line[: MAX_LINE_BYTES + 1]
