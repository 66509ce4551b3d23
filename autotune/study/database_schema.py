"""The tables of a shared database, and their migration from earlier versions."""

from __future__ import annotations

import re

from sqlalchemy import Connection, text

from autotune.errors import AutotuneError

# Each entry migrates the tables to the next version. Append entries; never change an existing entry.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE autotune_studies (
        id SERIAL PRIMARY KEY, name TEXT NOT NULL UNIQUE, target TEXT NOT NULL);
    CREATE TABLE autotune_heads (
        study INTEGER PRIMARY KEY REFERENCES autotune_studies, head INTEGER NOT NULL);
    CREATE TABLE autotune_records (
        study INTEGER NOT NULL REFERENCES autotune_studies, number INTEGER NOT NULL,
        key TEXT UNIQUE, record BYTEA NOT NULL, PRIMARY KEY (study, number));
    CREATE TABLE autotune_workers (
        study INTEGER NOT NULL REFERENCES autotune_studies, bed TEXT NOT NULL, worker TEXT NOT NULL,
        place TEXT NOT NULL, beat BIGINT NOT NULL DEFAULT 0, at TIMESTAMPTZ NOT NULL DEFAULT now(),
        PRIMARY KEY (study, bed))
    """,
    """
    CREATE TABLE autotune_files (
        study INTEGER NOT NULL REFERENCES autotune_studies, digest TEXT NOT NULL,
        content BYTEA NOT NULL, PRIMARY KEY (study, digest))
    """,
    # One call does all the work under the lock, so the lock is never held during a network round trip.
    # Each statement in the function sees all earlier commits. NULL means that the worker has lost its
    # lease.
    """
    CREATE FUNCTION autotune_append(
        of_study INTEGER, with_key TEXT, by_worker TEXT, on_bed TEXT, contents BYTEA[])
    RETURNS INTEGER LANGUAGE plpgsql AS $$
    DECLARE last INTEGER;
    BEGIN
        SELECT head INTO last FROM autotune_heads WHERE study = of_study FOR UPDATE;
        IF by_worker IS NOT NULL AND NOT EXISTS (SELECT 1 FROM autotune_workers WHERE study = of_study
            AND worker = by_worker AND bed = COALESCE(on_bed, bed)) THEN RETURN NULL; END IF;
        IF EXISTS (SELECT 1 FROM autotune_records WHERE key = with_key) THEN RETURN 0; END IF;
        INSERT INTO autotune_records
            SELECT of_study, last + place, CASE WHEN place = 1 THEN with_key END, content
            FROM unnest(contents) WITH ORDINALITY AS numbered (content, place);
        UPDATE autotune_heads SET head = last + cardinality(contents) WHERE study = of_study;
        RETURN last + 1;
    END $$
    """,
    # One call waits for the lock and reads the new records. The second statement of the function sees
    # all commits during the first statement.
    """
    CREATE FUNCTION autotune_decide(locks INTEGER, of_study INTEGER, from_number INTEGER)
    RETURNS SETOF BYTEA LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(locks, of_study);
        RETURN QUERY SELECT record FROM autotune_records
            WHERE study = of_study AND number > from_number ORDER BY number;
    END $$
    """,
)
STATEMENT_PATTERN = re.compile(r"(?:\$\$.*?\$\$|[^;])+", re.DOTALL)
SCHEMA_VERSION = len(MIGRATIONS)
# First key of the advisory lock for writing Optuna's tables. The second key is the study's id.
COPY_LOCK_KEY = 0x6175
# First key of all other advisory locks. The second key is the study's id, or 0 for the tables.
LOCK_KEY = 0x6174


def acquire_lock(connection: Connection, lock_key: int) -> None:
    connection.execute(
        text("SELECT pg_advisory_xact_lock(:first, :second)"),
        {"first": LOCK_KEY, "second": lock_key},
    )


def read_schema_version(connection: Connection) -> int:
    """Return the version of autotune's tables; 0 without tables."""
    if connection.execute(text("SELECT to_regclass('autotune_schema')")).scalar() is None:
        return 0
    return connection.execute(text("SELECT max(version) FROM autotune_schema")).scalar() or 0


def migrate_tables(connection: Connection) -> None:
    """Migrate the tables to the current version. Raises AutotuneError if the tables have a later
    version.
    """
    connection.execute(
        text("CREATE TABLE IF NOT EXISTS autotune_schema (version INTEGER NOT NULL)")
    )
    version = read_schema_version(connection)
    if version > SCHEMA_VERSION:
        raise AutotuneError(
            f"unsupported storage version {version}: this autotune supports up to {SCHEMA_VERSION}",
            hint="install the version of autotune that the other workers use",
        )
    for table_version, statements in enumerate(MIGRATIONS[version:], version + 1):
        for statement in STATEMENT_PATTERN.findall(statements):
            connection.execute(text(statement))
        connection.execute(text("INSERT INTO autotune_schema VALUES (:v)"), {"v": table_version})
