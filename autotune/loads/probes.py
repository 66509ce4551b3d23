"""Whole answers to requests like those of the load: most load generators only count statuses.

curl on a load host sends the requests, each over a connection of its own, evenly spread over a reading.
A few curls share the work, so that a slow answer does not hold up the next request. The requests and
their headers come from standard input, where other accounts of the host do not see them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from autotune.loads.base import LoadError
from autotune.services.base import Argv
from autotune.strict_parsing import parse_decimal, parse_uint
from autotune.transports import curl
from autotune.transports.base import CommandResult
from autotune.transports.request import Request
from autotune.transports.temporary_files import temporary_file_script

CURL_PACKAGE = "curl"  # Debian's name
MISSING_STATUSES = (126, 127)  # exit statuses of a shell that cannot start a program
# Bytes that are read of a body: from its start, and of a longer one from its end.
HEAD_BYTES, TAIL_BYTES = 1 << 16, 1 << 13
WHOLE_BODY_BYTES = 1 << 20  # bytes from the start, if text is looked for in the body
MAX_WORKERS = 8
TIMEOUT_MARGIN_SECONDS = (
    10.0  # seconds a transport waits beyond the bound that the command keeps by itself
)
START_SECONDS = 2.0  # seconds for the start of the programs

# Arguments: seconds until the curls are stopped, seconds from one curl's start to the next, and bytes of
# a body's head and tail. The bodies' names are in a directory that an answer cannot guess.
_PROBE_SCRIPT = f"""
{temporary_file_script("answers", "-d")}
cd "$temporary" || exit 1
bound=$1 gap=$2 head=$3 tail=$4
awk '/^# worker$/ {{ n++ }} {{ print >("config." n) }}' || exit 1
for config in config.*; do
    number=${{config#config.}}
    (
        sleep "$(awk -v n="$number" -v gap="$gap" 'BEGIN {{ print (n - 1) * gap }}')"
        exec timeout --kill-after=1 "$bound" curl --config "$config" >"marks.$number" 2>>errors
    ) </dev/null &
done
wait
printf '%s\\n' "$temporary"
cat marks.*
printf '\\n<autotune bodies>\\n'
find "$temporary" -name 'body.*' -exec head -v -c "$head" {{}} +
printf '\\n<autotune ends>\\n'
find "$temporary" -name 'body.*' -size "+${{head}}c" -exec tail -v -c "$tail" {{}} +
printf '\\n<autotune errors>\\n'
head -c 1000 errors
"""
_ANSWER_PATTERN = re.compile(
    r"^<autotune (\d{5}) (\d{3}) (\d{1,3}) (\d{1,15}) (\d{1,9}(?:\.\d{1,9})?)>", re.M | re.A
)
_SECTION_PATTERN = re.compile(r"\n<autotune (?:bodies|ends|errors)>\n")
ELISION_MARK = "\n…\n"  # stands for the middle of a long body


@dataclass(frozen=True)
class ProbeAnswer:
    """What came back for one request. ``size`` is that of the body in bytes, as it was sent; ``text``
    is the body, or the start and the end of a long one; ``headers`` have names in lower case."""

    status: int
    size: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)
    latency_seconds: float = 0.0


@dataclass(frozen=True)
class ProbeCommand:
    """A command that sends ``requests`` at ``max_rate`` (requests/s) at most, within about
    ``span_seconds`` seconds.

    ``stop_seconds`` (seconds) is how long a transport waits for it.
    """

    requests: tuple[Request, ...]
    argv: Argv
    input: bytes
    max_rate: float
    span_seconds: float
    stop_seconds: float


def build_command(
    requests: Sequence[Request],
    *,
    per_second: float,
    timeout: float,
    expected_seconds: float,
    whole_bodies: bool = False,
) -> ProbeCommand:
    """What sends ``requests`` at ``per_second`` and prints the answers.

    A request is given up after ``timeout`` seconds. An answer takes about ``expected_seconds``.
    """
    workers = min(MAX_WORKERS, len(requests), max(1, ceil(per_second * expected_seconds)))
    pause = ceil(1000 * workers / per_second)  # ms between the requests of a worker, as curl counts
    rate, span = 1000 * workers / pause, len(requests) * pause / (1000 * workers)
    bound = ceil(span + timeout + START_SECONDS)
    argv: Argv = (
        "sh", "-c", _PROBE_SCRIPT, "sh", str(bound), f"{1 / rate:g}",
        str(WHOLE_BODY_BYTES if whole_bodies else HEAD_BYTES), str(TAIL_BYTES),
    )  # fmt: skip
    return ProbeCommand(
        tuple(requests),
        requests[0].with_trusted_ca(argv),
        build_config(requests, pause, timeout, workers),
        rate,
        span,
        bound + START_SECONDS + TIMEOUT_MARGIN_SECONDS,
    )


def build_config(requests: Sequence[Request], pause: int, timeout: float, workers: int) -> bytes:
    """What each curl reads, one after the other: every ``workers``-th request is its own, and ``pause``
    milliseconds are between their starts at least."""
    lines: list[str] = []
    for worker in range(workers):
        lines += ["# worker", f'rate = "{max(1, 3_600_000 // pause)}/h"', "silent"]
        for location in range(worker, len(requests), workers):
            lines += [] if location == worker else ["next"]
            lines += _format_transfer(location, requests[location], timeout)
    return "\n".join(lines).encode() + b"\n"


def _format_transfer(index: int, request: Request, timeout: float) -> Iterator[str]:
    """The lines of one request."""
    yield curl.format_option("url", request.url)
    yield "globoff"
    yield curl.format_option("noproxy", "*")
    yield curl.format_option("output", f"body.{index:05}")
    yield curl.format_option("max-time", f"{timeout:g}")
    mark = (
        f"\n<autotune {index:05} %{{http_code}} %{{exitcode}} %{{size_download}} %{{time_total}}>"
    )
    yield curl.format_option("write-out", f"{mark}%{{header_json}}\n")
    if any(name.lower() == "accept-encoding" for name, _ in request.headers):
        yield "compressed"
    yield from curl.build_config_lines(request)
    yield from (
        curl.format_option(name, value) for name, value in curl.list_secret_options(request)
    )


def parse_answers(done: CommandResult, requests: Sequence[Request]) -> list[ProbeAnswer | None]:
    """The answers in what the command printed; ``None`` for a request without a whole answer in time.

    Raises LoadError if curl could not be run.
    """
    # For HEAD, curl writes the headers where the body would be.
    return [
        answer and (replace(answer, text="") if request.method == "HEAD" else answer)
        for request, answer in zip(requests, _parse_sections(done, len(requests)), strict=True)
    ]


def _parse_sections(done: CommandResult, count: int) -> list[ProbeAnswer | None]:
    parts = _SECTION_PATTERN.split(done.stdout)
    if done.returncode in MISSING_STATUSES or len(parts) != 4:
        raise LoadError(
            f"answers cannot be read on the load host: {done.error_text[:200] or 'no output'}",
            hint=f"install it there: sudo apt-get install {CURL_PACKAGE}",
        )
    directory, _, marks = parts[0].partition("\n")
    pieces = _ANSWER_PATTERN.split(marks)
    matches = [pieces[i : i + 6] for i in range(1, len(pieces) - 5, 6)]
    if not matches and parts[3].strip():
        raise LoadError(
            f"curl 7.84 or newer is needed on the load host: {parts[3].strip()[:200]}",
            hint=f"install it there: sudo apt-get install {CURL_PACKAGE}",
        )
    heads, tails = _parse_files(directory, parts[1]), _parse_files(directory, parts[2])
    answers: list[ProbeAnswer | None] = [None] * count
    for location, status, code, size, seconds, headers in matches:
        name = f"body.{location}"
        if int(code) != 0 or int(location) >= count:
            continue
        text = heads.get(name, "") + (ELISION_MARK + tails[name] if name in tails else "")
        answers[int(location)] = ProbeAnswer(
            parse_uint(status),
            parse_uint(size),
            text,
            _parse_headers(headers),
            parse_decimal(seconds),
        )
    return answers


def _parse_files(directory: str, output: str) -> dict[str, str]:
    """Name → content, as ``head -v`` and ``tail -v`` print several files."""
    title = re.compile(rf"(?:^|\n)==> {re.escape(directory)}/(body\.\d{{5}}) <==\n")
    pieces = title.split(output)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def _parse_headers(text: str) -> dict[str, str]:
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(headers, dict):
        return {}
    return {str(name).lower(): ", ".join(map(str, values)) for name, values in headers.items()
            if isinstance(values, list)}  # fmt: skip
