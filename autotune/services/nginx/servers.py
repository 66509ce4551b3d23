"""Find nginx upstreams that have no usable server.

The free version of nginx has no interface for the states of its upstream servers. If no upstream server
is usable for a request, nginx writes a line to the error log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from autotune.services.base import Argv, ServerCheck
from autotune.services.directives import parse_seconds
from autotune.strict_parsing import split_lines

# The default of `fail_timeout` (nginx.org, ngx_http_upstream_module, server).
DEFAULT_FAIL_TIMEOUT_SECONDS = 10
MAX_FAIL_TIMEOUT_SECONDS = 600
# Prints the host's time, the values of fail_timeout, and the last log lines about requests without a
# usable upstream server.
_CHECK_SCRIPT = r"""
date '+%Y/%m/%d %H:%M:%S'
config=$("$@" -T 2>/dev/null)
timeouts=$(printf '%s\n' "$config" | grep -o 'fail_timeout=[0-9][0-9a-z]*' | cut -d = -f 2 |
    sort -u | head -n 100 | paste -sd ' ' -)
echo "${timeouts:--}"
{
    echo /var/log/nginx/error.log
    printf '%s\n' "$config" | sed -n 's/^[[:space:]]*error_log[[:space:]]\{1,\}\(\/[^ ;]*\).*/\1/p'
} | sort -u | while IFS= read -r log; do
        if [ -f "$log" ] && [ ! -L "$log" ]; then tail -n 500 -- "$log" | grep -F 'no live upstreams'; fi
    done
:
"""
_TIMEOUT_PATTERN = re.compile(r"fail_timeout=([0-9][0-9a-z]{0,30})")
_TIME_FORMAT = "%Y/%m/%d %H:%M:%S"
_LINE_PATTERN = re.compile(
    r"^([0-9/]{10} [0-9:]{8}) \[error\].{0,4000}? no live upstreams .{0,4000}, upstream: \"[a-z]+://([^/\"]{1,200})"
)


def build_server_check(nginx_command: Argv) -> ServerCheck:
    """Return the check of the error logs that the running configuration names.

    ``nginx_command`` is the nginx command with the options for its configuration file.
    """
    return ServerCheck(("sh", "-c", _CHECK_SCRIPT, "sh", *nginx_command), parse_dead_upstreams)


def parse_dead_upstreams(output: str) -> tuple[str, ...]:
    """Return the upstreams that had no usable server at any time within the last `fail_timeout`.

    Raises ValueError if the output lacks the host's time.
    """
    current_time_text, timeouts_text, *log_lines = [*split_lines(output), "", ""]
    current_time = _parse_time(current_time_text)
    timeout_seconds = _find_longest_timeout(timeouts_text.split())
    dead_upstreams = []
    for log_line in log_lines:
        if line_match := _LINE_PATTERN.match(log_line):
            line_age = (current_time - _parse_time(line_match[1])).total_seconds()
            if 0 <= line_age <= timeout_seconds:
                dead_upstreams.append(line_match[2])
    return tuple(dict.fromkeys(dead_upstreams))


def _parse_time(time_text: str) -> datetime:
    """Return the time in ``time_text`` as if it were UTC, because only differences of times are used.
    Raises ValueError.
    """
    return datetime.strptime(time_text, _TIME_FORMAT).replace(tzinfo=UTC)


def find_recovery_seconds(files: Mapping[str, bytes]) -> float:
    """Return the longest `fail_timeout` in the files, in seconds; 0 without an upstream."""
    files_text = b"\n".join(files.values()).decode(errors="replace")
    if not re.search(r"(?m)^[^\S\n]*upstream\s", files_text):
        return 0.0
    return float(_find_longest_timeout(_TIMEOUT_PATTERN.findall(files_text)))


def _find_longest_timeout(durations: Iterable[str]) -> int:
    """Return the longest of ``durations`` in seconds, but at least the default. Text that is not a
    duration is ignored.
    """
    timeouts = filter(None, map(parse_seconds, durations))
    return min(max((DEFAULT_FAIL_TIMEOUT_SECONDS, *timeouts)), MAX_FAIL_TIMEOUT_SECONDS)
