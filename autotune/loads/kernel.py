"""What a load host's kernel should allow while it makes load. Pure.

Each request is a new connection, so client ports come first: the stock range has 28 232, and each is
kept for a minute after its use. Backlogs are a server's concern: nobody connects to a load host.
"""

from __future__ import annotations

from collections.abc import Mapping

RANGE = "net.ipv4.ip_local_port_range"
REUSE = "net.ipv4.tcp_tw_reuse"
FILES = "fs.file-max"
NAMES = (RANGE, REUSE, FILES)
LOWEST, HIGHEST = 1024, 65535  # ports that are nobody's by custom
ENOUGH = 65_536  # descriptors: a process holds a thousand connections at most


def fit(found: Mapping[str, str | None]) -> dict[str, str]:
    """Values for ``NAMES`` where those ``found`` are too tight; ``None``: there is no such value."""
    wanted: dict[str, str] = {}
    span = (found.get(RANGE) or "").split()
    if len(span) == 2 and all(word.isdigit() for word in span):
        low, high = min(int(span[0]), LOWEST), max(int(span[1]), HIGHEST)
        wanted[RANGE] = f"{low} {high}"
    if found.get(REUSE) is not None:
        wanted[REUSE] = "1"  # 2, the default since Linux 4.19, is for loopback alone
    files = found.get(FILES) or ""
    if files.isdigit() and int(files) < ENOUGH:
        wanted[FILES] = str(ENOUGH)
    return {name: value for name, value in wanted.items() if value != found.get(name)}
