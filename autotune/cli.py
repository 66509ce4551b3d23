"""The command line: parse, call, print. What a command does lives in the rooms it calls.

Every import that costs time is inside the command that needs it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune import __version__, errors
from autotune.commands import lab
from autotune.errors import AutotuneError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Finds the settings with which a whole stack carries the most load within its latency "
    "objective, proves the gain, and hands over the files.",
)
app.add_typer(lab.app, name="lab")

TargetPath = Annotated[Path, typer.Argument(help="The target file.", show_default=False)]
StudyName = Annotated[str, typer.Argument(help="A study's name or directory.", show_default=False)]
Studies = Annotated[Path, typer.Option("--studies", help="Directory that studies live in.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before sending load.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show each reading.")]
ExitCode = Annotated[
    bool, typer.Option("--exit-code", help="End with 4 when there is no proven improvement.")
]
STUDIES = Path("studies")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command()
def init(
    example: Annotated[
        str | None, typer.Option(help="Which shipped target to start from (local).")
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="USER@HOST,…",
            help="Adopt what runs on these hosts: their own files become templates.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write it (targets/NAME.yaml).")] = None,
    ssh_config: Annotated[
        Path | None, typer.Option(help="With --from: an ssh_config in place of ~/.ssh/config.")
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="With --from: what to request (/index.php or /).")
    ] = None,
) -> None:
    """Write a target file to start from: a shipped one, or one of a stack that runs already."""
    if from_ is not None:
        if example is not None:
            raise AutotuneError("--example and --from exclude each other", hint="give one of them")
        _adopt(from_, out, ssh_config, path)
        return
    from autotune.run.examples import write_example

    example = example or "local"
    written = write_example(example, out or Path("targets") / f"{example}.yaml")
    typer.echo(f"wrote {written}")
    typer.echo(f"next: autotune check {written}", err=True)


def _adopt(hosts: str, out: Path | None, ssh_config: Path | None, path: str | None) -> None:
    from autotune.run.adopting import adopt

    written = adopt([host for host in hosts.split(",") if host.strip()], out, ssh_config, path)
    for line in written.tiers:
        typer.echo(line)
    for line in written.notes:
        typer.echo(f"  left as it is: {line}")
    typer.echo(f"wrote {written.target} and {written.templates}: {written.parameters} parameters")
    typer.echo(f"next: look it through, then autotune check {written.target}", err=True)


@app.command()
def check(
    target: TargetPath,
    headroom: Annotated[
        bool,
        typer.Option(
            "--headroom", help="Also load a private server, to see what load can be made."
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Read, render and natively validate a target; changes nothing."""
    from autotune.run.beds.registry import prepare
    from autotune.target.read import read

    bed = prepare(read(target))
    found = bed.check()
    made = bed.headroom() if headroom else None
    if json_:
        _print({"schema": 1, **asdict(found), "headroom": made})
        return
    if made:
        typer.echo(f"  generator: {made}")
    for line in found.held:
        typer.echo(f"✓ {line}")
    for line in found.left_out:
        typer.echo(f"  left out: {line}")
    for line in found.not_checked:
        typer.echo(f"  not checked: {line}")


@app.command()
def plan(
    target: TargetPath,
    json_: Json = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="End with 6 when a run would change anything.")
    ] = False,
) -> None:
    """Show what a run would do: files, restarts, memory, load and time. Changes nothing."""
    from autotune.run.beds.registry import prepare
    from autotune.run.plan import plan as plans
    from autotune.run.plan import text
    from autotune.target.read import read

    planned = plans(prepare(read(target)))
    if json_:
        _print(planned)
    else:
        typer.echo(text(planned))
    if exit_code and planned["diff"]:
        raise typer.Exit(errors.CHANGES_PRESENT)


@app.command()
def run(
    target: TargetPath,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    exit_code: ExitCode = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave a winner that is proven on the hosts (systemd only)."),
    ] = False,
    from_: Annotated[
        str | None, typer.Option("--from", help="A study whose best configurations come first.")
    ] = None,
    studies: Studies = STUDIES,
) -> None:
    """Run a study: baseline, search, confirmation, verdict."""
    from autotune.report.studies import find
    from autotune.run import start
    from autotune.run.beds.registry import prepare
    from autotune.run.studies import new_directory
    from autotune.target.read import read

    bed = prepare(read(target))
    _ask_leave(bed.announce(), yes=yes)
    directory = new_directory(studies, bed.file.target.name)
    earlier = find(from_, studies) if from_ else None
    _sit(
        partial(start.start, keep=keep, earlier=earlier),
        bed,
        directory,
        json_=json_,
        verbose=verbose,
    )
    _report(directory, json_=json_, exit_code=exit_code)


