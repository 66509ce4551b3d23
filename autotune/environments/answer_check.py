"""Reference responses, taken before the first trial, and response checks during a trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.errors import AutotuneError
from autotune.loads import probes
from autotune.loads.answer_kind import ReferenceAnswer, find_error, sanitize_title
from autotune.loads.answer_validation import (
    AnswerInspection,
    AnswerValidator,
    InspectionLog,
    LoadPage,
    build_pages,
)
from autotune.loads.base import LoadGenerator, LoadResult
from autotune.loads.load_commands import LoadCommand, run_together
from autotune.loads.probes import ProbeAnswer
from autotune.masking import mask_secrets
from autotune.target.expected_answer import Expect
from autotune.transports.base import Transport
from autotune.transports.request import Request

MAX_TOTAL_SAMPLES = 200  # maximum number of reference responses for all pages together
MIN_PAGE_SAMPLES, MAX_PAGE_SAMPLES = 5, 20  # number of reference responses per page
MAX_SAMPLE_RATE = 20.0
ANSWER_TIMEOUT_SECONDS = 10.0  # time limit of a request; long, because a cold stack is slow
REPAIR_HINT = "fix the site, or describe a correct response: `load: {expect: {status: …, body: …}}`"
NOT_COMPARED_NOTE = (
    "autotune stores no reference responses, because it does not know which pages the load requests. "
    "Only the checks in the script or generator apply"
)


@dataclass
class AnswerCheck:
    """The description of correct responses, and the responses that were checked in the current
    trial.

    ``max_error_fraction`` is the accepted fraction of failed requests. ``max_rate`` limits the load
    in requests/s. ``host`` requests the reference responses. If ``hosts_serve_site``, the hosts
    serve the site before the study, so the reference responses are taken before any deployment.
    """

    request: Request
    validator: AnswerValidator
    host: Transport
    max_error_fraction: float
    max_rate: float
    inspections: InspectionLog = field(default_factory=InspectionLog)
    hosts_serve_site: bool = False
    is_learned: bool = False
    records: tuple[dict[str, Any], ...] = ()

    @classmethod
    def create(
        cls,
        load: LoadGenerator,
        request: Request,
        expect: Expect | None,
        host: Transport,
        *,
        errors: float,
        max_rate: float,
        hosts_serve_site: bool = False,
    ) -> AnswerCheck:
        """Return the response check for a load. A check with only one correct body needs no reference
        responses.
        """
        if request.expected_body is not None:
            return cls(
                request,
                AnswerValidator.for_exact_body(request),
                host,
                errors,
                max_rate,
                is_learned=True,
            )
        validator = AnswerValidator(build_pages(load.list_steps(request), expect))
        return cls(request, validator, host, errors, max_rate, hosts_serve_site=hosts_serve_site)

    @property
    def statuses(self) -> frozenset[int]:
        """Return the union of the correct statuses of all pages, because a generator does not
        distinguish pages.
        """
        page_statuses = (page.statuses for page in self.validator.pages)
        return frozenset().union(*page_statuses) or self.request.statuses

    def begin_measurement(self, *, is_deployed: bool) -> tuple[dict[str, Any], ...]:
        """Start new response checks, and take reference responses if they are due.

        Returns the reference responses that are not recorded yet. Raises the errors of
        ``learn_references``.
        """
        if is_deployed or self.hosts_serve_site:
            self.learn_references()
        self.inspections = InspectionLog()
        records, self.records = self.records, ()
        return records

    def learn_references(self) -> None:
        """Take the reference responses for each page, unless they are already known.

        Raises AutotuneError with a reason and a hint if too many responses are wrong.
        """
        if self.is_learned:
            return
        page_samples = self._request_samples()
        inspected_pages = [
            (page, answers, find_reference_problem(page, answers))
            for page, answers in zip(self.validator.pages, page_samples, strict=True)
        ]
        page_problems = [(page, reason) for page, _, reason in inspected_pages if reason]
        if sum(page.share for page, _ in page_problems) > self.max_error_fraction:
            page, reason = max(page_problems, key=lambda problem: problem[0].share)
            raise AutotuneError(
                f"{page.name} returned an incorrect response before the first trial: {reason}",
                hint=REPAIR_HINT,
            )
        # Wrong pages get no reference response. Wrong pages have a small share of the load, and the
        # load generator still checks their status.
        self.validator = AnswerValidator(
            tuple(
                replace(page, reference=ReferenceAnswer.from_samples([a for a in answers if a]))
                for page, answers, reason in inspected_pages
                if not reason
            )
        )
        self.records = (
            *map(build_record, self.validator.pages),
            *(build_problem_record(page, reason) for page, reason in page_problems),
        )
        self.is_learned = True

    def _request_samples(self) -> list[list[ProbeAnswer | None]]:
        """Request each page several times, and return the responses by page."""
        pages = self.validator.pages
        if not pages:
            return []
        samples_per_page = min(
            MAX_PAGE_SAMPLES, max(MIN_PAGE_SAMPLES, MAX_TOTAL_SAMPLES // len(pages))
        )
        entry_requests = self.request.per_endpoint()
        requests = [
            page.build_request(entry_requests[round_number % len(entry_requests)])
            for round_number in range(samples_per_page)
            for page in pages
        ]
        command = probes.build_command(
            requests,
            per_second=min(MAX_SAMPLE_RATE, self.max_rate),
            timeout=ANSWER_TIMEOUT_SECONDS,
            expected_seconds=0.1,
            whole_bodies=self.validator.reads_whole_bodies,
        )
        load_command = LoadCommand(
            self.host,
            command.argv,
            command.max_rate,
            0.0,
            command.span_seconds,
            command.stop_seconds,
            command.input,
        )
        (command_output,) = run_together([load_command], self.max_rate)
        answers = probes.parse_answers(command_output, requests)
        return [answers[page_index :: len(pages)] for page_index in range(len(pages))]

    def find_inspection(self, rate: float) -> AnswerInspection:
        return self.inspections.pool_latest(rate)

    def record_inspection(self, rate: float, load_result: LoadResult) -> None:
        """Record the number of responses that a reading checked, and the number of wrong responses."""
        if load_result.looked_at:
            example = load_result.example if load_result.wrong else ""
            self.inspections.add_inspection(
                rate, AnswerInspection(load_result.looked_at, load_result.wrong, example)
            )


def find_reference_problem(page: LoadPage, answers: Sequence[ProbeAnswer | None]) -> str | None:
    """Return the reason why responses cannot be used as a reference, or ``None``."""
    return next(_find_problems(page, answers), None)


def _find_problems(page: LoadPage, answers: Sequence[ProbeAnswer | None]) -> Iterator[str]:
    received_answers = [answer for answer in answers if answer is not None]
    if not received_answers:
        yield f"no response to {len(answers)} requests"
    for answer in received_answers:
        if page.expect and (
            reason := page.expect.describe_mismatch(
                answer.status, answer.headers, answer.text, answer.size
            )
        ):
            yield reason
        elif answer.status not in page.statuses:
            redirect_target = answer.headers.get("location", "")
            yield f"status {answer.status}" + (
                f", Location: {redirect_target[:200]}" if redirect_target else ""
            )
        elif not (page.expect and page.expect.body) and (error_words := find_error(answer)):
            yield f"status {answer.status}, but the page looks like an error page: {error_words!r}"


def build_problem_record(page: LoadPage, reason: str) -> dict[str, Any]:
    """Return a record of a page without a reference response, with the reason. Secrets are masked."""
    return {"page": mask_secrets(page.name), "share": page.share, "problem": mask_secrets(reason)}


def build_record(page: LoadPage) -> dict[str, Any]:
    """Return a page's reference response as a record for the study's journal. Secrets are masked."""
    reference = page.reference
    assert reference is not None
    return {
        "page": mask_secrets(page.name),
        "share": round(page.share, 4),
        "samples": reference.sample_count,
        "statuses": sorted(reference.statuses),
        "types": sorted(reference.media_types),
        "sizes": list(reference.size_range),
        "title": sanitize_title(reference),
        "markers": len(reference.markers),
        **({"expect": mask_secrets(str(page.expect))} if page.expect else {}),
    }
