"""Node.js in a user's unit, configured through its environment, so each change is a restart.

Node validates its own options. Workers are counted from the running processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from autotune.services import unit_environment
from autotune.services.base import (
    Argv,
    Needs,
    Programs,
    Readback,
    Role,
    Service,
    Settings,
    Site,
    guided,
    on_restart,
)
from autotune.services.diagnosis import (
    FULL,
    MEASURED,
    Diagnosis,
    Finding,
    PartReading,
    Resource,
    counted,
)
from autotune.services.unit_files import AS_UNIT, UNIT_WORDS, drop_in
from autotune.strict import split_lines

UNIT = "nodejs.service"
DOCS = "nodejs.org, Command-line API"

PARAMETERS = guided((
    on_restart("workers",
        "Number of the application's cluster processes, if it reads the number from its"
        " environment.",
        low=1, high="max(4, 2 * cpus)", log=True, stock=1, recommended="cpus",
        source="nodejs.org, Cluster"),
    on_restart("uv_threadpool_size", "Threads per process for files, DNS, compression and"
        " cryptography. Other work runs on one thread.",
        low=1, high=128, log=True, stock=4, source=f"{DOCS}, UV_THREADPOOL_SIZE"),
    on_restart("max_semi_space_size",
        "Size of a space for new objects, of which each process has three."
        " Larger spaces are collected less often.",
        low=8, high=128, log=True, stock=16, recommended=64, unit="MB",
        source=f"{DOCS}, --max-semi-space-size"),
    # A process with too little memory aborts.
    on_restart("max_old_space_size", "Maximum memory per process for long-lived objects.",
        low=128, high=16_384, log=True, stock=2048, unit="MB", adopted=True, on_demand=True,
        source=f"{DOCS}, --max-old-space-size"),
),
    capacity="workers+",
    small="uv_threadpool_size+ max_semi_space_size+",
    safe={"workers": (1, "cpus"), "uv_threadpool_size": (4, 32), "max_semi_space_size": (16, 64)},
)  # fmt: skip
POOL, FLAGS = "UV_THREADPOOL_SIZE", "NODE_OPTIONS"
OPTIONS = {"max_semi_space_size": "--max-semi-space-size",
           "max_old_space_size": "--max-old-space-size"}  # fmt: skip

# script unit variables (one per line): starts the unit's own Node with the variables; it exits
# immediately.
_CHECK = rf"""
script=$1 unit=$2 variables=$3
node=node
for word in $({UNIT_WORDS}); do
    case ${{word##*/}} in node | nodejs) node=$word; break ;; esac
done
IFS='
'
set -f
answer=$(sh -c "$script" sh "$unit" --eval=0 env $variables "$node" 2>&1) && exit
printf '%s\n' "$answer" | grep . | head -n 1
exit 1
"""
# unit: prints a line per Node process of the unit, followed by the environment variables to read
# back.
_SHOWN = rf"""
group=$(systemctl show -P ControlGroup -- "$1")
for file in $(grep -lsF ":$group" /proc/[0-9]*/cgroup); do
    process=${{file%/cgroup}}
    case $(cat "$process/comm") in
        node* | MainThread)
            echo process
            tr '\0' '\n' <"$process/environ" | grep -E '^(NODE_UNIQUE_ID|{POOL}|{FLAGS})=' ;;
    esac
done
"""


class Nodejs(Service):
    """Runs a JavaScript application. Each process has one thread and serves many concurrent
    requests.
    """

    name = "nodejs"
    title = "Node.js"
    deployment = "nodejs"
    role = Role.APP
    port = 3000
    config = ("", drop_in(UNIT))
    template = "nodejs/options.conf.j2"
    unit_name = UNIT
    # If Node is in a private directory outside PATH, `true` is found instead.
    programs: ClassVar[Programs] = {
        "node": ("node", "nodejs", "node-MainThread", "MainThread", "true")
    }
    packages = ("nodejs",)
    parameters = PARAMETERS
    needs = Needs(
        processes="workers + 1",
        rss=60 * 2**20,
        memory="workers * 3 * max_semi_space_size",
        source="resident size of a process of Node.js 20 that serves HTTP",
    )

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        if not site.own:
            return None  # a drop-in, which systemd reads and Node does not
        variables = unit_environment.assignments(files, rf"{POOL}=\d+|{FLAGS}=.*")
        words = (AS_UNIT, self.unit(site) or UNIT, "\n".join(variables))
        return ("sh", "-c", _CHECK, "sh", *words, *files)

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback(("sh", "-c", _SHOWN, "sh", self.unit(site) or UNIT), in_effect),)


SERVICES = (Nodejs(),)


def in_effect(text: str) -> Settings:
    """Return effective values. Workers are the forked processes, or the only process.

    A parameter missing in the environment has Node's default.
    """
    if "process" not in split_lines(text):
        return {}
    pool = re.search(rf"(?m)^{POOL}=(\d{{1,9}})$", text)
    values = {"workers": max(len(re.findall(r"(?m)^NODE_UNIQUE_ID=", text)), 1),
              "uv_threadpool_size": int(pool[1]) if pool else 4}  # fmt: skip
    flags = re.search(rf"(?m)^{FLAGS}=(.*)$", text)
    for name, option in OPTIONS.items():
        pattern = rf"(?<!\S){option.replace('-', '[-_]')}=(\d{{1,9}})(?!\S)"
        if sizes := re.findall(pattern, flags[1] if flags else ""):
            values[name] = int(sizes[-1])
    return {"max_semi_space_size": 16, **values}


def _one_core(part: PartReading) -> Finding | None:
    """Return a finding if the event loops ran, or were runnable, all the time.

    Each process computes on one CPU, however many the host has.
    """
    activity = part.activity
    ready = activity.cpu + (activity.delay or 0.0)
    if not activity.workers or ready < FULL * activity.workers:
        return None
    evidence = (
        f"{activity.workers} event loops ran for {activity.cpu:.2f} s per second and were runnable"
        f" for"
        f" {ready:.2f} s, the maximum{part.meanwhile}: raise workers or fork a cluster"
    )
    return Finding(Resource.WORKERS, evidence, MEASURED)


DIAGNOSIS = Diagnosis(
    counters=None,
    log=lambda site: Nodejs().unit(site),
    complaints={"heap": re.compile(r"JavaScript heap out of memory")},
    threads="workers",
    moves={
        Resource.CPU: ("workers+",),
        Resource.WORKERS: ("workers+",),
        Resource.MEMORY: ("max_old_space_size+", "workers-", "max_semi_space_size-"),
    },
    refusal_rules=(
        counted("heap", "times a process aborted with a full heap: raise max_old_space_size",
                Resource.MEMORY),
    ),
    worker_rules=(_one_core,),
)  # fmt: skip
