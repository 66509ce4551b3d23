"""A tuner in a separate process that can be killed: ``tuner.py tune|restore TARGET STUDY [HOST
STEP]``.

``tune`` prints "open" once its hosts are locked, then deploys one configuration after the other.
``restore`` prints "open" before it starts. With a host and a step, the process deploys a few
configurations, and kills itself after it has sent the first exchange with this step to this host.
With ``none`` it runs to its end, and with ``first`` it stops after the first configuration. For
each exchange, it prints ``exchange WHAT…``: the functions that the host runs, which identify the
step.

``tuner.py serve`` forks such processes after all imports, which take longer than a test. Each line
of standard input contains the arguments of one process as JSON. The reply contains its exit status
and output.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from paramiko import Channel

from autotune.deploy.managed_hosts import restore_hosts
from autotune.environments.stack import prepare
from autotune.runtimes.systemd import SERVICE_MANAGER
from autotune.target.read_target import read_target
from autotune.transports.base import Argv, CommandResult
from autotune.transports.ssh import SshTransport
from autotune.transports.target_hosts import create_transports
from tests.deploy.lab import News, settings

CHANGES = (
    {},
    {"web__php_fpm__max_children": 9, "lb__nginx__worker_processes": 3},
    {"cache__memcached__threads": 2, "web__limits__nofile": 7000},
    {"lb__sysctl__net__ipv4__tcp_fin_timeout": 33, "cache__sysctl__net__core__somaxconn": 2000},
)


FEW = 3  # number of configurations: the first, one with changed files, one with restarts


class Watched:
    """A transport that prints the exchanges with one host, and kills this process at one of them."""

    def __init__(self, host: str, step: str) -> None:
        self.host, self.step = host, step
        self._send, self._run = Channel.shutdown_write, SshTransport.run

    def begin(self) -> None:
        watched = self

        def run(self: SshTransport, argv: Argv, **given: Any) -> CommandResult:
            if self.name == watched.host:
                asked = re.findall(r"^    step (\S+)", (given.get("input") or b"").decode(), re.M)
                told = " ".join(dict.fromkeys(asked or argv[:1]))
                print("exchange", told, flush=True)
                if told == watched.step:
                    Channel.shutdown_write = watched._end  # type: ignore[method-assign]
            return watched._run(self, argv, **given)

        SshTransport.run = run  # type: ignore[assignment,method-assign]

    def _end(self) -> None:
        """Kill this process once the host has received the whole input; the host continues alone."""
        os.kill(os.getpid(), signal.SIGKILL)


def tune(target: Path, study: Path, watched: Watched | None) -> None:
    bed = prepare(read_target(target))
    fleet = bed.create_deployment(study, News())  # type: ignore[arg-type]  # takes every call
    if watched:
        watched.begin()
    fleet.lock_hosts()
    print("open", flush=True)
    few = None if watched is None else 1 if watched.step == "first" else FEW
    for change in itertools.islice(itertools.cycle(CHANGES), few):
        fleet.deploy(settings(fleet, **change))
    os.kill(os.getpid(), signal.SIGKILL)


def restore(target: Path, study: Path, watched: Watched | None) -> None:
    file = read_target(target)
    used = {host for tier in file.target.tiers.values() for host in tier.hosts}
    of_hosts = {
        name: transport for name, transport in create_transports(file).items() if name in used
    }
    print("open", flush=True)
    if watched:
        watched.begin()
    restore_hosts(study, of_hosts, SERVICE_MANAGER, prefers_host_copies=False)


def main(what: str, target: str, study: str, *at: str) -> None:
    watched = Watched(*at) if at else None
    {"tune": tune, "restore": restore}[what](Path(target), Path(study), watched)


def serve() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryFile() as output:
            pid = os.fork()  # no threads exist here, because only the children open connections
            if pid == 0:
                os.dup2(output.fileno(), sys.stdout.fileno())
                main(*json.loads(line))
                sys.stdout.flush()
                os._exit(0)
            (_, status) = os.waitpid(pid, 0)
            output.seek(0)
            print(json.dumps([os.waitstatus_to_exitcode(status), output.read().decode()]))
            sys.stdout.flush()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
