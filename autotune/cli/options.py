"""Arguments and options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import completion

if TYPE_CHECKING:
    from autotune.report.metrics_server import MetricsServer

TargetPath = Annotated[
    Path,
    typer.Argument(help="The target file.", show_default=False, autocompletion=completion.targets),
]
StudyName = Annotated[
    str,
    typer.Argument(
        help="A study's name or directory.", show_default=False, autocompletion=completion.studies
    ),
]
TrialName = Annotated[
    str,
    typer.Argument(
        help="A trial: its number, `baseline` or `best`; or `hosts`, as they are now.",
        autocompletion=completion.trials,
    ),
]
Studies = Annotated[Path, typer.Option("--studies", help="Directory that studies live in.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show each reading.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")]
LogFile = Annotated[
    Path | None,
    typer.Option("--log-file", help="Also write each trial and reading to this file."),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        help="Write metrics after each trial, for the node exporter's textfile collector (*.prom).",
    ),
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[ADDRESS:]PORT",
        help="Serve the same at /metrics for as long as the study runs, on loopback by default.",
    ),
]
ExitCode = Annotated[
    bool, typer.Option("--exit-code", help="End with 4 when there is no proven improvement.")
]
Beds = Annotated[
    str | None,
    typer.Option(metavar="all|A,B", help="These `beds:` of the target, all at once."),
]
StorageUrl = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="A PostgreSQL database that several machines share a study in.",
    ),
]
STUDIES = Path("studies")


@dataclass(frozen=True)
class Detail:
    """How much of its progress a command shows."""

    verbose: bool = False
    quiet: bool = False
    log_file: Path | None = None
    metrics_file: Path | None = None
    metrics_server: MetricsServer | None = None


def listening(port: str | None) -> MetricsServer | None:
    """What serves metrics, listening before anything is asked or done. Raises AutotuneError."""
    if port is None:
        return None
    from autotune.report.metrics_server import MetricsServer

    return MetricsServer(port)
