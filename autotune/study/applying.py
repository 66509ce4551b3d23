"""`autotune apply`: read an exported configuration, and leave it deployed on a target's hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune import foreign_files
from autotune.deploy.deployed import Deployed
from autotune.environments.base import Environment
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.space.space import Space
from autotune.strict import parse_json
from autotune.study.context import ProgressReporter, open_study, opened
from autotune.study.records import APPLIED
from autotune.target.messages import format_value

LARGEST_RSS = 2**60


def settings_of(environment: Environment, export: Path) -> Settings:
    """The settings of an export, which must all take effect in the target without a change.

    Raises AutotuneError for an export that cannot be read, does not fit the target, has settings
    without an effect there, or would be changed by its rules: what was proven is applied or measured.
    """
    return fitting_settings(environment.space, export)


def fitting_settings(space: Space, export: Path) -> Settings:
    """As `settings_of`, for a space."""
    settings = exported_settings(space, export)
    candidate = space.knowing(exported_rss(export)).candidate(settings)
    changed = {name: value for name, value in settings.items()
               if not space.has_effect_of(name, value, candidate.settings)}  # fmt: skip
    if changed:
        values = ", ".join(
            f"{name} = {value} would be {candidate.settings.get(name)}"
            for name, value in changed.items()
        )
        rules = "; ".join(str(binding) for binding in candidate.bindings)
        raise AutotuneError(
            f"{export} does not fit these hosts: {values}" + (f" ({rules})" if rules else ""),
            hint="it fits other hosts: only a study of this target finds what fits these",
        )
    if inactive := _inactive(space, export, candidate.settings, settings):
        raise AutotuneError(
            f"{export} has settings without an effect in this target: {', '.join(inactive)}",
            hint="name the target of its study, or one with the same services",
        )
    return settings


def _inactive(space: Space, export: Path, complete: Settings, settings: Settings) -> list[str]:
    """The settings that were changed and have no effect here. A manifest lists what had one in its
    study; without that list, all that differ from the baseline count."""
    changes = _changes(export)
    active = space.active(complete)
    differing = {name for name, value in settings.items() if space.baseline[name] != value}
    if changes is not None:
        differing &= {str(change["parameter"]) for change in changes
                      if isinstance(change, dict) and "parameter" in change}  # fmt: skip
    return sorted(differing - active)


def apply(
    environment: Environment, settings: Settings, directory: Path, progress: ProgressReporter
) -> Deployed:
    """Deploy in one transaction and leave it there; `autotune restore` takes it back.

    Raises DeployFailed, with every host as it was, when it does not validate, start or answer.
    """
    with opened(environment, directory, progress) as context:
        fleet = context.session.fleet
        open_study(environment, context, directory, APPLIED)
        deployed = fleet.deploy(environment.space.as_given(settings).settings)
        fleet.keep()
        return deployed


def text(deployed: Deployed, directory: Path) -> str:
    """What was done, and how to take it back."""
    actions = [
        f"{action.name.lower()} {part}" for part, action in deployed.actions.items() if action
    ]
    differing = [f"! {difference}" for difference in deployed.differences]
    return "\n".join([
        f"applied: {', '.join(actions) or 'nothing to do, it was in place'}",
        *differing,
        f"take it back with: autotune restore {directory.name}",
    ])  # fmt: skip


def exported_settings(space: Space, export: Path) -> Settings:
    """The parameters of an export: a directory with its manifest, or the manifest itself.

    Raises AutotuneError where it is not an export, or not one of this target.
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
    """The memory of processes as measured in the study of an export, in bytes by `tier.service`.

    With these sizes the export keeps the memory rules that it kept in its study: larger sizes are
    assumed where none are known. Raises AutotuneError.
    """
    sizes = _of_manifest(export, "rss", {})
    for name, size in sizes.items():
        if not isinstance(size, int) or not 0 <= size < LARGEST_RSS:
            raise _no_manifest(export, f"{name} cannot occupy {format_value(size)} bytes")
    return sizes


def _changes(export: Path) -> list[Any] | None:
    """The settings that had an effect in the study of an export; ``None`` without a list of them."""
    changes = _document(export).get("changes")
    return changes if isinstance(changes, list) else None


def _of_manifest(export: Path, key: str, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    entries = _document(export).get(key, otherwise)
    if not isinstance(entries, dict):
        raise _no_manifest(_manifest(export), f"it has no {key}")
    return entries


def _manifest(export: Path) -> Path:
    return export / "manifest.json" if export.is_dir() else export


def _content(export: Path) -> bytes:
    if export.is_dir():
        return foreign_files.read_bytes(export, "manifest.json", foreign_files.RECORD)
    return foreign_files.read_named(export, foreign_files.RECORD)


def _document(export: Path) -> dict[str, Any]:
    manifest = _manifest(export)
    try:
        document = parse_json(_content(export))
    except OSError as error:
        raise _no_manifest(manifest, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _no_manifest(manifest, "it is no JSON") from error
    if not isinstance(document, dict):
        raise _no_manifest(manifest, "it has no parameters")
    return document


def _no_manifest(manifest: Path, why: str) -> AutotuneError:
    return AutotuneError(
        f"{manifest} is not the manifest of an export: {why}",
        hint="`autotune export STUDY --out DIR` writes one",
    )
