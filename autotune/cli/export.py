"""Commands that apply a configuration or undo it: `export`, `apply` and `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import (
    STUDIES,
    Detail,
    Json,
    StorageUrl,
    Studies,
    StudyName,
    TargetPath,
    Yes,
)
from autotune.cli.output import print_json
from autotune.cli.session import confirm, prepared, reporting, studies_in
from autotune.target.messages import plural
from autotune.terminal import echo


def export(
    study: StudyName,
    out: Annotated[Path, typer.Option(metavar="DIR", help="New or empty directory to write to.")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format: files, ansible, shell, patch, yaml or json.",
            autocompletion=completion.formats,
        ),
    ] = "files",
    trial: Annotated[
        str | None,
        typer.Option(
            metavar="TRIAL",
            help="Export this trial instead of the winner. No gain is claimed.",
            autocompletion=completion.trials,
        ),
    ] = None,
    minimal: Annotated[
        bool,
        typer.Option("--minimal", help="Export only the changes that `explain --measure` kept."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also export settings that the study did not change.")
    ] = False,
    of_a_model: Annotated[
        bool,
        typer.Option("--of-a-model", help="Allow the export of a model's result, and mark it."),
    ] = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Export the winning configuration, with instructions to apply and roll back."""
    from autotune.export.write import minimal_trial, write_export
    from autotune.report.studies import open_study
    from autotune.study.directory import find
    from autotune.study.origin import reading

    with studies_in(storage, studies, [study]) as root:
        directory = find(study, root)
        with reading(directory):
            opened = open_study(directory)
            chosen = minimal_trial(opened) if minimal else trial
            options = {"everything": everything, "of_a_model": of_a_model}
            for path in write_export(opened, out, format_, chosen, **options):
                echo(str(out / path))


def apply(
    export_: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="Directory that `autotune export` wrote.")
    ],
    target: TargetPath,
    yes: Yes = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """Apply an exported configuration to a target's hosts, in one transaction."""
    from autotune.study import applying
    from autotune.study.context import check_stays
    from autotune.study.directory import new_directory
    from autotune.study.plan import changes_json, changes_text

    environment = prepared(target)
    settings = applying.settings_of(environment, export_)
    check_stays(environment)
    baseline = environment.space.baseline
    changed = sum(settings[name] != baseline[name] for name in settings)
    changes_of = environment.preview().changes
    assert changes_of is not None  # configurations that can stay are on hosts
    changes = changes_of(environment.space.as_given(settings).settings)
    planned = changes_json(changes)
    about = (
        f"{plural(len(settings), 'setting')} for {', '.join(changes)}. "
        f"{changed} of them differ from the baseline."
    )
    diffs = [change["diff"].rstrip("\n") for change in planned.values() if change["diff"]]
    confirm("\n".join([*diffs, about, *changes_text(planned)]), yes=yes)
    directory = new_directory(studies, f"{environment.file.target.name}-applied")
    with reporting(environment, directory, Detail(), paged=False) as progress:
        deployed = applying.apply(environment, settings, directory, progress)
    if json_:
        actions = {part: action.name.lower() for part, action in deployed.actions.items()}
        differing = [str(difference) for difference in deployed.differences]
        print_json(
            {"schema": 1, "study": directory.name, "actions": actions, "differences": differing}
        )
    else:
        echo(applying.text(deployed, directory))


def restore(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TARGET|STUDY",
            help="Target file or study.",
            show_default=False,
            autocompletion=completion.targets_and_studies,
        ),
    ],
    studies: Studies = STUDIES,
) -> None:
    """Restore hosts after a crash, and stop private servers."""
    from autotune.study import restore as restores
    from autotune.study.directory import find

    path = Path(what)
    if path.is_file():
        lines = restores.restore_target(path, studies)
    else:
        hosts = "`autotune restore TARGET` restores from the copies on the hosts"
        lines = restores.restore_study(find(what, studies, hosts))
    for line in lines or [f"{what}: nothing to restore"]:
        echo(line)
