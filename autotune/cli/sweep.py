"""`autotune sweep`: a grid of settings or host counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import completion
from autotune.cli.options import STUDIES, Json, Studies, Verbose, Yes
from autotune.cli.prompt import confirm
from autotune.cli.session import sit_sweep

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
Repeat = Annotated[int | None, typer.Option(min=1, max=100, help="Measurements of a point (3).")]
Html = Annotated[Path | None, typer.Option(help="Where to draw it (STUDY/sweep.html).")]


def sweep(
    target: SweepTarget,
    over: Over = None,
    hosts: HostCounts = None,
    with_: With = None,
    rate: Rates = None,
    peak: Capacity = False,
    repeat: Repeat = None,
    html: Html = None,
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """Measure a grid of settings or host counts in shuffled order, and draw it."""
    from autotune.environments.registry import prepare
    from autotune.study.directory import new_directory
    from autotune.sweep import request

    file, wanted = request.from_options(target, over, hosts, with_, rate, repeat, peak=peak)
    environment = prepare(file)
    plan = request.plan_of_request(file, wanted, environment.space)
    confirm(f"{environment.announce()}\n{request.size_text(plan)}", yes=yes)
    directory = new_directory(studies, request.directory_name(target, file))
    sit_sweep(environment, plan, directory, html, json_=json_, verbose=verbose)
