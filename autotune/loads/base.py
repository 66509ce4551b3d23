"""Interface of load generators: the requests, their rate, and the results.

A generator builds command lines and parses their output. This module runs no commands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf, isfinite
from typing import TypeVar

from autotune.errors import AutotuneError
from autotune.loads.workload import UnusableWorkload
from autotune.services.base import Argv
from autotune.strict_parsing import MAX_NUMBER, split_lines
from autotune.target.requests_file import SessionStep, WeightedVisit
from autotune.transports.request import Request
from autotune.transports.temporary_files import temporary_file_script

CountKey = TypeVar("CountKey", str, float)

# An open-loop reading from any generator is valid only within these limits.
MIN_ACHIEVED_SHARE = (
    0.99  # minimum achieved share of the intended requests, or of the intended rate
)
# maximum length of a stall, as a share of the reading; a longer stall changes the load
MAX_STALL_SHARE = 0.1
# A result is invalid if the generator sends more than MAX_MADE_FACTOR times the requested number of
# requests plus MAX_EXTRA_REQUESTS.
MAX_MADE_FACTOR, MAX_EXTRA_REQUESTS = 2, 10
# If more than this share of requests failed, the server has certainly failed. Failures that a
# starved generator may have caused do not count.
PROVEN_FAILURE_SHARE = 0.05
ABANDONED_ERROR = "given up"  # requests that a failed session did not send
FELL_BEHIND_MESSAGE = (
    "the load generator fell behind: give the load host more CPU, or add load hosts"
)
# Kind of the requests in a reading whose rate is too low for a single complete visit.
LOW_RATE_ERROR = "rate too low"
# Connections suffice for the requests that arrive within this multiple of the latency limit. If a server
# holds more requests, it certainly misses the objective (Little's law).
MIN_HELD_LIMITS = 5.0
# Upper edge of the bin for late responses of unknown latency, as a multiple of the latency limit.
LATE_BIN_LIMITS = 10.0
# Errors that the load host itself causes, with their messages. A reading with such errors does not
# describe the server.
NO_PORT_ERROR, NO_FILE_ERROR = "no free port", "file table full"
EXHAUSTION_MESSAGES = {
    NO_PORT_ERROR: "the load host ran out of client ports: set net.ipv4.tcp_tw_reuse=1 there, widen"
    " net.ipv4.ip_local_port_range, or add load hosts",
    NO_FILE_ERROR: "the load host ran out of open files: raise fs.file-max and the open-file limit there",
}


class LoadError(AutotuneError):
    """The load generator cannot be started on a load host."""


@dataclass(frozen=True)
class LoadSpec:
    """The specification of a reading: ``rate`` requests/s, sent for ``seconds``.

    A request is abandoned after ``timeout`` seconds, and a response counts as late after
    ``latency_limit`` seconds. The same load is first sent for ``ramp_seconds`` without being
    counted, because process pools may have shrunk since the last reading. One second is enough:
    PHP-FPM and Apache check once a second whether they need more processes. ``seed`` selects the
    arrival times: the same seed repeats them, and ``None`` draws new arrival times. ``max_rate`` is
    the highest allowed rate (requests/s), which ``take_reading`` sets.
    """

    rate: float
    seconds: float
    timeout: float = 2.0
    latency_limit: float = 0.050
    ramp_seconds: float = 1.0
    seed: int | None = None
    max_rate: float = inf

    @property
    def request_count(self) -> int:
        return max(1, round(self.rate * self.seconds))

    @property
    def held_seconds(self) -> float:
        """Return the seconds of load whose requests the clients can hold: `MIN_HELD_LIMITS` latency
        limits, or the timeout if it is shorter.
        """
        return min(MIN_HELD_LIMITS * self.latency_limit, self.timeout)


@dataclass(frozen=True)
class WrongAnswers:
    """Wrong responses that a generator counted as correct: ``count`` errors of ``kind``.

    If responses were sampled, ``inspected`` is the number of sampled responses, and ``wrong`` is the
    number of wrong responses in the sample. ``example`` describes one wrong response.
    """

    kind: str
    count: int
    inspected: int = 0
    wrong: int = 0
    example: str = ""


@dataclass(frozen=True)
class LoadResult:
    """The results of ``intended`` requests, of which ``sent`` were actually sent.

    - ``histogram`` maps the upper edge of a latency bin (seconds) to the number of correct
      responses in it.
    - ``errors`` counts all other intended requests by kind: correct responses and errors add up to
      ``intended``.
    - ``duration`` (seconds) is the time from the first request to the last response.
    - ``truncated``: the load was cut short or incomplete, after the server had clearly failed.
    - ``limited``: why the *generator* fell short. If the generator limited the load, the counts do not
      describe the server.
    - ``sizes`` maps body sizes (bytes), or the mean body sizes of processes, to numbers of responses.
      Processes that received an incorrect status are not included.
    - ``looked_at`` and ``wrong``: the number of sampled responses to additional, similar requests,
      and how many of the samples were wrong. ``example`` describes one wrong response.
    """

    intended: int
    sent: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: Mapping[float, int] = field(default_factory=dict)
    duration: float = 0.0
    truncated: bool = False
    limited: str | None = None
    sizes: Mapping[float, int] = field(default_factory=dict)
    looked_at: int = 0
    wrong: int = 0
    example: str = ""

    @classmethod
    def build_unsent_result(cls, intended: int, reason: str, kind: str = "not sent") -> LoadResult:
        """Return the result of a failed generator, which is assumed to have sent no requests."""
        return cls(intended, errors={kind: intended}, limited=reason[:300])

    @property
    def is_consistent(self) -> bool:
        """True if every intended request is counted exactly once, and no figure is impossible."""
        request_counts = (self.sent, *self.errors.values(), *self.histogram.values())
        return (
            min(request_counts) >= 0
            and self.right_answers + self.error_count == self.intended < MAX_NUMBER
            and all(isfinite(at) and at >= 0 for at in (self.duration, *self.histogram))
        )

    @property
    def right_answers(self) -> int:
        return sum(self.histogram.values())

    @property
    def error_count(self) -> int:
        return sum(self.errors.values())

    def count_later_than(self, seconds: float) -> int:
        """Return the number of correct responses in bins that end after ``seconds``."""
        return sum(n for bin_edge, n in self.histogram.items() if bin_edge > seconds + 1e-9)

    def as_exhausted_host(self) -> LoadResult | None:
        """Return the result as ``limited`` if the load host ran out of ports or open files, or else
        ``None``.
        """
        exhaustion_reason = next(
            (reason for kind, reason in EXHAUSTION_MESSAGES.items() if self.errors.get(kind)), None
        )
        return replace(self, limited=exhaustion_reason) if exhaustion_reason else None

    def as_incomplete_load(
        self,
        latency_limit: float,
        longest_delay: float,
        unmade_requests: int,
        reason: str = FELL_BEHIND_MESSAGE,
    ) -> LoadResult:
        """Return the result of a reading whose load was incomplete.

        The result is ``truncated`` if the server failed beyond doubt. Otherwise, the result is
        ``limited`` by ``reason``, and does not describe the server.

        ``longest_delay`` is the longest time from the due time of a request to its sending. Both
        this delay and the objective's ``latency_limit`` are in seconds. ``unmade_requests`` is the
        number of failures that the generator caused.
        """
        proven_failures = (
            self.count_later_than(latency_limit + 2 * longest_delay)
            + self.error_count
            - unmade_requests
        )
        if proven_failures > PROVEN_FAILURE_SHARE * self.intended:
            return replace(self, truncated=True)
        return replace(self, limited=reason)

    def reclassify(self, wrong_answers: WrongAnswers) -> LoadResult:
        """Return the result with ``wrong_answers`` counted as errors.

        It is unknown which responses were wrong. The fastest responses are reclassified, so that
        quick errors never improve the measured latency.
        """
        wrong_count = max(0, min(wrong_answers.count, self.right_answers))
        return replace(
            self,
            errors=dict(Counter(self.errors) + Counter({wrong_answers.kind: wrong_count})),
            histogram=drop_fastest(self.histogram, wrong_count),
            looked_at=wrong_answers.inspected,
            wrong=wrong_answers.wrong,
            example=wrong_answers.example,
        )


def sort_counts(counts: Mapping[CountKey, int]) -> dict[CountKey, int]:
    """Return the counts sorted by kind or bin, without zeros."""
    return {key: counts[key] for key in sorted(counts) if counts[key]}


def find_last_line(output: str) -> str:
    """Return the last line of a program's output, which usually explains why a result is missing."""
    return (split_lines(output.strip()) or ["nothing"])[-1][:200]


