"""Recorded studies of real hosts, and an enlarged copy of the lab's study with many trials."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tarfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

STEP = timedelta(minutes=1)
Record = dict[str, Any]


def lab_study(directory: Path) -> Path:
    """Unpack the lab's study: 49 trials of targets/lab.yaml, with the files of the baseline and of
    the winner.

    A quarter of the trials failed to deploy, and the machine had other work, as in a typical study.
    """
    return _unpacked("lab", directory)


def shop_study(directory: Path) -> Path:
    """Unpack the study of an adopted WordPress over HTTPS: six minutes on a loaded machine, no
    improvement.
    """
    return _unpacked("shop", directory)


def _unpacked(name: str, directory: Path) -> Path:
    checked = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # missing in Debian 12
    with tarfile.open(Path(__file__).with_name(f"{name}.tar.xz")) as packed:
        packed.extractall(directory, **checked)
    return directory / name


def grown(source: Path, directory: Path, trials: int) -> Path:
    """Return a study of ``trials`` trials: those of ``source``, and repeated copies of its search.

    The copies have other settings, peaks and rates, and separate files.
    """
    draws = random.Random(1)
    events, readings = _records(source / "events.jsonl"), _records(source / "readings.jsonl")
    searched = [event["trial"] for event in events if event.get("phase") == "search"]
    first = 1 + max(event["trial"] for event in events if event["event"] == "trial")
    end = next(n for n, event in enumerate(events) if event["event"] == "model")
    shutil.copytree(source, directory)
    more: list[Record] = []
    for number in range(first, trials):
        again, factor = draws.choice(searched), draws.uniform(0.5, 1.1)
        later = STEP * (number - first + 1)
        of_trial = [event for event in events[:end] if event.get("trial") == again]
        more += [_other(event, number, factor, later, draws) for event in of_trial]
        taken = [reading for reading in readings if reading["trial"] == again]
        readings += [_other(reading, number, factor, later, draws) for reading in taken]
        _files(source / "configs", directory / "configs" / str(number), draws)
    _write(directory / "events.jsonl", [*events[:end], *more, *events[end:]])
    _write(directory / "readings.jsonl", readings)
    return directory


def _other(
    record: Record, trial: int, factor: float, later: timedelta, draws: random.Random
) -> Record:
    made = {**record, "trial": trial}
    if made.get("at"):
        made["at"] = (datetime.fromisoformat(made["at"]) + later).isoformat(timespec="milliseconds")
    for name in ("peak", "low", "high", "rate"):
        if name in made:
            made[name] *= factor
    if "settings" in made:
        made["settings"] = {
            name: round(value * draws.uniform(0.5, 2.0)) if type(value) is int else value
            for name, value in made["settings"].items()
        }
    return made


def _files(configs: Path, directory: Path, draws: random.Random) -> None:
    """Write the winner's files, with other numbers in the files of the load balancer."""
    winner = max(configs.iterdir(), key=lambda path: int(path.name))
    shutil.copytree(winner, directory, copy_function=os.link)
    for path in directory.glob("lb.*/**/*.conf"):
        text = re.sub(r"\b\d{2,}\b", lambda _: str(draws.randint(10, 9999)), path.read_text())
        path.unlink()
        path.write_text(text)


def _records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _write(path: Path, records: list[Record]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
