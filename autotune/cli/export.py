"""Commands that hand a configuration over: `export`, `apply`; and `restore`, what was there before."""

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
    out: Annotated[Path, typer.Option(help="A directory that is empty or not there yet.")],
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="files, ansible, shell, patch, yaml or json.",
            autocompletion=completion.formats,
        ),
    ] = "files",
    trial: Annotated[
        str | None,
        typer.Option(
            help="Another trial than the winner, whatever it proved.",
            autocompletion=completion.trials,
        ),
    ] = None,
    minimal: Annotated[
        bool, typer.Option("--minimal", help="Only the changes that `explain --measure` kept.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what the study deployed and did not change.")
    ] = False,
    of_a_model: Annotated[
        bool, typer.Option("--of-a-model", help="Even if no host was measured; it is marked so.")
    ] = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Write what the winner changes, where it comes from, how to apply it and to roll back."""
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
        Path, typer.Argument(metavar="EXPORT", help="What `autotune export` wrote.")
    ],
    target: TargetPath,
    yes: Yes = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """Put an exported configuration on a target's hosts, in one transaction."""
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
        f"{plural(len(settings), 'setting')} for {', '.join(changes)}; changed from the baseline: "
        f"{changed}."
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
            help="A target file or a study.",
            show_default=False,
            autocompletion=completion.targets_and_studies,
        ),
    ],
    studies: Studies = STUDIES,
) -> None:
    """Restore the hosts of a killed study, and end its private servers."""
    from autotune.study import restore as restores
    from autotune.study.directory import find

    path = Path(what)
    if path.is_file():
        lines = restores.restore_target(path, studies)
    else:
        hosts = "`autotune restore TARGET`, with its file, restores from the copies on its hosts"
        lines = restores.restore_study(find(what, studies, hosts))
    for line in lines or [f"{what}: nothing was left behind"]:
        echo(line)
