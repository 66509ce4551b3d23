from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import foreign_files
from autotune.config_text import is_utf8
from autotune.errors import AutotuneError
from autotune.study import journal as journal_module
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


@pytest.mark.parametrize("text", ["", "\U0001f600"])
def test_a_record_that_is_nested_too_deeply_is_refused(text: str) -> None:
    nested: object = text
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(AutotuneError, match="nested too deeply"):
        encode_record({"a": nested})


def test_a_journal_above_the_limits_is_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setattr(journal_module, "MAX_RECORDS", 3)
    journal = Journal(path)
    journal.append_record({"a": 1}, {"a": 2})
    journal.close()
    journal = Journal(path)
    journal.append_record({"a": 3})
    with pytest.raises(AutotuneError, match="would contain more than 3 records") as raised:
        journal.append_record({"a": 4})
    assert "--from" in (raised.value.hint or "")
    assert len(list(read_records(path))) == 3
    monkeypatch.setattr(foreign_files, "MAX_JOURNAL_BYTES", path.stat().st_size)
    with pytest.raises(AutotuneError, match="would exceed 24 bytes"):
        journal.append_record({"a": 4})
    journal.close()
    path.write_bytes(b'{"a":1}\n' * 4)
    with pytest.raises(AutotuneError, match="is larger than 24 bytes"):
        list(read_records(path))
    monkeypatch.setattr(foreign_files, "MAX_JOURNAL_BYTES", 1000)
    with pytest.raises(AutotuneError, match="contains more than 3 records"):
        list(read_records(path))


def test_a_record_that_is_too_long_for_readers_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, no command could read the study again."""
    path, record = tmp_path / "events.jsonl", {"a": 20 * "x"}
    monkeypatch.setattr(journal_module, "MAX_LINE_BYTES", len(encode_record(record)) + 1)
    journal = Journal(path)
    journal.append_record(record)
    with pytest.raises(AutotuneError, match="would exceed 29 bytes"):
        journal.append_record({"a": 21 * "x"})
    journal.close()
    assert list(read_records(path)) == [record]


def test_a_sparse_journal_of_a_gigabyte_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch()
    os.truncate(path, 1 << 30)
    for use in (lambda: list(read_records(path)), lambda: Journal(path)):
        with pytest.raises(AutotuneError, match=r"is larger than 134,217,728 bytes"):
            use()


def test_the_last_incomplete_line_is_removed_without_reading_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n{"a":')
    monkeypatch.setattr(journal_module, "CHUNK_BYTES", 5)
    journal = Journal(path)
    journal.append_record({"a": 3})
    journal.close()
    assert list(read_records(path)) == [{"a": 1}, {"a": 2}, {"a": 3}]
