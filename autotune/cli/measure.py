"""`autotune measure`: what a configuration carries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli import completion
from autotune.cli.options import STUDIES, Json, Studies, TargetPath, Verbose, Yes
from autotune.cli.output import print_json
from autotune.cli.prompt import confirm
from autotune.cli.session import prepared, reporting
from autotune.terminal import echo

Config = Annotated[Path | None, typer.Option(help="An export whose settings are measured.")]
Against = Annotated[
    str | None,
    typer.Option(
        help="Alternate with it and give the gain: `baseline`, `recommended`, `published`, or "
        "another export.",
        autocompletion=completion.opponents,
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


def measure(
    target: TargetPath,
    config: Config = None,
    against: Against = None,
    repeat: Repeat = 1,
    tier: CacheTier = None,
    closed: Closed = False,
    concurrency: Concurrency = "1,5",
    yes: Yes = False,
    json_: Json = False,
    verbose: Verbose = False,
    studies: Studies = STUDIES,
) -> None:
    """The capacity of the stack as it is, or of an exported configuration, with its interval."""
    from autotune.report import measured
    from autotune.report.studies import open_study
    from autotune.study import ceilings, measuring
    from autotune.study.directory import new_directory

    environment = prepared(target)
    request = measuring.requested(environment, config, against, repeat)
    bounds = ceilings.requested(environment, request, tier, concurrency) if closed or tier else None
    confirm(environment.announce(), yes=yes)
    directory = new_directory(studies, f"{environment.file.target.name}-measured")
    with reporting(environment, directory, verbose=verbose) as progress:
        if bounds is not None:
            _print_ceilings(ceilings.measure(environment, bounds, directory, progress), json_=json_)
            return
        measurement = measuring.measure(environment, request, directory, progress)
    study = open_study(directory)
    if json_:
        print_json(measured.measurement_json(measurement, study))
    else:
        echo(measured.measurement_text(measurement, study))


def _print_ceilings(ceilings: Any, *, json_: bool) -> None:
    from autotune.report import measured

    record = ceilings.record()
    if json_:
        print_json(measured.ceilings_json(record))
    else:
        echo("\n".join(measured.ceiling_lines(record)))
