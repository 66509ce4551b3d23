"""What an export says of itself to whoever measures or applies it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.space.space import Space
from autotune.target.messages import format_value


def exported_settings(space: Space, export: Path) -> Settings:
    """The parameters of an export: a directory with its manifest, or the manifest itself.

    Raises AutotuneError where it is none, or not of this target.
    """
    settings = _of_manifest(export, "parameters")
    dimensions = {dimension.name: dimension for dimension in space.dimensions}
    for name, value in sorted(settings.items()):
        if name not in dimensions:
            raise AutotuneError(
                f"{export} speaks of {name}, which the target does not have",
                hint="it is measured and applied where its study ran, or on a target like that",
            )
        try:
            settings[name] = dimensions[name].typed(value)
        except ValueError:
            raise AutotuneError(
                f"{export}: {name} cannot be {format_value(value)}",
                hint="`autotune params` lists what it can be; an export is better left as it is",
            ) from None
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
    except OSError as error:
        raise _no_manifest(manifest, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _no_manifest(manifest, "it is no JSON") from error
    entries = document.get(key, otherwise) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise _no_manifest(manifest, f"it has no {key}")
    return entries


def _no_manifest(manifest: Path, why: str) -> AutotuneError:
    return AutotuneError(
        f"{manifest} is not the manifest of an export: {why}",
        hint="`autotune export STUDY --out DIR` writes one",
    )
