"""The files of a target's services, from the user's own templates before the shipped ones."""

from __future__ import annotations

from pathlib import Path

from autotune.deploy.render import render
from autotune.deploy.stack import Part
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.target.read import TargetFile


def overrides(file: TargetFile) -> Path | None:
    """The directory whose templates come before the shipped ones. Raises AutotuneError."""
    named = {tier.templates for tier in file.target.tiers.values() if tier.templates}
    if len(named) > 1:
        raise AutotuneError("all tiers must share one `templates:` directory")
    return (file.path.parent / named.pop()).resolve() if named else None


def rendered(file: TargetFile, part: Part, settings: Settings) -> dict[str, bytes]:
    """Path → content of the part's files. Raises RenderError."""
    return render(part.service, part.site, settings, file.target.data, overrides(file))
