"""`autotune apply`: read an exported configuration, and leave it deployed on a target's hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune import foreign_files
from autotune.deploy.deploy_result import DeployResult
from autotune.environments.base import Environment
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.strict_parsing import parse_json
from autotune.study.study_state import APPLY_PURPOSE
from autotune.study.trial_context import ProgressReporter, begin_study, open_session
from autotune.target.messages import format_value

MAX_RSS_BYTES = 2**60


def read_applicable_settings(environment: Environment, export: Path) -> Settings:
    """The settings of an export, which must all take effect in the target without a change.

    Raises AutotuneError for an export that cannot be read, does not fit the target, has settings
    without an effect there, or would be changed by its rules: what was proven is applied or measured.
    """
    return read_compatible_settings(environment.space, export)


def read_compatible_settings(space: SearchSpace, export: Path) -> Settings:
    """As `read_applicable_settings`, for a space."""
    settings = read_exported_settings(space, export)
    candidate = space.with_measured_memory(read_exported_rss(export)).build_candidate(settings)
    changed = {name: value for name, value in settings.items()
               if not space.has_same_effect(name, value, candidate.settings)}  # fmt: skip
    if changed:
        values = ", ".join(
            f"{name} = {value} would be {candidate.settings.get(name)}"
            for name, value in changed.items()
        )
        rules = "; ".join(str(binding) for binding in candidate.repairs)
        raise AutotuneError(
            f"{export} does not fit these hosts: {values}" + (f" ({rules})" if rules else ""),
            hint="it fits other hosts: only a study of this target finds what fits these",
        )
    if inactive := _find_inactive_settings(space, export, candidate.settings, settings):
        raise AutotuneError(
            f"{export} has settings without an effect in this target: {', '.join(inactive)}",
            hint="name the target of its study, or one with the same services",
        )
    return settings


def _find_inactive_settings(
    space: SearchSpace, export: Path, complete_settings: Settings, exported: Settings
) -> list[str]:
    """The settings that were changed and have no effect here. A manifest lists what had one in its
    study; without that list, all that differ from the baseline count."""
    changes = _read_effective_changes(export)
    active = space.active_parameters(complete_settings)
    differing = {name for name, value in exported.items() if space.baseline[name] != value}
    if changes is not None:
        differing &= {str(change["parameter"]) for change in changes
                      if isinstance(change, dict) and "parameter" in change}  # fmt: skip
    return sorted(differing - active)


def apply_settings(
    environment: Environment, settings: Settings, directory: Path, progress: ProgressReporter
) -> DeployResult:
    """Deploy in one transaction and leave it there; `autotune restore` takes it back.

    Raises DeployFailed, with every host as it was, when it does not validate, start or answer.
    """
    with open_session(environment, directory, progress) as context:
        fleet = context.session.fleet
        begin_study(environment, context, directory, APPLY_PURPOSE)
        deployed = fleet.deploy(environment.space.complete_unrepaired(settings).settings)
        fleet.keep_deployed()
        return deployed


def format_apply_result(deployed: DeployResult, directory: Path) -> str:
    """What was done, and how to take it back."""
    actions = [
        f"{action.name.lower()} {part}" for part, action in deployed.actions.items() if action
    ]
    differing = [f"! {difference}" for difference in deployed.mismatches]
    return "\n".join([
        f"applied: {', '.join(actions) or 'nothing to do, it was in place'}",
        *differing,
        f"take it back with: autotune restore {directory.name}",
    ])  # fmt: skip


def read_exported_settings(space: SearchSpace, export: Path) -> Settings:
    """The parameters of an export: a directory with its manifest, or the manifest itself.

    Raises AutotuneError where it is not an export, or not one of this target.
    """
    settings = _read_manifest_entry(export, "parameters")
    dimensions = {dimension.name: dimension for dimension in space.dimensions}
    for name, value in sorted(settings.items()):
        if name not in dimensions:
            raise AutotuneError(
                f"{export} speaks of {name}, which the target does not have",
                hint="it is measured and applied where its study ran, or on a target like that",
            )
        try:
            settings[name] = dimensions[name].convert(value)
        except ValueError:
            raise AutotuneError(
                f"{export}: {name} cannot be {format_value(value)}",
                hint="`autotune params` lists what it can be; an export is better left as it is",
            ) from None
    return settings


def read_exported_rss(export: Path) -> dict[str, int]:
    """The memory of processes as measured in the study of an export, in bytes by `tier.service`.

    With these sizes the export keeps the memory rules that it kept in its study: larger sizes are
    assumed where none are known. Raises AutotuneError.
    """
    sizes = _read_manifest_entry(export, "rss", {})
    for name, size in sizes.items():
        if not isinstance(size, int) or not 0 <= size < MAX_RSS_BYTES:
            raise _invalid_manifest_error(
                export, f"{name} cannot occupy {format_value(size)} bytes"
            )
    return sizes


def _read_effective_changes(export: Path) -> list[Any] | None:
    """The settings that had an effect in the study of an export; ``None`` without a list of them."""
    changes = _read_manifest(export).get("changes")
    return changes if isinstance(changes, list) else None


def _read_manifest_entry(
    export: Path, key: str, default: dict[str, Any] | None = None
) -> dict[str, Any]:
    entries = _read_manifest(export).get(key, default)
    if not isinstance(entries, dict):
        raise _invalid_manifest_error(_manifest_path(export), f"it has no {key}")
    return entries


def _manifest_path(export: Path) -> Path:
    return export / "manifest.json" if export.is_dir() else export


def _read_manifest_bytes(export: Path) -> bytes:
    if export.is_dir():
        return foreign_files.read_bytes(export, "manifest.json", foreign_files.MAX_RECORD_BYTES)
    return foreign_files.read_named_file(export, foreign_files.MAX_RECORD_BYTES)


def _read_manifest(export: Path) -> dict[str, Any]:
    manifest = _manifest_path(export)
    try:
        document = parse_json(_read_manifest_bytes(export))
    except OSError as error:
        raise _invalid_manifest_error(manifest, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _invalid_manifest_error(manifest, "it is no JSON") from error
    if not isinstance(document, dict):
        raise _invalid_manifest_error(manifest, "it has no parameters")
    return document


def _invalid_manifest_error(manifest: Path, reason: str) -> AutotuneError:
    return AutotuneError(
        f"{manifest} is not the manifest of an export: {reason}",
        hint="`autotune export STUDY --out DIR` writes one",
    )