def drop_fastest(histogram: Mapping[float, int], removed_count: int) -> dict[float, int]:
    """Return the histogram without its ``removed_count`` fastest responses."""
    remaining_bins = {}
    for bin_edge in sorted(histogram):
        dropped_count = min(histogram[bin_edge], removed_count)
        removed_count -= dropped_count
        if histogram[bin_edge] > dropped_count:
            remaining_bins[bin_edge] = histogram[bin_edge] - dropped_count
    return remaining_bins


def sum_results(results: Iterable[LoadResult]) -> LoadResult:
    """Return the sum of the results of parallel processes, with their longest duration."""
    processes = list(results)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    count_by_size: Counter[float] = Counter()
    reasons: set[str] = set()
    for result in processes:
        errors.update(result.errors)
        count_by_size.update(result.sizes)
        histogram.update(result.histogram)
        reasons.update(result.limited.split("; ") if result.limited else ())
    return LoadResult(
        intended=sum(result.intended for result in processes),
        sent=sum(result.sent for result in processes),
        errors=sort_counts(errors),
        histogram=sort_counts(histogram),
        duration=max((result.duration for result in processes), default=0.0),
        truncated=any(result.truncated for result in processes),
        limited="; ".join(sorted(reasons)) or None,
        sizes=count_by_size,
    )


