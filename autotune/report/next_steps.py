"""The commands that continue a study, apply its winner, and undo the applied changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.report.conclusion import STOPPED_VERDICT
from autotune.report.figures import StudyFigures
from autotune.study.study_state import APPLY_PURPOSE
from autotune.study.winner_changes import MinimalChanges
from autotune.target.beds import needs_bed
from autotune.target.model import Target


@dataclass(frozen=True)
class NextSteps:
    """Commands by purpose. ``note`` describes the manual step if no command applies the winner.

    ``commands`` are the next commands, the most useful first. `status` shows
    ``status_command``, which is empty while the study runs.
    """

    resume: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    note: str = ""
    commands: tuple[str, ...] = ()
    status_command: str = ""


def build_next_steps(view: StudyFigures) -> NextSteps:
    """Return the commands that suit the study's verdict and its state (running or not)."""
    steps = _select_next_steps(view)
    return replace(
        steps,
        commands=tuple(_list_commands(view, steps)),
        status_command=_choose_status_command(view),
    )


def _select_next_steps(view: StudyFigures) -> NextSteps:
    study = view.study.argument
    if view.verdict == STOPPED_VERDICT and not view.state.purpose:
        resume_command = f"autotune resume {view.study.resume_argument}"
        return NextSteps(resume=() if view.study.running_process else (resume_command,))
    if view.verdict != "improved":
        return NextSteps()
    output_directory = shlex.quote(f"{view.name}-best")
    minimal_option = (
        " --minimal" if (view.state.minimal_changes or MinimalChanges()).trial is not None else ""
    )
    model_option = " --of-a-model" if view.target.simulated else ""
    export = f"autotune export {study}{minimal_option} --out {output_directory}{model_option}"
    if note := _describe_manual_step(view.target, output_directory):
        return NextSteps(apply=(export,), note=note)
    target = f"{shlex.quote(str(_shorten_path(view.study.target_path)))}{view.study.studies_option}"
    restore = f"autotune restore {target}"
    if view.state.kept_trial is not None:
        note = (
            "`--keep` left this configuration on the hosts. After a restore, `autotune apply` applies "
            "the export."
        )
        return NextSteps(apply=(export,), undo=(restore,), note=note)
    return NextSteps(apply=(export, f"autotune apply {output_directory} {target}"), undo=(restore,))


def _describe_manual_step(target: Target, output_directory: str) -> str:
    """Return how to use an export that no command applies to this target; empty if `autotune apply`
    applies it.
    """
    if target.simulated:
        return "The stack is a model, so there is no host to change. The export shows the files."
    if target.command is not None:
        return f"Use the parameters in {output_directory}/manifest.json for your command."
    if not all(tier.installed for tier in target.tiers.values()):
        guide_text = f"{output_directory}/README.md shows how to install the files."
        return f"The servers of this study were private. {guide_text}"
    if needs_bed(target):
        return (
            "`autotune apply` needs a target without test beds, with the addresses of the hosts to "
            "change."
        )
    return ""


def _list_commands(view: StudyFigures, steps: NextSteps) -> Iterator[str]:
    """Yield the next commands, the most useful first."""
    study_argument = view.study.argument
    if view.verdict == STOPPED_VERDICT and not view.state.purpose:
        yield from steps.resume
        yield f"autotune status {study_argument}"
    yield from steps.apply[:1]
    if view.gain and view.verdict == "improved" and len(view.changes) > 1:
        # A measurement would remove a kept winner from the hosts, so it is refused.
        state, is_kept = view.state, view.state.kept_trial is not None
        is_measurable = not (state.minimal_changes or state.is_shared or is_kept)
        measure_option = " --measure" if is_measurable else ""
        yield f"autotune explain {study_argument}{measure_option}"
    if view.conclusion.best:
        yield f"autotune diff {study_argument}"
    if view.verdict != "improved":
        page_option = "--html report.html" if view.study.is_database_copy else "--open"
        yield f"autotune report {study_argument} {page_option}"
    yield f"autotune report {study_argument} --json"


def _choose_status_command(view: StudyFigures) -> str:
    if view.study.running_process:
        return ""
    if view.state.purpose == APPLY_PURPOSE:
        return f"autotune restore {view.study.argument}"
    if view.state.purpose or view.state.is_over:
        return f"autotune report {view.study.argument}"
    return f"autotune resume {view.study.resume_argument}"


def _shorten_path(path: Path) -> Path:
    directory = Path.cwd()
    return path.relative_to(directory) if path.is_relative_to(directory) else path