@app.command()
def resume(
    study: StudyName,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    exit_code: ExitCode = False,
    studies: Studies = STUDIES,
) -> None:
    """Continue a study that was stopped or killed; nothing is measured twice."""
    from autotune.report.studies import find
    from autotune.run import start
    from autotune.sweep.records import is_sweep

    directory = find(study, studies)
    bed = start.unfinished(directory)
    _ask_leave(bed.announce(), yes=yes)
    if is_sweep(directory):
        _sweep(bed, None, directory, None, json_=json_, verbose=verbose)
        return
    _sit(start.resume, bed, directory, json_=json_, verbose=verbose)
    _report(directory, json_=json_, exit_code=exit_code)


@app.command()
def params(
    service: Annotated[
        str | None, typer.Argument(help="A service; all of them without one.")
    ] = None,
    json_: Json = False,
) -> None:
    """The catalogue of parameters: meaning, unit, range, stock and recommended values, source."""
    from autotune.report import catalogue

    if json_:
        _print(catalogue.as_json(service))
    else:
        typer.echo(catalogue.as_text(service), nl=False)


@app.command()
def status(
    study: Annotated[str | None, typer.Argument(help="A study; all of them without one.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on saying how it stands until it is over.")
    ] = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """Where a study stands, also while it runs."""
    from autotune.report import status as statuses
    from autotune.report.studies import find, names, open_study

    if watch:
        _watch(study, studies, json_=json_)
        return
    chosen = [find(study, studies)] if study else [studies / name for name in names(studies)]
    opened = [open_study(directory) for directory in chosen]
    if json_:
        _print({"schema": 1, "studies": [statuses.status(one) for one in opened]})
        return
    if not opened:
        typer.echo(f"no studies in {studies}: `autotune run TARGET` makes one", err=True)
    for one in opened:
        typer.echo(statuses.render_status(one))


def _watch(study: str | None, studies: Path, *, json_: bool) -> None:
    from autotune.report.studies import find
    from autotune.report.watching import watch

    if study is None or json_:
        raise AutotuneError("--watch follows one study, for people", hint="status STUDY --watch")
    watch(find(study, studies), sys.stdout)


@app.command()
def report(
    study: StudyName,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as one HTML file that needs no network.")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the HTML report (STUDY/report.html).")
    ] = False,
    json_: Json = False,
    studies: Studies = STUDIES,
) -> None:
    """The verdict of a study and what stands behind it; of a sweep, its figures."""
    from autotune.report.studies import find
    from autotune.sweep.records import is_sweep

    directory = find(study, studies)
    if is_sweep(directory):
        _swept(directory, html, json_=json_)
        return
    if html or open_:
        _html(directory, html or directory / "report.html", shown=open_)
    if json_ or not html:
        _report(directory, json_=json_, exit_code=False)


@app.command()
def diff(
    study: StudyName,
    a: Annotated[
        str, typer.Argument(help="A trial: its number, `baseline` or `best`.")
    ] = "baseline",
    b: Annotated[str, typer.Argument(help="The trial to compare it with.")] = "best",
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Compare the settings, not the files.")
    ] = False,
    studies: Studies = STUDIES,
) -> None:
    """What two configurations of a study have different, file by file."""
    from autotune.report.diff import diff_text
    from autotune.report.studies import find, open_study

    opened = open_study(find(study, studies))
    typer.echo(diff_text(opened, a, b, parameters=parameters, colour=_colour()), nl=False)


@app.command()
def export(
    study: StudyName,
    out: Annotated[Path, typer.Option(help="A directory that is empty or not there yet.")],
    format_: Annotated[
        str, typer.Option("--format", help="files, ansible, shell, yaml or json.")
    ] = "files",
    trial: Annotated[
        str | None, typer.Option(help="Another trial than the winner, whatever it proved.")
    ] = None,
    minimal: Annotated[
        bool, typer.Option("--minimal", help="Only the changes that `explain --measure` kept.")
    ] = False,
    studies: Studies = STUDIES,
) -> None:
    """Write the winner's configuration, its diff against the baseline, and its provenance."""
    from autotune.report.export import minimal_trial, write_export
    from autotune.report.studies import find, open_study

    opened = open_study(find(study, studies))
    chosen = minimal_trial(opened) if minimal else trial
    for path in write_export(opened, out, format_, chosen):
        typer.echo(str(out / path))