@dataclass(frozen=True)
class ProcessLimits:
    """The limits for one process of a generator: open connections, and requests/s.

    If ``keeps_connections``, connections stay open, so requests use no additional client ports. If
    ``closes_connections``, each connection is closed after one request.
    """

    open_connections: int
    max_rate: float
    keeps_connections: bool = False
    closes_connections: bool = False


@dataclass(frozen=True)
class LoadProcess:
    """One command in a reading. The process sends ``request_count`` requests within
    ``span_seconds``, then exits.

    The ``timeout`` wrapper in the command stops the process after ``stop_seconds``. The process opens
    at most ``open_connections`` connections at the same time, and reads ``input`` from standard input.
    ``max_rate`` is the highest rate (requests/s) that its command line allows. A process without a
    known ``max_rate`` is not started.
    """

    argv: Argv
    request_count: int
    span_seconds: float
    stop_seconds: float
    open_connections: int
    input: bytes | None = None
    max_rate: float = field(default=inf, kw_only=True)


# The first argument is an option, to which the file's name is appended. The command to run follows.
_INPUT_FILE_SCRIPT = f"""
{temporary_file_script("load")}
cat >"$temporary"
option=$1
shift
"$@" "$option$temporary"
"""


def with_input_file(argv: Argv, option: str) -> Argv:
    """Return ``argv`` with one more option, which names a file that contains the standard input."""
    return ("sh", "-c", _INPUT_FILE_SCRIPT, "sh", option, *argv)


