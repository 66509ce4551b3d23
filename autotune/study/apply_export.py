"""`autotune apply`: read an exported configuration and deploy it permanently on a target's hosts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from autotune import foreign_files
from autotune.deploy.deploy_result import DeployResult
from autotune.environments.base import Environment
from autotune.errors import AutotuneError, UsageError
from autotune.services.base import Settings
from autotune.space.space import SearchSpace
from autotune.strict_parsing import parse_json
from autotune.study.progress_reporter import ProgressReporter
from autotune.study.study_state import APPLY_PURPOSE
from autotune.study.trial_context import begin_study, open_session
from autotune.study_argument import EVENTS_FILE, format_study_argument
from autotune.target.messages import format_value
from autotune.target.path_hints import is_export

MAX_RSS_BYTES = 2**60


def read_applicable_settings(environment: Environment, export: Path) -> Settings:
    """Return the settings of an export, all of which take effect unchanged in the target.

    Raises AutotuneError if the export cannot be read, does not fit the target or has no effect in the
    target. Settings that the target's rules would change are rejected with the same error, because they
    would no longer be the proven settings.
    """
    return read_compatible_settings(environment.space, export)


def read_compatible_settings(space: SearchSpace, export: Path) -> Settings:
    """Return the settings of an export, all of which take effect unchanged in this search space. Raises
    the errors of `read_applicable_settings`.
    """
    settings = _use_fixed_values(space, export, read_exported_settings(space, export))
    candidate = space.with_measured_memory(read_exported_rss(export)).build_candidate(settings)
    repaired_settings = {
        name: value
        for name, value in settings.items()
        if not space.has_same_effect(name, value, candidate.settings)
    }
    if repaired_settings:
        repaired_text = ", ".join(
            f"{name} = {value} would be {candidate.settings.get(name)}"
            for name, value in repaired_settings.items()
        )
        rules_text = "; ".join(str(repaired_value) for repaired_value in candidate.repairs)
        raise AutotuneError(
            f"{export} does not fit these hosts: {repaired_text}"
            + (f" ({rules_text})" if rules_text else ""),
            hint="start a study with this target to find settings that fit these hosts",
        )
    if inactive_names := _find_inactive_settings(space, export, candidate.settings, settings):
        raise AutotuneError(
            f"these settings of {export} have no effect in this target: {', '.join(inactive_names)}",
            hint="use the target of its study, or a target with the same services",
        )
    return settings


def _use_fixed_values(space: SearchSpace, export: Path, settings: Settings) -> Settings:
    """Return ``settings`` with the target's value of each fixed parameter for which the study requested
    that value.

    An export contains values in effect. If a program computes such a value itself, it may break a rule
    of the target.
    """
    requested_values = _read_manifest_entry(export, "requested", is_required=False)
    fixed_values = {
        name: space.baseline[name]
        for name, value in requested_values.items()
        if name in settings
        and space.dimensions_by_name[name].is_fixed
        and value == space.baseline[name]
    }
    return {**settings, **fixed_values}


def refuse_simulated_export(export: Path) -> None:
    """Raise AutotuneError if an export comes from a model, because its values were never measured.

    An unreadable export is ignored, because mistakes of the target are reported first.
    """
    try:
        is_simulated = bool(_read_manifest(export).get("simulated"))
    except AutotuneError:
        return
    if is_simulated:
        raise AutotuneError(
            f"{export} comes from a model, so no host was measured with its values",
            hint="list the values under `try:` in the target of the hosts, and run a study",
        )


def _find_inactive_settings(
    space: SearchSpace, export: Path, complete_settings: Settings, exported_settings: Settings
) -> list[str]:
    """Return the changed settings that have no effect in this target.

    The manifest lists the settings with an effect in the study. If the manifest lacks this list, every
    setting that differs from the baseline counts as a change.
    """
    recorded_names = _read_changed_names(export)
    active_names = space.active_parameters(complete_settings)
    differing_names = {
        name for name, value in exported_settings.items() if space.baseline[name] != value
    }
    if recorded_names is not None:
        differing_names &= recorded_names
    return sorted(differing_names - active_names)


def apply_settings(
    environment: Environment, settings: Settings, directory: Path, progress: ProgressReporter
) -> DeployResult:
    """Deploy the settings in one transaction and leave them in place; `autotune restore` reverts them.

    Raises DeployFailed, with every host unchanged, if the servers do not validate, start or respond.
    """
    with open_session(environment, directory, progress) as context:
        fleet = context.session.fleet
        begin_study(environment, context, directory, APPLY_PURPOSE)
        deploy_result = fleet.deploy(environment.space.complete_without_repair(settings).settings)
        fleet.keep_deployed()
        return deploy_result


def format_apply_result(deploy_result: DeployResult, directory: Path) -> str:
    """Return the actions of a deployment as text, with the command for reverting them."""
    actions = [
        f"{action.name.lower()} {service}"
        for service, action in deploy_result.actions.items()
        if action
    ]
    differences = [f"! {difference}" for difference in deploy_result.mismatches]
    return "\n".join(
        [
            f"applied: {', '.join(actions) or 'no action needed, the settings were already effective'}",
            *differences,
            f"undo with: autotune restore {format_study_argument(directory)}",
        ]
    )


def read_exported_settings(space: SearchSpace, export: Path) -> Settings:
    """Return the parameters of an export: a directory with a manifest, or the manifest itself.

    Raises AutotuneError if ``export`` is not an export for this target.
    """
    settings = _read_manifest_entry(export, "parameters")
    dimensions = {dimension.name: dimension for dimension in space.dimensions}
    for name, value in sorted(settings.items()):
        if name not in dimensions:
            raise AutotuneError(
                f"{export} sets {name}, which is not a parameter of this target",
                hint="use the target of its study, or a target with the same services",
            )
        try:
            settings[name] = dimensions[name].convert_value(value)
        except ValueError:
            raise AutotuneError(
                f"{export}: {name} cannot be {format_value(value)}",
                hint="`autotune params` lists the valid values; restore the original export",
            ) from None
    return settings


def read_exported_rss(export: Path) -> dict[str, int]:
    """Return process sizes from the study that created an export: bytes for each `tier.service`.

    With these sizes, the export satisfies the same memory rules as in its study. Without these sizes,
    larger sizes are assumed. Raises AutotuneError for an invalid export.
    """
    size_by_service = _read_manifest_entry(export, "rss", is_required=False)
    for name, size in size_by_service.items():
        if not isinstance(size, int) or not 0 <= size < MAX_RSS_BYTES:
            raise _build_manifest_error(export, f"{name} cannot occupy {format_value(size)} bytes")
    return size_by_service


def _read_changed_names(export: Path) -> set[str] | None:
    """Return the names of the settings with an effect, as an export lists them; ``None`` without a
    list.
    """
    recorded_changes = _read_manifest(export).get("changes")
    if not isinstance(recorded_changes, list):
        return None
    return {
        str(change["parameter"])
        for change in recorded_changes
        if isinstance(change, dict) and "parameter" in change
    }


def _read_manifest_entry(
    export: Path, entry_key: str, *, is_required: bool = True
) -> dict[str, Any]:
    manifest_entry = _read_manifest(export).get(entry_key, None if is_required else {})
    if not isinstance(manifest_entry, dict):
        raise _build_manifest_error(_locate_manifest(export), f"`{entry_key}` is missing")
    return manifest_entry


def _locate_manifest(export: Path) -> Path:
    return export / "manifest.json" if export.is_dir() else export


def _read_manifest_bytes(export: Path) -> bytes:
    if export.is_dir():
        return foreign_files.read_bytes(export, "manifest.json", foreign_files.MAX_RECORD_BYTES)
    return foreign_files.read_named_file(export, foreign_files.MAX_RECORD_BYTES)


def _read_manifest(export: Path) -> dict[str, Any]:
    manifest = _locate_manifest(export)
    if foreign_files.has_file(export, EVENTS_FILE):
        raise UsageError(
            f"{export} is a study, not an export",
            hint=f"`autotune export {format_study_argument(export)} --out DIR` writes an export",
        )
    if not is_export(export) and is_export(export.parent):
        raise UsageError(
            f"{export} is a file of an export",
            hint=f"name the export: {shlex.quote(str(export.parent))}",
        )
    try:
        manifest_document = parse_json(_read_manifest_bytes(export))
    except OSError as error:
        raise _build_manifest_error(manifest, (error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise _build_manifest_error(manifest, "invalid JSON") from error
    if not isinstance(manifest_document, dict):
        raise _build_manifest_error(manifest, "`parameters` is missing")
    return manifest_document


def _build_manifest_error(manifest_path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{manifest_path} is not the manifest of an export: {reason}",
        hint="`autotune export STUDY --out DIR` writes one",
    )
