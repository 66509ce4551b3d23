"""Which answers are right, and what a look at some of them says about all.

While a generator runs, curl sends requests like those of the load; they are a part of the rate that was
ordered. An answer is wrong if it lacks what `expect:` says, or differs in kind from reference answers.
A look at n answers misses a share s of wrong ones with the probability (1 − s)ⁿ: ``ENOUGH`` answers miss
5 % once in 28,000 times. If a reading is too short for so many, the latest readings at lower rates count
too, since less load means no more wrong answers.

Generators also print sizes, which cover every answer: see ``wrong_by_size``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from autotune.loads.answer_kind import Reference, difference
from autotune.loads.base import LoadResult, LoadSpec
from autotune.loads.probes import HEAD, WHOLE, Answer
from autotune.target.expect import ANY_2XX, Expect
from autotune.target.requests import Step
from autotune.transports.request import Request

WRONG, WRONG_BODY = "wrong answer", "wrong body"  # kinds of errors
ENOUGH = 200  # answers
PER_SECOND, SHARE = 100.0, 0.2  # the most answers that are requested, and of the load
EXACT_PER_SECOND, EXACT_SHARE = 6.0, 0.01  # the same where the one right body is known
LEAST = 2
MOST_BYTES = 1 << 24  # of all bodies in one look
MOST_PAGES = 50  # different requests whose answers are compared
# A mean size tells of wrong answers if right ones differ by no more than STABLE, and it is further off
# than OFF, as factors.
STABLE, OFF = 1.05, 0.025
LEAST_RIGHT = 20  # right answers that show how large they are


@dataclass(frozen=True)
class Page:
    """A request of the load. ``share`` is how much of the load asks for it; ``expect`` what was written
    for it, ``exact`` its one right body."""

    step: Step
    share: float = 1.0
    expect: Expect | None = None
    exact: bytes | None = None
    reference: Reference | None = None

    @property
    def name(self) -> str:
        method = "" if self.step.method == "GET" else f"{self.step.method} "
        return f"{method}{self.step.path}"

    @property
    def statuses(self) -> frozenset[int]:
        return self.expect.statuses if self.expect else ANY_2XX

    def wrong(self, answer: Answer) -> str | None:
        """What is wrong with an answer, in words; ``None`` if it is right."""
        if self.exact is not None:
            return None if answer.text == self.exact.decode(errors="replace") else "another body"
        if self.expect and (
            unmet := self.expect.unmet(answer.status, answer.headers, answer.text, answer.size)
        ):
            return unmet
        decided = self.reference is None or (self.expect is not None and bool(self.expect.body))
        return None if decided or self.reference is None else difference(self.reference, answer)

    def request(self, request: Request) -> Request:
        """The request for this page."""
        step = self.step
        return replace(request, path=step.path, method=step.method, body=step.body, expect=None)


@dataclass(frozen=True)
class Look:
    """Answers with a right status that were looked at, and how many of them were ``wrong``.

    ``example`` says of one what is wrong with it. ``sizes`` are the smallest and the largest body of a
    right one, and ``right_of_size`` how many these are; ``wrong_size`` is the mean of the wrong ones.
    """

    looked_at: int = 0
    wrong: int = 0
    example: str = ""
    sizes: tuple[int, int] | None = None
    right_of_size: int = 0
    wrong_size: float | None = None

    def __add__(self, other: Look) -> Look:
        sizes = [s.sizes for s in (self, other) if s.sizes]
        means = [(s.wrong_size, s.wrong) for s in (self, other) if s.wrong_size is not None]
        total = sum(count for _, count in means)
        return Look(
            self.looked_at + other.looked_at,
            self.wrong + other.wrong,
            self.example or other.example,
            (min(low for low, _ in sizes), max(high for _, high in sizes)) if sizes else None,
            self.right_of_size + other.right_of_size,
            sum(size * count for size, count in means) / total if total else None,
        )

    @property
    def share(self) -> float:
        """The fraction of the answers that were wrong."""
        return self.wrong / self.looked_at if self.looked_at else 0.0


@dataclass(frozen=True)
class Validator:
    """The requests of a load whose answers are looked at; none: they are not known."""

    pages: tuple[Page, ...]

    @classmethod
    def exactly(cls, request: Request) -> Validator:
        """The one page of a request whose right body is known."""
        step = Step(path=request.path, method=request.method, body=request.body)
        return cls((Page(step, exact=request.expect),))

    @property
    def is_exact(self) -> bool:
        """True if the one right body is known."""
        return bool(self.pages) and self.pages[0].exact is not None

    @property
    def kind(self) -> str:
        return WRONG_BODY if self.is_exact else WRONG

    @property
    def reads_whole_bodies(self) -> bool:
        return any(p.exact is not None or (p.expect and p.expect.reads_body) for p in self.pages)

    @property
    def usual_size(self) -> float:
        """Bytes of an answer that are read, at most, averaged over the load."""
        most = WHOLE if self.reads_whole_bodies else HEAD
        sizes = [(min(most, page.reference.sizes[1]), page.share)
                 for page in self.pages if page.reference]  # fmt: skip
        total = sum(share for _, share in sizes)
        return max(1.0, sum(size * share for size, share in sizes) / total) if total else 1.0

    def count(self, spec: LoadSpec) -> int:
        """How many answers are looked at in a reading: no more than half of it, or than can be kept."""
        if not self.pages:
            return 0
        exact = self.is_exact
        most = EXACT_PER_SECOND if exact else min(PER_SECOND, ENOUGH / spec.seconds)
        desired = spec.seconds * min(most, (EXACT_SHARE if exact else SHARE) * spec.rate)
        bounds = (spec.requests // 2, int(MOST_BYTES / self.usual_size))
        return max(0, min(max(LEAST, round(desired)), *bounds))

    def chosen(self, count: int, seed: int = 0) -> list[int]:
        """Which page each of ``count`` requests asks for: in proportion to the load, evenly mixed."""
        total = sum(page.share for page in self.pages)
        # Low discrepancy: each request goes to where a step of the golden section leads.
        places = [((seed + turn) * 0.6180339887498949) % 1.0 * total for turn in range(count)]
        return [self._at(place) for place in places]

    def _at(self, place: float) -> int:
        for index, page in enumerate(self.pages):
            place -= page.share
            if place < 0:
                return index
        return len(self.pages) - 1

    def look(self, pages: Sequence[int], answers: Sequence[Answer | None]) -> Look:
        """Validator answers. Those with a wrong status, or none, are the generator's to count."""
        wrong: list[tuple[str, Answer]] = []
        right: list[Answer] = []
        for index, answer in zip(pages, answers, strict=True):
            page = self.pages[index]
            if answer is None or not is_counted_right(answer.status, page.statuses):
                continue
            if why := page.wrong(answer):
                wrong.append((f"{page.name}: {why}", answer))
            else:
                right.append(answer)
        sizes = [answer.size for answer in right]
        return Look(
            len(right) + len(wrong),
            len(wrong),
            wrong[0][0] if wrong else "",
            (min(sizes), max(sizes)) if sizes else None,
            len(sizes),
            sum(answer.size for _, answer in wrong) / len(wrong) if wrong else None,
        )

    def size_range(self, look: Look) -> tuple[int, int] | None:
        """The smallest and the largest right body, if right ones hardly differ in size and enough were
        seen; else ``None``."""
        references = [page.reference for page in self.pages]
        ranges = [reference.sizes for reference in references if reference]
        if len(ranges) < len(references) or not ranges or look.sizes is None:
            return None
        low, high = (*ranges, look.sizes)[0]
        for other in (*ranges, look.sizes):
            low, high = min(low, other[0]), max(high, other[1])
        samples = look.right_of_size + sum(r.samples for r in references if r)
        return (low, high) if high <= STABLE * low and samples >= LEAST_RIGHT else None

    def reclassify(self, result: LoadResult, look: Look, earlier: Look) -> LoadResult:
        """``result`` with the wrong answers that a look found, and those that sizes show.

        ``earlier``: what was looked at before at lower rates, which counts if the look is too small.
        """
        pooled = look if look.looked_at >= ENOUGH or self.kind == WRONG_BODY else look + earlier
        already = result.errors.get(self.kind, 0)
        wrong = ceil(pooled.share * (result.replies_ok + already) - 1e-9) - already
        example = look.example or (pooled.example if wrong > 0 else "")
        if sizes := self.size_range(look):
            by_size = wrong_by_size(result.sizes, sizes, look.wrong_size)
            if by_size > max(0, wrong):
                wrong = by_size
                example = (
                    example or f"the size of all answers together shows {by_size} of another size"
                )
        counted = result.reclassify(self.kind, wrong)
        return replace(counted, looked_at=look.looked_at, wrong=look.wrong, example=example)


