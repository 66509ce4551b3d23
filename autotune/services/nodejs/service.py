"""Node.js in a user's unit. Environment variables configure Node.js, so each change needs a
restart.

Node.js validates its own options. The effective number of workers is the number of running
processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import ClassVar

from autotune.services import unit_environment
from autotune.services.base import (
    Argv,
    Placement,
    Programs,
    Readback,
    ResourceNeeds,
    Role,
    Service,
    Settings,
    on_restart,
    with_guidance,
)
from autotune.services.diagnosis import (
    FULL_FRACTION,
    MEASURED,
    Diagnosis,
    InstanceReading,
    Resource,
    ResourceShortage,
    build_counter_rule,
)
from autotune.services.unit_files import UNIT_COMMAND_SCRIPT, UNIT_RUN_SCRIPT, get_drop_in_path
from autotune.strict_parsing import split_lines
from autotune.target.quantities import SIZE_UNITS

UNIT_NAME = "nodejs.service"
DOCS = "nodejs.org, Command-line API"

PARAMETERS = with_guidance(
    (
        on_restart(
            "workers",
            "Number of the application's cluster processes, if it reads the number from its"
            " environment.",
            low=1,
            high="max(4, 2 * cpus)",
            log=True,
            stock=1,
            recommended="cpus",
            source="nodejs.org, Cluster",
        ),
        on_restart(
            "uv_threadpool_size",
            "Number of threads per process for files, DNS, compression and"
            " cryptography. Other work runs on one thread.",
            low=1,
            high=128,
            log=True,
            stock=4,
            source=f"{DOCS}, UV_THREADPOOL_SIZE",
        ),
        # V8 rounds the size up to a power of two. 16 MB is the default from 4 GB of memory on.
        on_restart(
            "max_semi_space_size",
            "Size of a space for new objects, of which each process has three."
            " Larger spaces are collected less often.",
            choices=(1, 2, 4, 8, 16, 32, 64, 128),
            stock=16,
            recommended=64,
            unit="MB",
            source=f"{DOCS}, --max-semi-space-size",
        ),
        # A process with too little memory aborts.
        on_restart(
            "max_old_space_size",
            "Maximum memory per process for long-lived objects.",
            low=128,
            high=16_384,
            log=True,
            stock=2048,
            unit="MB",
            adopted=True,
            on_demand=True,
            source=f"{DOCS}, --max-old-space-size",
        ),
    ),
    capacity="workers+",
    small="uv_threadpool_size+ max_semi_space_size+",
    safe={"workers": (1, "cpus"), "uv_threadpool_size": (4, 32)},
)
POOL_VARIABLE, FLAGS_VARIABLE = "UV_THREADPOOL_SIZE", "NODE_OPTIONS"
OPTIONS_BY_PARAMETER = {
    "max_semi_space_size": "--max-semi-space-size",
    "max_old_space_size": "--max-old-space-size",
}

# Arguments: script, unit, variables (one per line). Starts the unit's own Node.js with the variables,
# and without a program to run.
_VALIDATION_SCRIPT = rf"""
script=$1 unit=$2 variables=$3
node=node
for word in $({UNIT_COMMAND_SCRIPT}); do
    case ${{word##*/}} in node | nodejs) node=$word; break ;; esac
done
IFS='
'
set -f
answer=$(sh -c "$script" sh "$unit" --eval=0 env $variables "$node" 2>&1) && exit
printf '%s\n' "$answer" | grep . | head -n 1
exit 1
"""
# Argument: unit. Prints the memory of the host, and the memory limits of the unit. For each Node.js
# process of the unit, prints the line `process`, and then the environment variables to read back.
_READBACK_SCRIPT = rf"""
group=$(systemctl show --value -p ControlGroup -- "$1")
grep -s '^MemTotal:' /proc/meminfo
grep -Hs . "/sys/fs/cgroup$group/memory.max" "/sys/fs/cgroup$group/memory.high"
for file in $(grep -lsF ":$group" /proc/[0-9]*/cgroup); do
    process=${{file%/cgroup}}
    # Some applications, such as Next.js, change the names of their processes.
    case $(cat "$process/comm") in npm* | yarn* | pnpm*) continue ;; esac
    case $(readlink "$process/exe") in
        */node | */nodejs | */node-[0-9]* | */node[0-9]*)
            echo process
            tr '\0' '\n' <"$process/environ" |
                grep -E '^(NODE_UNIQUE_ID|{POOL_VARIABLE}|{FLAGS_VARIABLE})=' ;;
    esac
