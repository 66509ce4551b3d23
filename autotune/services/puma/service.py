"""Puma with a user's configuration file.

Started with its unit's own command, Puma can print its options and exit before it listens. For this
output, Puma does not load the application.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from autotune.services import base, unit_environment
from autotune.services.app_server import (
    AppServer,
    build_diagnosis,
    build_needs,
    list_objects,
    parse_stats,
)
from autotune.services.base import (
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

UNIT_NAME = "puma.service"
DOCS = "puma.io, Puma::DSL"
PUMA_GUIDE = "github.com/puma/puma, Deployment engineering for Puma"

PARAMETERS = with_guidance((
    on_restart("workers", "Number of worker processes; 0 means a single process without a manager.",
        low=0, high="max(4, 4 * cpus)", stock=0, recommended="max(2, 3 * cpus / 2)",
        source=f"{PUMA_GUIDE}, Single vs Cluster mode"),
    on_restart("max_threads", "Maximum number of threads per process, which share one interpreter.",
        low=1, high=64, log=True, stock=5, source=f"{PUMA_GUIDE}, Single vs Cluster mode"),
    on_restart("min_threads", "Minimum number of threads per process, without load.",
        low=0, high=64, stock=0, source=DOCS),
    base.build_accept_queue("backlog", stock=1024, recommended=None, adopted=True,
        source=f"{DOCS}, bind"),
    on_restart("persistent_timeout", "Time that an idle connection stays open.",
        low=1, high=75, log=True, stock=20, unit="s", adopted=True, source=DOCS),
    on_restart("max_fast_inline", "Maximum number of consecutive requests from one connection.",
        low=1, high=100, log=True, stock=10, adopted=True, source=DOCS),
    on_restart("preload_app",
        "Load the application before workers are forked, so that they share memory.",
        stock=False, adopted=True, source=DOCS),
    # Short timeouts abort slow pages and slow clients.
    on_restart("worker_timeout", "Time after which a worker that does not respond is killed.",
        low=6, high=600, log=True, stock=60, unit="s", adopted=True, on_demand=True, source=DOCS),
    on_restart("first_data_timeout", "Maximum time until a client starts its request.",
        low=1, high=300, log=True, stock=30, unit="s", adopted=True, on_demand=True, source=DOCS),
),
    capacity="workers+ max_threads+ backlog+",
    small="min_threads+ persistent_timeout+ max_fast_inline preload_app",
    safe={"workers": (0, "2 * cpus"), "max_threads": (1, 16), "backlog": (256, 65_535)},
)  # fmt: skip
# Puma's default for preloading depends on its version and on the number of workers.
PRINTED_PARAMETERS = tuple(p.name for p in PARAMETERS if p.name not in ("backlog", "preload_app"))

# Ruby loads this script before Puma. Instead of listening, Puma then prints its effective options.
_PRINT_OPTIONS_SCRIPT = f"""
TracePoint.new(:end) do |point|
  next unless point.self.inspect == 'Puma::Launcher'
  Puma::Launcher.class_eval do
    def run
      %w[{" ".join(PRINTED_PARAMETERS)}].each {{ |name| puts "#{{name}} = #{{@options[name.to_sym]}}" }}
      $stdout.flush
      exit!(true)
    end
  end
end.enable
"""
# Arguments: answer, script, unit, … `ask LAST words…` runs the unit's command, followed by the
# words and LAST, with ``answer`` loaded into Ruby.
_RUN_COMMAND_SCRIPT = rf"""
place=$(mktemp -d) || exit
trap 'rm -rf "$place"' EXIT
printf '%s' "$1" >"$place/answer.rb"
chmod -R a+rX "$place"
script=$2 unit=$3
words=$({UNIT_COMMAND_SCRIPT})
set -f
ask() {{
    last=$1
    shift
    sh -c "$script" sh "$unit" "$last" env "RUBYOPT=-r$place/answer" $variables $words "$@"
}}
"""
# Further arguments: variables, file. The file comes last, because only the last `-C` takes effect.
_VALIDATION_SCRIPT = f"""{_RUN_COMMAND_SCRIPT}
variables=$4
answer=$(ask "${{5:--q}}" ${{5:+-C}} 2>&1) && exit
printf '%s\\n' "$answer" | grep . | grep -v warning: | head -n 1
exit 1
"""
# Prints Puma's effective options, and the number of running worker processes.
_READBACK_SCRIPT = rf"""{_RUN_COMMAND_SCRIPT}
ask -q 2>/dev/null
pid=$(systemctl show --value -p MainPID -- "$unit")
grep -qsa ^puma "/proc/$pid/cmdline" || exit 0
set +f
echo "workers = $(cat "/proc/$pid"/task/*/children | xargs -r printf '/proc/%s/cmdline\n' |
    xargs -r grep -lsa ^puma | wc -l)"
