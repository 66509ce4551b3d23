"""Commands that inspect a study: `status`, `report`, `diff`, `explain` and `schema`."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from autotune.cli import completion
from autotune.cli.options import (
    DEFAULT_PROGRESS,
    DEFAULT_STUDIES_DIRECTORY,
    ExistingStudiesOption,
    JsonOption,
    ProgressOptions,
    StorageUrlOption,
    StudyArgument,
    TrialArgument,
    YesOption,
    add_progress_options,
    find_given_option,
    parse_rates,
)
from autotune.cli.output import print_csv, print_study, print_sweep
from autotune.cli.output_files import check_page_file
from autotune.cli.session import (
    confirm,
    follow_study,
    open_progress,
    open_studies_directory,
    reject_sweep,
)
from autotune.errors import CHANGES_PRESENT_EXIT_CODE, AutotuneError, UsageError
from autotune.study_argument import format_studies_option
from autotune.terminal import (
    echo,
    find_terminal_width,
    print_json,
    print_lines,
    print_patch,
    wrap_lines,
)

if TYPE_CHECKING:
    from autotune.report.view import StudyView

T = TypeVar("T")
TARGET_SCHEMA_NAME = "target"
DEFAULT_MAXIMUM = 60  # measurements of `explain --measure`


DifferenceExitCodeOption = Annotated[
    bool,
    typer.Option("--exit-code", help="Exit with status 6 if the configurations differ."),
]
StatusStudyArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STUDY",
        help="Study to show. [default: all]",
        autocompletion=completion.complete_studies,
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", help="Follow the study until it finishes.")]


def status(
    study: StatusStudyArgument = None,
    watch: WatchOption = False,
    json_: JsonOption = False,
    storage: StorageUrlOption = None,
    studies: ExistingStudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Show the state of studies, even while they run."""
    from autotune.report import status as statuses

    if watch:
        if study is None:
            raise UsageError(
                "--watch needs a study", hint="name the study: `autotune status STUDY --watch`"
            )
        if json_:
            raise UsageError(
                "--watch and --json cannot be combined",
                hint="omit --json to follow the study, or --watch to print its state once",
            )
        with follow_study(storage, studies, study) as find_directory:
            statuses.watch_status(find_directory, sys.stdout)
        return
    with open_studies_directory(storage, studies, [study] if study else None) as studies_root:
        render = statuses.build_status if json_ else statuses.format_status
        rendered_statuses = (
            [_render_study(studies_root, study, render)]
            if study
            else list(_render_readable_studies(studies_root, render))
        )
        if json_:
            print_json({"schema": 1, "studies": rendered_statuses})
            return
        if not rendered_statuses:
            run_command = f"autotune run TARGET{format_studies_option(studies)}"
            echo(f"no studies in {studies}: `{run_command}` starts one", err=True)
        for status_text in rendered_statuses:
            lines = [*str(status_text).splitlines(), ""]
            print_lines(wrap_lines(((line, "") for line in lines), find_terminal_width()))


def _render_study(studies_root: Path, study_name: str, render: Callable[[StudyView], T]) -> T:
    from autotune.report.studies import open_study
    from autotune.report.view import build_study_view
    from autotune.study.directory import find_study
    from autotune.study.ownership import guard_foreign_records

    directory = find_study(study_name, studies_root)
    with guard_foreign_records(directory):
        return render(build_study_view(open_study(directory)))


def _render_readable_studies(studies_root: Path, render: Callable[[StudyView], T]) -> Iterator[T]:
    """Yield the rendered studies. Damaged studies, and directories that this account cannot read, are
    printed on standard error.
    """
    from autotune.study.directory import list_study_names, list_unreadable_directories

    for study_name in list_study_names(studies_root):
        try:
            rendered_study = _render_study(studies_root, study_name, render)
        except AutotuneError as error:
            echo(f"{study_name}: {error.message}", err=True)
        else:
            yield rendered_study
    for name, reason in list_unreadable_directories(studies_root):
        echo(f"{name}: {reason}", err=True)


HtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the report as one self-contained HTML file.",
        callback=check_page_file,
    ),
]