def is_counted_right(status: int, statuses: frozenset[int]) -> bool:
    """True if a generator that only sees classes of statuses takes this one for right."""
    return status // 100 in {right // 100 for right in statuses}


def wrong_by_size(
    sizes: Mapping[float, int], right: tuple[int, int], wrong_size: float | None
) -> int:
    """At least how many answers have another size than the ``right`` ones, whose sizes hardly differ.

    ``sizes`` maps mean sizes to how many answers each is of. A mean that is off by a fraction f shows
    that f of the answers are empty, or more of them not quite. ``wrong_size`` is the mean size of wrong
    answers, if any were seen. Sizes drift: less than ``OFF`` is nothing.
    """
    wrong = 0.0
    low, high = right
    for mean, count in sizes.items():
        off = max(low - mean, mean - high)
        if off <= OFF * low:
            continue
        empty = low if mean < low else high
        has_mean = wrong_size is not None and (wrong_size < low) == (mean < low)
        widest = abs((wrong_size or 0.0) - (low if mean < low else high)) if has_mean else empty
        wrong += count * min(1.0, off / max(1.0, widest))
    return ceil(wrong)


def pages_of(steps: Iterable[tuple[Step, float]], expect: Expect | None) -> tuple[Page, ...]:
    """The most frequent requests of a load, each once; ``expect`` holds for those without their own."""
    shares: dict[tuple[str, str, str | None], float] = {}
    first: dict[tuple[str, str, str | None], Step] = {}
    for step, share in steps:
        key = (step.method, step.path, step.body)
        shares[key] = shares.get(key, 0.0) + share
        first.setdefault(key, step)
    total = sum(shares.values()) or 1.0
    kept = sorted(shares, key=lambda key: -shares[key])
    equal = len(set(shares.values())) <= 1
    kept = kept[:: max(1, -(-len(kept) // MOST_PAGES))] if equal else kept[:MOST_PAGES]
    return tuple(Page(first[k], shares[k] / total, first[k].expect or expect) for k in kept)


@dataclass
class Looks:
    """What was looked at in the readings of a trial so far, with the rate of each (requests/s)."""

    looks: list[tuple[float, Look]] = field(default_factory=list)

    def at_most(self, rate: float, enough: int = ENOUGH) -> Look:
        """The latest looks at this rate or a lower one, as many as are needed for ``enough`` answers."""
        pooled = Look()
        for other, look in reversed(self.looks):
            if other <= rate * (1 + 1e-9) and pooled.looked_at < enough:
                pooled += look
        return pooled

    def add(self, rate: float, look: Look) -> None:
        self.looks.append((rate, look))

    def keep_last(self, count: int) -> None:
        """Forget all but the last ones: what the stack answered while it was warming up."""
        del self.looks[: max(0, len(self.looks) - count)]
