"""Commands that measure without a search: `measure` and `sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune import errors
from autotune.cli import completion
from autotune.cli.options import (
    DEFAULT_PROGRESS,
    DEFAULT_STUDIES_DIRECTORY,
    JsonOption,
    ProgressOptions,
    SetOption,
    StudiesOption,
    TargetArgument,
    YesOption,
    add_progress_options,
    parse_rates,
)
from autotune.cli.output_files import check_page_file
from autotune.cli.session import (
    build_set_overrides,
    confirm,
    list_assigned_names,
    open_progress,
    prepare_target,
    run_sweep_session,
)
from autotune.errors import UsageError
from autotune.terminal import echo, print_json

if TYPE_CHECKING:
    from autotune.environments.base import Environment
    from autotune.study.ceiling_records import Ceilings
    from autotune.study.ceilings import CeilingRequest
    from autotune.study.measure_capacity import Measurement, MeasurementRequest

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="EXPORT", help="Exported configuration to measure. [default: the baseline]"
    ),
]
AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="REFERENCE",
        help="Compare with `baseline`, `recommended`, `advised`, `published` or an export, in alternating"
        " pairs.",
        autocompletion=completion.complete_references,
    ),
]
RepeatOption = Annotated[
    int, typer.Option(min=1, max=100, metavar="N", help="Number of measurements.")
]
CacheTierOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIER",
        help="Measure the ceiling of this tier's caches instead of the capacity.",
        autocompletion=completion.complete_cache_tiers,
    ),
]
ClosedOption = Annotated[
    bool, typer.Option("--closed", help="Use a closed loop of clients, which measures a ceiling.")
]
DEFAULT_CONCURRENCY = "1,5"
ConcurrencyOption = Annotated[
    str | None,
    typer.Option(
        metavar="N,…",
        help=f"With --closed: numbers of concurrent clients. [default: {DEFAULT_CONCURRENCY}]",
    ),
]
SweepTargetArgument = Annotated[
    Path,
    typer.Argument(
        metavar="TARGET",
        help="Target, or sweep file that names a target.",
        show_default=False,
        autocompletion=completion.complete_targets,
    ),
]
OverOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUES",
        help="Vary a setting over `LOW:HIGH:STEP` or `A,B,C`. `all` covers every choice of services.",
        autocompletion=completion.complete_parameters,
    ),
]
HostCountsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TIER=N,…",
        help="Vary the number of hosts in a tier.",
        autocompletion=completion.complete_host_tiers,
    ),
]
RatesOption = Annotated[
    list[str] | None,
    typer.Option(metavar="RATE", help="Offer this rate at each point; may be repeated."),
]
CapacityOption = Annotated[
    bool, typer.Option("--peak", help="Search for the capacity at each point.")
]
SweepRepeatOption = Annotated[
    int | None,
    typer.Option(min=1, max=100, metavar="N", help="Measurements per point. [default: 3]"),
]
SweepHtmlOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File for the plots. [default: STUDY/sweep.html]",
        callback=check_page_file,
    ),
]


AtLeastOption = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="Check that the capacity reaches this rate, such as 1200/s."),
]
MeasureExitCodeOption = Annotated[
    bool,
    typer.Option(
        "--exit-code", help="With --at-least: exit with status 4 if the capacity is lower."
    ),
]


@add_progress_options()
def measure(
    target: TargetArgument,
    config: ConfigOption = None,
    against: AgainstOption = None,
    repeat: RepeatOption = 1,
    tier: CacheTierOption = None,
    closed: ClosedOption = False,
    concurrency: ConcurrencyOption = None,
    at_least: AtLeastOption = None,
    exit_code: MeasureExitCodeOption = False,
    set_: SetOption = None,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Measure the capacity of a configuration, with its interval."""
    from autotune.study import ceilings, measure_capacity
    from autotune.study.directory import find_free_directory

    _check_ceiling_options(tier, concurrency, at_least, is_closed_loop=closed, is_gate=exit_code)
    environment = prepare_target(target, build_set_overrides(set_))
    minimum_rate = _parse_minimum(environment, at_least, is_needed=exit_code)
    request = measure_capacity.build_measurement_request(environment, config, against, repeat)
    measure_capacity.check_assigned_parameters(
        environment.space, request, list_assigned_names(set_)
    )
    client_counts = concurrency or (DEFAULT_CONCURRENCY if closed else None)
    ceiling_request = _build_ceiling_request(environment, request, tier, client_counts)
    confirm(environment.describe_load(study=False), yes=yes, quiet=progress.quiet)
    directory = find_free_directory(studies, f"{environment.file.target.name}-measured")
    with open_progress(environment, directory, progress) as reporter:
        if ceiling_request is not None:
            record = ceilings.measure_ceilings(environment, ceiling_request, directory, reporter)
            _print_ceilings(record, json_=json_)
            return
        measurement = measure_capacity.measure_configuration(
            environment, request, directory, reporter
        )
    _print_measurement(measurement, directory, minimum_rate, json_=json_)
    if exit_code:
        _exit_below(minimum_rate, measurement)


