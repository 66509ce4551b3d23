"""Reference responses: when they are taken, and which sites are refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from autotune.environments.answer_check import (
    AnswerCheck,
    build_problem_record,
    find_reference_problem,
)
from autotune.errors import AutotuneError
from autotune.loads.answer_validation import (
    AnswerInspection,
    AnswerValidator,
    LoadPage,
    build_pages,
)
from autotune.loads.base import LoadResult
from autotune.loads.httperf import HttperfGenerator
from autotune.loads.probes import ProbeAnswer
from autotune.services.base import Endpoint
from autotune.target.expected_answer import Expect
from autotune.target.requests_file import SessionStep
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.loads.pages import ERROR_PAGES, answer, shop

REQUEST = Request(Endpoint("198.18.0.2", 80), "/")
Site = Callable[[str], ProbeAnswer | None]


def check_of(
    monkeypatch: pytest.MonkeyPatch,
    site: Site,
    paths: Sequence[str] = ("/",),
    expect: Expect | None = None,
) -> AnswerCheck:
    """A check of a site whose answers a function gives."""
    load = HttperfGenerator(uris=tuple(paths))
    check = AnswerCheck.create(
        load, REQUEST, expect, LocalTransport(), errors=0.001, max_rate=100.0
    )
    monkeypatch.setattr(
        "autotune.environments.answer_check.run_together", lambda commands, _: [commands]
    )
    monkeypatch.setattr(
        "autotune.environments.answer_check.probes.parse_answers",
        lambda _, requests: [site(request.path) for request in requests],
    )
    return check


CHANCE = random.Random(1)


def good(path: str) -> ProbeAnswer:
    return shop(CHANCE)


def test_references_are_taken_once_and_put_on_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of(monkeypatch, good)
    assert check.begin_measurement(is_deployed=False) == ()
    (record,) = check.begin_measurement(is_deployed=True)
    assert record["page"] == "/"
    assert record["samples"] == 20
    assert record["title"] == "Shop – offers"
    assert check.begin_measurement(is_deployed=True) == ()


def test_no_secret_of_a_request_is_put_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    path, masked = "/kv?api_key=hunter2", "/kv?api_key=autotune-masked-1-of-1"
    (record,) = check_of(monkeypatch, good, [path]).begin_measurement(is_deployed=True)
    page = LoadPage(SessionStep(path=path))
    assert record["page"] == build_problem_record(page, "status 500")["page"] == masked


def test_untouched_hosts_are_asked_before_anything_is_deployed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = check_of(monkeypatch, good)
    check.hosts_serve_site = True
    assert len(check.begin_measurement(is_deployed=False)) == 1


@pytest.mark.parametrize("name", [name for name in ERROR_PAGES if name != "laravel.json"])
def test_a_site_of_error_pages_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    check = check_of(monkeypatch, lambda _: answer(ERROR_PAGES[name]))
    with pytest.raises(
        AutotuneError, match=r"returned an incorrect response before the first trial.*error page"
    ) as refused:
        check.learn_references()
    assert "expect" in (refused.value.hint or "")


REFUSED = [
    (None, "no response to 20 requests"),
    (answer("gone", status=404), "status 404"),
    (ProbeAnswer(302, 0, "", {"location": "/login"}), "status 302, Location: /login"),
]


@pytest.mark.parametrize(("got", "why"), REFUSED)
def test_a_site_that_does_not_answer_right_is_refused(
    monkeypatch: pytest.MonkeyPatch, got: ProbeAnswer | None, why: str
) -> None:
    with pytest.raises(AutotuneError, match=why):
        check_of(monkeypatch, lambda _: got).learn_references()


def test_a_rare_page_that_is_wrong_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ["/"] * 1999 + ["/gone"]
    check = check_of(
        monkeypatch, lambda path: answer("", status=404) if path == "/gone" else good(path), paths
    )
    check.learn_references()
    assert [page.name for page in check.validator.pages] == ["/"]
    *_, left_out = check.begin_measurement(is_deployed=True)
    assert left_out == {"page": "/gone", "share": 1 / 2000, "problem": "status 404"}


def test_requests_that_differ_only_in_their_body_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies = ["{shop}"] * 1999 + ["{gone}"]
    steps = [(SessionStep(path="/graphql", method="POST", body=body), 1.0) for body in bodies]
    check = check_of(monkeypatch, good)
    check.validator = AnswerValidator(build_pages(steps, None))
    monkeypatch.setattr(
        "autotune.environments.answer_check.probes.parse_answers",
        lambda _, requests: [
            answer("", status=404) if request.body == "{gone}" else good(request.path)
            for request in requests
        ],
    )
    check.learn_references()
    assert [page.step.body for page in check.validator.pages] == ["{shop}"]


def test_text_that_is_expected_decides() -> None:
    page = LoadPage(SessionStep(path="/"), expect=Expect(body=("something went wrong",)))
    assert find_reference_problem(page, [answer(ERROR_PAGES["rails.html"])]) is None
    assert (
        find_reference_problem(page, [answer("<p>Shop</p>")]) == "body lacks 'something went wrong'"
    )


def test_statuses_of_all_pages_are_right_for_a_generator() -> None:
    steps = [
        (SessionStep(path="/", expect=Expect(status=(404,))), 1.0),
        (SessionStep(path="/b"), 1.0),
    ]
    statuses = {status for page in build_pages(steps, None) for status in page.statuses}
    assert {200, 299, 404} <= statuses
    assert 302 not in statuses


def test_looks_of_a_trial_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of(monkeypatch, good)
    check.learn_references()
    check.record_inspection(100.0, LoadResult(10, looked_at=50, wrong=2, example="/: no"))
    check.record_inspection(90.0, LoadResult(10))
    assert check.find_inspection(100.0) == AnswerInspection(50, 2, "/: no")
    check.begin_measurement(is_deployed=True)
    assert check.find_inspection(100.0) == AnswerInspection()
