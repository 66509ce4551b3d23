"""The schema of SQLite databases that other people may have written.

SQLite runs views, triggers, virtual tables and generated columns. Such a schema can make a query run
without end, or fill the memory.
"""

from __future__ import annotations

import sqlite3

# Keeps functions in a schema from having side effects.
TRUSTED_SCHEMA_PRAGMA = "trusted_schema = OFF"
_ACTIVE_OBJECT_QUERY = """\
SELECT name FROM sqlite_master WHERE sql IS NOT NULL AND (
    sql LIKE '%VIRTUAL%' OR sql LIKE '%SELECT%' OR NOT (
        sql LIKE 'CREATE TABLE %' OR sql LIKE 'CREATE INDEX %' OR sql LIKE 'CREATE UNIQUE INDEX %'
    )
)
UNION ALL
SELECT tables.name FROM sqlite_master AS tables JOIN pragma_table_xinfo(tables.name) AS columns
    WHERE tables.type = 'table' AND columns.hidden <> 0
LIMIT 1"""


def find_active_object(connection: sqlite3.Connection) -> str | None:
    """Return the name of an object in the schema that SQLite would run; ``None`` if the schema
    contains only plain tables and indexes. Raises sqlite3.Error.
    """
    row = connection.execute(_ACTIVE_OBJECT_QUERY).fetchone()
    return None if row is None else str(row[0])[:80]
