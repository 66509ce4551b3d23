"""What an export says of itself to whoever measures or applies it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.space.space import Space


def exported_settings(space: Space, export: Path) -> Settings:
    """The parameters of an export: a directory with its manifest, or the manifest itself.

    Raises AutotuneError where it is none, or not of this target.
    """
    settings = _of_manifest(export, "parameters")
    known = {dimension.name for dimension in space.dimensions}
    if unknown := sorted(set(settings) - known):
        raise AutotuneError(f"{export} speaks of {unknown[0]}, which the target does not have")
    return settings


def exported_rss(export: Path) -> dict[str, int]:
    """What processes were measured to occupy in the study of an export, in bytes.

    Rules about memory that it kept then it keeps now: what is not known yet is assumed larger.
    """
    return _of_manifest(export, "rss", {})


def _of_manifest(export: Path, key: str, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    manifest = export / "manifest.json" if export.is_dir() else export
    try:
        document = json.loads(manifest.read_text(encoding="utf-8"))
        return dict(document[key] if otherwise is None else document.get(key, otherwise))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"{manifest} is not the manifest of an export: {error}",
            hint="`autotune export STUDY --out DIR` writes one",
        ) from error