class LoadGenerator(ABC):
    """A generator of load at a fixed rate, with its packages and capabilities.

    - ``packages``: Debian packages that contain the generator. ``package_source``: another source
      of the generator.
    - ``unchecked_tls``: the TLS checks that the generator omits.
    - ``ipv6``: false if the generator cannot connect to IPv6 addresses.
    - ``supported_methods``: the HTTP methods that the generator can send; ``None`` for any.
    - ``counts_incomplete_bodies``: true if the generator counts a response as complete although the
      server closed the connection before the end of the body.
    - ``requests_per_iteration``: the most requests in one iteration; the generator's rate counts
      iterations.
    """

    name: str
    limits: ProcessLimits
    packages: tuple[str, ...] = ()
    package_source: str = ""
    http2 = False
    ipv6 = True
    unchecked_tls = ""
    supported_methods: frozenset[str] | None = None
    counts_incomplete_bodies = False
    requests_per_iteration = 1.0

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        """Return the alternative executables of each program, in the same form as for services."""
        return {self.name: (self.name,)}

    @property
    def longest_pause(self) -> float:
        """Return the longest sum of pauses between the requests of a session, in seconds."""
        return 0.0

    @property
    def min_requests(self) -> float:
        """Return the number of requests that one entry needs in a reading to get at least one complete
        visit.
        """
        return 1.0

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        """Return this generator with ``visits`` as its load.

        Raises UnusableWorkload if the generator cannot send these requests.
        """
        raise UnusableWorkload(f"{self.name} cannot read a `requests:` file")

    def find_request_error(self, step: SessionStep) -> str | None:
        """Return why the generator cannot send a request; ``None`` if it can send the request."""
        if self.supported_methods is not None and step.method not in self.supported_methods:
            return f"{self.name} cannot send {step.method}"
        return None

    def round_rate(self, rate: float, max_rate: float) -> float:
        """Return the rate nearest to ``rate`` that the generator can send, at most ``max_rate``."""
        return rate

    def inspection_command(self) -> tuple[Argv, bytes] | None:
        """Return a command that is run before any load, and its standard input.

        The command passes its standard input to the generator. If the generator cannot run the
        input, the command fails with the reason.
        """
        return None

    def counting_process(self, request: Request, max_rate: float) -> LoadProcess | None:
        """Return a process that counts the requests per iteration, at a rate below ``max_rate``.

        Returns ``None`` if the number of requests per iteration is already known.
        """
        return None

    def with_counted_requests(self, output: str) -> LoadGenerator:
        """Return this generator with the number of requests per iteration from ``output``, which a
        counting process printed. Raises LoadError.
        """
        return self

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        """Return the requests that the generator sends, with their weights. The result is empty if
        the requests are unknown.
        """
        return ((SessionStep(path=request.path, method=request.method, body=request.body), 1.0),)

    @abstractmethod
    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        """Return the processes for one reading, usually at least one per load host.

        Together, the processes offer ``spec.rate`` and never more than ``spec.max_rate``. The result
        is empty if not even one request fits into the reading at ``spec.rate``.
        """

    @abstractmethod
    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        """Return the result in the output of one process. May raise ValueError for unreadable
        output.
        """

    def parse_checked(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        """Return the result that ``parse_output`` returns. If the output is unreadable or
        impossible, the result is ``limited``.
        """
        try:
            result = self.parse_output(process, output, request, spec)
        except ValueError as error:
            return LoadResult.build_unsent_result(
                process.request_count, f"{self.name} printed no result: {error}"
            )
        if (
            result.limited is None
            and result.intended > MAX_MADE_FACTOR * process.request_count + MAX_EXTRA_REQUESTS
        ):
            reason = (
                f"{self.name} made {result.intended} requests instead of {process.request_count}"
            )
            return LoadResult.build_unsent_result(process.request_count, reason)
        if not result.is_consistent:
            reason = f"{self.name} printed figures that do not add up: {find_last_line(output)}"
            return LoadResult.build_unsent_result(process.request_count, reason)
        return result


BINS_PER_LIMIT = 100.0  # minimum number of bins within the latency limit
MAX_BIN_SECONDS = 0.001


def build_histogram(latencies: Iterable[float], latency_limit: float) -> dict[float, int]:
    """Return the number of latencies in each bin, keyed by its upper edge in seconds.

    The upper edge of a bin exceeds ``latency_limit`` only if its latencies do, so late responses
    are counted exactly.
    """
    return merge_bins(Counter(latencies), latency_limit)


def merge_bins(histogram: Mapping[float, int], latency_limit: float) -> dict[float, int]:
    """Return the histogram with the bins of ``build_histogram``, into which finer bins are merged."""
    bin_width = min(MAX_BIN_SECONDS, latency_limit / BINS_PER_LIMIT)
    bins: Counter[float] = Counter()
    for latency, count in histogram.items():
        edge = round(max(1, ceil(latency / bin_width - 1e-9)) * bin_width, 9)
        bins[min(edge, latency_limit) if latency <= latency_limit else max(edge, latency)] += count
    return dict(sorted(bins.items()))
