"""Puma with a configuration file of the user's. Run as its unit runs it, Puma itself prints the options
that it has read, and ends before it listens. The application is not loaded for that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from autotune.services import base, unit_environment
from autotune.services.app_server import AppServer, diagnosis, each, needs_of, stats
from autotune.services.base import Argv, Programs, Readback, Settings, Site, guided, on_restart
from autotune.services.diagnosis import WORKING
from autotune.services.readback import backlog_in_force
from autotune.services.unit_files import AS_UNIT, UNIT_WORDS, drop_in

UNIT = "puma.service"
DOCS = "puma.io, Puma::DSL"
DEPLOYMENT = "github.com/puma/puma, Deployment engineering for Puma"

PARAMETERS = guided((
    on_restart("workers", "Processes of the application; 0 is a single one that nothing manages.",
        low=0, high="max(4, 4 * cpus)", stock=0, recommended="max(2, 3 * cpus / 2)",
        source=f"{DEPLOYMENT}, Single vs Cluster mode"),
    on_restart("max_threads", "Most threads of each, which share one interpreter, a request each.",
        low=1, high=64, log=True, stock=5, source=f"{DEPLOYMENT}, Single vs Cluster mode"),
    on_restart("min_threads", "Threads of each that stay where there is no load.",
        low=0, high=64, stock=0, source=DOCS),
    base.accept_queue("backlog", stock=1024, recommended=None, adopted=True, source=f"{DOCS}, bind"),
    on_restart("persistent_timeout", "How long an idle connection of a proxy is kept.",
        low=1, high=75, log=True, stock=20, unit="s", adopted=True, source=DOCS),
    on_restart("max_fast_inline", "Requests of one connection in a row before others have their turn.",
        low=1, high=100, log=True, stock=10, adopted=True, source=DOCS),
    on_restart("preload_app", "Whether the application is loaded before workers are forked, and shared.",
        stock=False, adopted=True, source=DOCS),
    # Short timeouts cut off slow pages and slow clients.
    on_restart("worker_timeout", "How long a silent worker may be at work before it is ended.",
        low=6, high=600, log=True, stock=60, unit="s", adopted=True, on_demand=True, source=DOCS),
    on_restart("first_data_timeout", "How long a client may take until its request begins.",
        low=1, high=300, log=True, stock=30, unit="s", adopted=True, on_demand=True, source=DOCS),
),
    capacity="workers+ max_threads+ backlog+",
    small="min_threads+ persistent_timeout+ max_fast_inline preload_app",
    safe={"workers": (0, "2 * cpus"), "max_threads": (1, 16), "backlog": (256, 65_535)},
)  # fmt: skip
# Whether Puma preloads by default depends on its version and its number of workers.
NAMES = tuple(p.name for p in PARAMETERS if p.name not in ("backlog", "preload_app"))

# Ruby loads this before Puma. Instead of listening, Puma prints the options from its command and file.
_ANSWER = f"""
TracePoint.new(:end) do |point|
  next unless point.self.inspect == 'Puma::Launcher'
  Puma::Launcher.class_eval do
    def run
      %w[{" ".join(NAMES)}].each {{ |name| puts "#{{name}} = #{{@options[name.to_sym]}}" }}
      $stdout.flush
      exit!(true)
    end
  end
