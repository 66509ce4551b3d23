"""What autotune leaves on a host while it tunes it, and the functions it does everything by there."""

from __future__ import annotations

from pathlib import Path

FUNCTIONS = Path(__file__).with_name("on_host.sh").read_text(encoding="utf-8")
HOME = "/var/lib/autotune"
ORIGINALS = f"{HOME}/originals.json"  # how the host was found
KEPT = f"{HOME}/kept.json"  # likewise, where a deployment was left in place on purpose
