"""`autotune apply`: read an exported configuration, and leave it deployed on a target's hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """The settings of an export, which must keep the target's rules without a change.

    Raises AutotuneError for an export that cannot be read, does not fit the target, or would be
    changed by the target's rules: what is applied is exactly what was proven.
    """
    settings = exported_settings(environment.space, export)
    candidate = environment.space.knowing(exported_rss(export)).candidate(settings)
    changed = {k: v for k, v in settings.items() if candidate.settings.get(k) != v}
    if changed:
        name, value = next(iter(changed.items()))
        rules = "; ".join(str(binding) for binding in candidate.bindings)
        raise AutotuneError(
            f"{name} = {value} does not fit these hosts, where it would be "
            f"{candidate.settings.get(name)}" + (f" ({rules})" if rules else ""),
            hint="it fits other hosts: only a study of this target finds what fits these",
        )
    return settings


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


def _of_manifest(export: Path, key: str, otherwise: dict[str, Any] | None = None) -> dict[str, Any]:
    manifest = export / "manifest.json" if export.is_dir() else export
    try:
        document = parse_json(manifest.read_bytes())
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
