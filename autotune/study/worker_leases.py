"""Leases in a shared database: the right of a worker to measure on a test bed of a study.

The database accepts a worker's records only as long as the worker holds the lease of its test bed.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from autotune.study.database_records import lock_record_count

ALIVE_SECONDS = 60.0  # a worker is shown as running for this long after its last heartbeat


@dataclass(frozen=True)
class Lease:
    """The right of a worker to measure on a test bed.

    ``worker`` is the worker's id, ``location`` its process and host as text. ``heartbeats`` counts the
    heartbeats so far; ``None`` matches any count. ``is_alive`` is true if a heartbeat arrived recently,
    according to the database's clock.
    """

    worker: str
    location: str
    heartbeats: int | None = None
    is_alive: bool = True


def read_leases(connection: Connection, study: int) -> dict[str, Lease]:
    """Return the leases of a study, by test bed."""
    rows = connection.execute(
        text(
            "SELECT bed, worker, place, beat, at > now() - make_interval(secs => :living) AS living"
            " FROM autotune_workers WHERE study = :study"
        ),
        {"study": study, "living": ALIVE_SECONDS},
    )
    return {row.bed: Lease(row.worker, row.place, row.beat, row.living) for row in rows}


def take_lease(connection: Connection, study: int, bed: str, lease: Lease) -> None:
    """Take the lease of a test bed, even if another worker holds it."""
    connection.execute(
        text(
            "INSERT INTO autotune_workers (study, bed, worker, place)"
            " VALUES (:study, :bed, :worker, :place) ON CONFLICT (study, bed)"
            " DO UPDATE SET worker = :worker, place = :place, beat = 0, at = now()"
        ),
        {"study": study, "bed": bed, "worker": lease.worker, "place": lease.location},
    )


def release_lease(connection: Connection, study: int, bed: str, lease: Lease) -> bool:
    """Delete an unchanged lease of a test bed. Return true if the lease was deleted."""
    lock_record_count(connection, study)
    return bool(
        connection.execute(
            text(
                "DELETE FROM autotune_workers WHERE study = :study AND bed = :bed AND worker = :worker"
                " AND beat = COALESCE(:beat, beat)"
            ),
            {"study": study, "bed": bed, "worker": lease.worker, "beat": lease.heartbeats},
        ).rowcount
    )


def send_heartbeat(connection: Connection, study: int, worker: str) -> None:
    """Record a heartbeat for all test beds of a worker."""
    connection.execute(
        text(
            "UPDATE autotune_workers SET beat = beat + 1, at = now()"
            " WHERE study = :study AND worker = :worker"
        ),
        {"study": study, "worker": worker},
    )
