"""What autotune leaves on a host while it tunes it, and the functions it does everything by there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

FUNCTIONS = Path(__file__).with_name("on_host.sh").read_text(encoding="utf-8")
HOME = "/var/lib/autotune"
ORIGINALS = f"{HOME}/originals.json"  # how the host was found
KEPT = f"{HOME}/kept.json"  # likewise, where a deployment was left in place on purpose


def in_place(new: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """The words that run ``argv`` with other files at some paths (path → where they lie).

    Only ``argv`` sees them there: software comes upon them as it does upon the real ones.
    """
    pairs = [word for path, lies in new.items() for word in (lies, path)]
    return ("judge", str(len(new)), *pairs, *argv)
