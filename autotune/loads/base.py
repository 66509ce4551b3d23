"""How load is made: what is asked, at what rate, and what came of it.

A generator is a way to write command lines and to read what they print. Nothing here runs anything.
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

# What makes a reading of an open loop valid, whatever the generator.
MIN_ACHIEVED_SHARE = 0.99  # of the intended requests, or rate
MAX_STALL_SHARE = (
    0.1  # of a reading; a generator off the CPU for longer did not make the specified load
)
# A factor of the ordered requests, and so many: more is not the load ordered.
MAX_MADE_FACTOR, MAX_EXTRA_REQUESTS = 2, 10
PROVEN_FAILURE_SHARE = (
    0.05  # fraction of requests that failed beyond what a starved generator can explain
)
FELL_BEHIND_MESSAGE = (
    "the load generator fell behind: give the load host more CPU, or add load hosts"
)
# Errors of the load host itself, with the message for each: the reading says nothing of the server.
NO_PORT_ERROR, NO_FILE_ERROR = "no free port", "file table full"
EXHAUSTION_MESSAGES = {
    NO_PORT_ERROR: "the load host ran out of client ports: set net.ipv4.tcp_tw_reuse=1 there, widen"
    " net.ipv4.ip_local_port_range, or add load hosts",
    NO_FILE_ERROR: "the load host ran out of open files: raise fs.file-max and its limit there",
}


class LoadError(AutotuneError):
    """The load generator cannot be started on a load host."""


@dataclass(frozen=True)
class LoadSpec:
    """One reading to take: ``rate`` requests/s, sent for ``seconds``.

    ``timeout`` is when a request is given up, ``latency_limit`` when its answer counts as late (seconds).
    ``ramp_seconds`` seconds of the same load come first and are not counted: a second, because PHP-FPM
    and Apache look once a second whether they need more processes, and a pool may have shrunk since the
    last reading. ``seed`` picks the arrivals: the same seed sends at the same moments again;
    ``None`` takes new ones. ``max_rate`` is the most that may be offered (requests/s), set by
    `take.take`.
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
        """One of several equal parts, with arrivals of its own."""
        seed = None if self.seed is None else self.seed * count + index
        return replace(self, rate=self.rate / count, max_rate=self.max_rate / count, seed=seed)


@dataclass(frozen=True)
class LoadResult:
    """What became of ``intended`` requests.

    ``sent`` of them went out. ``histogram`` maps the upper edge of a latency bin (seconds) to the
    right answers in it; ``errors`` counts every other intended request, by kind, so that right
    answers and errors always add up to ``intended``. ``duration`` (seconds) lasts from the first
    request to the last answer. ``truncated``: the load was cut short, or not all of it was made,
    after the server had clearly failed. ``limited`` says why the *generator* fell short, in which
    case the counts say nothing about the server.

    ``sizes`` maps mean sizes of bodies (bytes) to how many answers each is of, if all had a right
    status. Of ``looked_at`` whole answers to other requests of the same load ``wrong`` were wrong;
    ``example`` says how.
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
        """The result of a generator that failed: as far as is known, it sent nothing."""
        return cls(intended, errors={kind: intended}, limited=reason[:300])

    @property
    def is_consistent(self) -> bool:
        """Whether every intended request is counted once, and no figure is impossible."""
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
        """Right answers in bins that end after ``seconds``."""
        return sum(n for edge, n in self.histogram.items() if edge > seconds + 1e-9)

    def as_exhausted_host(self) -> LoadResult | None:
        """This result as ``limited`` if the load host ran out of ports or open files, else ``None``."""
        short = next(
            (reason for kind, reason in EXHAUSTION_MESSAGES.items() if self.errors.get(kind)), None
        )
        return replace(self, limited=short) if short else None

    def as_incomplete_load(
        self, limit: float, late: float, unmade_requests: int, reason: str = FELL_BEHIND_MESSAGE
    ) -> LoadResult:
        """The result of a reading whose load was not made as ordered.

        It is ``truncated`` if the server failed beyond doubt all the same. Otherwise it is
        ``limited``, for the reason ``reason``, and says nothing about the server.

        ``late`` is the longest time from when a request was due to when it went out, ``limit`` the
        objective's (both in seconds); ``unmade_requests`` is how many of the failures are the
        generator's own.
        """
        proven = self.count_later_than(limit + 2 * late) + self.error_count - unmade_requests
        if proven > PROVEN_FAILURE_SHARE * self.intended:
            return replace(self, truncated=True)
        return replace(self, limited=reason)

    def reclassify(self, kind: str, wrong_count: int) -> LoadResult:
        """With ``wrong_count`` of the right answers turned into errors of ``kind``.

        Which answers they were is not known. They are taken from the fastest, so that errors which
        come quickly never make the rest look quick.
        """
        wrong_count = min(wrong_count, self.right_answers)
        if wrong_count <= 0:
            return self
        errors = dict(Counter(self.errors) + Counter({kind: wrong_count}))
        return replace(self, errors=errors, histogram=drop_fastest(self.histogram, wrong_count))


def sort_counts(counts: Mapping[CountKey, int]) -> dict[CountKey, int]:
    """Counts by kind or by bin, without those that are zero."""
    return {key: counts[key] for key in sorted(counts) if counts[key]}


def last_line(output: str) -> str:
    """The end of what a program printed, which says best why there is no result in it."""
    return (split_lines(output.strip()) or ["nothing"])[-1][:200]


def drop_fastest(histogram: Mapping[float, int], removed_count: int) -> dict[float, int]:
    """The histogram without its ``removed_count`` fastest answers."""
    kept = {}
    for edge in sorted(histogram):
        removed = min(histogram[edge], removed_count)
        removed_count -= removed
        if histogram[edge] > removed:
            kept[edge] = histogram[edge] - removed
    return kept


def sum_results(results: Iterable[LoadResult]) -> LoadResult:
    """Processes that ran side by side, as one result: all is summed, the duration is the longest."""
    parts = list(results)
    errors: Counter[str] = Counter()
    histogram: Counter[float] = Counter()
    sizes: Counter[float] = Counter()
    reasons: set[str] = set()
    for part in parts:
        errors.update(part.errors)
        sizes.update(part.sizes)
        histogram.update(part.histogram)
        reasons.update(part.limited.split("; ") if part.limited else ())
    return LoadResult(
        intended=sum(part.intended for part in parts),
        sent=sum(part.sent for part in parts),
        errors=sort_counts(errors),
        histogram=sort_counts(histogram),
        duration=max((part.duration for part in parts), default=0.0),
        truncated=any(part.truncated for part in parts),
        limited="; ".join(sorted(reasons)) or None,
        sizes=sizes,
    )


@dataclass(frozen=True)
class ProcessLimits:
    """What one process of a generator is trusted with: open connections, and requests per second.

    ``keeps_connections``: connections stay open, so requests use up no client ports.
    """

    open_connections: int
    max_rate: float
    keeps_connections: bool = False


@dataclass(frozen=True)
class LoadProcess:
    """One command of a reading: it sends ``request_count`` within ``span_seconds`` seconds and ends by
    itself.

    ``stop_seconds`` (seconds) is when it is stopped at the latest, by its own ``timeout`` wrapper.
    ``open_connections`` is how many it may hold at a time, ``input`` what it reads. ``max_rate`` is
    the most requests/s that its command line offers. A process that does not state it is not started.
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
    """``argv`` with one more option, which names a file with the contents of standard input."""
    return ("sh", "-c", _INPUT_FILE_SCRIPT, "sh", option, *argv)


