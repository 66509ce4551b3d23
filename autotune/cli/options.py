"""Arguments and options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import completion
from autotune.cli.output_files import (
    check_existing_studies,
    check_log_file,
    check_metrics_file,
    check_studies_directory,
)
from autotune.errors import UsageError
from autotune.study_argument import STUDIES_DIRECTORY

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
        help="Trial number, `baseline`, `best`, or `hosts` for the hosts' current files.",
        autocompletion=completion.complete_trials,
    ),
]
StudiesOption = Annotated[
    Path,
    typer.Option(
        "--studies",
        metavar="DIR",
        help="Directory of the studies.",
        callback=check_studies_directory,
    ),
]
ExistingStudiesOption = Annotated[
    Path,
    typer.Option(
        "--studies",
        metavar="DIR",
        help="Directory of the studies.",
        callback=check_existing_studies,
    ),
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
        "--log-file",
        metavar="FILE",
        help="Also write each trial and reading to this file.",
        callback=check_log_file,
    ),
]
MetricsFileOption = Annotated[
    Path | None,
    typer.Option(
        "--metrics-file",
        metavar="FILE",
        help="Write Prometheus metrics to this file after each trial.",
        callback=check_metrics_file,
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
    bool, typer.Option("--exit-code", help="Exit with status 4 if no improvement is proven.")
]
BedsOption = Annotated[
    str | None,
    typer.Option(
        "--beds", metavar="BED,…", help="Names of the target's test beds to use, or `all`."
    ),
]
StorageUrlOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="PostgreSQL database of a study that several machines share.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter to a fixed value; may be repeated.",
        autocompletion=completion.complete_parameters,
    ),
]
DEFAULT_STUDIES_DIRECTORY = STUDIES_DIRECTORY


@dataclass(frozen=True)
class ProgressOptions:
    """Options for the progress messages and metrics of a command."""

    verbose: bool = False
    quiet: bool = False
    log_file: Path | None = None
    metrics_file: Path | None = None
    metrics_server: MetricsServer | None = None


DEFAULT_PROGRESS = ProgressOptions()
PROGRESS_PARAMETER = "progress"
_PROGRESS_OPTIONS = {"verbose": VerboseOption, "quiet": QuietOption, "log_file": LogFileOption}
_METRICS_OPTIONS = {"metrics_file": MetricsFileOption, "metrics_port": MetricsPortOption}


def add_progress_options(
    *, with_metrics: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the shared progress options to a command.

    The command line shows the options instead of the parameter ``progress``, which receives the values
    of the options as ``ProgressOptions``.
    """
    options = _PROGRESS_OPTIONS | (_METRICS_OPTIONS if with_metrics else {})

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run_command(**values: Any) -> None:
            option_values = {name: values.pop(name) for name in options}
            _check_detail(verbose=option_values["verbose"], quiet=option_values["quiet"])
            _check_distinct_files(option_values["log_file"], option_values.get("metrics_file"))
            server = start_metrics_server(option_values.pop("metrics_port", None))
            command(**values, progress=ProgressOptions(**option_values, metrics_server=server))

        run_command.__signature__ = _replace_progress_parameter(command, options)  # type: ignore[attr-defined]
        return run_command

    return decorate


def find_given_option(values_by_option: Mapping[str, object]) -> str | None:
    """Return the first option with a value that is not its default, or ``None``."""
    return next((option for option, value in values_by_option.items() if value), None)


def _check_detail(*, verbose: bool, quiet: bool) -> None:
    """Raise UsageError if the options request both more and less output."""
    if verbose and quiet:
        raise UsageError(
            "--quiet and --verbose cannot be combined",
            hint="omit --verbose to see only the result, or --quiet to see each reading",
        )


def _check_distinct_files(log_file: Path | None, metrics_file: Path | None) -> None:
    """Raise UsageError if two options name the same file."""
    if log_file is not None and metrics_file is not None and log_file == metrics_file:
        raise UsageError(
            f"--log-file and --metrics-file both name {log_file}",
            hint="name a file for each, such as run.log and run.prom",
        )


def _replace_progress_parameter(
    command: Callable[..., None], options: dict[str, Any]
) -> inspect.Signature:
    """Return a command's signature for Typer, with ``options`` in place of ``progress``."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != PROGRESS_PARAMETER:
            parameters.append(parameter)
            continue
        for name, option in options.items():
            default = False if option in (VerboseOption, QuietOption) else None
            parameters.append(parameter.replace(name=name, annotation=option, default=default))
    return signature.replace(parameters=parameters)


def parse_rates(option: str, texts: Iterable[str]) -> list[float]:
    """Return the rates of an option, in requests/s. Raises UsageError."""
    from autotune.target.quantities import parse_rate

    rates: list[float] = []
    for text in texts:
        hint = f"give a rate, such as `{option} 800/s`"
        if "," in text or ";" in text:
            hint = f"repeat the option: `{option} 800/s {option} 1200/s`"
        try:
            rate = parse_rate(text)
        except ValueError as error:
            raise UsageError(f"{option} {text}: {error}", hint=hint) from None
        if rate == 0:
            raise UsageError(f"{option} must be above 0", hint=hint)
        if rate in rates:
            raise UsageError(f"{option} {text} is given twice", hint="give each rate once")
        rates.append(rate)
    return rates


def start_metrics_server(address: str | None) -> MetricsServer | None:
    """Return a metrics server that listens on ``address``, or ``None`` without an address. Raises
    UsageError.
    """
    if address is None:
        return None
    from autotune.report.metrics_server import MetricsServer

    return MetricsServer(address)
