"""Records and files of a study in a shared database.

The records of a study are numbered without gaps, in commit order, so that every reader has the same
state after the same record.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, text

from autotune.errors import AutotuneError
from autotune.foreign_files import MAX_JOURNAL_BYTES
from autotune.study import journal
from autotune.study.database_schema import LOCK_KEY

COMPROMISED_HINT = (
    "the database may be compromised; stop all workers and find out who wrote this record"
)


class LeaseLostError(AutotuneError):
    """The test bed was removed from the study, so records from its worker are rejected."""


def lock_record_count(connection: Connection, study: int) -> int:
    """Return the number of records, and block other writers until the end of this transaction."""
    query = text("SELECT head FROM autotune_heads WHERE study = :study FOR UPDATE")
    return int(connection.execute(query, {"study": study}).scalar_one())


def lock_and_read_lines(connection: Connection, study: int, last_number: int) -> list[bytes]:
    """Return the journal lines after record ``last_number``, and block other decisions until the end of
    this transaction.
    """
    rows = connection.execute(
        text("SELECT autotune_decide(:locks, :study, :number)"),
        {"locks": LOCK_KEY, "study": study, "number": last_number},
    )
    return _decompress_lines(rows.scalars())


def append_records(
    connection: Connection,
    study: int,
    retry_key: str,
    records: Sequence[Mapping[str, object]],
    files: Mapping[str, bytes] | None = None,
    lease: tuple[str, str | None] | None = None,
) -> int:
    """Add records, and files keyed by digest. Return the number of the first added record, or 0 if none
    was added.

    A second call with the same ``retry_key`` adds nothing, so that callers can retry if the result is
    unknown. ``lease`` contains the worker's id and its bed, or ``None`` for any of its beds. Raises
    LeaseLostError if the worker has lost that lease.
    """
    if not records:
        return 0
    if files:
        _insert_files(connection, study, files)
    worker, bed = lease or (None, None)
    first_number: int | None = connection.execute(
        text(
            "SELECT autotune_append(:study, :key, CAST(:worker AS text), CAST(:bed AS text),"
            " CAST(:contents AS bytea[]))"
        ),
        {
            "study": study,
            "key": retry_key,
            "worker": worker,
            "bed": bed,
            "contents": [compress_record(record) for record in records],
        },
    ).scalar_one()
    if first_number is None:
        raise LeaseLostError(
            f"{f'bed {bed}' if bed else 'this worker'} missed its heartbeats and was removed from the "
            "study",
            hint="`autotune worker TARGET --bed … --storage URL` joins the study again",
        )
    return first_number


def _insert_files(connection: Connection, study: int, files: Mapping[str, bytes]) -> None:
    """Add files that are missing in the database. Most trials change only one or two files.

    Digests are sorted, so that two workers cannot deadlock.
    """
    stored_digests = set(
        connection.execute(
            text(
                "SELECT digest FROM autotune_files WHERE study = :study AND digest = ANY(:digests)"
            ),
            {"study": study, "digests": list(files)},
        ).scalars()
    )
    missing_files = [
        {"study": study, "digest": digest, "content": zlib.compress(files[digest], 9)}
        for digest in sorted(files.keys() - stored_digests)
    ]
    if missing_files:
        connection.execute(
            text(
                "INSERT INTO autotune_files VALUES (:study, :digest, :content) ON CONFLICT DO NOTHING"
            ),
            missing_files,
        )


def read_records_after(
    connection: Connection, study: int, last_number: int
) -> list[dict[str, Any]]:
    """Return the records after this number, in order."""
    return parse_lines(read_lines_after(connection, study, last_number))


def parse_lines(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the records in these lines. Raises AutotuneError for an invalid line, which another user
    of the database may have written.
    """
    try:
        return [journal.parse_record("the database", line) for line in lines]
    except AutotuneError as error:
        raise AutotuneError(error.message, hint=COMPROMISED_HINT) from error


def read_lines_after(connection: Connection, study: int, last_number: int) -> list[bytes]:
    """Return the records after this number as journal lines."""
    rows = connection.execute(
        text(
            "SELECT record FROM autotune_records"
            " WHERE study = :study AND number > :number ORDER BY number"
        ),
        {"study": study, "number": last_number},
    )
    return _decompress_lines(rows.scalars())


def _decompress_lines(contents: Iterable[bytes]) -> list[bytes]:
    # Other users may insert line breaks: valid in JSON between values, but a journal record is one line.
    lines, total_bytes = list[bytes](), 0
    for content in contents:
        line = decompress_content(content, journal.MAX_LINE_BYTES).replace(b"\n", b" ")
        total_bytes += len(line)
        if total_bytes > MAX_JOURNAL_BYTES:
            raise AutotuneError(
                f"the records of the study in the database exceed {MAX_JOURNAL_BYTES:,} bytes",
                hint=COMPROMISED_HINT,
            )
        lines.append(line)
    return lines


def decompress_content(content: bytes, max_bytes: int) -> bytes:
    """Return decompressed ``content``. Raises AutotuneError if ``content`` is invalid or would exceed
    ``max_bytes``.
    """
    decompressor = zlib.decompressobj()
    try:
        plain_content = decompressor.decompress(content, max_bytes)
    except zlib.error:
        plain_content = b""
    if not decompressor.eof:
        raise AutotuneError(
            f"content in the database is invalid, or larger than {max_bytes:,} bytes",
            hint=COMPROMISED_HINT,
        )
    return plain_content


def index_by_digest(contents: Mapping[str, bytes]) -> dict[str, bytes]:
    return {sha256(content).hexdigest(): content for content in contents.values()}


def compress_record(record: Mapping[str, object]) -> bytes:
    return zlib.compress(journal.encode_record(record), 9)


def decompress_record(content: bytes) -> dict[str, Any]:
    (record,) = parse_lines(_decompress_lines([content]))
    return record
