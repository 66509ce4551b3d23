"""What servers complained of in their logs while a reading ran."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy.stack import Part
from autotune.services.registry import diagnosis

LARGEST = 1 << 20  # bytes: an overloaded server writes thousands of lines a second, all alike
# What any program says where the kernel refuses it something.
COMPLAINTS = {
    "open_files": re.compile(r"Too many open files"),
    "no_ports": re.compile(r"Cannot assign requested address"),
}


@dataclass(frozen=True)
class LogPosition:
    """The end of a log when the reading began."""

    path: str
    size: int


def log_of(part: Part) -> str | None:
    """The path of a service's log, or the unit of systemd that tells the journal; else ``None``."""
    log = diagnosis(part.service.name).log
    return log(part.site) if log else None


def position(path: str) -> LogPosition:
    """Where to read on from; the beginning where there is no log yet."""
    return LogPosition(path, os.stat(path).st_size if Path(path).exists() else 0)  # noqa: PTH116


def since(begun: LogPosition) -> str:
    """At most ``LARGEST`` characters written since; nothing if the log is not to be read."""
    try:
        with Path(begun.path).open("rb") as log:
            log.seek(begun.size)
            return log.read(LARGEST).decode(errors="replace")
    except OSError:
        return ""


def complaints(text: str, part: Part) -> Mapping[str, int]:
    """Lines of each kind of complaint in the log of a part."""
    patterns = {**COMPLAINTS, **diagnosis(part.service.name).complaints}
    counts: dict[str, int] = {}
    for line in text.splitlines():
        for name, pattern in patterns.items():
            if pattern.search(line):
                counts[name] = counts.get(name, 0) + 1
    return counts
