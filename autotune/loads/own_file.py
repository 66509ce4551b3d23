"""A program that wants a file, on a host that has none: it comes on standard input."""

from __future__ import annotations

from autotune.services.base import Argv

# Words are arguments: the option that the file's name ends, then what to run.
_WITH_FILE = """
file=$(mktemp --tmpdir autotune-load.XXXXXXXX) || exit 1
trap 'rm -f "$file"' EXIT
cat >"$file"
option=$1
shift
"$@" "$option$file"
"""


def with_file(argv: Argv, option: str) -> Argv:
    """``argv`` with an option more, which names a file that holds what stands on standard input."""
    return ("sh", "-c", _WITH_FILE, "sh", option, *argv)
