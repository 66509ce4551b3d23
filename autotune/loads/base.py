"""Load: the requests, their rate, and the results.

A generator writes command lines and parses their output. This module runs nothing.
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

# An open-loop reading of any generator is valid within these limits.
MIN_ACHIEVED_SHARE = 0.99  # of the intended requests, or rate
MAX_STALL_SHARE = 0.1  # of a reading; a generator that stalls longer did not send the ordered load
# More than this factor of the ordered requests plus this number is not the ordered load.
MAX_MADE_FACTOR, MAX_EXTRA_REQUESTS = 2, 10
PROVEN_FAILURE_SHARE = 0.05  # of the requests, in addition to failures of a starved generator
FELL_BEHIND_MESSAGE = (
    "the load generator fell behind: give the load host more CPU, or add load hosts"
)
# Errors of the load host, with their messages. Such a reading does not describe the server.
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
    """One reading to take: ``rate`` requests/s, sent for ``seconds``.

    ``timeout`` is when a request is given up, ``latency_limit`` when its answer counts as late
    (seconds). The same load comes first for ``ramp_seconds``, uncounted. One second suffices:
    PHP-FPM and Apache check once a second whether they need more processes, and a pool may have
    shrunk since the last reading. ``seed`` selects the arrivals: the same seed sends at the same
    moments, ``None`` at new ones. ``max_rate`` is the highest allowed rate (requests/s), set by
    ``take_reading``.
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

    def split(self, index: int, count: int) -> LoadSpec:
        """Return one of ``count`` equal shares, with its own arrivals."""
        seed = None if self.seed is None else self.seed * count + index
        return replace(self, rate=self.rate / count, max_rate=self.max_rate / count, seed=seed)


@dataclass(frozen=True)
class LoadResult:
    """The results of ``intended`` requests, of which ``sent`` were sent.

    - ``histogram`` maps the upper edge of a latency bin (seconds) to the correct answers in it.
    - ``errors`` counts all other intended requests by kind: correct answers and errors add up to
      ``intended``.
    - ``duration`` (seconds) is the time from the first request to the last answer.
    - ``truncated``: the load was cut short or incomplete after the server had clearly failed.
    - ``limited``: why the *generator* fell short. The counts then do not describe the server.
    - ``sizes`` maps mean sizes of bodies (bytes) to numbers of answers, if all had a correct
      status.
    - ``looked_at`` and ``wrong``: sampled answers to other requests of the load, and wrong ones
      among them. ``example`` describes one.
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
    def not_sent(cls, intended: int, reason: str, kind: str = "not sent") -> LoadResult:
        """Return the result of a failed generator, which is assumed to have sent nothing."""
        return cls(intended, errors={kind: intended}, limited=reason[:300])

    @property
    def is_consistent(self) -> bool:
        """True if every intended request is counted once, and no figure is impossible."""
        counts = (self.sent, *self.errors.values(), *self.histogram.values())
        return (
            min(counts) >= 0
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
        """Return the number of correct answers in bins that end after ``seconds``."""
        return sum(n for edge, n in self.histogram.items() if edge > seconds + 1e-9)

    def as_exhausted_host(self) -> LoadResult | None:
        """Return the result as ``limited`` if the load host ran out of ports or open files, else
        ``None``.
        """
        short = next(
            (reason for kind, reason in EXHAUSTION_MESSAGES.items() if self.errors.get(kind)), None
        )
        return replace(self, limited=short) if short else None

    def as_incomplete_load(
        self, limit: float, late: float, unmade_requests: int, reason: str = FELL_BEHIND_MESSAGE
    ) -> LoadResult:
        """Return the result of a reading with incomplete load.

        It is ``truncated`` if the server failed beyond doubt. Otherwise it is ``limited`` by
        ``reason``, and does not describe the server.

        ``late`` is the longest delay between the due time of a request and its sending, ``limit``
        that of the objective (both in seconds). ``unmade_requests`` is the number of failures
        caused by the generator.
        """
        proven = self.count_later_than(limit + 2 * late) + self.error_count - unmade_requests
        if proven > PROVEN_FAILURE_SHARE * self.intended:
            return replace(self, truncated=True)
        return replace(self, limited=reason)

    def reclassify(self, kind: str, wrong_count: int) -> LoadResult:
        """Return the result with ``wrong_count`` correct answers turned into errors of ``kind``.

        It is unknown which answers were wrong. They are taken from the fastest, so that quick
        errors never improve the latency of the rest.
        """
        wrong_count = min(wrong_count, self.right_answers)
        if wrong_count <= 0:
            return self
        errors = dict(Counter(self.errors) + Counter({kind: wrong_count}))
        return replace(self, errors=errors, histogram=drop_fastest(self.histogram, wrong_count))


def sort_counts(counts: Mapping[CountKey, int]) -> dict[CountKey, int]:
    """Return sorted counts by kind or bin, without zeros."""
    return {key: counts[key] for key in sorted(counts) if counts[key]}


def last_line(output: str) -> str:
    """Return the last line of a program's output, which best explains a missing result."""
    return (split_lines(output.strip()) or ["nothing"])[-1][:200]


def drop_fastest(histogram: Mapping[float, int], removed_count: int) -> dict[float, int]:
    """Return the histogram without its ``removed_count`` fastest answers."""
    remaining = {}
    for edge in sorted(histogram):
        removed = min(histogram[edge], removed_count)
        removed_count -= removed
        if histogram[edge] > removed:
            remaining[edge] = histogram[edge] - removed
    return remaining


