from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.config_text import is_utf8
from autotune.study.journal import Journal, encode_record, read_records

NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1)
RECORDS = st.lists(
    st.dictionaries(st.text(max_size=8), NUMBERS | st.text(max_size=20) | st.none()),
    max_size=8,
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)


@settings(max_examples=60)
@given(records=RECORDS, cut=st.integers(0, 400))
def test_a_cut_at_any_byte_loses_only_what_was_never_reported(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, object]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "events.jsonl"
    journal = Journal(path)
    sizes = []
    for record in records:
        journal.append_record(record)
        sizes.append(path.stat().st_size)
    journal.close()
    os.truncate(path, min(cut, path.stat().st_size))
    whole = sum(size <= cut for size in sizes)

    again = Journal(path)
    again.append_record({"after": 1})
    again.close()
    assert list(read_records(path)) == [*records[:whole], {"after": 1}]


def test_on_a_full_disk_only_whole_records_stay(tmp_path: Path) -> None:
    path, soft = tmp_path / "events.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    journal = Journal(path)
    journal.append_record({"a": 1})
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, soft[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            journal.append_record({"b": 100 * "x"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft)
    assert caught.value.filename == str(path)
    journal.append_record({"c": 1})
    journal.close()
    assert list(read_records(path)) == [{"a": 1}, {"c": 1}]


def test_readers_see_whole_records_only_while_one_is_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":')
    assert list(read_records(path)) == [{"a": 1}]
    assert list(read_records(tmp_path / "absent")) == []


@settings(max_examples=60)
@given(text=ANY_TEXT, key=ANY_TEXT)
def test_what_is_written_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, text: str, key: str
) -> None:
    path = tmp_path_factory.mktemp("journal") / "events.jsonl"
    journal = Journal(path)
    journal.append_record({"a": [text, {key: 1}], "source": "/home/jos\udce9 \U0001f600"})
    journal.close()
    ((word, items), source) = next(read_records(path)).values()
    assert source == "/home/jos\\udce9 \U0001f600"
    assert word == text or not is_utf8(text)
    assert len(items) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_no_reader_accepts_is_not_written(tmp_path: Path, number: float) -> None:
    journal = Journal(tmp_path / "events.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append_record({"a": number})
    journal.close()
    assert list(read_records(tmp_path / "events.jsonl")) == []
    assert encode_record({"a": 1.5}) == b'{"a":1.5}'
