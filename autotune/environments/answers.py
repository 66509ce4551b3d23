"""Reference answers, taken before the first trial, and the looks at answers of a trial."""

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

SAMPLES = 200  # of all pages together
LEAST, MOST = 5, 20  # of one page
PER_SECOND = 20.0
ANSWER_TIMEOUT = 10.0  # seconds for an answer of a stack that nothing has warmed
HINT = "repair the site, or write what a right answer has: `load: {expect: {status: …, body: …}}`"
UNKNOWN = (
    "answers are not compared with reference answers: autotune does not know what the load requests;"
    " checks of the script or generator decide"
)


@dataclass
class AnswerCheck:
    """What is known of right answers, and what was looked at in the current trial.

    ``errors`` is the fraction of the requests that may fail, ``max_rate`` the most that may be offered
    (requests/s). ``host`` sends the requests for reference answers, before anything is deployed if the
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
        """If the one right body is known, there is nothing to learn."""
        if request.expect is not None:
            return cls(request, Validator.exactly(request), host, errors, max_rate, is_learned=True)
        validator = Validator(pages_of(load.steps_of(request), expect))
        return cls(request, validator, host, errors, max_rate, untouched=untouched)

    @property
    def statuses(self) -> frozenset[int]:
        """Statuses that are right for some page: all that a generator can tell."""
        of_pages = (page.statuses for page in self.validator.pages)
        return frozenset().union(*of_pages) or self.request.statuses

    def begin(self, *, deployed: bool) -> tuple[dict[str, Any], ...]:
        """Look at answers from the start again, and take reference answers if it is time.

        Returns the references that are not on record yet. Raises AutotuneError as ``learn`` does.
        """
        if deployed or self.untouched:
            self.learn()
        self.looks = Looks()
        records, self.records = self.records, ()
        return records

    def learn(self) -> None:
        """Take the reference answers of each page, unless they are known.

        Raises AutotuneError if too many answers are not right, with the reason and what to do.
        """
        if self.is_learned:
            return
        samples = self._samples()
        problems = [(page, why) for page, answers in zip(self.validator.pages, samples, strict=True)
                    if (why := problem(page, answers))]  # fmt: skip
        if sum(page.share for page, _ in problems) > self.errors:
            page, why = max(problems, key=lambda problem: problem[0].share)
            raise AutotuneError(
                f"the answer to {page.name} before the first trial is not right: {why}", hint=HINT
            )
        wrong = {page.name for page, _ in problems}
        # A page that is wrong from the start stays wrong: the few that ask for it count as errors.
        self.validator = Validator(tuple(
            replace(page, reference=Reference.of([a for a in answers if a]))
            for page, answers in zip(self.validator.pages, samples, strict=True)
            if page.name not in wrong
        ))  # fmt: skip
        self.records = tuple(map(record_of, self.validator.pages))
        self.is_learned = True

    def _samples(self) -> list[list[Answer | None]]:
        """Several answers to each page."""
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
        """Remember what was looked at in a reading."""
        if result.looked_at:
            example = result.example if result.wrong else ""
            self.looks.add(rate, Look(result.looked_at, result.wrong, example))


def problem(page: Page, answers: Sequence[Answer | None]) -> str | None:
    """Why answers cannot serve as a reference; ``None`` if they can."""
    return next(_problems(page, answers), None)


def _problems(page: Page, answers: Sequence[Answer | None]) -> Iterator[str]:
    came = [answer for answer in answers if answer is not None]
    if not came:
        yield f"none of {len(answers)} requests was answered"
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
    """A reference answer as it is put on record."""
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
