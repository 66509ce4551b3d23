"""Commands that inspect a study: `status`, `report`, `diff`, `explain` and `schema`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from autotune.cli import completion
from autotune.cli.options import (
    STUDIES,
    Detail,
    Json,
    StorageUrl,
    Studies,
    StudyName,
    TrialName,
    Verbose,
    Yes,
)
from autotune.cli.output import print_json, print_study, print_sweep, print_table
from autotune.cli.session import confirm, looking, reporting, studies_in
from autotune.errors import AutotuneError
from autotune.terminal import columns, echo, show, show_patch, wrapped

if TYPE_CHECKING:
    from autotune.report.view import StudyView

T = TypeVar("T")


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY",
            help="Study to show. [default: all]",
            autocompletion=completion.studies,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the study until it finishes.")
    ] = False,
    json_: Json = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Show the state of studies, also while they run."""
    from autotune.report import status as statuses
    from autotune.report.studies import open_study
    from autotune.report.view import study_view
    from autotune.study.directory import find
    from autotune.study.origin import reading

    if watch:
        if study is None or json_:
            raise AutotuneError(
                "--watch needs a study, and excludes --json", hint="`autotune status STUDY --watch`"
            )
        with looking(storage, studies, study) as look:
            statuses.watch(look, sys.stdout)
        return
    with studies_in(storage, studies, [study] if study else None) as root:
        render = statuses.status if json_ else statuses.render_status
        if study:
            directory = find(study, root)
            with reading(directory):
                drawn = [render(study_view(open_study(directory)))]
        else:
            drawn = list(_readable(root, render))
        if json_:
            print_json({"schema": 1, "studies": drawn})
            return
        if not drawn:
            echo(f"no studies in {studies}: `autotune run TARGET` starts one", err=True)
        for text in drawn:
            lines = [*str(text).splitlines(), ""]
            show(wrapped(((line, "") for line in lines), columns()))


def _readable(root: Path, render: Callable[[StudyView], T]) -> Iterator[T]:
    """All studies except damaged ones, whose names go to standard error."""
    from autotune.report.studies import open_study
    from autotune.report.view import study_view
    from autotune.study.directory import names
    from autotune.study.origin import reading

    for name in names(root):
        try:
            with reading(root / name):
                text = render(study_view(open_study(root / name)))
        except AutotuneError as error:
            echo(f"{name}: {error.message}", err=True)
        else:
            yield text


def report(
    study: StudyName,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the report as one self-contained HTML file."),
    ] = None,
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
    json_: Json = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Show a study's verdict and evidence, or a sweep's results."""
    from autotune.study.directory import find
    from autotune.study.origin import reading
    from autotune.sweep.plan import is_sweep

    if open_ and storage and not html:
        raise AutotuneError("--open with --storage needs --html", hint="add `--html FILE`")
    with studies_in(storage, studies, [study]) as root:
        directory, rates = find(study, root), _rates(at or ())
        with reading(directory):
            if is_sweep(directory):
                print_sweep(directory, html, json_=json_)
            else:
                _report(directory, html, csv, open_=open_, json_=json_, at=rates)


def _report(
    directory: Path,
    html: Path | None,
    csv: str | None,
    *,
    open_: bool,
    json_: bool,
    at: Sequence[float],
) -> None:
    if html or open_:
        from autotune.foreign_files import check_own, writable
        from autotune.report.page import write_page
        from autotune.report.studies import open_study

        if html is None:
            check_own(directory)
        path = html or writable(directory, "report.html")
        echo(f"wrote {write_page(open_study(directory), path)}", err=True)
        if open_ and typer.launch(path.resolve().as_uri()):
            raise AutotuneError("cannot open a browser", hint=f"open {path} yourself")
    if csv is not None:
        print_table(directory, csv)
    elif json_ or not html:
        print_study(directory, json_=json_, exit_code=False, at=at)


def _rates(texts: Iterable[str]) -> list[float]:
    """The rates of `--at`, in requests/s. Raises AutotuneError."""
    from autotune.target.units import rate

    try:
        rates = [rate(text) for text in texts]
    except ValueError as error:
        raise AutotuneError(f"--at: {error}", hint="give a rate, such as `--at 800/s`") from None
    if 0 in rates:
        raise AutotuneError("--at must be above 0", hint="give a rate, such as `--at 800/s`")
    return rates


def diff(
    study: StudyName,
    a: TrialName = "baseline",
    b: Annotated[
        str,
        typer.Argument(
            metavar="B", help="Trial to compare with.", autocompletion=completion.trials
        ),
    ] = "best",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Compare settings instead of files.")
    ] = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Compare two configurations of a study, or one with the hosts."""
    from autotune.report.diff import diff_lines, diff_text
    from autotune.report.studies import open_study
    from autotune.study.directory import find
    from autotune.study.origin import reading

    with studies_in(storage, studies, [study]) as root:
        directory = find(study, root)
        with reading(directory):
            show_patch(diff_lines(diff_text(open_study(directory), a, b, parameters=parameters)))


def explain(
    study: StudyName,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure which changes the gain needs.")
    ] = False,
    most: Annotated[
        int, typer.Option(min=10, metavar="N", help="Maximum number of measurements.")
    ] = 60,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Explain a gain: which changes contribute, and by how much."""
    from autotune.study import explaining, origin, start
    from autotune.study.directory import find

    with studies_in(storage, studies, [study]) as root:
        directory = find(study, root)
        if measure:
            explaining.check_measurable(directory)
            environment = start.finished(directory)
            confirm(environment.announce(study=False), yes=yes)
            with reporting(environment, directory, Detail(verbose)) as progress:
                explaining.reduce(environment, directory, progress, most)
        with origin.reading(directory):
            explanation = explaining.explain(directory)
    if json_:
        print_json(explanation)
    else:
        echo(explaining.text(explanation))


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Schema to print. [default: list the names]",
            autocompletion=completion.schemas,
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of the output with --json."""
    from autotune.cli.schemas import OBJECTS
    from autotune.cli.schemas import schema as schema_of
    from autotune.target.messages import instead

    if name is None:
        echo("\n".join(f"{each:13}{commands}" for each, (_, commands) in OBJECTS.items()))
        return
    if name not in OBJECTS:
        raise AutotuneError(f"unknown schema {name!r}", hint=instead(name, OBJECTS))
    echo(json.dumps(schema_of(name), indent=2))
