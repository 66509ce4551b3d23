"""Temporary files of programs on a host: removed after these have ended, however they ended."""

from __future__ import annotations

#: Lines of sh that lock the file or directory ``$temporary`` and remove it at the shell's end. A
#: killed shell cannot: the next shell removes those older than a minute that nobody has locked, since
#: making one and locking it takes less. Without flock(1), nothing that may be in use is removed.
LOCKED = """exec 8<"$temporary"
flock -n 8 2>/dev/null
trap 'rm -rf -- "$temporary"' EXIT
find "${temporary%/*}" -maxdepth 1 -name 'autotune-*.held.*' -user "$(id -u)" -mmin +1 \\
    -exec flock -n {} rm -rf -- {} \\; 2>/dev/null
"""


def temporary(what: str, option: str = "") -> str:
    """Lines of sh that make ``$temporary``, a file or, with ``option`` ``-d``, a directory."""
    return (
        f"temporary=$(mktemp {option} --tmpdir autotune-{what}.held.XXXXXXXX) || exit 1\n{LOCKED}"
    )
