"""Commands that apply a configuration or undo it: `export`, `apply` and `restore`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import (
    DEFAULT_PROGRESS,
    DEFAULT_STUDIES_DIRECTORY,
    ExistingStudiesOption,
    JsonOption,
    ProgressOptions,
    StorageUrlOption,
    StudiesOption,
    StudyArgument,
    TargetArgument,
    YesOption,
    add_progress_options,
)
from autotune.cli.output_files import check_new_directory
from autotune.cli.session import (
    confirm,
    open_progress,
    open_studies_directory,
    prepare_target,
    reject_sweep,
)
from autotune.errors import UsageError
from autotune.exit_handling import print_mistake
from autotune.target.messages import format_count
from autotune.terminal import echo, print_json

if TYPE_CHECKING:
    from autotune.environments.base import Environment
    from autotune.report.studies import Study
    from autotune.services.base import Settings


APPLY_FIX = "name the target of the hosts; to use the files elsewhere, copy them from the export"
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="New or empty directory to write to.",
        callback=check_new_directory,
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Format: files, ansible, shell, patch, yaml or json.",
        autocompletion=completion.complete_formats,
    ),
]
TrialOption = Annotated[
    str | None,
    typer.Option(
        metavar="TRIAL",
        help="Export this trial instead of the winner, without claiming a gain.",
        autocompletion=completion.complete_trials,
    ),
]
MinimalOption = Annotated[
    bool, typer.Option("--minimal", help="Export only the changes that `explain --measure` kept.")
]
EverythingOption = Annotated[
    bool, typer.Option("--all", help="Also export settings that the study did not change.")
]
ModelOption = Annotated[
    bool,
    typer.Option(
        "--of-a-model", help="Allow exporting a simulated result, and mark it as simulated."
    ),
]


def export(
    study: StudyArgument,
    out: OutOption,
    format_: FormatOption = "files",
    trial: TrialOption = None,
    minimal: MinimalOption = False,
    everything: EverythingOption = False,
    of_a_model: ModelOption = False,
    json_: JsonOption = False,
    storage: StorageUrlOption = None,
    studies: ExistingStudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Export the winning configuration, with instructions to apply and roll back."""
    from autotune.export.writer import find_minimal_trial, write_export
    from autotune.report.studies import open_study
    from autotune.study.directory import find_study
    from autotune.study.ownership import guard_foreign_records

    _check_selection(trial, minimal=minimal)
    with open_studies_directory(storage, studies, [study]) as studies_root:
        directory = find_study(study, studies_root)
        with guard_foreign_records(directory):
            reject_sweep(directory, "winner to export")
            exported_study = open_study(directory)
            trial = find_minimal_trial(exported_study) if minimal else trial
            paths = write_export(
                exported_study,
                out,
                format_,
                trial,
                include_unchanged=everything,
                allow_simulated=of_a_model,
            )
            _warn_of_unchanged_trial(exported_study, None if everything else trial)
    if of_a_model and not exported_study.target.simulated:
        _warn_of_model_option(directory.name)
    files = [str(out / path) for path in paths]
    if json_:
        print_json({"schema": 1, "study": directory.name, "format": format_, "files": files})
        return
    for printed_path in files:
        echo(printed_path)


def _warn_of_model_option(study_name: str) -> None:
    """Print a warning that `--of-a-model` had no effect."""
    message = f"--of-a-model has no effect: study {study_name} measured no model"
    print_mistake(UsageError(message, hint="omit --of-a-model"), "warning: ")


def _warn_of_unchanged_trial(study: Study, trial: str | None) -> None:
    """Print a warning if the exported trial contains no change."""
    from autotune.export.writer import list_changes

    if trial is None or list_changes(study, trial):
        return
    warning = UsageError(
        f"--trial {trial}: this trial changes nothing, because its settings are the baseline",
        hint=f"name another trial: `autotune report {study.argument} --csv trials` lists them",
    )
    print_mistake(warning, "warning: ")


def _check_selection(trial: str | None, *, minimal: bool) -> None:
    if minimal and trial is not None:
        raise UsageError(
            "--trial and --minimal cannot be combined",
            hint="omit --minimal to export the trial, or --trial to export the changes that count",
        )