def report(
    study: StudyArgument,
    html: HtmlOption = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the HTML report in a browser.")
    ] = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="RATE",
            help="Show latency at this rate, such as 800/s; may be repeated.",
        ),
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option("--csv", metavar="TABLE", help="Print `trials` or `readings` as CSV."),
    ] = None,
    json_: JsonOption = False,
    storage: StorageUrlOption = None,
    studies: ExistingStudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Show a study's verdict and evidence, or a sweep's results."""
    from autotune.study.directory import find_study
    from autotune.study.ownership import guard_foreign_records
    from autotune.sweep.plan import is_sweep

    _check_report_options(html, csv, at or (), open_=open_, json_=json_, storage=storage)
    with open_studies_directory(storage, studies, [study]) as studies_root:
        directory, rates = find_study(study, studies_root), parse_rates("--at", at or ())
        with guard_foreign_records(directory):
            if not is_sweep(directory):
                _output_report(directory, html, csv, open_=open_, json_=json_, rates=rates)
            else:
                report_option = "--csv" if csv is not None else "--at" if rates else None
                _output_sweep(directory, html, report_option, open_=open_, json_=json_)


def _check_report_options(
    html: Path | None,
    csv: str | None,
    rate_texts: Sequence[str],
    *,
    open_: bool,
    json_: bool,
    storage: str | None,
) -> None:
    """Raise UsageError for options that cannot be combined."""
    if open_ and storage and not html:
        raise UsageError(
            "--open with --storage needs --html", hint="add `--html FILE`, such as report.html"
        )
    if csv is not None and (json_ or rate_texts):
        other_option = "--json" if json_ else "--at"
        result = "the report as JSON" if json_ else "the latency at this rate"
        raise UsageError(
            f"--csv and {other_option} cannot be combined",
            hint=f"omit {other_option} to print a table, or --csv to print {result}",
        )
    if html is not None and rate_texts and not json_:
        raise UsageError(
            "--at and --html cannot be combined",
            hint="omit --html to print the latency, or --at: the page shows the latency at any rate",
        )


def _output_sweep(
    directory: Path, html: Path | None, study_option: str | None, *, open_: bool, json_: bool
) -> None:
    from autotune.foreign_files import check_ownership, check_writable_path

    if study_option:
        raise UsageError(
            f"{study_option} applies only to studies, and {directory.name} is a sweep",
            hint=f"omit {study_option}; `--json` prints every point of a sweep",
        )
    if open_ and html is None:
        check_ownership(directory)
        html = check_writable_path(directory, "sweep.html")
    print_sweep(directory, html, json_=json_)
    if open_ and html is not None:
        _open_in_browser(html)


def _open_in_browser(path: Path) -> None:
    if typer.launch(path.resolve().as_uri()):
        raise AutotuneError("cannot open a browser", hint=f"open {path} in a browser")


def _output_report(
    directory: Path,
    html: Path | None,
    csv: str | None,
    *,
    open_: bool,
    json_: bool,
    rates: Sequence[float],
) -> None:
    if html or open_:
        from autotune.foreign_files import check_ownership, check_writable_path
        from autotune.report.page import write_page
        from autotune.report.studies import open_study

        if html is None:
            check_ownership(directory)
        path = html or check_writable_path(directory, "report.html")
        echo(f"wrote {write_page(open_study(directory), path)}", err=True)
        if open_:
            _open_in_browser(path)
    if csv is not None:
        print_csv(directory, csv)
    elif json_ or not html:
        print_study(directory, json_=json_, exit_code=False, rates=rates)


def diff(
    study: StudyArgument,
    a: TrialArgument = "baseline",
    b: Annotated[
        str,
        typer.Argument(
            metavar="B", help="Trial to compare with.", autocompletion=completion.complete_trials
        ),
    ] = "best",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Compare settings instead of files.")
    ] = False,
    json_: JsonOption = False,
    exit_code: DifferenceExitCodeOption = False,
    storage: StorageUrlOption = None,
    studies: ExistingStudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Compare two configurations of a study, or one configuration with the hosts."""
    from autotune.report.diff import format_diff, style_diff_lines
    from autotune.report.studies import open_study
    from autotune.study.directory import find_study
    from autotune.study.ownership import guard_foreign_records

    _check_study_first(study, a, studies)
    with open_studies_directory(storage, studies, [study]) as studies_root:
        directory = find_study(study, studies_root)
        _reject_joined_sides(study, a)
        _check_compared_sides(a, b, studies_root, parameters=parameters)
        with guard_foreign_records(directory):
            reject_sweep(directory, "configurations to compare")
            diff_text = format_diff(open_study(directory), a, b, parameters=parameters)
    if json_:
        print_json({"schema": 1, "study": directory.name, "a": a, "b": b, "diff": diff_text})
    elif diff_text:
        print_patch(style_diff_lines(diff_text))
    else:
        echo(f"{a} and {b} do not differ", err=True)
    if exit_code and diff_text:
        raise typer.Exit(CHANGES_PRESENT_EXIT_CODE)


def _check_study_first(study: str, side: str, studies: Path) -> None:
    """Raise UsageError if a configuration was named before its study."""
    from autotune.study.directory import is_study

    if not is_study(Path(study), studies) and is_study(Path(side), studies):
        raise UsageError(
            f"{study} is not a study, but {side} is",
            hint=f"name the study first: `autotune diff {shlex.quote(side)} {shlex.quote(study)}`",
        )


