"""Sample a host over a transport with one POSIX shell command, without installing anything.

The command prints the host's figures at intervals until the reading is over. Starting programs takes
most of the CPU time of sampling. bash can read files and wait without other programs, so only `ss` is
started for each sample, once or twice. If a host runs many processes, the processes are sampled less
often. Figures that hardly change are read only before and after the load.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.deploy.host_commands import run_as_root
from autotune.monitor.process_table import (
    FILE_LIMIT_SECTION,
    OPEN_FILES_SECTION,
    PAGE_SIZE_SECTION,
    PSS_SECTION,
    ProcessOwners,
)
from autotune.monitor.procfs import (
    CONNECTIONS_COMMAND,
    SAMPLED_FILES,
    SS_COMMAND,
    HostSample,
    build_sample,
)
from autotune.strict_parsing import split_lines
from autotune.transports import wait_notices
from autotune.transports.base import CommandResult, Transport
from autotune.transports.temporary_files import LOCK_SCRIPT

# maximum size of the new text in a log; an overloaded server writes thousands of similar lines
MAX_LOG_BYTES = 1 << 20
KILL_AFTER_SECONDS = 15.0  # time after its planned end at which the command is killed
_MAX_ERROR_CHARACTERS = 200
_SAMPLE_MARK, _TIMES_MARK, _LOGS_MARK = "== sample ==", "== times ==", "== logs =="
_FILE_HEADER = "==> "
_CPU_TIME_PATTERN = re.compile(r"([0-9]{1,9})m([0-9]{1,9}(?:\.[0-9]+)?)s")  # such as 0m1.250000s
_PAGE_SIZE_PATTERN = re.compile(rf"(?m)^{PAGE_SIZE_SECTION} ([0-9]{{4,8}})$")
_REQUIRED_FILES = {"/proc/uptime", "/proc/stat"}  # a sample without these files is invalid

# No text is inserted into this script, because all values are arguments. Both `tail` and the bash code
# print each file after a line with its name. A signal interrupts `wait`, but not a `sleep` in the
# foreground. In POSIX mode, bash limits `read` with an alarm that can be lost, so `read` runs outside
# this mode. Then only input or the time limit ends it. Other shells do not parse the text in `eval`.
# bash before 5.1 lacks `<(…)` in POSIX mode, and before 4.4 `mapfile -d`; it uses the code for other
# shells. Logs come last, with a blank before each line, because a log may contain any text.
_STREAM_SCRIPT = f"""
count=$1 pause=$2 interval=$3 programs=" $4 " temporary=$5 logs=$6 connections=$7 groups=$8
shift 8
if [ -n "$BASH_VERSION" ] && (eval "mapfile -d '' content < <(:)") 2>/dev/null; then
    eval 'exec 9<> <(:)'
    rest() {{ set +o posix; read -rt "$1" -u 9; set -o posix; }}
    wake() {{ echo >&9; }}
    show() {{
        for file; do
            mapfile -d '' content <"$file" && printf '\n==> %s <==\n%s' "$file" "${{content[*]}}"
        done
    }}
else
    rest() {{
        sleep "$1" & wait
        [ -z "$over" ] || kill $!
    }}
    wake() {{ :; }}
    show() {{ tail -v -n +1 -- "$@"; }}
