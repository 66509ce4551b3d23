"""mutilate (github.com/leverich/mutilate): an open loop against memcached alone, at a fixed rate.

No distribution packages it: `scripts/build-mutilate` builds it, and autotune uses it if it is in a
load host's PATH. mutilate exits at once if `/etc/resolv.conf` lists no name server (``evdns``),
although it connects to caches by address. autotune uses mutilate only at fixed rates (``-q``).
mutilate's own search (``--search``) starts from a closed loop, measures each rate once and never
checks the achieved rate. The search therefore reports rates that miss the objective. A reading is
valid under these conditions:

- **depth** (``-d``): more than one request may be in flight on a connection. With the default of
  one, a stall would block the requests that should reveal the stall.
- **arrivals** (``-i``): exponential gaps with an explicit parameter, or ``fb_ia``. The default,
  ``exponential`` without a parameter, causes a segmentation fault.
- **shape** (``-K``, ``-V``, ``-r``): the same for storing and measuring, because gets for keys that
  were not stored never hit.
- **samples** (``--save``): the latency of every get, so that late gets are counted and not estimated
  from a percentile. For sets, mutilate prints only percentiles. All sets above the highest percentile
  within the latency limit count as late.

Agents (``-A`` on additional load hosts, ``-a`` on the measuring host) send load that is counted but
not timed. The timed requests represent all requests.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, sqrt

from autotune.loads.base import (
    FELL_BEHIND_MESSAGE,
    LATE_BIN_LIMITS,
    MAX_STALL_SHARE,
    MIN_ACHIEVED_SHARE,
    PROVEN_FAILURE_SHARE,
    LoadResult,
    LoadSpec,
    build_histogram,
    find_last_line,
    sort_counts,
)
from autotune.services.base import Argv, Endpoint
from autotune.strict_parsing import parse_decimal, parse_uint, split_lines
from autotune.transports.temporary_files import temporary_file_script

RECORD_COUNT = 10_000
CONNECTIONS_PER_SERVER = 8
MAX_PIPELINE_DEPTH = 100  # maximum number of requests in flight on a connection
GET_SHARE = 0.9
NO_RESOLVER_TEXT = "evdns"  # the only output if no name server is set
CRASHED_STATUS = 139  # a shell's exit status after a segmentation fault
_SAMPLES_MARK = "<autotune samples>"
_EXIT_CODE_PATTERN = re.compile(r"^<autotune code (\d+)>$", re.M)
_TOTAL_PATTERN = re.compile(r"^Total QPS = [\d.]+ \((\d+) / ([\d.]+)s\)$", re.M)
# the share of misses in all gets, including the agents' gets
_MISSES_PATTERN = re.compile(r"^Misses = \d+ \(([\d.]+|-?nan)%\)", re.M)
_SKIPPED_PATTERN = re.compile(r"^Skipped TXs = (\d+) ", re.M)
_TRAFFIC_PATTERN = re.compile(r"^[RT]X\s+(\d+) bytes", re.M)
_LATENCY_ROW_PATTERN = re.compile(r"^(read|update)((?:\s+[\d.]+){8})$", re.M)
# the quantiles in a row of latencies, which follow the average and the standard deviation
_ROW_QUANTILES = (0.0, 0.05, 0.10, 0.90, 0.95, 0.99)
# Arguments: the command to run. Even if the command fails, the samples follow its output.
_MEASURE_SCRIPT = f"""
{temporary_file_script("mutilate")}
"$@" --save "$temporary" 2>&1
code=$?
echo
echo "<autotune code $code>"
echo '{_SAMPLES_MARK}'
cat "$temporary"
exit $code
"""


@dataclass(frozen=True)
class MutilateShape:
    """Distributions of the sizes of stored keys and values in bytes, in mutilate's notation."""

    name: str
    keys: str
    values: str
    arrivals: str = "exponential:1"
    record_count: int = RECORD_COUNT
    update_share: float = round(1 - GET_SHARE, 6)

    @property
    def data_options(self) -> Argv:
        return ("-K", self.keys, "-V", self.values, "-r", str(self.record_count))


# Object sizes as in `memcaslap.CACHE_SHAPES`. mutilate cannot mix three sizes, so the middle shape
# is exponential with the same mean. The last shape is the published distribution for a large site
# (Atikoglu et al., SIGMETRICS 2012), with thirty reads per write.
CACHE_SHAPES = (
    MutilateShape("100 B", "17", "100"),
    MutilateShape("2 KB on average", "17", "exponential:0.00048828125"),
    MutilateShape("4 KB", "17", "4096"),
    MutilateShape("as Facebook's", "fb_key", "fb_value", arrivals="fb_ia", update_share=0.03),
)


