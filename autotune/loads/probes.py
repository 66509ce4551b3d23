"""Send a sample of the load's requests and read complete responses, because most load generators
count only statuses.

curl on a load host sends the requests, each over its own connection, evenly spread over a reading.
A few curl processes share the work, so that a slow response does not delay the next request. The
requests and their headers come from standard input, so other accounts on the host cannot see them.
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

CURL_PACKAGE = "curl"  # name of the Debian package
MISSING_STATUSES = (126, 127)  # exit statuses of a shell or ``timeout`` that cannot start a program
INCOMPLETE_BODY_STATUS = 18  # curl's exit status CURLE_PARTIAL_FILE (curl.se, libcurl-errors)
# Number of bytes that are read from the start of a body, and from the end of a longer body.
HEAD_BYTES, TAIL_BYTES = 1 << 16, 1 << 13
WHOLE_BODY_BYTES = 1 << 20  # number of bytes that are read from a body that `expect:` checks
MAX_WORKERS = 8
TIMEOUT_MARGIN_SECONDS = 10.0  # time that a transport waits beyond the command's own time limit
START_SECONDS = 2.0  # time for the programs to start

# Arguments: the seconds until the curl processes are stopped, the seconds between their starts, and the
# sizes of a body's head and tail in bytes. Responses cannot imitate the titles of files and sections in
# the output, because the titles contain the random name of the directory.
_PROBE_SCRIPT = f"""
{temporary_file_script("answers", "-d")}
cd "$temporary" || exit 1
bound=$1 gap=$2 head=$3 tail=$4
# With line buffering, a curl process that is stopped has written all responses that it received.
unbuffered=
stdbuf -oL true 2>/dev/null && unbuffered="stdbuf -oL"
awk '/^# worker$/ {{ n++ }} {{ print >("config." n) }}' || exit 1
for config in config.*; do
    number=${{config#config.}}
    (
        sleep "$(awk -v n="$number" -v gap="$gap" 'BEGIN {{ print (n - 1) * gap }}')"
        exec timeout --kill-after=1 "$bound" $unbuffered \\
            curl --disable --config "$config" >"marks.$number" 2>>errors
    ) </dev/null &
done
wait
printf '%s\\n' "$temporary"
cat marks.*
printf '\\n<autotune bodies %s>\\n' "$temporary"
find "$temporary" -name 'body.*' -exec head -v -c "$head" {{}} +
printf '\\n<autotune ends %s>\\n' "$temporary"
find "$temporary" -name 'body.*' -size "+${{head}}c" -exec tail -v -c "$tail" {{}} +
printf '\\n<autotune errors %s>\\n' "$temporary"
head -c 1000 errors
"""
# A curl process that is stopped may leave a response without its end.
_ANSWER_PATTERN = re.compile(
    r"^<autotune (\d{5}) (\d{3}) (\d{1,3}) (\d{1,15}) (\d{1,9}(?:\.\d{1,9})?)>(.*?)^<autotune end \1>$",
    re.M | re.A | re.S,
)
ELISION_MARK = "\n…\n"  # stands for the middle of a long body


@dataclass(frozen=True)
class ProbeAnswer:
    """The response to one request.

    ``size`` is the size of the body in bytes, as sent. ``text`` is the body, or the start and end
    of a long body. Names in ``headers`` are in lower case. ``is_complete`` is false if the server closed
    the connection before the end of the body.
    """

    status: int
    size: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)
    latency_seconds: float = 0.0
    is_complete: bool = True


@dataclass(frozen=True)
class ProbeCommand:
    """A command that sends ``requests`` at up to ``max_rate`` (requests/s), within about
    ``span_seconds``.

    ``workers`` curl processes take turns. The transport waits up to ``stop_seconds`` for the command.
    """

    requests: tuple[Request, ...]
    argv: Argv
    input: bytes
    max_rate: float
    span_seconds: float
    stop_seconds: float
    workers: int


def build_command(
    requests: Sequence[Request],
    *,
    per_second: float,
    timeout: float,
    expected_seconds: float,
    overrun_seconds: float | None = None,
    whole_bodies: bool = False,
) -> ProbeCommand:
    """Return a command that sends ``requests`` at ``per_second`` and prints the responses.

    A request is abandoned after ``timeout`` seconds. ``expected_seconds`` is the typical response
    time. If responses take longer, the command stops ``overrun_seconds`` (by default ``timeout``) after
    its planned end, even if it has not sent all requests.
    """
    workers = min(MAX_WORKERS, len(requests), max(1, ceil(per_second * expected_seconds)))
    # milliseconds between the starts of one worker's requests
    pause_milliseconds = ceil(1000 * workers / per_second)
    probe_rate, span_seconds = (
        1000 * workers / pause_milliseconds,
        len(requests) * pause_milliseconds / (1000 * workers),
    )
    overrun_seconds = timeout if overrun_seconds is None else overrun_seconds
    stop_seconds = ceil(span_seconds + overrun_seconds + START_SECONDS)
    argv: Argv = (
        "sh",
        "-c",
        _PROBE_SCRIPT,
        "sh",
        str(stop_seconds),
        f"{1 / probe_rate:g}",
        str(WHOLE_BODY_BYTES if whole_bodies else HEAD_BYTES),
        str(TAIL_BYTES),
    )
    return ProbeCommand(
        tuple(requests),
        requests[0].with_trusted_ca(argv),
        build_config(requests, pause_milliseconds, timeout, workers),
        probe_rate,
        span_seconds,
        stop_seconds + START_SECONDS + TIMEOUT_MARGIN_SECONDS,
        workers,
    )


def build_config(requests: Sequence[Request], pause: int, timeout: float, workers: int) -> bytes:
    """Return the configurations of all curl processes, in order.

    Each curl process sends every ``workers``-th request. At least ``pause`` milliseconds pass
    between the starts of its requests.
    """
    lines: list[str] = []
    for worker in range(workers):
        lines += ["# worker", f'rate = "{max(1, 3_600_000 // pause)}/h"', "silent"]
        for index in range(worker, len(requests), workers):
            lines += [] if index == worker else ["next"]
            lines += _format_transfer(index, requests[index], timeout)
    return "\n".join(lines).encode() + b"\n"


def _format_transfer(index: int, request: Request, timeout: float) -> Iterator[str]:
    """Yield the lines of curl's configuration for one request."""
    yield curl.format_option("url", request.url)
    yield "globoff"
    yield curl.format_option("noproxy", "*")
    yield curl.format_option("output", f"body.{index:05}")
    yield curl.format_option("max-time", f"{timeout:g}")
    transfer_mark = (
        f"\n<autotune {index:05} %{{http_code}} %{{exitcode}} %{{size_download}} %{{time_total}}>"
    )
    end_mark = f"\n<autotune end {index:05}>\n"
    yield curl.format_option("write-out", f"{transfer_mark}%{{header_json}}{end_mark}")
    if any(name.lower() == "accept-encoding" for name, _ in request.headers):
        yield "compressed"
    yield from curl.build_config_lines(request)
    yield from (
        curl.format_option(name, value) for name, value in curl.list_secret_options(request)
    )


def parse_answers(
    command_result: CommandResult, requests: Sequence[Request], *, with_incomplete: bool = False
) -> list[ProbeAnswer | None]:
    """Return the response to each request, or ``None`` if a response was late or missing.

    Responses with incomplete bodies are ``None``, too, unless ``with_incomplete`` is true. Raises
    LoadError if curl could not run.
    """
    answers = [
        answer if answer and (answer.is_complete or with_incomplete) else None
        for answer in _parse_sections(command_result, len(requests))
    ]
    # For HEAD, curl writes the headers to the file for the body.
    return [
        answer and (replace(answer, text="") if request.method == "HEAD" else answer)
        for request, answer in zip(requests, answers, strict=True)
    ]


def parse_answers_under_load(
    command_result: CommandResult, command: ProbeCommand, *, with_incomplete: bool = False
) -> list[ProbeAnswer | None]:
    """Return the responses like `parse_answers`, but ``None`` for requests that were sent after the
    load had ended. Raises LoadError.

    If responses are slow, requests are sent later than planned. Responses without load would hide
    errors that only load causes.
    """
    answers = parse_answers(command_result, command.requests, with_incomplete=with_incomplete)
    for worker in range(command.workers):
        start_seconds = worker / command.max_rate
        for index in range(worker, len(answers), command.workers):
            latency_seconds = answer.latency_seconds if (answer := answers[index]) else 0.0
            if start_seconds >= command.span_seconds:
                answers[index] = None
            start_seconds += max(command.workers / command.max_rate, latency_seconds)
    return answers


def _parse_sections(command_result: CommandResult, request_count: int) -> list[ProbeAnswer | None]:
    directory = command_result.stdout.partition("\n")[0]
    section_mark = rf"\n<autotune (?:bodies|ends|errors) {re.escape(directory)}>\n"
    sections = re.split(section_mark, command_result.stdout)
    if command_result.returncode in MISSING_STATUSES or len(sections) != 4:
        raise LoadError(
            f"curl did not run on the load host: {command_result.error_text[:200] or 'no output'}",
            hint=f"run `sudo apt-get install {CURL_PACKAGE}` there",
        )
    answer_fields = _ANSWER_PATTERN.findall(sections[0])
    if not answer_fields and sections[3].strip():
        raise LoadError(
            f"the load host needs curl 7.84 or newer: {sections[3].strip()[:200]}",
            hint=f"run `sudo apt-get install {CURL_PACKAGE}` there, on Debian 12 or newer",
        )
    body_heads, tails = _parse_files(directory, sections[1]), _parse_files(directory, sections[2])
    answers: list[ProbeAnswer | None] = [None] * request_count
    for index, status, exit_code, body_size, answer_seconds, headers in answer_fields:
        file_name = f"body.{index}"
        if int(exit_code) not in (0, INCOMPLETE_BODY_STATUS) or int(index) >= request_count:
            continue
        body_text = body_heads.get(file_name, "") + (
            ELISION_MARK + tails[file_name] if file_name in tails else ""
        )
        answers[int(index)] = ProbeAnswer(
            parse_uint(status),
            parse_uint(body_size),
            body_text,
            _parse_headers(headers),
            parse_decimal(answer_seconds),
            is_complete=int(exit_code) == 0,
        )
    return answers


def _parse_files(directory: str, output: str) -> dict[str, str]:
    """Return the contents of files by name, from the output of ``head -v`` and ``tail -v`` for
    several files.
    """
    title_pattern = re.compile(rf"(?:^|\n)==> {re.escape(directory)}/(body\.\d{{5}}) <==\n")
    output_pieces = title_pattern.split(output)
    return dict(zip(output_pieces[1::2], output_pieces[2::2], strict=True))


def _parse_headers(header_json: str) -> dict[str, str]:
    try:
        headers = json.loads(header_json)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(headers, dict):
        return {}
    return {
        str(name).lower(): ", ".join(map(str, header_values))
        for name, header_values in headers.items()
        if isinstance(header_values, list)
    }