class LoadGenerator(ABC):
    """A generator of load at a set rate, and what it needs to run.

    ``packages`` are the distribution's packages that contain it (Debian's names); ``package_source`` says
    where to get it if the distribution lacks it. ``unchecked_tls`` is what it does not verify over TLS;
    ``supported_methods`` are those it can send, ``None`` for any. ``requests_per_iteration`` is the
    most requests of a unit of its rate.
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
        """Name → executables that will do, as for services."""
        return {self.name: (self.name,)}

    def with_visits(self, visits: tuple[WeightedVisit, ...]) -> LoadGenerator:
        """This generator with ``visits`` as its load. Raises Unusable for what it cannot request."""
        raise UnusableWorkload(f"{self.name} knows by itself what to ask for")

    def inspection_command(self) -> tuple[Argv, bytes] | None:
        """A command to run before any load, and its standard input: it shows the program what it will
        run, and fails with the reason if the program cannot run that."""
        return None

    def counting_process(self, request: Request, max_rate: float) -> LoadProcess | None:
        """A process that shows how many requests a unit of the rate makes, below ``max_rate``. ``None``:
        that is known."""
        return None

    def with_counted_requests(self, printed: str) -> LoadGenerator:
        """This load with the requests of a unit that the process showed. Raises LoadError."""
        return self

    def list_steps(self, request: Request) -> tuple[tuple[SessionStep, float], ...]:
        """The requests that it sends, with their weights; none if they are not known."""
        return ((SessionStep(path=request.path, method=request.method, body=request.body), 1.0),)

    @abstractmethod
    def build_processes(
        self, request: Request, spec: LoadSpec, hosts: int = 1
    ) -> tuple[LoadProcess, ...]:
        """What to start together for one reading, mostly at least one process per load host.

        Together they offer ``spec.rate`` and never more than ``spec.max_rate``; none if the rate is too
        low for a single request in the reading.
        """

    @abstractmethod
    def parse_output(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        """What one process printed. May raise ValueError."""

    def parse_checked(
        self, process: LoadProcess, output: str, request: Request, spec: LoadSpec
    ) -> LoadResult:
        """As ``parse_output``, but output that cannot be read or true is a failed generator's
        (``limited``)."""
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
            reason = f"{self.name} made {result.intended} requests of {process.request_count}"
            return LoadResult.not_sent(process.request_count, reason)
        if not result.is_consistent:
            reason = f"{self.name} printed figures that do not add up: {last_line(output)}"
            return LoadResult.not_sent(process.request_count, reason)
        return result


BINS_PER_LIMIT = 100.0  # bins that the objective's limit spans at least …
MAX_BIN_SECONDS = 0.001  # … and no bin is wider (seconds)


def build_histogram(latencies: Iterable[float], limit: float) -> dict[float, int]:
    """Upper edge → count, all in seconds. A latency within ``limit`` is in a bin that ends no later,
    so late answers are counted exactly."""
    width = min(MAX_BIN_SECONDS, limit / BINS_PER_LIMIT)
    bins: Counter[float] = Counter()
    for latency in latencies:
        edge = round(max(1, ceil(latency / width - 1e-9)) * width, 9)
        bins[min(edge, limit) if latency <= limit else max(edge, latency)] += 1
    return dict(sorted(bins.items()))
