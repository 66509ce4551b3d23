"""Logs of any size and compression become lines within bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import AutotuneError
from autotune.loads.access_logs import log_files
from autotune.loads.access_logs.log_files import MAX_LINE_BYTES, ReadProgress, read_lines


def ignore(progress: ReadProgress) -> None:
    """Take no notice of progress."""


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_compression_is_recognised_by_content(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    log = tmp_path / "access.log.1"
    log.write_bytes(compress(b"a\nb\n\nc"))
    assert [*read_lines(log, ignore)] == [b"a", b"b", b"", b"c"]


def test_zstandard_is_named(tmp_path: Path) -> None:
    log = tmp_path / "access.log.zst"
    log.write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(AutotuneError, match="compressed with Zstandard") as error:
        [*read_lines(log, ignore)]
    assert "zstdcat" in (error.value.hint or "")


@pytest.mark.parametrize("path", ["missing.log", "."])
def test_what_cannot_be_read_is_named(path: str, tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match="cannot read"):
        [*read_lines(tmp_path / path, ignore)]


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 9))
def test_lines_are_those_of_the_file_however_it_is_read(lengths: list[int], block: int) -> None:
    lines = [bytes([97 + n % 26]) * length for n, length in enumerate(lengths)]
    patch = pytest.MonkeyPatch()
    patch.setattr(log_files, "MAX_LINE_BYTES", 20)
    patch.setattr(log_files, "_BLOCK_BYTES", block)
    try:
        import io

        blocks = log_files._split_blocks(io.BytesIO(b"\n".join(lines)))
        printed = [line for block in blocks for line in block]
    finally:
        patch.undo()
    expected = [line[:21] for line in lines]
    assert printed == (expected[:-1] if expected and not expected[-1] else expected)


def test_progress_has_lines_and_share(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"x\n" * 2_000_000)
    seen: list[ReadProgress] = []
    assert sum(1 for _ in read_lines(log, seen.append)) == 2_000_000
    assert len(seen) > 2
    assert seen[0].share is not None
    assert 0 < seen[0].share < 1
    assert seen[-1] == ReadProgress(str(log), 2_000_000, 1.0)


def test_a_line_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    log.write_bytes(b"a\n" + b"x" * 5_000_000 + b"\nb\n")
    assert [len(line) for line in read_lines(log, ignore)] == [1, MAX_LINE_BYTES + 1, 1]