done
"""


class Nodejs(Service):
    """Node.js, which runs a JavaScript application. Each process has one thread and serves many
    concurrent requests.
    """

    name = "nodejs"
    other_names = ("node", "node.js", "npm")
    title = "Node.js"
    deployment = "nodejs"
    role = Role.APP
    port = 3000
    config_paths = ("", get_drop_in_path(UNIT_NAME))
    template = "nodejs/options.conf.j2"
    unit_name = UNIT_NAME
    # `true` exists on every host, so the lookup also succeeds if Node.js is in a private directory
    # outside of PATH.
    programs: ClassVar[Programs] = {
        "node": ("node", "nodejs", "node-MainThread", "MainThread", "true")
    }
    packages = ("nodejs",)
    parameters = PARAMETERS
    needs = ResourceNeeds(
        processes="workers + 1",
        rss=60 * 2**20,
        memory="workers * 3 * max_semi_space_size",
        source="resident size of a Node.js 20 process that serves HTTP",
    )

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        if not placement.adopted:
            return None  # the only file is a drop-in, which systemd reads but Node.js does not
        variables = unit_environment.list_assignments(
            files, rf"{POOL_VARIABLE}=\d+|{FLAGS_VARIABLE}=.*"
        )
        script_arguments = (
            UNIT_RUN_SCRIPT,
            self.get_unit(placement) or UNIT_NAME,
            "\n".join(variables),
        )
        return ("sh", "-c", _VALIDATION_SCRIPT, "sh", *script_arguments, *files)

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (
            Readback(
                ("sh", "-c", _READBACK_SCRIPT, "sh", self.get_unit(placement) or UNIT_NAME),
                parse_effective,
            ),
        )


SERVICES = (Nodejs(),)


def parse_effective(output: str) -> Settings:
    """Return the effective values of Node.js parameters. The number of workers is the number of
    forked processes, or 1 for a single process.

    A parameter that is missing from the environment has Node's default. If the memory is unknown, the
    result does not contain defaults that depend on it.
    """
    if "process" not in split_lines(output):
        return {}
    memory = _find_memory(output)
    default_size = {} if memory is None else {"max_semi_space_size": find_semi_space_size(memory)}
    pool_match = re.search(rf"(?m)^{POOL_VARIABLE}=(\d{{1,9}})$", output)
    parameter_values = {
        "workers": max(len(re.findall(r"(?m)^NODE_UNIQUE_ID=", output)), 1),
        "uv_threadpool_size": int(pool_match[1]) if pool_match else 4,
    }
    flags_match = re.search(rf"(?m)^{FLAGS_VARIABLE}=(.*)$", output)
    for parameter_name, option in OPTIONS_BY_PARAMETER.items():
        pattern = rf"(?<!\S){option.replace('-', '[-_]')}=(\d{{1,9}})(?!\S)"
        if option_sizes := re.findall(pattern, flags_match[1] if flags_match else ""):
            size = int(option_sizes[-1])
            is_rounded = parameter_name == "max_semi_space_size"
            parameter_values[parameter_name] = round_semi_space_size(size) if is_rounded else size
    return {**default_size, **parameter_values}


def _find_memory(output: str) -> int | None:
    """Return how many bytes of memory a process may use. Return ``None`` if the memory is unknown, or if
    a limit of the unit is lower, because older versions of Node.js ignore the limit.

    Node.js reads the same values (libuv, `uv_get_constrained_memory`).
    """
    total_match = re.search(r"(?m)^MemTotal:\s+([0-9]{1,15}) kB$", output)
    limits = re.findall(r"(?m)^/sys/fs/cgroup/\S+:([0-9]{1,19})$", output)
    memory = int(total_match[1]) * 1024 if total_match else 0
    return memory if memory and all(int(limit) >= memory for limit in limits) else None


def find_semi_space_size(memory: int) -> int:
    """Return Node's default size of a semi-space in MB for a process with ``memory`` bytes.

    V8 gives the old space half of the memory. A semi-space gets 1/128 of the old space, or 1/256 of an
    old space of at most 256 MB. The default is 1 MB for 512 MB of memory, 4 MB for 1 GB, and 16 MB
    from 4 GB on. Sources: nodejs.org, Command-line API, --max-semi-space-size; V8,
    `Heap::YoungGenerationSizeFromOldGenerationSize`.
    """
    old_space = memory / 2 / SIZE_UNITS["MB"]
    size = old_space / (256 if old_space <= 256 else 128)
    return round_semi_space_size(ceil(min(max(size, 1), 16)))


def round_semi_space_size(size: int) -> int:
    """Return the size that V8 uses for a semi-space: the next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def _detect_busy_core(reading: InstanceReading) -> ResourceShortage | None:
    """Return a shortage if the event loops were running or runnable all the time.

    Each process computes on only one CPU, however many CPUs the host has.
    """
    activity = reading.activity
    demanded_cpus = activity.cpu + (activity.cpu_delay or 0.0)
    if not activity.workers or demanded_cpus < FULL_FRACTION * activity.workers:
        return None
    evidence = (
        f"{activity.workers} event loops ran for {activity.cpu:.2f} s per second and were "
        f"runnable for {demanded_cpus:.2f} s, the maximum{reading.idle_clause}: raise workers or fork a "
        "cluster"
    )
    return ResourceShortage(Resource.WORKERS, evidence, MEASURED)


DIAGNOSIS = Diagnosis(
    counter_query=None,
    find_log=lambda site: Nodejs().get_unit(site),
    complaint_patterns={"heap": re.compile(r"JavaScript heap out of memory")},
    threads_parameter="workers",
    recommended_changes={
        Resource.CPU: ("workers+",),
        Resource.WORKERS: ("workers+",),
        Resource.MEMORY: ("max_old_space_size+", "workers-", "max_semi_space_size-"),
    },
    refusal_rules=(
        build_counter_rule("heap", "times a process aborted with a full heap: raise max_old_space_size",
                Resource.MEMORY),
    ),
    worker_rules=(_detect_busy_core,),
)  # fmt: skip
