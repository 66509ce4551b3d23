"""uWSGI with a user's .ini file. Effective values come from uWSGI's stats server, if it is enabled."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename
from typing import ClassVar

from autotune.services.app_server import (
    AppServer,
    build_diagnosis,
    build_needs,
    list_objects,
    parse_stats,
)
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
from autotune.services.diagnosis import BUSY_WORKERS
from autotune.services.readback import build_backlog_readback
from autotune.services.unit_files import UNIT_COMMAND_SCRIPT, UNIT_RUN_SCRIPT, get_drop_in_path

UNIT_NAME = "uwsgi.service"
# Debian's default options for the applications in Debian's own unit
DEBIAN_DEFAULTS_FILE = "/usr/share/uwsgi/conf/default.ini"
DOCS = "uwsgi-docs.readthedocs.io"
OPTIONS_DOCS = f"{DOCS}, Configuration Options"

PARAMETERS = with_guidance((
    on_restart("processes", "Number of worker processes, also called `workers`.",
        low=1, high="max(4, 8 * cpus)", log=True, stock=1, recommended=4,
        source=f"{DOCS}, Quickstart for Python/WSGI applications"),
    on_restart("threads", "Number of threads per process, which share one interpreter.",
        low=1, high=64, log=True, stock=1, recommended=2,
        source=f"{DOCS}, Quickstart for Python/WSGI applications"),
    on_restart("listen",
        "Maximum number of connections that wait to be accepted. Above somaxconn, uWSGI does not start.",
        low=64, high=4096, log=True, stock=100, recommended=1024, capped_by=SOMAXCONN,
        source=f"{DOCS}, Things to know"),
    on_restart("cheaper", "Minimum number of processes without load; 0 keeps all.",
        low=0, high="max(4, 8 * cpus) - 1", stock=0, source=f"{DOCS}, The uWSGI cheaper subsystem"),
    on_restart("max_requests", "Number of requests after which a process is replaced; 0 means never.",
        choices=(0, 500, 1000, 5000, 20_000), stock=0, source=OPTIONS_DOCS),
    # A short timeout would abort slow pages.
    on_restart("harakiri",
        "Maximum duration of a request before its process is killed; 0 means no limit.",
        low=0, high=600, stock=0, unit="s", on_demand=True, source=OPTIONS_DOCS),
),
    capacity="processes+ threads+ listen+",
    small="cheaper max_requests",
    safe={"processes": (1, "4 * cpus + 1"), "threads": (1, 16), "listen": (100, 4096)},
)  # fmt: skip

# Arguments: file, name, script, unit. Runs the unit's command with the file on standard input;
# uWSGI loads the application and exits. Options that would write, listen or start programs are
# omitted, because the service is running.
_VALIDATION_SCRIPT = rf"""
file=$1 name=$2 script=$3 unit=$4
# In a replacement of sed, these characters have a meaning.
escape() {{ printf '%s' "$1" | sed 's/[\\&|]/\\&/g'; }}
directory=$(escape "${{file%/*}}/") name=$(escape "$name")
set --
words=$({UNIT_COMMAND_SCRIPT})
case $words in /etc/init.d/*) words=/usr/bin/uwsgi inherited={DEBIAN_DEFAULTS_FILE} ;; esac
for word in $words; do
    case $next$word in
        over*) next= ;;
        --ini | --emperor | --pidfile | --daemonize | --stats | --logto | -d) next=over ;;
        --ini=* | --emperor=* | --pidfile=* | --daemonize=* | --stats=* | --logto=* | *.ini) ;;
        *) set -- "$@" "$word" ;;
    esac
done
without='(safe-)?pidfile2?|daemonize2?|logto2?|stats|hook-[a-z-]+|exec-[a-z-]+|attach-daemon2?|emperor'
answer=$(sed -E -e "/^[ \t]*($without)[ \t]*=/d; /%\(deb-/d" \
        -e "s|%d|$directory|g; s|%n|$name|g" ${{inherited-}} "$file" |
    sh -c "$script" sh "$unit" --no-server "$@" --strict --need-app --ini fd://0 2>&1) && exit
printf '%s\n' "$answer" | grep . | tail -n 2
exit 1
"""
# Finds the address of the stats server in uWSGI's file, if the file sets one.
_FIND_STATS_SCRIPT = r"""
($place) = $text =~ /^[ \t]*stats(?:-server)?[ \t]*=[ \t]*(\S+)/m;
$place =~ s/^:/127.0.0.1:/ if $place;
"""


class Uwsgi(AppServer):
    """uWSGI, which runs an application behind a proxy, in processes with one or more threads."""

    name = "uwsgi"
    title = "uWSGI"
    deployment = "uwsgi"
    port = 3031
    config_paths = ("", get_drop_in_path(UNIT_NAME))
    template = "uwsgi/options.conf.j2"
    unit_name = UNIT_NAME
    # `true` exists on every host, so the lookup also succeeds if uWSGI is in a private directory
    # outside of PATH.
    programs: ClassVar[Programs] = {"uwsgi": ("uwsgi", "uwsgi-core", "uwsgi_python3", "true")}
    packages = ("uwsgi", "uwsgi-plugin-python3")
    parameters = PARAMETERS
    stats_script = _FIND_STATS_SCRIPT
    needs = build_needs(
        "processes",
        "processes * threads",
        source="resident size of a worker with Django 3.2 and a client of its database",
    )
    ordering_rules = (("cheaper + 1", "processes"),)

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        if placement.adopted is None or not files:
            return None  # the only file is a drop-in, which systemd reads but uWSGI does not
        ini_file = placement.adopted.main or next(iter(files))
        return (
            "sh",
            "-c",
            _VALIDATION_SCRIPT,
            "sh",
            ini_file,
            basename(ini_file).removesuffix(".ini"),
            UNIT_RUN_SCRIPT,
            self.get_unit(placement) or UNIT_NAME,
        )

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        return (
            Readback(self.build_stats_command(placement), parse_effective),
            build_backlog_readback(placement, "listen", placement.adopted_address),
        )


SERVICES = (Uwsgi(),)


def parse_effective(output: str) -> Settings:
    """Return the numbers of processes and threads from the stats. The backlog comes from the
    kernel.
    """
    workers = list_objects(parse_stats(output), "workers")
    threads = min((len(list_objects(worker, "cores")) for worker in workers), default=0)
    return {"processes": len(workers), "threads": threads} if threads else {}


def parse_counters(output: str) -> Mapping[str, float]:
    """Return the number of requests in flight, and the number of processes that uWSGI killed after
    the harakiri timeout.
    """
    workers = list_objects(parse_stats(output), "workers")
    cores_stats = [core_stats for worker in workers for core_stats in list_objects(worker, "cores")]
    if not cores_stats:
        return {}
    busy_cores = sum(bool(core_stats.get("in_request")) for core_stats in cores_stats)
    harakiri_counts = [worker.get("harakiri_count") for worker in workers]
    return {
        BUSY_WORKERS: float(busy_cores),
        "harakiri": float(sum(count for count in harakiri_counts if isinstance(count, int))),
    }


DIAGNOSIS = build_diagnosis(
    Uwsgi(),
    "processes",
    connection_changes=("listen+",),
    killed_workers=(
        "harakiri",
        r"HARAKIRI ON WORKER",
        "processes were killed during a slow request: raise harakiri",
    ),
    counter_parser=parse_counters,
)
