"""Commands about a target: `init`, `check`, `plan` and `params`."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune import errors
from autotune.cli import completion
from autotune.cli.options import BedsOption, JsonOption, SetOption, TargetArgument
from autotune.cli.output_files import check_target_file
from autotune.cli.session import (
    build_set_overrides,
    prepare_file,
    print_target_warnings,
)
from autotune.errors import UsageError
from autotune.target.messages import format_count
from autotune.target.shipped_files import list_examples
from autotune.terminal import echo, print_json

if TYPE_CHECKING:
    from autotune.environments.base import CheckResult

ExampleOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Example to copy: {', '.join(list_examples())}. [default: local]",
        autocompletion=completion.complete_examples,
    ),
]
AdoptedHostsOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="USER@HOST,…",
        help="Adopt the running services of these hosts, with their files.",
    ),
]
TargetOutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="File to write. [default: targets/NAME.yaml]",
        callback=check_target_file,
    ),
]
SshConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --from: file to use instead of ~/.ssh/config."),
]
RequestPathOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Path to request, with --from. [default: /index.php or /]"),
]


def init(
    example: ExampleOption = None,
    from_: AdoptedHostsOption = None,
    out: TargetOutOption = None,
    ssh_config: SshConfigOption = None,
    path: RequestPathOption = None,
    json_: JsonOption = False,
) -> None:
    """Write a target file, from an example or from running hosts."""
    if from_ is not None and example is not None:
        raise UsageError(
            "--example and --from cannot be combined",
            hint="omit --from to copy an example, or --example to read running hosts",
        )
    if from_ is not None:
        _check_request_path(path)
        _adopt_hosts(from_, out, ssh_config, path, json_=json_)
        return
    for option, value in (("--ssh-config", ssh_config), ("--path", path)):
        if value is not None:
            raise UsageError(f"{option} needs --from", hint="add `--from HOST,…`")
    from autotune.target.shipped_files import write_example

    example = example or "local"
    path_of_copy = out or Path("targets") / f"{example}.yaml"
    was_written = write_example(example, path_of_copy)
    if json_:
        print_json({"schema": 1, "target": str(path_of_copy)})
        return
    echo(f"wrote {path_of_copy}" if was_written else f"{path_of_copy} already has this content")
    echo(f"next: `autotune check {shlex.quote(str(path_of_copy))}`", err=True)


def _check_request_path(path: str | None) -> None:
    from autotune.target.field_types import PATH_PATTERN, PATTERN_DESCRIPTIONS

    if path is not None and not re.fullmatch(PATH_PATTERN, path):
        raise UsageError(
            f"--path {path!r} is not {PATTERN_DESCRIPTIONS[PATH_PATTERN]}",
            hint="such as `--path /index.php`",
        )


def _adopt_hosts(
    hosts: str, out: Path | None, ssh_config: Path | None, path: str | None, *, json_: bool
) -> None:
    from autotune.discovery.target_writer import adopt_hosts

    summary = adopt_hosts(
        [host for host in hosts.split(",") if host.strip()], out, ssh_config, path
    )
    if json_:
        print_json(
            {
                "schema": 1,
                "target": str(summary.target_file),
                "templates": str(summary.templates_directory),
                "tiers": list(summary.tier_summaries),
                "not_tuned": list(summary.notes),
                "parameters": summary.parameter_count,
            }
        )
        return
    for line in summary.tier_summaries:
        echo(line)
    for line in summary.notes:
        echo(f"  not tuned: {line}")
    echo(
        f"wrote {summary.target_file} and {summary.templates_directory}: "
        f"{format_count(summary.parameter_count, 'parameter')}"
    )
    target = shlex.quote(str(summary.target_file))
    echo(f"next: review it, then run `autotune check {target}`", err=True)


def check(
    target: TargetArgument,
    headroom: Annotated[
        bool,
        typer.Option("--headroom", help="Also measure how much load the load hosts can generate."),
    ] = False,
    beds: BedsOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Validate a target and its hosts, without changing anything."""
    from autotune.environments.target_checks import check_can_search
    from autotune.target.read_target import read_target

    target_file = read_target(target, build_set_overrides(set_))
    warnings = print_target_warnings(target_file)
    environment = prepare_file(target_file, beds)
    check_can_search(environment)
    check_result = environment.check()
    headroom_text = environment.measure_headroom() if headroom else None
    if json_:
        warning_records = [{"message": w.message, "hint": w.hint} for w in warnings]
        further_keys = {"headroom": headroom_text, "warnings": warning_records}
        print_json({"schema": 1, **asdict(check_result), **further_keys})
        return
    _print_check_result(check_result, headroom_text)


def _print_check_result(check_result: CheckResult, headroom_text: str | None) -> None:
    if headroom_text:
        echo(f"  generator: {headroom_text}")
    lines_by_mark = {
        "✓ ": check_result.held,
        "  left out: ": check_result.left_out,
        "  not checked: ": check_result.not_checked,
    }
    for status_mark, lines in lines_by_mark.items():
        for output_line in lines:
            echo(f"{status_mark}{output_line}")


def plan(
    target: TargetArgument,
    set_: SetOption = None,
    json_: JsonOption = False,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit with status 6 if the recommended settings would change a host.",
        ),
    ] = False,
) -> None:
    """Show the changes and the load of a run, without starting it."""
    from autotune.study.run_plan import build_plan, format_plan
    from autotune.target.read_target import read_target

    target_file = read_target(target, build_set_overrides(set_))
    print_target_warnings(target_file)
    run_plan = build_plan(prepare_file(target_file))
    if json_:
        print_json(run_plan)
    else:
        echo(format_plan(run_plan))
    hosts = run_plan.get("hosts", {}).values()
    has_changes = any(host["sysctls"] or host["units"] for host in hosts)
    if exit_code and (run_plan["diff"] or has_changes):
        raise typer.Exit(errors.CHANGES_PRESENT_EXIT_CODE)


def params(
    service: Annotated[
        str | None,
        typer.Argument(
            metavar="SERVICE",
            help="Service to list. [default: all]",
            autocompletion=completion.complete_services,
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            metavar="TARGET",
            help="Include the services that this target declares.",
            autocompletion=completion.complete_targets,
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """List the parameters in the catalogue."""
    from autotune.report.parameters import build_catalogue_json, format_catalogue
    from autotune.services.registry import extend_catalogue
    from autotune.target.read_target import read_target, read_user_services

    if service is not None and service.endswith((".yaml", ".yml")):
        raise UsageError(
            f"{service} is a file, not a service",
            hint=f"`autotune params --target {shlex.quote(service)}` includes its services",
        )
    declared_services = read_target(target).target.services if target else {}
    catalogue = extend_catalogue({**read_user_services(), **declared_services})
    if json_:
        print_json(build_catalogue_json(service, catalogue))
    else:
        echo(format_catalogue(service, catalogue), end="")
