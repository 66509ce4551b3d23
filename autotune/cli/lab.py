"""`autotune lab`: the hosts of a target as systemd-nspawn machines on this host."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import completion
from autotune.cli.help import CommandWithExamples
from autotune.cli.options import JsonOption, TargetArgument
from autotune.cli.output_files import check_lab_directory
from autotune.target.messages import format_count
from autotune.terminal import echo, print_json

if TYPE_CHECKING:
    from autotune.lab.target_labs import Lab

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a target's hosts as systemd-nspawn containers on this machine.",
)

LabTargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="Target file or lab name.",
        show_default=False,
        autocompletion=completion.complete_targets,
    ),
]
LabDirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Directory of the lab. [default: /var/lib/autotune/labs/NAME]",
        callback=check_lab_directory,
    ),
]


@app.command(cls=CommandWithExamples)
def up(
    target: TargetArgument,
    directory: LabDirectoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Start a target's hosts and application. Running hosts are not changed."""
    from autotune.lab import target_labs

    new_lab = target_labs.start_target_lab(target, directory)
    if json_:
        _print_lab(
            new_lab.lab,
            started=sorted(new_lab.started_hosts),
            seconds=round(new_lab.seconds, 3),
            named_by_target=not new_lab.is_unnamed,
            site=new_lab.has_site,
        )
        return
    for host in new_lab.lab.hosts:
        state_text = "started" if host.name in new_lab.started_hosts else "is already running"
        echo(f"{host.name} ({host.address}) {state_text}")
    if new_lab.started_hosts:
        echo(
            f"{format_count(len(new_lab.started_hosts), 'host')} started in {new_lab.seconds:.1f} s",
            err=True,
        )
    if new_lab.has_site:
        echo("the application and its data are installed", err=True)
    if new_lab.is_unnamed:
        echo(
            f"add `ssh: {{config: {new_lab.lab.ssh_config}}}` to {target} to reach the hosts",
            err=True,
        )


@app.command(cls=CommandWithExamples)
def down(
    target_or_lab: LabTargetArgument,
    directory: LabDirectoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Remove a target's hosts, even after an interrupted `up`."""
    from autotune.lab import target_labs

    is_known = target_labs.has_lab(target_or_lab, directory)
    removed_lab = target_labs.remove_target_lab(target_or_lab, directory)
    if json_:
        _print_lab(removed_lab)
        return
    if not is_known:
        _print_missing_lab(removed_lab)
        return
    running_hosts = [host.name for host in removed_lab.hosts]
    echo(
        f"{', '.join(running_hosts)} removed"
        if running_hosts
        else "no host was running; the lab was removed"
    )


@app.command(cls=CommandWithExamples)
def status(
    target_or_lab: LabTargetArgument,
    directory: LabDirectoryOption = None,
    json_: JsonOption = False,
) -> None:
    """Show which hosts are running and accept SSH connections."""
    from autotune.lab import target_labs

    lab = target_labs.read_lab(target_or_lab, directory)
    if json_:
        _print_lab(lab)
        return
    if not lab.hosts:
        _print_missing_lab(lab)
    for host in lab.hosts:
        state_text = (
            "stopped" if not host.running else "up" if host.ssh else "up, but SSH does not respond"
        )
        echo(f"{host.name} ({host.address}) {state_text}")


@app.command(cls=CommandWithExamples, context_settings={"ignore_unknown_options": True})
def ssh(
    target_or_lab: LabTargetArgument,
    host: Annotated[
        str | None,
        typer.Argument(metavar="HOST", help="Host name. Optional if the lab has one host."),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run.")
    ] = None,
    directory: LabDirectoryOption = None,
) -> None:
    """Open a shell on a lab host, or run a command there."""
    from autotune.lab import target_labs

    argv = target_labs.build_ssh_command(target_or_lab, host, directory)
    os.execvp(argv[0], [*argv, *(command or [])])  # noqa: S606  # ssh replaces this process


def _print_missing_lab(lab: Lab) -> None:
    from autotune.lab.target_labs import list_lab_names

    echo(f"no lab in {lab.directory}")
    names = ", ".join(list_lab_names())
    hint = f"existing labs: {names}" if names else "`autotune lab up TARGET` creates a lab"
    echo(f"  hint: {hint}", err=True)


def _print_lab(lab: Lab, **extra_keys: Any) -> None:
    document = {
        "schema": 1,
        "lab": lab.name,
        "directory": str(lab.directory),
        "ssh_config": str(lab.ssh_config),
        "hosts": [asdict(host) | {"running": host.running} for host in lab.hosts],
        **extra_keys,
    }
    print_json(document)
