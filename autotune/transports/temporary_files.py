"""Temporary files for programs on a host, which are removed even if the program fails or is killed."""

from __future__ import annotations

#: Shell lines that lock the file or directory ``$temporary`` and remove it when the shell exits. A
#: killed shell cannot remove its file, so the next shell removes unlocked files older than a minute.
#: Creating and locking a file takes less than a minute. Without flock(1), only the shell's own file is
#: removed.
LOCK_SCRIPT = """exec 8<"$temporary"
flock -n 8 2>/dev/null
trap 'rm -rf -- "$temporary"' EXIT
find "${temporary%/*}" -maxdepth 1 -name 'autotune-*.held.*' -user "$(id -u)" -mmin +1 \\
    -exec flock -n {} rm -rf -- {} \\; 2>/dev/null
"""


def temporary_file_script(purpose: str, option: str = "") -> str:
    """Return shell lines that create ``$temporary``: a file, or a directory if ``option`` is
    ``-d``.
    """
    return (
        f"temporary=$(mktemp {option} --tmpdir autotune-{purpose}.held.XXXXXXXX) || exit "
        f"1\n{LOCK_SCRIPT}"
    )