end.enable
"""
# answer script unit…: `ask LAST words…` runs the unit's command with ``answer`` loaded, and with these
# words and LAST at its end.
_ASK = rf"""
place=$(mktemp -d) || exit
trap 'rm -rf "$place"' EXIT
printf '%s' "$1" >"$place/answer.rb"
chmod -R a+rX "$place"
script=$2 unit=$3
words=$({UNIT_WORDS})
set -f
ask() {{
    last=$1
    shift
    sh -c "$script" sh "$unit" "$last" env "RUBYOPT=-r$place/answer" $variables $words "$@"
}}
"""
# … variables file: the file is given last, as the last of several `-C` counts.
_CHECK = f"""{_ASK}
variables=$4
answer=$(ask "${{5:--q}}" ${{5:+-C}} 2>&1) && exit
printf '%s\\n' "$answer" | grep . | grep -v warning: | head -n 1
exit 1
"""
# Workers are counted among the running processes.
_SHOWN = rf"""{_ASK}
ask -q 2>/dev/null
pid=$(systemctl show -P MainPID -- "$unit")
grep -qsa ^puma "/proc/$pid/cmdline" || exit 0
set +f
echo "workers = $(cat "/proc/$pid"/task/*/children | xargs -r printf '/proc/%s/cmdline\n' |
    xargs -r grep -lsa ^puma | wc -l)"
"""
# Where Puma's file says that the stats are served, or names a state file that says it; nothing where it
# does neither.
_STATS = r"""
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
    """Runs a Ruby application behind a proxy, in processes of several threads."""

    name = "puma"
    title = "Puma"
    deployment = "puma"
    port = 9292
    config = ("", drop_in(UNIT))
    template = "puma/options.conf.j2"
    unit_name = UNIT
    # Puma may be a gem of the application's own, on nobody's path: then `true`, the last, is found.
    programs: ClassVar[Programs] = {"puma": ("puma", "bundle", "ruby", "true")}
    packages = ("puma",)
    parameters = PARAMETERS
    find_stats = _STATS
    needs = needs_of("workers", "max(workers, 1) * max_threads",
        source="Puma 5.6: 20 MB a worker, no application; the first trial measures it")  # fmt: skip
    at_most = (("min_threads", "max_threads"),)

    def validate(self, site: Site, files: Mapping[str, bytes]) -> Argv | None:
        if not site.own:
            return None  # a drop-in: systemd reads it, not Puma
        file = next((path for path in files if path.endswith(".rb")), "")
        variables = " ".join(unit_environment.assignments(files, r"\w+=\d+"))
        words = (_ANSWER, AS_UNIT, self.unit(site) or UNIT, variables, file)
        return ("sh", "-c", _CHECK, "sh", *words, *(path for path in files if path != file))

    def effective(self, site: Site) -> tuple[Readback, ...]:
        words = ("sh", "-c", _SHOWN, "sh", _ANSWER, AS_UNIT, self.unit(site) or UNIT)
        return (
            Readback(words, in_effect),
            Readback(self.asking(site), of_stats),
            backlog_in_force(site, socket=site.own_place),
        )


SERVICES = (Puma(),)


def in_effect(text: str) -> Settings:
    """The options that Puma prints; of one that is printed twice the second counts."""
    printed = re.findall(r"(?m)^(\w+) = ([0-9]{1,9})(?:\.0)?$", text)
    return {name: int(value) for name, value in printed if name in NAMES}


def _pools(text: str) -> tuple[int, list[Mapping[str, Any]]]:
    """The number of workers, and what each process last reported of its threads."""
    answer = stats(text)
    if "worker_status" not in answer:
        return 0, [answer]
    last = [worker.get("last_status") for worker in each(answer, "worker_status")]
    return len(last), [status for status in last if isinstance(status, dict)]


def of_stats(text: str) -> Settings:
    workers, pools = _pools(text)
    threads = [pool["max_threads"] for pool in pools if isinstance(pool.get("max_threads"), int)]
    return {"workers": workers, "max_threads": min(threads)} if threads else {}


def counters(text: str) -> Mapping[str, float]:
    """Requests in hand, of a single process only: workers report theirs every few seconds, too late."""
    match _pools(text):
        case 0, [{"max_threads": int(limit), "pool_capacity": int(free)}]:
            return {WORKING: float(limit - free)}
    return {}


DIAGNOSIS = diagnosis(
    Puma(), "workers", "max_threads",
    ended=("timeout", r"Terminating timed out worker",
           "workers did not report within `worker_timeout`, and were ended: raise worker_timeout"),
    counters=counters,
)  # fmt: skip