def _reject_joined_sides(study: str, side: str) -> None:
    """Raise UsageError for two configurations in one word, such as `0..2` or `baseline:best`."""
    names = re.split(r"\.{2,3}|[:,-]", side)
    if len(names) == 2 and all(re.fullmatch(r"#?[0-9]+|baseline|best|hosts", n) for n in names):
        raise UsageError(
            f"{side}: two configurations in one word",
            hint=f"write `autotune diff {shlex.quote(study)} {' '.join(names)}`",
        )


def _check_compared_sides(a: str, b: str, studies: Path, *, parameters: bool) -> None:
    """Raise UsageError for sides that cannot be compared."""
    from autotune.report.diff import HOSTS_SIDE
    from autotune.study.directory import is_study

    for side in (a, b):
        if not side.removeprefix("#").isdigit() and is_study(Path(side), studies):
            raise UsageError(
                f"{side} is another study; `diff` compares two configurations of one study",
                hint="name trials, such as `autotune diff STUDY baseline best`",
            )
    if a == b:
        raise UsageError(
            f"both sides are {a}, so there is nothing to compare",
            hint="name two configurations, such as `autotune diff STUDY baseline best`",
        )
    if parameters and HOSTS_SIDE in (a, b):
        raise UsageError(
            f"--parameters cannot compare {HOSTS_SIDE}, because hosts contain files",
            hint="omit --parameters to compare files, or name two trials",
        )


@add_progress_options()
def explain(
    study: StudyArgument,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure how much each change contributes to the gain."),
    ] = False,
    maximum: Annotated[
        int | None,
        typer.Option(
            min=10,
            metavar="N",
            help=f"With --measure: maximum number of measurements. [default: {DEFAULT_MAXIMUM}]",
        ),
    ] = None,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    storage: StorageUrlOption = None,
    studies: ExistingStudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Explain a gain: which changes contribute, and by how much."""
    from autotune.report import explanation as reports
    from autotune.report.studies import open_study
    from autotune.report.view import build_study_view
    from autotune.study import ownership
    from autotune.study.directory import find_study

    if not measure:
        _reject_measure_options(maximum, progress, yes=yes)
    with open_studies_directory(storage, studies, [study]) as studies_root:
        directory = find_study(study, studies_root)
        with ownership.guard_foreign_records(directory):
            reject_sweep(directory, "gain to explain")
        if measure:
            _measure_changes(directory, maximum or DEFAULT_MAXIMUM, progress, yes=yes)
        with ownership.guard_foreign_records(directory):
            view = build_study_view(open_study(directory))
            explanation = reports.build_explanation(view)
    if json_:
        print_json(reports.build_explanation_json(view, explanation))
    else:
        echo(reports.format_explanation(view, explanation))


def _measure_changes(
    directory: Path, max_measurements: int, progress: ProgressOptions, *, yes: bool
) -> None:
    """Measure which of the winner's changes its gain depends on, after a confirmation."""
    from autotune.study import explain_study, ownership, start

    with ownership.guard_foreign_records(directory):
        explain_study.check_measurable(directory)
    environment = start.prepare_existing(directory)
    confirm(environment.describe_load(study=False), yes=yes, quiet=progress.quiet)
    with open_progress(environment, directory, progress) as reporter:
        explain_study.reduce_changes(environment, directory, reporter, max_measurements)


def _reject_measure_options(maximum: int | None, progress: ProgressOptions, *, yes: bool) -> None:
    """Raise UsageError for an option that has no effect without `--measure`."""
    values_by_option = {
        "--maximum": maximum,
        "--log-file": progress.log_file,
        "--verbose": progress.verbose,
        "--quiet": progress.quiet,
        "--yes": yes,
    }
    if useless_option := find_given_option(values_by_option):
        raise UsageError(
            f"{useless_option} needs --measure",
            hint=f"add --measure to measure each change, or omit {useless_option}",
        )


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Schema to print. [default: list the names]",
            autocompletion=completion.complete_schemas,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of target files or of a JSON output."""
    from autotune.cli.json_schemas import OUTPUT_OBJECTS, build_schema
    from autotune.target import schema as target_schema
    from autotune.target.messages import suggest_name

    descriptions = {key: commands for key, (_, commands) in OUTPUT_OBJECTS.items()}
    names = {**descriptions, TARGET_SCHEMA_NAME: "target files, for editors"}
    if name is None:
        echo("\n".join(f"{key:13}{description}" for key, description in names.items()))
        return
    if name not in names:
        raise UsageError(f"unknown schema {name!r}", hint=suggest_name(name, names))
    if name == TARGET_SCHEMA_NAME:
        echo(target_schema.format_schema(), end="")
        return
    echo(json.dumps(build_schema(name), indent=2))
