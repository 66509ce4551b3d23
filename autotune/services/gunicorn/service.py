"""gunicorn in a user's unit. gunicorn's options are on the command line, so each change needs a
restart.

Started with the unit's own command, gunicorn can print its effective settings. For this output,
gunicorn loads the application.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from autotune.services.app_server import AppServer, build_diagnosis, build_needs
from autotune.services.base import (
    SOMAXCONN,
    Argv,
    Placement,
    Programs,
    Readback,
    Settings,
    on_restart,
    with_guidance,
)
from autotune.services.command_line import parse_exec_start
from autotune.services.readback import build_backlog_readback, parse_number
from autotune.services.unit_files import PROCESS_COMMAND_SCRIPT, UNIT_RUN_SCRIPT, get_drop_in_path

UNIT_NAME = "gunicorn.service"
DOCS = "docs.gunicorn.org, Settings"
DESIGN_DOCS = "docs.gunicorn.org, Design"

PARAMETERS = with_guidance((
    on_restart("workers", "Number of worker processes.",
        low=1, high="max(4, 8 * cpus)", log=True, stock=1, recommended="2 * cpus + 1",
        source=f"{DESIGN_DOCS}, How Many Workers?"),
    on_restart("threads",
        "Number of threads per process, which share one interpreter; 1 uses the sync worker,"
        " more use the gthread worker.",
        low=1, high=64, log=True, stock=1, recommended=4, source=f"{DESIGN_DOCS}, How Many Threads?"),
    on_restart("backlog",
        "Maximum number of connections that wait for a worker. The kernel limits it to somaxconn.",
        low=64, high=65_535, log=True, stock=2048, capped_by=SOMAXCONN, source=DOCS),
    on_restart("keepalive", "Time that a threaded worker keeps an idle connection open.",
        low=1, high=75, log=True, stock=2, unit="s", source=DOCS),
    on_restart("worker_connections", "Maximum number of connections per threaded worker.",
        low=32, high=10_000, log=True, stock=1000, source=DOCS),
    on_restart("max_requests", "Number of requests after which a worker is replaced; 0 means never.",
        choices=(0, 500, 1000, 5000, 20_000), stock=0, source=DOCS),
    on_restart("max_requests_jitter",
        "Random addition to max_requests, so that workers are not replaced at the same time.",
        low=0, high=500, stock=0, recommended=50, source=DOCS),
    # A short timeout would abort requests for slow pages.
    on_restart("timeout", "Time after which a worker that does not respond is killed.",
        low=5, high=600, log=True, stock=30, unit="s", on_demand=True, source=DOCS),
),
    capacity="workers+ threads+ backlog",
    small="keepalive+ worker_connections max_requests",
    safe={"workers": (1, "4 * cpus + 1"), "threads": (1, 16), "backlog": (256, 65_535)},
)  # fmt: skip
PARAMETER_NAMES = frozenset(parameter.name for parameter in PARAMETERS)

# Arguments: file, script, unit, argv… Prints the errors that gunicorn reports for its settings.
_VALIDATION_SCRIPT = """
script=$2 unit=$3
shift 3
answer=$(sh -c "$script" sh "$unit" --check-config "$@" 2>&1) && exit
printf '%s\\n' "$answer" | grep . | tail -n 2
exit 1
"""
# Arguments: script, names, unit. Prints the effective settings with the given names.
_READBACK_SCRIPT = f"""
unit=$3
export AUTOTUNE_PID="$(systemctl show --value -p MainPID -- "$unit")"
{{ {PROCESS_COMMAND_SCRIPT} }} | xargs -0 sh -c "$1" sh "$unit" --print-config 2>/dev/null |
    grep -E "^($2) "
"""


class Gunicorn(AppServer):
    """gunicorn, which runs a Python application behind a proxy, in processes with one or more
    threads.
    """

    name = "gunicorn"
    title = "gunicorn"
    deployment = "gunicorn"
    port = 8000
    config_paths = ("", get_drop_in_path(UNIT_NAME))
    template = "gunicorn/options.conf.j2"
    unit_name = UNIT_NAME
    # Names of gunicorn's executables. The last one, `true`, exists on every host, so the lookup
    # also succeeds if gunicorn is in the application's private directory.
    programs: ClassVar[Programs] = {"gunicorn": ("gunicorn", "gunicorn3", "true")}
    packages = ("gunicorn",)
    parameters = PARAMETERS
    needs = build_needs(
        "workers",
        "workers * threads",
        source="resident size of a worker with Django 3.2 and a client of its database",
    )
    ordering_rules = (("threads", "worker_connections"),)

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        for path, content in files.items():
            if command_words := parse_exec_start(content.decode(errors="replace")):
                return (
                    "sh",
                    "-c",
                    _VALIDATION_SCRIPT,
                    "sh",
                    path,
                    UNIT_RUN_SCRIPT,
                    self.get_unit(placement) or UNIT_NAME,
                    *command_words,
                )
        return None  # the command is unchanged, and the service manager validates the unit

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        script_arguments = (
            UNIT_RUN_SCRIPT,
            "|".join(sorted(PARAMETER_NAMES)),
            self.get_unit(placement) or UNIT_NAME,
        )
        return (
            Readback(("sh", "-c", _READBACK_SCRIPT, "sh", *script_arguments), parse_effective),
            build_backlog_readback(placement, socket=placement.adopted_address),
        )


SERVICES = (Gunicorn(),)


def parse_effective(output: str) -> Settings:
    """Return the settings in the output of `gunicorn --print-config`. The effective backlog comes
    from the kernel.
    """
    printed_settings = re.findall(r"(?m)^(\w+) += (\S+)$", output)
    return {
        name: parse_number(value)
        for name, value in printed_settings
        if name in PARAMETER_NAMES - {"backlog"}
    }


# The timeout kills workers together with their requests.
DIAGNOSIS = build_diagnosis(
    Gunicorn(),
    "workers",
    connection_changes=("backlog+", "worker_connections+"),
    keepalive_changes=("keepalive+",),
    # With several threads, the main thread accepts connections, and the others read the requests.
    accepts_early=True,
    killed_workers=(
        "timeout",
        r"WORKER TIMEOUT",
        "workers exceeded `timeout` and were killed: raise timeout",
    ),
)