@add_progress_options()
def apply(
    export_: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="Directory that `autotune export` wrote.")
    ],
    target: TargetArgument,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Apply an exported configuration to a target's hosts, in one transaction."""
    from autotune.study import apply_export
    from autotune.study.directory import find_free_directory
    from autotune.study.trial_context import check_can_keep

    _check_export_argument(export_, target, studies)
    apply_export.refuse_simulated_export(export_)
    environment = prepare_target(target)
    settings = apply_export.read_applicable_settings(environment, export_)
    check_can_keep(environment, "nothing can be applied", APPLY_FIX)
    announcement = "\n".join(_announce_changes(environment, settings))
    confirm(announcement, yes=yes, quiet=progress.quiet)
    directory = find_free_directory(studies, f"{environment.file.target.name}-applied")
    with open_progress(environment, directory, progress, with_page=False) as reporter:
        deploy_result = apply_export.apply_settings(environment, settings, directory, reporter)
    if json_:
        actions = {name: action.name.lower() for name, action in deploy_result.actions.items()}
        mismatches = [str(mismatch) for mismatch in deploy_result.mismatches]
        print_json(
            {"schema": 1, "study": directory.name, "actions": actions, "differences": mismatches}
        )
    else:
        echo(apply_export.format_apply_result(deploy_result, directory))


def _check_export_argument(export: Path, target: Path, studies: Path) -> None:
    """Raise UsageError if the arguments are swapped, or if a study or a target was named instead of the
    export.
    """
    from autotune.study.directory import TARGET_SUFFIXES, is_study
    from autotune.target.path_hints import is_export

    if is_export(export):
        return
    if is_export(target):
        words = shlex.join(["autotune", "apply", str(target), str(export)])
        raise UsageError(
            f"{target} is an export, not a target: the arguments are swapped",
            hint=f"write the export before the target: `{words}`",
        )
    if is_study(export, studies):
        study = shlex.quote(str(export))
        raise UsageError(
            f"{export} is a study, not an export",
            hint=f"`autotune export {study} --out DIR` writes an export",
        )
    if export.suffix in TARGET_SUFFIXES and export.is_file():
        raise UsageError(
            f"{export} is not an export",
            hint="`autotune export STUDY --out DIR` writes an export; name it before the target file",
        )


def _announce_changes(environment: Environment, settings: Settings) -> Iterator[str]:
    """Yield the diffs of files, and the other changes on each host."""
    from autotune.study.run_plan import encode_host_changes, format_changes

    baseline = environment.space.baseline
    changed_count = sum(settings[name] != baseline[name] for name in settings)
    compute_changes = environment.build_preview().compute_changes
    assert compute_changes is not None  # `check_can_keep` requires hosts
    changes = compute_changes(environment.space.complete_without_repair(settings).settings)
    changes_json = encode_host_changes(changes)
    yield from (c["diff"].rstrip("\n") for c in changes_json.values() if c["diff"])
    yield (
        f"{format_count(len(settings), 'setting')} for {', '.join(changes)}. "
        f"{changed_count} of them differ from the baseline."
    )
    yield from format_changes(changes_json)


def restore(
    target_or_study: Annotated[
        str,
        typer.Argument(
            metavar="TARGET|STUDY",
            help="Target file or study.",
            show_default=False,
            autocompletion=completion.complete_targets_and_studies,
        ),
    ],
    json_: JsonOption = False,
    studies: ExistingStudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Restore hosts after `apply`, `--keep` or a crash, and stop private servers."""
    from autotune.study.directory import TARGET_SUFFIXES, find_study
    from autotune.study.restore import RestoreReport, restore_study, restore_target
    from autotune.target.path_hints import is_export

    path, restore_report = Path(target_or_study), RestoreReport()
    if is_export(path):
        raise UsageError(
            f"{path} is an export, not a study",
            hint="`autotune restore TARGET` restores the hosts of a target",
        )
    if path.is_file() or path.suffix in TARGET_SUFFIXES:
        restore_target(path, studies, restore_report)
    else:
        hint = "`autotune restore TARGET` restores from the copies on the hosts"
        restore_study(find_study(target_or_study, studies, hint), restore_report)
    lines = restore_report.unwrap()
    if json_:
        print_json({"schema": 1, "restored": lines})
        return
    for line in lines or [f"{target_or_study}: nothing to restore"]:
        echo(line)
