"""Check that a site responds correctly after its hosts were restored."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.deploy.boot_times import MIN_LATE_SECONDS
from autotune.deploy.readiness import Answer, RightAnswer, wait_until_ready
from autotune.deploy.stack import build_entry_stack
from autotune.diagnose.faulty_hosts import find_answer_error
from autotune.errors import AutotuneError
from autotune.loads.target_request import build_request
from autotune.target.read_target import TargetFile
from autotune.transports import curl, wait_notices
from autotune.transports.base import Transport
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request


def await_correct_entries(target_file: TargetFile, transports: Mapping[str, Transport]) -> str:
    """Wait until every entry responds correctly. Return a line with the result.

    The first load host sends the requests, at most one per second and within the target's `max_rate`.
    """
    target = target_file.target
    try:
        request = build_request(target_file, build_entry_stack(target))
    except AutotuneError as error:
        return f"no request was sent to the entry: {error.message}"
    if not request.is_safe:
        return f"no request was sent to the entry: {request.method} may change data"
    host = transports[target.load.hosts[0]] if target.load.hosts else LocalTransport()
    timeout_seconds = target.ready or MIN_LATE_SECONDS
    right_answer = RightAnswer(statuses=request.statuses)
    pause_seconds = max(1.0, len(request.per_endpoint()) / target.load.max_rate)
    try:
        with wait_notices.wait("the stack", "a correct response", timeout_seconds):
            problem = wait_until_ready(
                lambda: _request_entries(host, request),
                right_answer,
                timeout_seconds,
                pause_seconds,
            )
    except AutotuneError as error:
        problem = error.message
    answer_text = (
        "responds correctly" if problem is None else f"does not respond correctly: {problem}"
    )
    return f"{request.url} {answer_text}"


def _request_entries(host: Transport, request: Request) -> Answer:
    """Return the first wrong response among the entries, or else the last response."""
    answer: Answer = "no entry"
    for entry_request in request.per_endpoint():
        curl_answer = curl.send_request(host, entry_request)
        if isinstance(curl_answer, str):
            return curl_answer
        answer = curl_answer.status, curl_answer.body
        if answer_error := find_answer_error(curl_answer, entry_request):
            return answer if curl_answer.status not in entry_request.statuses else answer_error
    return answer
