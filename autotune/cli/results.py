"""Commands about a study: `status`, `report`, `diff` and `explain`; `schema`, what their JSON is."""

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
        typer.Argument(help="A study; all of them without one.", autocompletion=completion.studies),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow until finished.")] = False,
    json_: Json = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Where a study stands, also while it runs."""
    from autotune.report import status as statuses
    from autotune.report.studies import open_study
    from autotune.report.view import study_view
    from autotune.study.directory import find
    from autotune.study.origin import reading

    if watch:
        if study is None or json_:
            raise AutotuneError(
                "--watch follows one study, for people", hint="status STUDY --watch"
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
            echo(f"no studies in {studies}: `autotune run TARGET` makes one", err=True)
        for text in drawn:
            lines = [*str(text).splitlines(), ""]
            show(wrapped(((line, "") for line in lines), columns()))


def _readable(root: Path, render: Callable[[StudyView], T]) -> Iterator[T]:
    """All studies but the damaged ones; those are named on standard error."""
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
        Path | None, typer.Option(help="Write the report as one HTML file that needs no network.")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the HTML report (STUDY/report.html).")
    ] = False,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at", metavar="RATE", help="Latency at a rate, such as 800/s; may be repeated."
        ),
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option("--csv", metavar="TABLE", help="Print `trials` or `readings` as CSV instead."),
    ] = None,
    json_: Json = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """The verdict of a study and what stands behind it; of a sweep, its figures."""
    from autotune.study.directory import find
    from autotune.study.origin import reading
    from autotune.sweep.plan import is_sweep

    if open_ and storage and not html:
        raise AutotuneError("--open with --storage needs a file", hint="add --html FILE")
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
            raise AutotuneError("no browser could be opened", hint=f"open {path} yourself")
    if csv is not None:
        print_table(directory, csv)
    elif json_ or not html:
        print_study(directory, json_=json_, exit_code=False, at=at)


def _rates(texts: Iterable[str]) -> list[float]:
    """Rates as the user wrote them, in requests/s. Raises AutotuneError."""
    from autotune.target.units import rate

    try:
        rates = [rate(text) for text in texts]
    except ValueError as error:
        raise AutotuneError(f"--at: {error}", hint="such as --at 800/s") from None
    if 0 in rates:
        raise AutotuneError("--at: must be more than nothing", hint="such as --at 800/s")
    return rates


def diff(
    study: StudyName,
    a: TrialName = "baseline",
    b: Annotated[
        str, typer.Argument(help="The trial to compare it with.", autocompletion=completion.trials)
    ] = "best",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Compare the settings, not the files.")
    ] = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Diff two configurations of a study, or one and the hosts, file by file."""
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
        bool, typer.Option("--measure", help="Spend measurements on the smallest set of changes.")
    ] = False,
    most: Annotated[int, typer.Option(min=10, help="Measurements that may be spent.")] = 60,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    storage: StorageUrl = None,
    studies: Studies = STUDIES,
) -> None:
    """Why the winner wins: what matters, what depends on what, which changes carry the gain."""
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
            help="An object's; their names without one.", autocompletion=completion.schemas
        ),
    ] = None,
) -> None:
    """The JSON Schema of what commands print under --json."""
    from autotune.cli.schemas import OBJECTS
    from autotune.cli.schemas import schema as schema_of
    from autotune.target.messages import instead

    if name is None:
        echo("\n".join(f"{each:13}{commands}" for each, (_, commands) in OBJECTS.items()))
        return
    if name not in OBJECTS:
        raise AutotuneError(f"there is no schema {name!r}", hint=instead(name, OBJECTS))
    echo(json.dumps(schema_of(name), indent=2))
