"""The commands that continue a study, apply its winner, and undo this."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from autotune.report.conclusion import STOPPED_VERDICT
from autotune.report.view import StudyView
from autotune.study.winner_changes import MinimalChanges


@dataclass(frozen=True)
class NextSteps:
    """Commands by purpose. ``note`` describes the manual step if no command applies the winner."""

    resume: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    note: str = ""


def build_next_steps(view: StudyView) -> NextSteps:
    """Return the commands that are available for the study's verdict and runtime."""
    name = shlex.quote(view.name)
    if view.verdict == STOPPED_VERDICT and view.conclusion.baseline:
        return NextSteps(resume=() if view.study.running_process else (f"autotune resume {name}",))
    if view.verdict != "improved":
        return NextSteps()
    output = shlex.quote(f"{view.name}-best")
    minimal_option = (
        " --minimal" if (view.state.minimal_changes or MinimalChanges()).trial is not None else ""
    )
    export = f"autotune export {name}{minimal_option} --out {output}"
    if view.target.simulated:
        note = "The stack is a model, so there is no host to change. The export shows the files."
        return NextSteps(apply=(f"{export} --of-a-model",), note=note)
    if view.target.command is not None:
        return NextSteps(
            apply=(export,), note=f"Use the parameters in {output}/manifest.json for your command."
        )
    if not all(tier.installed for tier in view.target.tiers.values()):
        guide = f"{output}/README.md shows how to install the files."
        note = f"The servers of this study were private. {guide}"
        return NextSteps(apply=(export,), note=note)
    target = shlex.quote(str(_shorten_path(view.study.target_path)))
    return NextSteps(
        apply=(export, f"autotune apply {output} {target}"), undo=(f"autotune restore {target}",)
    )


def _shorten_path(path: Path) -> Path:
    directory = Path.cwd()
    return path.relative_to(directory) if path.is_relative_to(directory) else path