@app.command()
def explain(
    study: StudyName,
    measure: Annotated[
        bool, typer.Option("--measure", help="Spend measurements on the smallest set of changes.")
    ] = False,
    most: Annotated[int, typer.Option(min=10, help="Measurements that may be spent.")] = 60,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """Why the winner wins: what matters, what depends on what, which changes carry the gain."""
    from autotune.report.studies import find
    from autotune.run import explaining, start

    directory = find(study, studies)
    bed = start.finished(directory)
    if measure:
        _ask_leave(bed.announce(), yes=yes)
        with _narrator(bed, directory, verbose=verbose) as narrator:
            explaining.reduce(bed, directory, narrator, most)
    found = explaining.explain(bed, directory)
    if json_:
        _print(found)
    else:
        typer.echo(explaining.text(found))


@app.command()
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
    from autotune.run import applying
    from autotune.run.beds.registry import prepare
    from autotune.run.studies import new_directory
    from autotune.target.read import read

    bed = prepare(read(target))
    settings = applying.wanted(bed, export_)
    _ask_leave(f"{len(settings)} settings go to {', '.join(bed.file.target.hosts)}.", yes=yes)
    directory = new_directory(studies, f"{bed.file.target.name}-applied")
    with _narrator(bed, directory, verbose=False) as narrator:
        deployed = applying.apply(bed, settings, directory, narrator)
    if json_:
        actions = {part: action.name.lower() for part, action in deployed.actions.items()}
        differing = [str(difference) for difference in deployed.differences]
        _print({"schema": 1, "study": directory.name, "actions": actions, "differences": differing})
    else:
        typer.echo(applying.text(deployed, directory))


@app.command()
def restore(
    what: Annotated[str, typer.Argument(help="A target file or a study.", show_default=False)],
    studies: Studies = STUDIES,
) -> None:
    """Put back whatever a killed study has left: hosts as they were found, private servers ended."""
    from autotune.report.studies import find
    from autotune.run import restore as restores

    path = Path(what)
    if path.is_file():
        lines = restores.restore(restores.studies_of(path, studies))
        lines += restores.restore_target(path)
    else:
        lines = restores.restore([find(what, studies)])
    for line in lines or [f"{what}: nothing was left behind"]:
        typer.echo(line)


@app.command()
def measure(
    target: TargetPath,
    config: Annotated[
        Path | None, typer.Option(help="An export whose settings are measured.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Alternate with it and give the gain: `baseline`, `recommended`, `published`, or "
            "another export."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, max=100, help="Measure this many times.")] = 1,
    tier: Annotated[
        str | None, typer.Option(help="Measure this tier's caches alone too: their ceiling.")
    ] = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="A closed loop of clients instead: a ceiling.")
    ] = False,
    concurrency: Annotated[
        str, typer.Option(help="With --closed: so many clients at a time, in turn.")
    ] = "1,5",
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """The peak of the stack as it is, or of an exported configuration, with its interval."""
    from autotune.report import measured
    from autotune.report.studies import open_study
    from autotune.run import measuring
    from autotune.run.beds.registry import prepare
    from autotune.run.studies import new_directory
    from autotune.target.read import read

    bed = prepare(read(target))
    request = measuring.request(bed, config, against, repeat)
    _ask_leave(bed.announce(), yes=yes)
    directory = new_directory(studies, f"{bed.file.target.name}-measured")
    with _narrator(bed, directory, verbose=verbose) as narrator:
        if closed or tier:
            _print_ceilings(
                measuring.ceilings(bed, request, tier, concurrency, directory, narrator),
                json_=json_,
            )
            return
        found = measuring.measure(bed, request, directory, narrator)
    study = open_study(directory)
    if json_:
        _print(measured.as_json(found, study))
    else:
        typer.echo(measured.text(found, study))


@app.command()
def sweep(
    target: Annotated[
        Path, typer.Argument(help="A target, or a sweep file that names one.", show_default=False)
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            help="What varies: NAME=LOW:HIGH:STEP or NAME=A,B,C; service=all is every deployment."
        ),
    ] = None,
    hosts: Annotated[
        list[str] | None, typer.Option(help="Numbers of hosts to use: TIER=1,2,3.")
    ] = None,
    with_: Annotated[
        list[str] | None, typer.Option("--with", help="What holds at every point: NAME=VALUE.")
    ] = None,
    rate: Annotated[
        list[float] | None, typer.Option(help="Requests/s to offer at every point.")
    ] = None,
    peak: Annotated[
        bool, typer.Option("--peak", help="Look for the peak of every point instead.")
    ] = False,
    repeat: Annotated[
        int | None, typer.Option(min=1, max=100, help="Measurements of a point (3).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Where to draw it (STUDY/sweep.html).")] = None,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """Measure a grid of settings or host counts in shuffled order, and draw it."""
    from autotune.run.beds.registry import prepare
    from autotune.run.studies import new_directory
    from autotune.sweep import options

    file, wanted = options.wanted(target, over, hosts, with_, rate, repeat, peak=peak)
    bed = prepare(file)
    plan = options.plan(file, wanted, bed.space)
    _ask_leave(f"{bed.announce()}\n{options.said(plan)}", yes=yes)
    directory = new_directory(studies, options.name(target, file))
    _sweep(bed, plan, directory, html, json_=json_, verbose=verbose)


