"""What servers complained of in their logs while a reading ran."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy.stack import Part

LARGEST = 1 << 20  # bytes: an overloaded nginx writes thousands of lines a second, all alike
PRIVATE = {
    "nginx": "nginx-error.log",
    "php_fpm": "php-fpm.log",
    "apache": "apache2-error.log",
}
INSTALLED = {"nginx": "/var/log/nginx/error.log", "apache": "/var/log/apache2/error.log"}
JOURNAL = frozenset({"php_fpm", "memcached", "redis"})
COMPLAINTS = {
    "worker_connections": re.compile(r"worker_connections are not enough"),
    "open_files": re.compile(r"Too many open files"),
    "max_children": re.compile(r"reached (?:pm\.)?max_children"),
    # Apache says so once, until it is restarted.
    "max_workers": re.compile(r"reached MaxRequestWorkers|scoreboard is full"),
    "no_live_upstreams": re.compile(r"no live upstreams|All workers are in error state"),
    "upstream_timed_out": re.compile(r"upstream timed out|\(70007\)The timeout specified"),
    "upstream_refused": re.compile(r"connect\(\).* failed \(111|\(111\)Connection refused"),
    "upstream_queue_full": re.compile(r"connect\(\).* failed \(11:"),
    "no_ports": re.compile(r"Cannot assign requested address"),
}


@dataclass(frozen=True)
class LogPosition:
    """The end of a log when the reading began."""

    path: str
    size: int


def log_of(part: Part) -> str | None:
    """The path of a service's log, or the unit of systemd that tells the journal; else ``None``."""
    name = part.service.name
    if part.site.runtime == "embedded":
        return f"{part.site.directory}/{PRIVATE[name]}" if name in PRIVATE else None
    return INSTALLED.get(name) or (part.service.unit(part.site) if name in JOURNAL else None)


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


def complaints(text: str) -> Mapping[str, int]:
    """Lines of each kind of complaint."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        for name, pattern in COMPLAINTS.items():
            if pattern.search(line):
                found[name] = found.get(name, 0) + 1
    return found
