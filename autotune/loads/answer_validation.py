"""Which answers are right, and what a look at some of them says about all.

While a generator runs, curl sends requests like those of the load; they are a part of the rate that was
ordered. An answer is wrong if it lacks what `expect:` says, or differs in kind from reference answers.
A look at n answers misses a share s of wrong ones with the probability (1 − s)ⁿ: ``ENOUGH_ANSWERS``
answers miss
5 % once in 28,000 times. If a reading is too short for so many, the latest readings at lower rates count
too, since less load means no more wrong answers.

Generators also print sizes, which cover every answer: see ``count_wrong_sizes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from autotune.loads.answer_kind import ReferenceAnswer, find_difference
from autotune.loads.base import LoadResult, LoadSpec
from autotune.loads.probes import HEAD_BYTES, WHOLE_BODY_BYTES, ProbeAnswer
from autotune.target.expected_answer import ANY_2XX, Expect
from autotune.target.requests_file import SessionStep
from autotune.transports.request import Request

WRONG_ANSWER, WRONG_BODY = "wrong answer", "wrong body"  # kinds of errors
ENOUGH_ANSWERS = 200  # answers
MAX_PROBE_RATE, MAX_PROBE_SHARE = 100.0, 0.2  # the most answers that are requested, and of the load
MAX_EXACT_RATE, MAX_EXACT_SHARE = 6.0, 0.01  # the same where the one right body is known
MIN_PROBES = 2
MAX_BODY_BYTES = 1 << 24  # of all bodies in one look
MAX_PAGES = 50  # different requests whose answers are compared
# A mean size tells of wrong answers if right ones differ by no more than STABLE, and it is further off
# than OFF, as factors.
STABLE_SIZE_FACTOR, WRONG_SIZE_DEVIATION = 1.05, 0.025
MIN_RIGHT_ANSWERS = 20  # right answers that show how large they are


@dataclass(frozen=True)
class LoadPage:
    """A request of the load. ``share`` is how much of the load asks for it; ``expect`` what was written
    for it, ``exact_body`` its one right body."""

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
        """What is wrong with an answer, in words; ``None`` if it is right."""
        if self.exact_body is not None:
            return (
                None if answer.text == self.exact_body.decode(errors="replace") else "another body"
            )
        if self.expect and (
            unmet := self.expect.describe_mismatch(
                answer.status, answer.headers, answer.text, answer.size
            )
        ):
            return unmet
        decided = self.reference is None or (self.expect is not None and bool(self.expect.body))
        return (
            None if decided or self.reference is None else find_difference(self.reference, answer)
        )

    def build_request(self, request: Request) -> Request:
        """The request for this page."""
        step = self.step
        return replace(
            request, path=step.path, method=step.method, body=step.body, expected_body=None
        )


@dataclass(frozen=True)
class AnswerInspection:
    """Answers with a right status that were looked at, and how many of them were ``wrong_count``.

    ``example`` says of one what is wrong with it. ``sizes`` are the smallest and the largest body of a
    right one, and ``right_size_count`` how many these are; ``wrong_size`` is the mean of the wrong ones.
    """

    inspected: int = 0
    wrong_count: int = 0
    example: str = ""
    sizes: tuple[int, int] | None = None
    right_size_count: int = 0
    wrong_size: float | None = None

    def __add__(self, other: AnswerInspection) -> AnswerInspection:
        sizes = [s.sizes for s in (self, other) if s.sizes]
        means = [(s.wrong_size, s.wrong_count) for s in (self, other) if s.wrong_size is not None]
        total = sum(count for _, count in means)
        return AnswerInspection(
            self.inspected + other.inspected,
            self.wrong_count + other.wrong_count,
            self.example or other.example,
            (min(low for low, _ in sizes), max(high for _, high in sizes)) if sizes else None,
            self.right_size_count + other.right_size_count,
            sum(size * count for size, count in means) / total if total else None,
        )

    @property
    def wrong_share(self) -> float:
        """The fraction of the answers that were wrong."""
        return self.wrong_count / self.inspected if self.inspected else 0.0


@dataclass(frozen=True)
class AnswerValidator:
    """The requests of a load whose answers are looked at; none: they are not known."""

    pages: tuple[LoadPage, ...]

    @classmethod
    def for_exact_body(cls, request: Request) -> AnswerValidator:
        """The one page of a request whose right body is known."""
        step = SessionStep(path=request.path, method=request.method, body=request.body)
        return cls((LoadPage(step, exact_body=request.expected_body),))

    @property
    def is_exact(self) -> bool:
        """True if the one right body is known."""
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
        """Bytes of an answer that are read, at most, averaged over the load."""
        maximum = WHOLE_BODY_BYTES if self.reads_whole_bodies else HEAD_BYTES
        sizes = [(min(maximum, page.reference.size_range[1]), page.share)
                 for page in self.pages if page.reference]  # fmt: skip
        total = sum(share for _, share in sizes)
        return max(1.0, sum(size * share for size, share in sizes) / total) if total else 1.0

    def count_probes(self, spec: LoadSpec) -> int:
        """How many answers are looked at in a reading: no more than half of it, or than can be kept."""
        if not self.pages:
            return 0
        exact = self.is_exact
        maximum = MAX_EXACT_RATE if exact else min(MAX_PROBE_RATE, ENOUGH_ANSWERS / spec.seconds)
        desired = spec.seconds * min(
            maximum, (MAX_EXACT_SHARE if exact else MAX_PROBE_SHARE) * spec.rate
        )
        bounds = (spec.request_count // 2, int(MAX_BODY_BYTES / self.mean_read_bytes))
        return max(0, min(max(MIN_PROBES, round(desired)), *bounds))

    def choose_pages(self, count: int, seed: int = 0) -> list[int]:
        """Which page each of ``count_probes`` requests asks for: in proportion to the load, evenly
        mixed."""
        total = sum(page.share for page in self.pages)
        # Low discrepancy: each request goes to where a step of the golden section leads.
        locations = [((seed + turn) * 0.6180339887498949) % 1.0 * total for turn in range(count)]
        return [self._page_at(location) for location in locations]

    def _page_at(self, cumulative_share: float) -> int:
        for index, page in enumerate(self.pages):
            cumulative_share -= page.share
            if cumulative_share < 0:
                return index
        return len(self.pages) - 1

    def inspect(
        self, pages: Sequence[int], answers: Sequence[ProbeAnswer | None]
    ) -> AnswerInspection:
        """Validator answers. Those with a wrong status, or none, are the generator's to count."""
        wrong: list[tuple[str, ProbeAnswer]] = []
        right: list[ProbeAnswer] = []
        for index, answer in zip(pages, answers, strict=True):
            page = self.pages[index]
            if answer is None or not is_counted_right(answer.status, page.statuses):
                continue
            if reason := page.find_error(answer):
                wrong.append((f"{page.name}: {reason}", answer))
            else:
                right.append(answer)
        sizes = [answer.size for answer in right]
        return AnswerInspection(
            len(right) + len(wrong),
            len(wrong),
            wrong[0][0] if wrong else "",
            (min(sizes), max(sizes)) if sizes else None,
            len(sizes),
            sum(answer.size for _, answer in wrong) / len(wrong) if wrong else None,
        )

    def right_size_range(self, inspection: AnswerInspection) -> tuple[int, int] | None:
        """The smallest and the largest right body, if right ones hardly differ in size and enough were
        seen; else ``None``."""
        references = [page.reference for page in self.pages]
        ranges = [reference.size_range for reference in references if reference]
        if len(ranges) < len(references) or not ranges or inspection.sizes is None:
            return None
        low, high = (*ranges, inspection.sizes)[0]
        for other in (*ranges, inspection.sizes):
            low, high = min(low, other[0]), max(high, other[1])
        samples = inspection.right_size_count + sum(r.sample_count for r in references if r)
        return (
            (low, high)
            if high <= STABLE_SIZE_FACTOR * low and samples >= MIN_RIGHT_ANSWERS
            else None
        )

    def reclassify(
        self, result: LoadResult, inspection: AnswerInspection, earlier_inspection: AnswerInspection
    ) -> LoadResult:
        """``result`` with the wrong answers that a look found, and those that sizes show.

        ``earlier_inspection``: what was looked at before at lower rates, which counts if the look is
        too small.
        """
        pooled = (
            inspection
            if inspection.inspected >= ENOUGH_ANSWERS or self.method == WRONG_BODY
            else inspection + earlier_inspection
        )
        already = result.errors.get(self.method, 0)
        wrong = ceil(pooled.wrong_share * (result.right_answers + already) - 1e-9) - already
        example = inspection.example or (pooled.example if wrong > 0 else "")
        if sizes := self.right_size_range(inspection):
            by_size = count_wrong_sizes(result.sizes, sizes, inspection.wrong_size)
            if by_size > max(0, wrong):
                wrong = by_size
                example = (
                    example or f"the size of all answers together shows {by_size} of another size"
                )
        counted = result.reclassify(self.method, wrong)
        return replace(
            counted, looked_at=inspection.inspected, wrong=inspection.wrong_count, example=example
        )


