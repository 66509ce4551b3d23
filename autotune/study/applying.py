"""`autotune apply`: an exported configuration put on a target's hosts, to stay."""

from __future__ import annotations

from pathlib import Path

from autotune.deploy.deployed import Deployed
from autotune.environments.base import Environment
from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.study.context import opened
from autotune.study.exported import exported_rss, exported_settings
from autotune.study.progress import ProgressReporter
from autotune.study.start import open_study


def settings_of(environment: Environment, export: Path) -> Settings:
    """The settings of an export that keep the target's rules as they are.

    Raises AutotuneError for an export that cannot be read, does not fit the target, or would be
    changed by the target's rules: what is applied is what was proven, or nothing.
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
            hint="tune the target itself with `autotune run`",
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
        if not fleet.keeps:
            raise AutotuneError(
                "private servers end with their study: there is nowhere to apply it to",
                hint="`apply` is for targets with `runtime: systemd`",
            )
        open_study(environment, context, directory)
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
