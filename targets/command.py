"""Print the number of rows per second that SQLite writes and reads with the given parameters."""

import json
import random
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 0.4


def work(database: Path, told: dict[str, int | str]) -> float:
    """Return rows per second. After each written row, a random row is read."""
    rows, chance = 0, random.Random(1)
    with sqlite3.connect(database, isolation_level=None) as connection:
        for pragma, value in pragmas(told).items():
            connection.execute(f"PRAGMA {pragma} = {value}")
        connection.execute("CREATE TABLE pairs (key INTEGER PRIMARY KEY, value TEXT)")
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            connection.execute("BEGIN")
            for _ in range(int(told["batch"])):
                rows += 1
                connection.execute("INSERT INTO pairs VALUES (?, ?)", (rows, f"{rows:0100d}"))
                wanted = (chance.randint(1, rows),)
                connection.execute("SELECT value FROM pairs WHERE key = ?", wanted).fetchone()
            connection.execute("COMMIT")
        return rows / (time.perf_counter() - began)


def pragmas(told: dict[str, int | str]) -> dict[str, int | str]:
    found: dict[str, int | str] = {
        "page_size": told["page_size"],
        "journal_mode": told["journal"],
        "synchronous": told["synchronous"],
        "cache_size": -int(told["cache"]),
        "mmap_size": 1024 * int(told["mmap"]),
    }
    if "wal_checkpoint" in told:
        found["wal_autocheckpoint"] = told["wal_checkpoint"]
    return found


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="autotune-command-") as directory:
        print(json.dumps({"value": work(Path(directory) / "pairs.db", asked["parameters"])}))