@dataclass(frozen=True)
class MutilateReading:
    """A reading with mutilate, with its traffic, operations, gets and misses.

    ``traffic`` is the number of bytes in both directions. ``operations`` is the number of operations
    in ``seconds``, including the agents' operations. ``gets`` is the number of timed gets. ``misses``
    is the number of misses among the timed gets, estimated from the share of misses in all gets.
    """

    result: LoadResult
    seconds: float = 0.0
    operations: int = 0
    gets: int = 0
    misses: int = 0
    traffic: int = 0


def build_load_command(servers: Sequence[Endpoint], load_shape: MutilateShape) -> Argv:
    """Return a command that stores every object of the shape."""
    return (
        "timeout",
        "--kill-after=1",
        "60",
        "mutilate",
        *_repeat_option("-s", servers),
        *load_shape.data_options,
        "--loadonly",
    )


def build_agent_command(seconds: float) -> Argv:
    """Return the command for an agent on an additional load host. The agent sends load on behalf of
    the measuring host.
    """
    return ("timeout", "--kill-after=1", str(ceil(seconds)), "mutilate", "-A")


def build_measure_command(
    servers: Sequence[Endpoint],
    load_shape: MutilateShape,
    spec: LoadSpec,
    agents: Sequence[str] = (),
) -> Argv:
    """Return the command for a reading at ``spec.rate`` operations/s in total, including the
    ``agents`` (addresses).

    The same load is first sent for ``spec.ramp_seconds`` without being counted. ``spec.ramp_seconds``
    and ``spec.seconds`` are rounded up to whole seconds.
    """
    warm_up_options = ("-w", str(ceil(spec.ramp_seconds))) if spec.ramp_seconds > 0 else ()
    stop_seconds = ceil(spec.seconds) + ceil(spec.ramp_seconds) + 10 + 2 * len(agents)
    return (
        "sh",
        "-c",
        _MEASURE_SCRIPT,
        "sh",
        "timeout",
        "--kill-after=1",
        str(stop_seconds),
        "mutilate",
        *_repeat_option("-s", servers),
        *load_shape.data_options,
        "--noload",
        "-u",
        f"{load_shape.update_share:g}",
        "-i",
        load_shape.arrivals,
        "-q",
        str(max(1, round(spec.rate))),
        "-t",
        str(ceil(spec.seconds)),
        *warm_up_options,
        "-c",
        str(CONNECTIONS_PER_SERVER),
        "-d",
        str(MAX_PIPELINE_DEPTH),
        *_repeat_option("-a", agents),
    )


def parse_output(output: str, spec: LoadSpec) -> MutilateReading:
    """Return the reading in the output of ``build_measure_command``.

    The reading is ``limited`` if the output is unreadable or impossible.
    """
    summary_text, _, samples = output.partition(_SAMPLES_MARK)
    intended_requests = round(max(1, round(spec.rate)) * ceil(spec.seconds))
    try:
        sampled_reading = _parse_samples(summary_text, samples, spec, intended_requests)
    except ValueError:
        sampled_reading = None
    if sampled_reading is None or not sampled_reading.result.is_consistent:
        failure = _describe_failure(summary_text.strip())
    elif sampled_reading.operations > 2 * intended_requests + 3 * sqrt(intended_requests):
        failure = (
            f"mutilate reports {sampled_reading.operations} requests, but should have sent "
            f"{intended_requests}"
        )
    else:
        return sampled_reading
    return MutilateReading(LoadResult.build_unsent_result(intended_requests, failure))


def _parse_samples(
    summary_text: str, samples: str, spec: LoadSpec, intended_count: int
) -> MutilateReading | None:
    total_match, misses = _TOTAL_PATTERN.search(summary_text), _MISSES_PATTERN.search(summary_text)
    sample_rows = [line.split() for line in split_lines(samples) if line.strip()]
    if total_match is None or misses is None or any(len(time) != 2 for time in sample_rows):
        return None
    operations = parse_uint(total_match[1])
    late_set_share = _find_max_late_share(summary_text, "update", spec.latency_limit)
    get_latencies = [parse_decimal(micro) / 1e6 for _, micro in sample_rows]
    result = _build_result(
        operations, get_latencies, late_set_share, intended_count, spec, summary_text
    )
    start_times = sorted(parse_decimal(start_text) for start_text, _ in sample_rows)
    return MutilateReading(
        _check_result(result, start_times, spec),
        parse_decimal(total_match[2]),
        operations,
        len(get_latencies),
        0 if "nan" in misses[1] else round(len(get_latencies) * parse_decimal(misses[1]) / 100),
        sum(map(parse_uint, _TRAFFIC_PATTERN.findall(summary_text))),
    )


