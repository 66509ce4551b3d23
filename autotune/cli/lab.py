"""`autotune lab`: the hosts of a target as systemd-nspawn machines on this one."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import completion
from autotune.cli.help import Command
from autotune.cli.options import Json, TargetPath
from autotune.cli.output import print_json
from autotune.target.messages import plural
from autotune.terminal import echo

if TYPE_CHECKING:
    from autotune.lab.target_labs import Lab

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run the hosts of a target as systemd machines on this one.",
)

What = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="Target file or lab name.",
        show_default=False,
        autocompletion=completion.targets,
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Directory of the lab. [default: /var/lib/autotune/labs/NAME]",
    ),
]


@app.command(cls=Command)
def up(
    target: TargetPath,
    directory: Directory = None,
    json_: Json = False,
) -> None:
    """Start a target's hosts and application. Running hosts are not changed."""
    from autotune.lab import target_labs

    raised = target_labs.up(target, directory)
    if json_:
        _print(
            raised.lab,
            started=sorted(raised.started),
            seconds=round(raised.seconds, 3),
            named_by_target=not raised.unnamed,
            site=raised.site,
        )
        return
    for host in raised.lab.hosts:
        state = "started" if host.name in raised.started else "is already running"
        echo(f"{host.name} ({host.address}) {state}")
    if raised.started:
        echo(f"{plural(len(raised.started), 'host')} started in {raised.seconds:.1f} s", err=True)
    if raised.site:
        echo("the application and its data are installed", err=True)
    if raised.unnamed:
        echo(
            f"add `ssh: {{config: {raised.lab.ssh_config}}}` to {target} to reach the hosts",
            err=True,
        )


@app.command(cls=Command)
def down(what: What, directory: Directory = None, json_: Json = False) -> None:
    """Remove a target's hosts, also after an interrupted `up`."""
    from autotune.lab import target_labs

    removed = target_labs.down(what, directory)
    if json_:
        _print(removed)
        return
    running = [host.name for host in removed.hosts]
    echo(f"{', '.join(running)} removed" if running else "no host was running; the lab is removed")


@app.command(cls=Command)
def status(what: What, directory: Directory = None, json_: Json = False) -> None:
    """Show which hosts run and accept SSH."""
    from autotune.lab import target_labs

    lab = target_labs.look(what, directory)
    if json_:
        _print(lab)
        return
    if not lab.hosts:
        echo(f"no lab in {lab.directory}")
    for host in lab.hosts:
        state = (
            "stopped" if not host.running else "up" if host.ssh else "up, but SSH does not respond"
        )
        echo(f"{host.name} ({host.address}) {state}")


@app.command(cls=Command, context_settings={"ignore_unknown_options": True})
def ssh(
    what: What,
    host: Annotated[
        str | None,
        typer.Argument(metavar="HOST", help="Host name. Optional if the lab has one host."),
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Command to run.")
    ] = None,
    directory: Directory = None,
) -> None:
    """Open a terminal on a lab host, or run a command there."""
    from autotune.lab import target_labs

    argv = target_labs.terminal(what, host, directory)
    os.execvp(argv[0], [*argv, *(command or [])])  # noqa: S606  # becomes ssh, terminal and all


def _print(lab: Lab, **more: Any) -> None:
    document = {
        "schema": 1,
        "lab": lab.name,
        "directory": str(lab.directory),
        "ssh_config": str(lab.ssh_config),
        "hosts": [asdict(host) | {"running": host.running} for host in lab.hosts],
        **more,
    }
    print_json(document)
