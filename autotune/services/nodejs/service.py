"""Node.js in a unit of the user's. It has no file of its own: parameters are in its environment, and
each change takes a restart. Node itself validates its options; the running processes are counted."""

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
    on_restart("workers", "Processes of the application's cluster, where it takes their number from its"
        " environment.",
        low=1, high="max(4, 2 * cpus)", log=True, stock=1, recommended="cpus",
        source="nodejs.org, Cluster"),
    on_restart("uv_threadpool_size", "Threads of each for files, names of hosts, compression and"
        " cryptography; what else is asked is one thread's.",
        low=1, high=128, log=True, stock=4, source=f"{DOCS}, UV_THREADPOOL_SIZE"),
    on_restart("max_semi_space_size", "Where new objects are, of which each has three: larger ones are"
        " cleared less often.",
        low=8, high=128, log=True, stock=16, recommended=64, unit="MB",
        source=f"{DOCS}, --max-semi-space-size"),
    # With less than the application needs, a process ends.
    on_restart("max_old_space_size", "Most memory for objects that stay, of each.",
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

# script unit variables (a line each): starts the unit's own Node with the variables; it ends at once.
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
# unit: prints a line for each Node process of the unit, followed by those variables of its environment
# that are read back.
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
    """Runs a JavaScript application: each process has one thread, and any number of requests in hand."""

    name = "nodejs"
    title = "Node.js"
    deployment = "nodejs"
    role = Role.APP
    port = 3000
    config = ("", drop_in(UNIT))
    template = "nodejs/options.conf.j2"
    unit_name = UNIT
    # Node may be in a directory that is on nobody's path: then `true`, the last, is found.
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
            return None  # a drop-in: systemd reads it, not Node
        variables = unit_environment.assignments(files, rf"{POOL}=\d+|{FLAGS}=.*")
        words = (AS_UNIT, self.unit(site) or UNIT, "\n".join(variables))
        return ("sh", "-c", _CHECK, "sh", *words, *files)

    def effective(self, site: Site) -> tuple[Readback, ...]:
        return (Readback(("sh", "-c", _SHOWN, "sh", self.unit(site) or UNIT), in_effect),)


SERVICES = (Nodejs(),)


def in_effect(text: str) -> Settings:
    """Workers are the processes that another one has forked, or the only process. A parameter that is
    not in the environment has Node's own value."""
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
    """Each process computes on one CPU, whatever the host has: its event loop ran, or was ready to run,
    all the time."""
    activity = part.activity
    ready = activity.cpu + (activity.delay or 0.0)
    if not activity.workers or ready < FULL * activity.workers:
        return None
    evidence = (
        f"{activity.workers} event loops ran for {activity.cpu:.2f} s a second and were ready to for"
        f" {ready:.2f} s, all they can{part.meanwhile}: raise workers, or have the application fork"
        " a cluster"
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
        counted("heap", "times a process ended as its heap was full: raise max_old_space_size",
                Resource.MEMORY),
    ),
    worker_rules=(_one_core,),
)  # fmt: skip