"""
# Finds the address of the control server in Puma's file, or in the state file that Puma's file
# names.
_FIND_STATS_SCRIPT = r"""
chdir $1 if $path =~ m{(.*)/config/};
my ($url) = $text =~ /^\s*activate_control_app[ (]+["']([^"'#]+)["']/m;
my ($token) = $text =~ /auth_token:\s*["']([^"'#]+)["']/;
if ($text =~ /^\s*state_path[ (]+["']([^"'#]+)["']/m && open my $state, '<', $1) {
    $text = join '', <$state>;
    ($url) = $text =~ /^control_url: "?([^"\n]+)/m;
    ($token) = $text =~ /^control_auth_token: "?([^"\n]+)/m;
}
($place) = ($url || '') =~ m{^(?:unix|tcp)://(.+)};
$request = "GET /stats?token=" . ($token || '') . " HTTP/1.0\r\n\r\n";
"""


class Puma(AppServer):
    """Puma, which runs a Ruby application behind a proxy, in processes with several threads."""

    name = "puma"
    title = "Puma"
    deployment = "puma"
    port = 9292
    config_paths = ("", get_drop_in_path(UNIT_NAME))
    template = "puma/options.conf.j2"
    unit_name = UNIT_NAME
    # `true` exists on every host, so the lookup also succeeds if Puma is a private gem of the
    # application outside of PATH.
    programs: ClassVar[Programs] = {"puma": ("puma", "bundle", "ruby", "true")}
    packages = ("puma",)
    parameters = PARAMETERS
    stats_script = _FIND_STATS_SCRIPT
    needs = build_needs(
        "workers",
        "max(workers, 1) * max_threads",
        source="Puma 5.6: 20 MB per worker without an application; the first trial measures the size",
    )
    ordering_rules = (("min_threads", "max_threads"),)

    def build_validation(self, placement: Placement, files: Mapping[str, bytes]) -> Argv | None:
        if not placement.adopted:
            return None  # the only file is a drop-in, which systemd reads but Puma does not
        ruby_file = next((path for path in files if path.endswith(".rb")), "")
        variables = " ".join(unit_environment.list_assignments(files, r"\w+=\d+"))
        script_arguments = (
            _PRINT_OPTIONS_SCRIPT,
            UNIT_RUN_SCRIPT,
            self.get_unit(placement) or UNIT_NAME,
            variables,
            ruby_file,
        )
        return (
            "sh",
            "-c",
            _VALIDATION_SCRIPT,
            "sh",
            *script_arguments,
            *(path for path in files if path != ruby_file),
        )

    def list_readbacks(self, placement: Placement) -> tuple[Readback, ...]:
        readback_command = (
            "sh",
            "-c",
            _READBACK_SCRIPT,
            "sh",
            _PRINT_OPTIONS_SCRIPT,
            UNIT_RUN_SCRIPT,
            self.get_unit(placement) or UNIT_NAME,
        )
        return (
            Readback(readback_command, parse_effective),
            Readback(self.build_stats_command(placement), parse_effective_stats),
            build_backlog_readback(placement, socket=placement.adopted_address),
        )


SERVICES = (Puma(),)


def parse_effective(output: str) -> Settings:
    """Return the options that Puma printed. The last occurrence of an option takes effect."""
    printed_values = re.findall(r"(?m)^(\w+) = ([0-9]{1,9})(?:\.0)?$", output)
    return {name: int(value) for name, value in printed_values if name in PRINTED_PARAMETERS}


def _parse_pools(output: str) -> tuple[int, list[Mapping[str, Any]]]:
    """Return the number of workers, and the most recent report of each process about its
    threads.
    """
    stats = parse_stats(output)
    if "worker_status" not in stats:
        return 0, [stats]
    last_statuses = [worker.get("last_status") for worker in list_objects(stats, "worker_status")]
    return len(last_statuses), [status for status in last_statuses if isinstance(status, dict)]


def parse_effective_stats(output: str) -> Settings:
    worker_count, pool_reports = _parse_pools(output)
    thread_limits = [
        pool["max_threads"] for pool in pool_reports if isinstance(pool.get("max_threads"), int)
    ]
    return {"workers": worker_count, "max_threads": min(thread_limits)} if thread_limits else {}


def parse_counters(output: str) -> Mapping[str, float]:
    """Return the number of requests in flight if Puma runs as a single process. Worker processes report
    their requests too late.
    """
    match _parse_pools(output):
        case 0, [{"max_threads": int(max_threads), "pool_capacity": int(idle_threads)}]:
            return {BUSY_WORKERS: float(max_threads - idle_threads)}
    return {}


DIAGNOSIS = build_diagnosis(
    Puma(),
    "workers",
    "max_threads",
    keepalive_changes=("persistent_timeout+",),
    killed_workers=(
        "timeout",
        r"Terminating timed out worker",
        "workers exceeded `worker_timeout` and were killed: raise worker_timeout",
    ),
    counter_parser=parse_counters,
)
