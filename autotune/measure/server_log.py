"""What servers complained of in their error logs while a reading ran."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.deploy.stack import Part
from autotune.transports.base import Transport

LARGEST = 1 << 20  # bytes: an overloaded nginx writes thousands of lines a second, all alike
LOGS = {"nginx": "nginx-error.log", "php_fpm": "php-fpm.log", "apache": "apache2-error.log"}
# Where the distribution's units write theirs (PHP-FPM's goes to the journal).
INSTALLED = {"nginx": "/var/log/nginx/error.log", "apache": "/var/log/apache2/error.log"}
COMPLAINTS = {
    "worker_connections": re.compile(r"worker_connections are not enough"),
    "open_files": re.compile(r"Too many open files"),
    "max_children": re.compile(r"reached (?:pm\.)?max_children"),
    # Apache says so once, until it is restarted.
    "max_request_workers": re.compile(r"reached MaxRequestWorkers|scoreboard is full"),
    "no_live_upstreams": re.compile(r"no live upstreams|All workers are in error state"),
    "upstream_timed_out": re.compile(r"upstream timed out|\(70007\)The timeout specified"),
    "upstream_refused": re.compile(r"connect\(\).* failed \(111|\(111\)Connection refused"),
    "upstream_queue_full": re.compile(r"connect\(\).* failed \(11:"),
    "no_ports": re.compile(r"Cannot assign requested address"),
}
# Bounded on the host itself; path and position are arguments, not text of the command.
_FROM = 'tail -c "+$1" -- "$2" | head -c "$3"'


@dataclass(frozen=True)
class LogPosition:
    """The end of a log when the reading began."""

    path: str
    size: int


def log_of(part: Part) -> str | None:
    """Where a service complains; ``None`` for one whose log is not a file."""
    if part.site.runtime == "systemd":
        return INSTALLED.get(part.service.name)
    name = LOGS.get(part.service.name)
    return f"{part.site.directory}/{name}" if name else None


def position(path: str, transport: Transport | None) -> LogPosition:
    """Where to read on from; the beginning where there is no log yet."""
    if transport is None:
        return LogPosition(path, os.stat(path).st_size if Path(path).exists() else 0)  # noqa: PTH116
    said = transport.run(("stat", "-c", "%s", path), timeout=5.0).stdout.strip()
    return LogPosition(path, int(said) if said.isdigit() else 0)


def since(begun: LogPosition, transport: Transport | None) -> str:
    """At most ``LARGEST`` characters written since; nothing if the log is not to be read."""
    if transport is None:
        try:
            with Path(begun.path).open("rb") as log:
                log.seek(begun.size)
                return log.read(LARGEST).decode(errors="replace")
        except OSError:
            return ""
    argv = ("sh", "-c", _FROM, "sh", str(begun.size + 1), begun.path, str(LARGEST))
    return transport.run(argv, timeout=10.0).stdout


def complaints(text: str) -> Mapping[str, int]:
    """Lines of each kind of complaint."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        for name, pattern in COMPLAINTS.items():
            if pattern.search(line):
                found[name] = found.get(name, 0) + 1
    return found