def _build_result(
    operations: int,
    get_latencies: Sequence[float],
    late_set_share: float,
    intended_count: int,
    spec: LoadSpec,
    summary_text: str,
) -> LoadResult:
    """Return the result of a reading. Timed gets count with their own latencies.

    Other operations (sets, and all operations of agents) are not timed. Untimed operations get the late
    share of the timed gets or, if larger, the largest late share that the percentiles of sets allow. With
    random arrivals, the number of requests differs slightly from the
    number that the rate implies. All requests that were sent count as intended.
    """
    tolerated_difference = 3 * sqrt(intended_count)
    if operations >= MIN_ACHIEVED_SHARE * intended_count - tolerated_difference:
        intended_count = operations
    skipped_match = _SKIPPED_PATTERN.search(summary_text)
    errors: Counter[str] = Counter()
    if intended_count > operations:
        errors["not sent"] = intended_count - operations
    elif skipped_match and parse_uint(skipped_match[1]):
        errors["not sent"] = parse_uint(skipped_match[1])
        intended_count += parse_uint(skipped_match[1])
    histogram: Counter[float] = Counter(build_histogram(get_latencies, spec.latency_limit))
    if operations > len(get_latencies):
        untimed_count = operations - len(get_latencies)
        late_share = max(
            late_set_share,
            sum(n for e, n in histogram.items() if e > spec.latency_limit)
            / max(1, len(get_latencies)),
        )
        late_count = min(untimed_count, ceil(late_share * untimed_count))
        histogram[LATE_BIN_LIMITS * spec.latency_limit] += late_count
        histogram[spec.latency_limit] += untimed_count - late_count
    return LoadResult(
        intended=intended_count,
        sent=operations,
        errors=sort_counts(errors),
        histogram=sort_counts(histogram),
        duration=spec.seconds,
    )


def _check_result(result: LoadResult, start_times: Sequence[float], spec: LoadSpec) -> LoadResult:
    """Return the result, marked as truncated or limited if the requested load was not sent.

    A connection with ``MAX_PIPELINE_DEPTH`` requests in flight blocks further requests, whose
    responses are then late. If the responses are not late, mutilate lacked CPU time.
    """
    longest_gap = max((b - a for a, b in pairwise(start_times)), default=0.0)
    mean_gap = spec.seconds / max(1, len(start_times))
    is_starved = longest_gap > MAX_STALL_SHARE * spec.seconds + spec.latency_limit + 10 * mean_gap
    if not is_starved and not result.errors.get("not sent"):
        return result
    late_count = result.count_later_than(
        spec.latency_limit + (2 * longest_gap if is_starved else 0.0)
    )
    if late_count > PROVEN_FAILURE_SHARE * result.intended:
        return replace(result, truncated=True)
    return replace(result, limited=FELL_BEHIND_MESSAGE)


def _find_max_late_share(summary_text: str, operation_kind: str, limit_seconds: float) -> float:
    """Return the largest possible fraction of ``operation_kind`` operations that took longer than
    ``limit_seconds``.

    The fraction follows from the printed percentiles (in microseconds).
    """
    latency_row = next(
        (
            row_values
            for name, row_values in _LATENCY_ROW_PATTERN.findall(summary_text)
            if name == operation_kind
        ),
        "",
    )
    percentiles = [parse_decimal(value) / 1e6 for value in latency_row.split()[2:]]
    if not any(percentiles):
        return 0.0  # there were no such operations
    quantiles_within_limit = [
        at for at, value in zip(_ROW_QUANTILES, percentiles, strict=True) if value <= limit_seconds
    ]
    return 1.0 - max(quantiles_within_limit, default=0.0)


def _describe_failure(summary_text: str) -> str:
    exit_status_match = _EXIT_CODE_PATTERN.search(summary_text)
    if exit_status_match is not None and exit_status_match[1] == str(CRASHED_STATUS):
        return (
            f"mutilate crashed with a segmentation fault ({CRASHED_STATUS}), caused by its "
            "default arrivals: use `-i exponential:1` or `-i fb_ia`"
        )
    output_end = find_last_line(_EXIT_CODE_PATTERN.sub("", summary_text))
    return find_failure_reason(output_end) or f"mutilate printed no result: {output_end}"


def find_failure_reason(last_line: str) -> str | None:
    """Return an explanation for mutilate's last line about a missing name server; ``None`` for
    other lines.
    """
    if not last_line.endswith(NO_RESOLVER_TEXT):
        return None
    return (
        "mutilate needs a name server in /etc/resolv.conf, although it sends no query: "
        "add one, such as `nameserver 127.0.0.1`"
    )


def _repeat_option(option: str, option_values: Sequence[object]) -> Argv:
    return tuple(command_word for value in option_values for command_word in (option, str(value)))
