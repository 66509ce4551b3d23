"""Records in a shared database, which other users of the database may have written."""

from __future__ import annotations

import json
import zlib

import pytest

from autotune.errors import AutotuneError
from autotune.study import journal
from autotune.study.database_records import decompress_record

RECORD = b'{"event":"spent","seconds":{"load":1}}'
DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "content",
    [
        b"not compressed",
        zlib.compress(RECORD)[:-6],
        zlib.compress(DEEP),
        zlib.compress(b'{"event":NaN}'),
        zlib.compress(b'{"event":"\\udcff"}'),
        zlib.compress(b"[]"),
        zlib.compress(b" " * (journal.MAX_LINE_BYTES + 1)),
    ],
)
def test_what_no_journal_can_contain_is_refused(content: bytes) -> None:
    assert decompress_record(zlib.compress(RECORD)) == json.loads(RECORD)
    with pytest.raises(AutotuneError, match="the database"):
        decompress_record(content)
