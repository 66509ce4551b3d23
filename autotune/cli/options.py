"""Arguments and options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import completion

if TYPE_CHECKING:
    from autotune.report.metrics_server import MetricsServer

TargetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="TARGET",
        help="Target file.",
        show_default=False,
        autocompletion=completion.complete_targets,
    ),
]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="Name or directory of a study.",
        show_default=False,
        autocompletion=completion.complete_studies,
    ),
]
TrialArgument = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="Trial number, `baseline`, `best`, or `hosts` for their current files.",
        autocompletion=completion.complete_trials,
    ),
]
StudiesOption = Annotated[
    Path, typer.Option("--studies", metavar="DIR", help="Directory of the studies.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Also show each reading.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show only the result.")]
LogFileOption = Annotated[
    Path | None,
    typer.Option(
        "--log-file", metavar="FILE", help="Also write each trial and reading to this file."
    ),
]
MetricsFileOption = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Write Prometheus metrics to this file after each trial.",
    ),
]
MetricsPortOption = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[ADDRESS:]PORT",
        help="Serve metrics at /metrics during the study, on loopback by default.",
    ),
]
ExitCodeOption = Annotated[
    bool, typer.Option("--exit-code", help="Exit with status 4 without a proven improvement.")
]
BedsOption = Annotated[
    str | None,
    typer.Option(metavar="all|A,B", help="Test beds of the target to use."),
]
StorageUrlOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="PostgreSQL database of a study that several machines share.",
    ),
]
DEFAULT_STUDIES_DIRECTORY = Path("studies")


@dataclass(frozen=True)
class ProgressOptions:
    """Where and how a command shows its progress."""

    verbose: bool = False
    quiet: bool = False
    log_file: Path | None = None
    metrics_file: Path | None = None
    metrics_server: MetricsServer | None = None


def start_metrics_server(port: str | None) -> MetricsServer | None:
    """Return a listening metrics server, or None. Raises AutotuneError."""
    if port is None:
        return None
    from autotune.report.metrics_server import MetricsServer

    return MetricsServer(port)