fi
each_log() {{ [ -z "$logs" ] || printf '%s\n' "$logs"; }}
ends() {{ # where each log ends: in bytes, or in time for what a unit tells the journal
    each_log | while IFS= read -r log; do
        case $log in
            /*) stat -c %s -- "$log" || echo 0 ;;
            *) date +%s.%6N ;;
        esac
    done
}}
news() {{ # where each log ended…: what was written since
    each_log | while IFS= read -r log; do
        printf '\n==> %s <==\n' "$log"
        case $log in
            # The account of a service may replace its log by a link or a pipe.
            /*) dd if="$log" iflag=nofollow,nonblock,skip_bytes skip="$1" bs=64K status=none ;;
            *) journalctl -q -o cat --no-pager -u "$log" --since "@$1" ;;
        esac | head -c {MAX_LOG_BYTES} | sed 's/^/ /'
        shift
    done
}}
begun=$(ends 2>/dev/null)
set -C
over= turn=0
trap 'exit' HUP INT PIPE
trap 'over=yes; wake' TERM
echo $$ >"$temporary" || exit
{LOCK_SCRIPT}number() {{ echo $#; }}
echo '{PAGE_SIZE_SECTION}' "$(getconf PAGESIZE 2>/dev/null)"
stride=$((1 + $(number /proc/[0-9]*) / 100))
ours() {{ # the processes of the services, in $processes
    processes=
    for process in /proc/[0-9]*; do
        read -r program <"$process/comm" || continue
        case $programs in *" $program "*) processes="$processes $process" ;; esac
    done
}}
of_each() {{ # file…: those files of each process, in $files
    files=
    for process in $processes; do
        for file; do files="$files $process/$file"; done
    done
}}
while :; do
    echo '{_SAMPLE_MARK}'
    end=$over files=
    [ "$count" -gt 0 ] || end=yes
    if [ -n "$end" ] || [ $((turn % stride)) -eq 0 ]; then
        ours
        of_each stat schedstat $groups
    fi
    show "$@" $files
    printf '\n==> {SS_COMMAND} <==\n'
    {SS_COMMAND}
    if [ -n "$connections" ]; then
        printf '\n==> {CONNECTIONS_COMMAND} <==\n'
        {CONNECTIONS_COMMAND} "$connections"
    fi
    if [ -n "$end" ] || [ "$turn" -eq 0 ]; then
        # Only hardware has a meaningful speed. Before Linux 6.2, each tun device shows 10 Mb/s.
        for device in /sys/class/net/*/device; do show "${{device%/device}}/speed"; done
        of_each fd
        printf '\n==> {OPEN_FILES_SECTION} <==\n'
        [ -z "$files" ] || stat -c '%n %s' -- $files
        of_each limits
        printf '\n==> {FILE_LIMIT_SECTION} <==\n'
        grep '^Max open files' -- $files /dev/null
        of_each smaps_rollup
        printf '\n==> {PSS_SECTION} <==\n'
        grep '^Pss:' -- $files /dev/null
    fi
    [ -z "$end" ] || break
    count=$((count - 1)) turn=$((turn + 1))
    if [ -z "$over" ]; then
        rest "$pause"
        pause=$interval
    fi
done 2>/dev/null
echo '{_TIMES_MARK}'
times
echo '{_LOGS_MARK}'
news $begun 2>/dev/null
"""
# Sampling runs at low priority, so that all other programs on the host get CPU time first.
_START_SCRIPT = """
if command -v bash >/dev/null; then exec nice -n 19 bash --posix -c "$@"; fi
exec nice -n 19 sh -c "$@"
"""
# On a busy host, the process ID may not be written yet, so the script waits for it.
_STOP_SCRIPT = """
tries=160
until pid=$(cat -- "$1" 2>/dev/null) && [ -n "$pid" ]; do
    if [ -e "$1" ]; then tries=$((tries - 1)); else tries=$((tries - 8)); fi
    [ "$tries" -gt 0 ] || exit
    sleep 0.025
done
kill -TERM "$pid"
"""


@dataclass(frozen=True)
class StreamResult:
    """The samples of a host, the CPU time that sampling took on the host (``cpu_seconds``), and the
    new text of each log.

    ``error_text`` is the start of the command's error messages, for results without samples.
    """

    samples: tuple[HostSample, ...] = ()
    cpu_seconds: float = 0.0
    logs: Mapping[str, str] = field(default_factory=dict)
    error_text: str = ""


class SampleStream:
    """A stream of samples of a host, every ``interval`` seconds for at most ``seconds``, or until
    the stream is stopped.

    The second sample is delayed by ``later`` seconds. Otherwise, hosts that share a machine, such as
    containers and guests, would all be sampled at the same time and stall the machine.

    ``logs`` contains paths of files, or systemd units whose journal is read. The samples also count the
    connections with unread data at each of the TCP ports ``request_ports``. With ``as_root``, the stream
    can also read the logs and the memory of services that other accounts may not read. With
    ``reads_groups``, the samples contain the control groups of processes, for `set_groups`.
    """

    def __init__(
        self,
        transport: Transport,
        owners: ProcessOwners,
        seconds: int,
        logs: Sequence[str] = (),
        *,
        interval: float = 1.0,
        later: float = 0.0,
        request_ports: Sequence[int] = (),
        as_root: bool = False,
        reads_groups: bool = False,
    ) -> None:
        self._transport, self._owners, self._seconds = transport, owners, seconds
        self._logs, self._interval, self._later = logs, interval, later
        self._request_ports, self._as_root = request_ports, as_root
        self._reads_groups = reads_groups
        # Root reads a process ID from this file, so no other account may create the file first.
        directory = "/run" if as_root else "/tmp"  # noqa: S108  # O_EXCL, random
        self._pid_file = f"{directory}/autotune-watch.held.{secrets.token_hex(8)}"

    def set_groups(self, groups: Mapping[str, Mapping[str, str]]) -> None:
        """Assign processes to services by control group: see ``ProcessOwners.groups``."""
        self._owners = replace(self._owners, groups=groups)

    def run(self, await_groups: Callable[[], object] = lambda: None) -> StreamResult:
        """Run the sampling command, and return its parsed output. Raises ``HostUnreachable``.

        ``await_groups`` is called before the output is parsed.
        """
        words = (
            _STREAM_SCRIPT,
            "sh",
            str(round(self._seconds / self._interval)),
            f"{self._interval + self._later:.3f}",
            str(self._interval),
            " ".join(self._owners.programs),
            self._pid_file,
            "\n".join(self._logs),
            " or ".join(f"sport = :{port}" for port in self._request_ports),
            "cgroup" if self._reads_groups else "",
            *SAMPLED_FILES,
        )
        with wait_notices.about("its usage during a reading", usual=self._seconds):
            command_result = self._run_script(
                _START_SCRIPT, words, self._seconds + KILL_AFTER_SECONDS
            )
        await_groups()
        stream_result = parse_stream(command_result.stdout, self._owners)
        error_text = " ".join(command_result.stderr.split())[:_MAX_ERROR_CHARACTERS]
        return replace(stream_result, error_text=error_text)

    def stop(self) -> None:
        """Request one last sample, after which ``run`` returns. A stream that is not running is
        ignored.
        """
        self._run_script(_STOP_SCRIPT, (self._pid_file,), 15.0)

    def _run_script(self, script: str, words: Sequence[str], timeout: float) -> CommandResult:
        argv = ("sh", "-c", script, "sh", *words)
        if self._as_root:
            return run_as_root(self._transport, argv, timeout=timeout)
        return self._transport.run(argv, timeout=timeout, env={"LC_ALL": "C"})


def parse_stream(output: str, owners: ProcessOwners) -> StreamResult:
    """Return the samples, CPU time and logs in the output of the sampling command."""
    sample_text, _, remaining_text = output.partition(f"\n{_TIMES_MARK}\n")
    times, _, logs = remaining_text.partition(f"{_LOGS_MARK}\n")
    samples = []
    head, *blocks = sample_text.split(f"{_SAMPLE_MARK}\n")
    page_size_match = _PAGE_SIZE_PATTERN.search(head)
    page_size = page_size_match[1] if page_size_match else ""
    for block in blocks:
        text_by_path = dict(_split_files(block)) | {PAGE_SIZE_SECTION: page_size}
        # Skip truncated and garbled samples.
        with contextlib.suppress(ValueError, IndexError):
            if not _REQUIRED_FILES - text_by_path.keys():
                samples.append(build_sample(text_by_path, owners))
    cpu_seconds = sum(int(m) * 60 + float(s) for m, s in _CPU_TIME_PATTERN.findall(times))
    file_texts = {
        name: "\n".join(line[1:] for line in split_lines(text)) for name, text in _split_files(logs)
    }
    return StreamResult(tuple(samples), cpu_seconds, file_texts)


def _split_files(block: str) -> Iterator[tuple[str, str]]:
    for section in ("\n" + block).split(f"\n{_FILE_HEADER}")[1:]:
        file_name, _, content = section.partition(" <==\n")
        yield file_name, content
