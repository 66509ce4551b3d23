"""Reference responses, taken before the first trial, and response checks during a trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.errors import AutotuneError
from autotune.loads import probes
from autotune.loads.answer_kind import Reference, error_in, title_shown
from autotune.loads.answers import Look, Looks, Page, Validator, pages_of
from autotune.loads.base import Load, LoadResult
from autotune.loads.offer import LoadCommand, run_together
from autotune.loads.probes import Answer
from autotune.target.expect import Expect
from autotune.transports.base import Transport
from autotune.transports.request import Request

SAMPLES = 200  # for all pages together
LEAST, MOST = 5, 20  # per page
PER_SECOND = 20.0
ANSWER_TIMEOUT = 10.0  # seconds for a response of a cold stack
HINT = "repair the site, or describe a correct response: `load: {expect: {status: …, body: …}}`"
UNKNOWN = (
    "autotune takes no reference answers, because it does not know which pages the load requests. "
    "The checks of the script or generator decide"
)


@dataclass
class AnswerCheck:
    """Knowledge about correct responses, and the responses checked in the current trial.

    ``errors`` is the accepted fraction of failed requests. ``max_rate`` limits the load in
    requests/s. ``host`` requests the reference responses. This happens before any deployment if
    ``untouched`` hosts serve the site.
    """

    request: Request
    validator: Validator
    host: Transport
    errors: float
    max_rate: float
    looks: Looks = field(default_factory=Looks)
    untouched: bool = False
    is_learned: bool = False
    records: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(
        cls,
        load: Load,
        request: Request,
        expect: Expect | None,
        host: Transport,
        *,
        errors: float,
        max_rate: float,
        untouched: bool = False,
    ) -> AnswerCheck:
        """Return the check for a load. If the only correct body is known, it needs no references."""
        if request.expect is not None:
            return cls(request, Validator.exactly(request), host, errors, max_rate, is_learned=True)
        validator = Validator(pages_of(load.steps_of(request), expect))
        return cls(request, validator, host, errors, max_rate, untouched=untouched)

    @property
    def statuses(self) -> frozenset[int]:
        """Return the statuses that are correct for any page. A generator cannot distinguish pages."""
        of_pages = (page.statuses for page in self.validator.pages)
        return frozenset().union(*of_pages) or self.request.statuses

    def begin(self, *, deployed: bool) -> tuple[dict[str, Any], ...]:
        """Restart the response checks, and take reference responses if they are due.

        Returns references that are not recorded yet. Raises AutotuneError like ``learn``.
        """
        if deployed or self.untouched:
            self.learn()
        self.looks = Looks()
        records, self.records = self.records, ()
        return records

    def learn(self) -> None:
        """Take the reference responses of each page unless they are known.

        Raises AutotuneError with a reason and a hint if too many responses are wrong.
        """
        if self.is_learned:
            return
        samples = self._samples()
        problems = [(page, why) for page, answers in zip(self.validator.pages, samples, strict=True)
                    if (why := problem(page, answers))]  # fmt: skip
        if sum(page.share for page, _ in problems) > self.errors:
            page, why = max(problems, key=lambda problem: problem[0].share)
            raise AutotuneError(
                f"{page.name} returns a wrong answer before the first trial: {why}", hint=HINT
            )
        wrong = {page.name for page, _ in problems}
        # A page that fails from the start keeps failing, so its few requests count as errors.
        self.validator = Validator(tuple(
            replace(page, reference=Reference.of([a for a in answers if a]))
            for page, answers in zip(self.validator.pages, samples, strict=True)
            if page.name not in wrong
        ))  # fmt: skip
        self.records = tuple(map(record_of, self.validator.pages))
        self.is_learned = True

    def _samples(self) -> list[list[Answer | None]]:
        """Request each page several times and return the responses by page."""
        pages = self.validator.pages
        if not pages:
            return []
        each = min(MOST, max(LEAST, SAMPLES // len(pages)))
        entries = self.request.each()
        asked = [
            page.request(entries[turn % len(entries)]) for turn in range(each) for page in pages
        ]
        command = probes.command(
            asked,
            per_second=min(PER_SECOND, self.max_rate),
            timeout=ANSWER_TIMEOUT,
            usual=0.1,
            whole_bodies=self.validator.reads_whole_bodies,
        )
        load = LoadCommand(
            self.host, command.argv, command.rate, 0.0, command.span, command.bound, command.input
        )
        (done,) = run_together([load], self.max_rate)
        answers = probes.answers_of(done, asked)
        return [answers[place :: len(pages)] for place in range(len(pages))]

    def earlier(self, rate: float) -> Look:
        return self.looks.at_most(rate)

    def looked(self, rate: float, result: LoadResult) -> None:
        """Record which responses a reading checked."""
        if result.looked_at:
            example = result.example if result.wrong else ""
            self.looks.add(rate, Look(result.looked_at, result.wrong, example))


def problem(page: Page, answers: Sequence[Answer | None]) -> str | None:
    """Return the reason why responses cannot serve as a reference, or ``None`` if they can."""
    return next(_problems(page, answers), None)


def _problems(page: Page, answers: Sequence[Answer | None]) -> Iterator[str]:
    came = [answer for answer in answers if answer is not None]
    if not came:
        yield f"no response to {len(answers)} requests"
    for answer in came:
        if page.expect and (
            why := page.expect.unmet(answer.status, answer.headers, answer.text, answer.size)
        ):
            yield why
        elif answer.status not in page.statuses:
            onward = answer.headers.get("location", "")
            yield f"status {answer.status}" + (f", Location: {onward[:200]}" if onward else "")
        elif not (page.expect and page.expect.body) and (words := error_in(answer)):
            yield f"status {answer.status}, but it looks like an error page: {words!r}"


def record_of(page: Page) -> dict[str, Any]:
    """Return a page's reference response as a record."""
    reference = page.reference
    assert reference is not None
    return {
        "page": page.name,
        "share": round(page.share, 4),
        "samples": reference.samples,
        "statuses": sorted(reference.statuses),
        "types": sorted(reference.types),
        "sizes": list(reference.sizes),
        "title": title_shown(reference),
        "markers": len(reference.markers),
        **({"expect": str(page.expect)} if page.expect else {}),
    }
