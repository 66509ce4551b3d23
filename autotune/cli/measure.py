"""Commands that measure without a search: `measure` and `sweep`."""

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

Config = Annotated[
    Path | None, typer.Option(metavar="EXPORT", help="Export to measure. [default: the baseline]")
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="REFERENCE",
        help="Alternate with `baseline`, `recommended`, `advised`, `published` or an export; show "
        "the gain.",
        autocompletion=completion.references,
    ),
]
Repeat = Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Number of measurements.")]
CacheTier = Annotated[
    str | None,
    typer.Option(
        metavar="TIER",
        help="Also measure the ceiling of this tier's caches.",
        autocompletion=completion.cache_tiers,
    ),
]
Closed = Annotated[
    bool, typer.Option("--closed", help="Use a closed loop of clients, which shows a ceiling.")
]
Concurrency = Annotated[
    str, typer.Option(metavar="N,N", help="With --closed: numbers of concurrent clients.")
]
SweepTarget = Annotated[
    Path,
    typer.Argument(
        metavar="TARGET",
        help="Target, or sweep file that names one.",
        show_default=False,
        autocompletion=completion.targets,
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUES",
        help="Vary a setting: `LOW:HIGH:STEP`, `A,B,C`, or `all` deployments.",
        autocompletion=completion.parameters,
    ),
]
HostCounts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TIER=N,N",
        help="Vary the number of hosts of a tier.",
        autocompletion=completion.hosts,
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME=VALUE",
        help="Fix a setting at all points; may be repeated.",
        autocompletion=completion.parameters,
    ),
]
Rates = Annotated[
    list[float] | None,
    typer.Option(metavar="N", help="Offer N requests/s at all points; may be repeated."),
]
Capacity = Annotated[bool, typer.Option("--peak", help="Search for the capacity of each point.")]
SweepRepeat = Annotated[
    int | None,
    typer.Option(min=1, max=100, metavar="N", help="Measurements per point. [default: 3]"),
]
SweepHtml = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File for the plots. [default: STUDY/sweep.html]"),
]


AtLeast = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Check that the capacity reaches this rate, such as 1200/s."),
]
Failing = Annotated[
    bool,
    typer.Option(
        "--exit-code", help="With --at-least: exit with status 4 if the capacity is lower."
    ),
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
    """Measure the capacity of a configuration, with its interval."""
    from autotune.report import measured
    from autotune.report.ceilings import ceiling_lines, ceilings_json
    from autotune.report.studies import open_study
    from autotune.study import ceilings, measuring
    from autotune.study.directory import new_directory

    environment = prepared(target)
    least = measuring.least(environment, at_least, ceiling=closed or tier is not None)
    if exit_code and least is None:
        raise AutotuneError(
            "--exit-code needs --at-least",
            hint="add `--at-least RATE`, such as `--at-least 1200/s`",
        )
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
    """Measure a grid of settings or host counts, and plot it."""
    from autotune.environments.base import prepare
    from autotune.study.directory import new_directory
    from autotune.sweep import request

    file, requested = request.from_options(target, over, hosts, with_, rate, repeat, peak=peak)
    environment = prepare(file)
    plan = request.plan_of_request(file, requested, environment.space)
    confirm(f"{environment.announce(study=False)}\n{request.size_text(plan)}", yes=yes)
    directory = new_directory(studies, request.directory_name(target, file))
    run_sweep_session(environment, plan, directory, html, json_=json_, detail=Detail(verbose))
