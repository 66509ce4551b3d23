"""Commands that measure without searching: `measure` a configuration, `sweep` a grid of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune import errors
from autotune.cli import completion
from autotune.cli.options import STUDIES, Detail, Json, Studies, TargetPath, Verbose, Yes
from autotune.cli.output import print_json
from autotune.cli.session import confirm, prepared, reporting, run_sweep_session
from autotune.errors import AutotuneError
from autotune.terminal import echo

Config = Annotated[Path | None, typer.Option(help="An export whose settings are measured.")]
Against = Annotated[
    str | None,
    typer.Option(
        help="Alternate with it and give the gain: `baseline`, `recommended`, `advised`, `published`, or "
        "another export.",
        autocompletion=completion.references,
    ),
]
Repeat = Annotated[int, typer.Option(min=1, max=100, help="Measure this many times.")]
CacheTier = Annotated[
    str | None,
    typer.Option(
        help="Measure this tier's caches alone too: their ceiling.",
        autocompletion=completion.cache_tiers,
    ),
]
Closed = Annotated[
    bool, typer.Option("--closed", help="A closed loop of clients instead: a ceiling.")
]
Concurrency = Annotated[
    str, typer.Option(help="With --closed: comma-separated numbers of concurrent clients.")
]
SweepTarget = Annotated[
    Path,
    typer.Argument(
        help="A target, or a sweep file that names one.",
        show_default=False,
        autocompletion=completion.targets,
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        help="What varies: NAME=LOW:HIGH:STEP or NAME=A,B,C; service=all is every deployment.",
        autocompletion=completion.parameters,
    ),
]
HostCounts = Annotated[
    list[str] | None,
    typer.Option(help="Numbers of hosts to use: TIER=1,2,3.", autocompletion=completion.hosts),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="What holds at every point: NAME=VALUE.",
        autocompletion=completion.parameters,
    ),
]
Rates = Annotated[list[float] | None, typer.Option(help="Requests/s to offer at every point.")]
Capacity = Annotated[
    bool, typer.Option("--peak", help="Search for the capacity of every point instead.")
]
SweepRepeat = Annotated[
    int | None, typer.Option(min=1, max=100, help="Measurements of a point (3).")
]
SweepHtml = Annotated[Path | None, typer.Option(help="Where to draw it (STUDY/sweep.html).")]


AtLeast = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Say whether the capacity is that high, such as 1200/s."),
]
Failing = Annotated[
    bool, typer.Option("--exit-code", help="With --at-least: end with 4 when it is lower.")
]


def measure(
    target: TargetPath,
    config: Config = None,
    against: Against = None,
    repeat: Repeat = 1,
    tier: CacheTier = None,
    closed: Closed = False,
    concurrency: Concurrency = "1,5",
    at_least: AtLeast = None,
    exit_code: Failing = False,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """The capacity of the stack as it is, or of an exported configuration, with its interval."""
    from autotune.report import measured
    from autotune.report.ceilings import ceiling_lines, ceilings_json
    from autotune.report.studies import open_study
    from autotune.study import ceilings, measuring
    from autotune.study.directory import new_directory

    environment = prepared(target)
    least = measuring.least(environment, at_least, ceiling=closed or tier is not None)
    if exit_code and least is None:
        raise AutotuneError("--exit-code needs a capacity", hint="--at-least 1200/s --exit-code")
    request = measuring.requested(environment, config, against, repeat)
    bounds = ceilings.requested(environment, request, tier, concurrency) if closed or tier else None
    confirm(environment.announce(study=False), yes=yes)
    directory = new_directory(studies, f"{environment.file.target.name}-measured")
    with reporting(environment, directory, Detail(verbose)) as progress:
        if bounds is not None:
            record = ceilings.measure(environment, bounds, directory, progress).record()
            text = "\n".join(ceiling_lines(record))
            print_json(ceilings_json(record)) if json_ else echo(text)
            return
        measurement = measuring.measure(environment, request, directory, progress)
    study = open_study(directory)
    text = measured.measurement_text(measurement, study, least)
    print_json(measured.measurement_json(measurement, study, least)) if json_ else echo(text)
    if exit_code and least is not None and not measurement.reaches(least):
        raise typer.Exit(errors.NOT_IMPROVED)


def sweep(
    target: SweepTarget,
    over: Over = None,
    hosts: HostCounts = None,
    with_: With = None,
    rate: Rates = None,
    peak: Capacity = False,
    repeat: SweepRepeat = None,
    html: SweepHtml = None,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """Measure a grid of settings or host counts in shuffled order, and draw it."""
    from autotune.environments.base import prepare
    from autotune.study.directory import new_directory
    from autotune.sweep import request

    file, requested = request.from_options(target, over, hosts, with_, rate, repeat, peak=peak)
    environment = prepare(file)
    plan = request.plan_of_request(file, requested, environment.space)
    confirm(f"{environment.announce(study=False)}\n{request.size_text(plan)}", yes=yes)
    directory = new_directory(studies, request.directory_name(target, file))
    run_sweep_session(environment, plan, directory, html, json_=json_, detail=Detail(verbose))
