"""Validate responses: a sample of complete responses, and estimates for all responses.

While a generator runs, curl sends a sample of similar requests. The requested rate includes curl's
requests. A response is wrong if it violates `expect:`, or differs in kind from the reference
responses. If a fraction s of all responses is wrong, a sample of n responses contains no wrong
response with probability (1 − s)ⁿ. With ``ENOUGH_ANSWERS`` responses, one in 28,000 samples misses a
fraction of 5 %. If a sample has fewer responses, and none is wrong, the latest samples at the same or
lower rates are added. Less load does not cause more wrong responses. The added samples count only if
at least two of them contain wrong responses. A single odd response therefore fails one reading, but
not the following readings.

Generators also print the mean body size of all responses: see ``count_wrong_sizes``.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from autotune.loads.answer_kind import ReferenceAnswer, find_difference
from autotune.loads.base import LoadResult, LoadSpec, WrongAnswers
from autotune.loads.probes import HEAD_BYTES, WHOLE_BODY_BYTES, ProbeAnswer
from autotune.target.expected_answer import ANY_2XX, Expect
from autotune.target.requests_file import SessionStep
from autotune.transports.request import Request

WRONG_ANSWER, WRONG_BODY = "wrong answer", "wrong body"  # kinds of errors
ENOUGH_ANSWERS = 200
# Number of responses in the added samples. If 1 % of all responses are wrong, two samples among 600
# responses almost certainly contain a wrong response.
POOLED_ANSWERS = 600
# maximum number of samples per second, and their maximum share of the load
MAX_PROBE_RATE, MAX_PROBE_SHARE = 100.0, 0.2
MAX_EXACT_RATE, MAX_EXACT_SHARE = 6.0, 0.01  # limits for pages whose only correct body is known
MIN_PROBES = 2
MAX_BODY_BYTES = 1 << 24  # maximum total size of the bodies in one sample
MAX_PAGES = 50  # maximum number of distinct requests that are sampled
# If correct bodies differ in size by at most STABLE_SIZE_FACTOR, a mean size that deviates by more than
# the fraction WRONG_SIZE_DEVIATION reveals wrong responses.
STABLE_SIZE_FACTOR, WRONG_SIZE_DEVIATION = 1.05, 0.025
MIN_RIGHT_ANSWERS = 20  # minimum number of correct responses that establish the correct size


@dataclass(frozen=True)
class LoadPage:
    """A request in the load.

    ``share`` is the request's fraction of the load. ``expect`` describes correct responses to it.
    ``exact_body`` is the only correct body, if it is known.
    """

    step: SessionStep
    share: float = 1.0
    expect: Expect | None = None
    exact_body: bytes | None = None
    reference: ReferenceAnswer | None = None

    @property
    def name(self) -> str:
        method = "" if self.step.method == "GET" else f"{self.step.method} "
        return f"{method}{self.step.path}"

    @property
    def statuses(self) -> frozenset[int]:
        return self.expect.expected_statuses if self.expect else ANY_2XX

    def find_error(self, answer: ProbeAnswer) -> str | None:
        """Return the error in a response as text, or ``None`` if the response is correct."""
        if not answer.is_complete:
            return f"the body ends after {answer.size} B"
        if self.exact_body is not None:
            return (
                None if answer.text == self.exact_body.decode(errors="replace") else "another body"
            )
        if self.expect and (
            mismatch := self.expect.describe_mismatch(
                answer.status, answer.headers, answer.text, answer.size
            )
        ):
            return mismatch
        if self.reference is None:
            return None if answer.status in self.statuses else f"status {answer.status}"
        is_decided = self.expect is not None and bool(self.expect.body)
        return None if is_decided else find_difference(self.reference, answer)

    def build_request(self, request: Request) -> Request:
        """Return ``request`` with the method, path and body of this page."""
        step = self.step
        return replace(
            request, path=step.path, method=step.method, body=step.body, expected_body=None
        )


@dataclass(frozen=True)
class AnswerInspection:
    """The results for a sample of responses with a correct status.

    ``wrong_count`` is the number of wrong responses, and ``example`` describes one wrong response.
    ``sizes`` are the smallest and the largest correct body in bytes, and ``right_size_count`` is the
    number of correct bodies. ``wrong_size`` is the mean size of wrong bodies. ``is_repeated`` is true for
    a sum in which at least two samples contain wrong responses.
    """

    inspected: int = 0
    wrong_count: int = 0
    example: str = ""
    sizes: tuple[int, int] | None = None
    right_size_count: int = 0
    wrong_size: float | None = None
    is_repeated: bool = False

    def __add__(self, other: AnswerInspection) -> AnswerInspection:
        sizes = [s.sizes for s in (self, other) if s.sizes]
        wrong_means = [
            (s.wrong_size, s.wrong_count) for s in (self, other) if s.wrong_size is not None
        ]
        total_count = sum(count for _, count in wrong_means)
        return AnswerInspection(
            self.inspected + other.inspected,
            self.wrong_count + other.wrong_count,
            self.example or other.example,
            (min(low for low, _ in sizes), max(high for _, high in sizes)) if sizes else None,
            self.right_size_count + other.right_size_count,
            sum(size * count for size, count in wrong_means) / total_count if total_count else None,
            self.is_repeated or other.is_repeated or bool(self.wrong_count and other.wrong_count),
        )

    @property
    def wrong_share(self) -> float:
        """Return the fraction of wrong responses."""
        return self.wrong_count / self.inspected if self.inspected else 0.0


@dataclass(frozen=True)
class AnswerValidator:
    """Validates sampled responses. ``pages`` is empty if the load's requests are unknown."""

    pages: tuple[LoadPage, ...]

    @classmethod
    def for_exact_body(cls, request: Request) -> AnswerValidator:
        """Return the validator for a request with only one correct body."""
        step = SessionStep(path=request.path, method=request.method, body=request.body)
        return cls((LoadPage(step, exact_body=request.expected_body),))

    @property
    def is_exact(self) -> bool:
        """True if the only correct body is known."""
        return bool(self.pages) and self.pages[0].exact_body is not None

    @property
    def method(self) -> str:
        return WRONG_BODY if self.is_exact else WRONG_ANSWER

    @property
    def reads_whole_bodies(self) -> bool:
        return any(
            p.exact_body is not None or (p.expect and p.expect.reads_body) for p in self.pages
        )

    @property
    def mean_read_bytes(self) -> float:
        """Return the mean number of bytes read per response, based on the largest size of each page."""
        max_bytes = WHOLE_BODY_BYTES if self.reads_whole_bodies else HEAD_BYTES
        weighted_sizes = [
            (min(max_bytes, page.reference.size_range[1]), page.share)
            for page in self.pages
            if page.reference
        ]
        total_share = sum(share for _, share in weighted_sizes)
        return (
            max(1.0, sum(body_size * share for body_size, share in weighted_sizes) / total_share)
            if total_share
            else 1.0
        )

    @property
    def max_probe_count(self) -> int:
        """Return the number of responses that fit in memory."""
        return int(MAX_BODY_BYTES / self.mean_read_bytes)

    def count_probes(self, spec: LoadSpec) -> int:
        """Return how many responses a reading samples: at most half of its requests, and no more
        than fit in memory.
        """
        if not self.pages:
            return 0
        is_exact = self.is_exact
        max_rate = (
            MAX_EXACT_RATE if is_exact else min(MAX_PROBE_RATE, ENOUGH_ANSWERS / spec.seconds)
        )
        desired_probes = spec.seconds * min(
            max_rate, (MAX_EXACT_SHARE if is_exact else MAX_PROBE_SHARE) * spec.rate
        )
        probe_limits = (spec.request_count // 2, self.max_probe_count)
        return max(0, min(max(MIN_PROBES, round(desired_probes)), *probe_limits))

    def choose_pages(self, count: int, seed: int = 0) -> list[int]:
        """Return the index of a page for each of ``count`` sampled requests.

        Pages are chosen in proportion to their share of the load, and evenly mixed.
        """
        total_share = sum(page.share for page in self.pages)
        # A low-discrepancy sequence, with steps of the golden ratio, spreads the samples evenly.
        positions = [
            ((seed + step) * 0.6180339887498949) % 1.0 * total_share for step in range(count)
        ]
        return [self._find_page(position) for position in positions]

    def _find_page(self, cumulative_share: float) -> int:
        for index, page in enumerate(self.pages):
            cumulative_share -= page.share
            if cumulative_share < 0:
                return index
        return len(self.pages) - 1

    def inspect_answers(
        self,
        pages: Sequence[int],
        answers: Sequence[ProbeAnswer | None],
        accepted_classes: Container[int] | None = None,
    ) -> AnswerInspection:
        """Validate responses and return their counts. Missing responses, and classes of statuses outside
        ``accepted_classes``, are skipped, because the generator counts them as errors.

        A generator does not distinguish pages. The default is therefore the classes of the correct
        statuses of all pages.
        """
        if accepted_classes is None:
            accepted_classes = {status // 100 for page in self.pages for status in page.statuses}
        wrong_answers: list[tuple[str, ProbeAnswer]] = []
        right_answers: list[ProbeAnswer] = []
        for index, answer in zip(pages, answers, strict=True):
            page = self.pages[index]
            if answer is None or answer.status // 100 not in accepted_classes:
                continue
            if reason := page.find_error(answer):
                wrong_answers.append((f"{page.name}: {reason}", answer))
            else:
                right_answers.append(answer)
        right_sizes = [answer.size for answer in right_answers]
        return AnswerInspection(
            len(right_answers) + len(wrong_answers),
            len(wrong_answers),
            wrong_answers[0][0] if wrong_answers else "",
            (min(right_sizes), max(right_sizes)) if right_sizes else None,
            len(right_sizes),
            sum(answer.size for _, answer in wrong_answers) / len(wrong_answers)
            if wrong_answers
            else None,
        )

    def find_right_size_range(self, inspection: AnswerInspection) -> tuple[int, int] | None:
        """Return the sizes of the smallest and the largest correct body.

        Returns ``None`` if correct bodies differ in size, or if too few were sampled.
        """
        references = [page.reference for page in self.pages]
        ranges = [reference.size_range for reference in references if reference]
        if len(ranges) < len(references) or not ranges or inspection.sizes is None:
            return None
        low_bound, high_bound = (*ranges, inspection.sizes)[0]
        for size_range in (*ranges, inspection.sizes):
            low_bound, high_bound = min(low_bound, size_range[0]), max(high_bound, size_range[1])
        sample_count = inspection.right_size_count + sum(r.sample_count for r in references if r)
        return (
            (low_bound, high_bound)
            if high_bound <= STABLE_SIZE_FACTOR * low_bound and sample_count >= MIN_RIGHT_ANSWERS
            else None
        )

    def find_wrong_answers(
        self, result: LoadResult, inspection: AnswerInspection, earlier_inspection: AnswerInspection
    ) -> WrongAnswers:
        """Return the wrong responses in ``result`` that the sample or the sizes reveal.

        ``earlier_inspection`` is the sum of the latest samples at lower rates. The sum is added if
        ``inspection`` is too small, contains no wrong response, and the wrong responses in the sum are
        repeated.
        """
        is_decided = inspection.inspected >= ENOUGH_ANSWERS or inspection.wrong_count > 0
        pooled_inspection = (
            inspection
            if is_decided or self.method == WRONG_BODY or not earlier_inspection.is_repeated
            else inspection + earlier_inspection
        )
        known_errors = result.errors.get(self.method, 0)
        wrong_count = (
            ceil(pooled_inspection.wrong_share * (result.right_answers + known_errors) - 1e-9)
            - known_errors
        )
        example = inspection.example or (pooled_inspection.example if wrong_count > 0 else "")
        if right_sizes := self.find_right_size_range(inspection):
            size_errors = count_wrong_sizes(result.sizes, right_sizes, inspection.wrong_size)
            if size_errors > max(0, wrong_count):
                wrong_count = size_errors
                example = (
                    example
                    or f"the mean size of all responses shows that {size_errors} of them have another "
                    "size"
                )
        return WrongAnswers(
            self.method, wrong_count, inspection.inspected, inspection.wrong_count, example
        )


def count_wrong_sizes(
    sizes: Mapping[float, int], right_sizes: tuple[int, int], wrong_mean_size: float | None
) -> int:
    """Return a lower bound for the number of responses whose size is not in ``right_sizes``, a
    narrow range.

    ``sizes`` maps mean body sizes to numbers of responses. If a mean size is off by a fraction f, at
    least the fraction f of the responses has a different size. The lower bound assumes that wrong
    responses are empty. ``wrong_mean_size`` is the mean size of sampled wrong responses, if known. Sizes
    drift, so deviations below ``WRONG_SIZE_DEVIATION`` are ignored.
    """
    wrong_count = 0.0
    low, high_bound = right_sizes
    for mean_size, answer_count in sizes.items():
        deviation_bytes = max(low - mean_size, mean_size - high_bound)
        if deviation_bytes <= WRONG_SIZE_DEVIATION * low:
            continue
        default_deviation = low if mean_size < low else high_bound
        has_mean = wrong_mean_size is not None and (wrong_mean_size < low) == (mean_size < low)
        widest_deviation = (
            abs((wrong_mean_size or 0.0) - (low if mean_size < low else high_bound))
            if has_mean
            else default_deviation
        )
        wrong_count += answer_count * min(1.0, deviation_bytes / max(1.0, widest_deviation))
    return ceil(wrong_count)


def build_pages(
    steps: Iterable[tuple[SessionStep, float]], expect: Expect | None
) -> tuple[LoadPage, ...]:
    """Return the most frequent requests in a load, without duplicates. ``expect`` applies to pages
    without their own expectation.
    """
    shares: dict[tuple[str, str, str | None], float] = {}
    step_by_key: dict[tuple[str, str, str | None], SessionStep] = {}
    for step, share in steps:
        key = (step.method, step.path, step.body)
        shares[key] = shares.get(key, 0.0) + share
        step_by_key.setdefault(key, step)
    total_share = sum(shares.values()) or 1.0
    keys = sorted(shares, key=lambda key: -shares[key])
    is_uniform = len(set(shares.values())) <= 1
    keys = keys[:: max(1, -(-len(keys) // MAX_PAGES))] if is_uniform else keys[:MAX_PAGES]
    return tuple(
        LoadPage(step_by_key[k], shares[k] / total_share, step_by_key[k].expect or expect)
        for k in keys
    )


@dataclass
class InspectionLog:
    """The samples from the readings of a trial, each with its rate (requests/s)."""

    inspections: list[tuple[float, AnswerInspection]] = field(default_factory=list)

    def pool_latest(self, rate: float, enough: int = POOLED_ANSWERS) -> AnswerInspection:
        """Return the sum of the latest samples at ``rate`` or below.

        Samples are added until the sum contains ``enough`` responses.
        """
        pooled_inspection = AnswerInspection()
        for inspected_rate, inspection in reversed(self.inspections):
            if inspected_rate <= rate * (1 + 1e-9) and pooled_inspection.inspected < enough:
                pooled_inspection += inspection
        return pooled_inspection

    def add_inspection(self, rate: float, inspection: AnswerInspection) -> None:
        self.inspections.append((rate, inspection))

    def keep_last_inspections(self, count: int) -> None:
        """Discard all but the last ``count`` samples, because earlier samples are from the warm-up."""
        del self.inspections[: max(0, len(self.inspections) - count)]