def _sweep(
    bed: Any, plan: Any, directory: Path, html: Path | None, *, json_: bool, verbose: bool
) -> None:
    """A sitting of a sweep; it is drawn at its end, also when it was stopped."""
    from autotune.sweep import conduct

    try:
        with _narrator(bed, directory, verbose=verbose, paged=False) as narrator:
            conduct.sweep(bed.file, plan, directory, narrator)
    except KeyboardInterrupt:
        typer.echo(
            f"stopped, and everything is put back; continue with: autotune resume {directory.name}",
            err=True,
        )
        raise typer.Exit(errors.INTERRUPTED) from None
    _swept(directory, html or directory / "sweep.html", json_=json_)


def _swept(directory: Path, html: Path | None, *, json_: bool) -> None:
    """What a sweep has found so far; drawn into ``html`` if that is named."""
    from autotune.sweep import page, results, text

    found = results.found(directory)
    if html is not None:
        typer.echo(f"wrote {page.write(found, html)}", err=True)
    if json_:
        _print(text.document(found))
    else:
        typer.echo(text.render(found), nl=False)


def _print_ceilings(found: Any, *, json_: bool) -> None:
    from autotune.report import ceilings

    if json_:
        _print(ceilings.as_json(found))
    else:
        typer.echo(ceilings.text(found))


def _sit(
    act: Callable[[Any, Path, Any], None],
    bed: Any,
    directory: Path,
    *,
    json_: bool,
    verbose: bool,
) -> None:
    """A sitting of a study; one that is stopped says how to go on."""
    try:
        with _narrator(bed, directory, verbose=verbose) as narrator:
            act(bed, directory, narrator)
    except KeyboardInterrupt:
        if json_ and (directory / "events.jsonl").exists():
            _report(directory, json_=True, exit_code=False)
        typer.echo(
            f"stopped, and everything is put back; continue with: autotune resume {directory.name}",
            err=True,
        )
        raise typer.Exit(errors.INTERRUPTED) from None


def _narrator(bed: Any, directory: Path, *, verbose: bool, paged: bool = True) -> Any:
    from autotune.report.html.follow import Paged
    from autotune.report.progress import narrator
    from autotune.study.follow import Follow

    target = bed.file.target
    told = narrator(target, Follow(directory), sys.stderr, os.environ, verbose=verbose)
    return Paged(told, directory) if paged else told


def _report(directory: Path, *, json_: bool, exit_code: bool) -> None:
    from autotune.report.studies import open_study
    from autotune.report.summary import summary
    from autotune.report.text import render_text

    study = open_study(directory)
    found = summary(study.name, study.target, study.state, study.tallies)
    if json_:
        _print(found)
    else:
        typer.echo(
            render_text(found, study.target, study.state, study.tallies, colour=_colour()), nl=False
        )
    if exit_code and found["verdict"] != "improved":
        raise typer.Exit(errors.NOT_IMPROVED)


def _html(directory: Path, path: Path, *, shown: bool) -> None:
    from autotune.report.html.page import write_page
    from autotune.report.studies import open_study

    typer.echo(f"wrote {write_page(open_study(directory), path)}", err=True)
    if shown and typer.launch(path.resolve().as_uri()):
        raise AutotuneError("no browser could be opened", hint=f"open {path} yourself")


def _colour() -> bool:
    from autotune.report import colour

    return colour.wanted(sys.stdout, os.environ)


def _ask_leave(what: str, *, yes: bool) -> None:
    typer.echo(what, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise AutotuneError("nothing is done without leave", hint="pass --yes to give it")
    if not typer.confirm("Go ahead?", err=True):
        raise typer.Exit(errors.OPERATIONAL)


def _print(found: Any) -> None:
    typer.echo(json.dumps(found, ensure_ascii=False))


def main() -> None:
    """Entry point: every way to end has its exit code, and none is a traceback."""
    sys.exit(_guarded(lambda: app(standalone_mode=False), as_json="--json" in sys.argv))


def _guarded(act: Callable[[], Any], *, as_json: bool) -> int:
    from autotune.outcome import end

    return end(act, as_json=as_json)
