"""The user's own templates."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import AutotuneError
from autotune.target.read import TargetFile


def overrides(file: TargetFile) -> Path | None:
    """The directory whose templates come before the shipped ones. Raises AutotuneError."""
    named = {tier.templates for tier in file.target.tiers.values() if tier.templates}
    if len(named) > 1:
        raise AutotuneError("all tiers must share one `templates:` directory")
    return (file.path.parent / named.pop()).resolve() if named else None