def is_counted_right(status: int, statuses: frozenset[int]) -> bool:
    """True if a generator that only sees classes of statuses takes this one for right."""
    return status // 100 in {right // 100 for right in statuses}


def count_wrong_sizes(
    sizes: Mapping[float, int], right_sizes: tuple[int, int], wrong_size: float | None
) -> int:
    """At least how many answers have another size than the ``right_sizes`` ones, whose sizes hardly
    differ.

    ``sizes`` maps mean sizes to how many answers each is of. A mean that is off by a fraction f shows
    that f of the answers are empty, or more of them not quite. ``wrong_size`` is the mean size of wrong
    answers, if any were seen. Sizes drift: less than ``WRONG_SIZE_DEVIATION`` is nothing.
    """
    wrong = 0.0
    low, high = right_sizes
    for mean, count in sizes.items():
        off = max(low - mean, mean - high)
        if off <= WRONG_SIZE_DEVIATION * low:
            continue
        empty = low if mean < low else high
        has_mean = wrong_size is not None and (wrong_size < low) == (mean < low)
        widest = abs((wrong_size or 0.0) - (low if mean < low else high)) if has_mean else empty
        wrong += count * min(1.0, off / max(1.0, widest))
    return ceil(wrong)


def build_pages(
    steps: Iterable[tuple[SessionStep, float]], expect: Expect | None
) -> tuple[LoadPage, ...]:
    """The most frequent requests of a load, each once; ``expect`` holds for those without their own."""
    shares: dict[tuple[str, str, str | None], float] = {}
    first: dict[tuple[str, str, str | None], SessionStep] = {}
    for step, share in steps:
        key = (step.method, step.path, step.body)
        shares[key] = shares.get(key, 0.0) + share
        first.setdefault(key, step)
    total = sum(shares.values()) or 1.0
    kept = sorted(shares, key=lambda key: -shares[key])
    equal = len(set(shares.values())) <= 1
    kept = kept[:: max(1, -(-len(kept) // MAX_PAGES))] if equal else kept[:MAX_PAGES]
    return tuple(LoadPage(first[k], shares[k] / total, first[k].expect or expect) for k in kept)


@dataclass
class InspectionLog:
    """What was looked at in the readings of a trial so far, with the rate of each (requests/s)."""

    inspections: list[tuple[float, AnswerInspection]] = field(default_factory=list)

    def latest_up_to(self, rate: float, enough: int = ENOUGH_ANSWERS) -> AnswerInspection:
        """The latest looks at this rate or a lower one, as many as are needed for ``enough`` answers."""
        pooled = AnswerInspection()
        for other, look in reversed(self.inspections):
            if other <= rate * (1 + 1e-9) and pooled.inspected < enough:
                pooled += look
        return pooled

    def add(self, rate: float, inspection: AnswerInspection) -> None:
        self.inspections.append((rate, inspection))

    def keep_last(self, count: int) -> None:
        """Forget all but the last ones: what the stack answered while it was warming up."""
        del self.inspections[: max(0, len(self.inspections) - count)]