def sum_results(results: Iterable[LoadResult]) -> LoadResult:
    """Return the sum of processes that ran in parallel. The duration is that of the longest."""
    processes = list(results)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    sizes: Counter[float] = Counter()
    reasons: set[str] = set()
    for result in processes:
        errors.update(result.errors)
        sizes.update(result.sizes)
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
        sizes=sizes,
    )


@dataclass(frozen=True)
class ProcessLimits:
    """The limits of one process of a generator: open connections, and requests/s.

    ``keeps_connections``: connections stay open, so requests use no additional client ports.
    """

    open_connections: int
    max_rate: float
    keeps_connections: bool = False


@dataclass(frozen=True)
class LoadProcess:
    """One command of a reading. It sends ``request_count`` requests within ``span_seconds``, then
    exits.

    Its own ``timeout`` wrapper stops it after ``stop_seconds``. ``open_connections`` is how many it
    may hold concurrently, ``input`` its standard input. ``max_rate`` is the highest rate
    (requests/s) of its command line. A process that does not state it is not started.
    """

    argv: Argv
    request_count: int
    span_seconds: float
    stop_seconds: float
    open_connections: int
    input: bytes | None = None
    max_rate: float = field(default=inf, kw_only=True)


# Arguments: the option, to which the file's name is appended, then the command to run.
_INPUT_FILE_SCRIPT = f"""
{temporary_file_script("load")}
cat >"$temporary"
option=$1
shift
"$@" "$option$temporary"
"""


def with_input_file(argv: Argv, option: str) -> Argv:
    """Return ``argv`` with one more option, which names a file with the contents of standard input."""
    return ("sh", "-c", _INPUT_FILE_SCRIPT, "sh", option, *argv)


class LoadGenerator(ABC):
    """A generator of load at a fixed rate, and its requirements.

    - ``packages``: packages that contain it (Debian's names). ``package_source``: where to get it
      otherwise.
    - ``unchecked_tls``: what it does not verify over TLS.
    - ``supported_methods``: methods that it can send, ``None`` for any.
    - ``requests_per_iteration``: the maximum number of requests in a unit of its rate.
    """

    name: str
    limits: ProcessLimits
    packages: tuple[str, ...] = ()
    package_source: str = ""
    http2 = False
    unchecked_tls = ""
    supported_methods: frozenset[str] | None = None
    requests_per_iteration = 1.0

    @property
    def programs(self) -> Mapping[str, tuple[str, ...]]:
        """Return alternative executables by name, as for services."""
        return {self.name: (self.name,)}

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        """Return this generator with ``visits`` as its load.

        Raises UnusableWorkload for requests that it cannot send.
        """
        raise UnusableWorkload(f"{self.name} cannot read a `requests:` file")

    def inspection_command(self) -> tuple[Argv, bytes] | None:
        """Return a command to run before any load, and its standard input.

        The command gives the program its input, and fails with the reason if the program cannot run
        it.
        """
        return None

    def counting_process(self, request: Request, max_rate: float) -> LoadProcess | None:
        """Return a process that counts the requests in a unit of the rate, below ``max_rate``.

        Returns ``None`` if that number is known.
        """
        return None

    def with_counted_requests(self, printed: str) -> LoadGenerator:
        """Return this generator with the request count of a unit that the process printed. Raises
        LoadError.
        """
        return self

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        """Return the requests that it sends, with their weights; none if they are unknown."""
        return ((SessionStep(path=request.path, method=request.method, body=request.body), 1.0),)

    @abstractmethod
    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        """Return the processes of one reading, usually at least one for each load host.

        Together they offer ``spec.rate`` and never more than ``spec.max_rate``. Returns none if the
        rate is too low for a single request in the reading.
        """

    @abstractmethod
    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        """Return the result of one process's output. May raise ValueError."""

    def parse_checked(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        """Return the result as ``parse_output`` does. Unreadable or impossible output is
        ``limited``.
        """
        try:
            result = self.parse_output(process, output, request, spec)
        except ValueError as error:
            return LoadResult.not_sent(
                process.request_count, f"{self.name} printed no result: {error}"
            )
        if (
            result.limited is None
            and result.intended > MAX_MADE_FACTOR * process.request_count + MAX_EXTRA_REQUESTS
        ):
            reason = (
                f"{self.name} made {result.intended} requests instead of {process.request_count}"
            )
            return LoadResult.not_sent(process.request_count, reason)
        if not result.is_consistent:
            reason = f"{self.name} printed figures that do not add up: {last_line(output)}"
            return LoadResult.not_sent(process.request_count, reason)
        return result


BINS_PER_LIMIT = 100.0  # minimum number of bins within the objective's limit
MAX_BIN_SECONDS = 0.001


def build_histogram(latencies: Iterable[float], limit: float) -> dict[float, int]:
    """Return upper edges and counts; edges in seconds.

    A latency within ``limit`` is in a bin that ends no later, so late answers are counted exactly.
    """
    width = min(MAX_BIN_SECONDS, limit / BINS_PER_LIMIT)
    bins: Counter[float] = Counter()
    for latency in latencies:
        edge = round(max(1, ceil(latency / width - 1e-9)) * width, 9)
        bins[min(edge, limit) if latency <= limit else max(edge, latency)] += 1
    return dict(sorted(bins.items()))