def _check_ceiling_options(
    tier: str | None,
    concurrency: str | None,
    at_least: str | None,
    *,
    is_closed_loop: bool,
    is_gate: bool,
) -> None:
    """Raise UsageError for options of ceilings that cannot be combined."""
    if is_closed_loop and tier is not None:
        raise UsageError(
            "--closed and --tier cannot be combined",
            hint="omit --tier to measure the whole stack, or --closed to measure the caches of a tier",
        )
    if concurrency is not None and not is_closed_loop:
        raise UsageError(
            "--concurrency needs --closed",
            hint="add `--closed` to measure a ceiling, or omit --concurrency",
        )
    if (at_least is not None or is_gate) and (is_closed_loop or tier is not None):
        option = "--closed" if is_closed_loop else "--tier"
        capacity_option = "--exit-code" if at_least is None else "--at-least"
        raise UsageError(
            f"{capacity_option} and {option} cannot be combined",
            hint=f"omit {option} to check the capacity, or {capacity_option} to measure a ceiling",
        )


def _build_ceiling_request(
    environment: Environment,
    request: MeasurementRequest,
    tier: str | None,
    client_counts: str | None,
) -> CeilingRequest | None:
    """Return the request for ceilings, or ``None`` if a capacity is measured. Raises UsageError."""
    from autotune.study.ceilings import build_ceiling_request

    if client_counts is None and tier is None:
        return None
    return build_ceiling_request(environment, request, tier, client_counts or "")


def _parse_minimum(
    environment: Environment, minimum_text: str | None, *, is_needed: bool
) -> float | None:
    """Return the required capacity from `--at-least`, in requests/s. Raises UsageError."""
    from autotune.study.measure_capacity import parse_required_capacity

    minimum_rate = parse_required_capacity(environment, minimum_text)
    if is_needed and minimum_rate is None:
        raise UsageError(
            "--exit-code needs --at-least",
            hint="add `--at-least RATE`, such as `--at-least 1200/s`",
        )
    return minimum_rate


def _print_measurement(
    measurement: Measurement, directory: Path, minimum_rate: float | None, *, json_: bool
) -> None:
    from autotune.report import measurement_report
    from autotune.report.studies import open_study

    study = open_study(directory)
    if json_:
        print_json(measurement_report.build_measurement_json(measurement, study, minimum_rate))
    else:
        echo(measurement_report.format_measurement(measurement, study, minimum_rate))


def _exit_below(minimum_rate: float | None, measurement: Measurement) -> None:
    """Raise Exit with the status of `--exit-code` if the capacity is below ``minimum_rate``. If that is
    unknown, because the load was limited, raise Exit with an error status.
    """
    if minimum_rate is None or measurement.reaches_rate(minimum_rate):
        return
    if measurement.is_rate_unknown(minimum_rate):
        raise typer.Exit(errors.OPERATIONAL_EXIT_CODE)
    raise typer.Exit(errors.NOT_IMPROVED_EXIT_CODE)


def _print_ceilings(ceilings_record: Ceilings, *, json_: bool) -> None:
    from autotune.report.ceilings import build_ceilings_json, format_ceiling_lines

    if json_:
        print_json(build_ceilings_json(ceilings_record))
    else:
        echo("\n".join(format_ceiling_lines(ceilings_record)))


@add_progress_options()
def sweep(
    target: SweepTargetArgument,
    over: OverOption = None,
    hosts: HostCountsOption = None,
    set_: SetOption = None,
    rate: RatesOption = None,
    peak: CapacityOption = False,
    repeat: SweepRepeatOption = None,
    html: SweepHtmlOption = None,
    yes: YesOption = False,
    json_: JsonOption = False,
    progress: ProgressOptions = DEFAULT_PROGRESS,
    studies: StudiesOption = DEFAULT_STUDIES_DIRECTORY,
) -> None:
    """Measure a grid of settings or host counts, and plot it."""
    from autotune.environments.preparation import prepare
    from autotune.study.directory import find_free_directory
    from autotune.sweep import request

    rates = parse_rates("--rate", rate or ())
    target_file, sweep_request = request.build_request(
        target, over, hosts, set_, rates, repeat, peak=peak
    )
    environment = prepare(target_file)
    plan = request.build_plan(target_file, sweep_request, environment.space)
    announcement = f"{environment.describe_load(study=False)}\n{request.format_sweep_size(plan)}"
    confirm(announcement, yes=yes, quiet=progress.quiet)
    directory = find_free_directory(studies, request.choose_directory_name(target, target_file))
    run_sweep_session(environment, plan, directory, html, json_=json_, options=progress)
