"""Settings that are known by a name, in any target: its own baseline, and what others advise."""

from __future__ import annotations

BASELINE = "baseline"
# Each is an attribute of `Dimension`: see `Space.preset`.
PRESETS = ("recommended", "published")
NAMED = (BASELINE, *PRESETS)
