"""What a look at some answers says about all of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from autotune.loads.answer_kind import ReferenceAnswer
from autotune.loads.answer_validation import (
    ENOUGH_ANSWERS,
    MAX_PAGES,
    WRONG_ANSWER,
    AnswerInspection,
    AnswerValidator,
    InspectionLog,
    LoadPage,
    build_pages,
    count_wrong_sizes,
)
from autotune.loads.base import LoadResult, LoadSpec
from autotune.services.base import Endpoint
from autotune.target.expected_answer import Expect
from autotune.target.requests_file import SessionStep
from autotune.target.slo import Slo
from autotune.transports.request import Request
from tests.loads.pages import ERROR_PAGES, SITES, answer

SLO = Slo(errors=0.001)
SIX = ("php-fatal.html", "wordpress-database.html", "django-500.html", "rails.html", "mediawiki.html",
       "drupal.html")  # fmt: skip
TRIALS, READINGS = 4, 8  # of each case
RATE, SECONDS = 600.0, 2.0
SHARED = 60  # different pages of each site, shared by all readings


def validator_of(site: str) -> AnswerValidator:
    chance = random.Random(7)
    known = ReferenceAnswer.from_samples([SITES[site](chance) for _ in range(20)])
    return AnswerValidator((LoadPage(SessionStep(path="/"), reference=known),))


@pytest.mark.parametrize("share", [0.05, 0.25, 1.0])
@pytest.mark.parametrize("site", ["shop", "news"])
def test_no_trial_meets_the_slo_with_error_pages(site: str, share: float) -> None:
    """A trial is met if any reading after the warm-up is. Readings that miss are rare, and counted."""
    validator, chance = validator_of(site), random.Random(f"{site}{share}")
    right = [SITES[site](chance) for _ in range(SHARED)]
    spec = LoadSpec(RATE, SECONDS)
    count = validator.count_probes(spec)
    met = readings = 0
    for name in SIX:
        page = answer(ERROR_PAGES[name])
        for _ in range(TRIALS):
            looks = InspectionLog()
            for turn in range(2 + READINGS):
                got = [
                    page if chance.random() < share else chance.choice(right) for _ in range(count)
                ]
                look = validator.inspect_answers([0] * count, got)
                result = LoadResult(1000, 1000, {}, {0.01: 1000})
                wrong = validator.find_wrong_answers(result, look, looks.pool_latest(RATE))
                validated = result.reclassify(wrong)
                looks.add_inspection(RATE, look)
                if turn >= 2:
                    readings += 1
                    met += SLO.is_met(_outcome(validated))
                assert validated.right_answers + validated.error_count == 1000
    print(f"{site} {share:.0%}: {met} of {readings} readings met the SLO, {count} answers each")
    assert met == 0  # repeatable; 0.95 ** 200 is 0.0035 %


def _outcome(result: LoadResult) -> object:
    from autotune.environments.load_meter import build_reading

    return build_reading(result, LoadSpec(RATE, SECONDS))


@pytest.mark.parametrize(
    ("rate", "seconds", "count"),
    [(1000.0, 2.0, 200), (300.0, 2.0, 120), (100.0, 4.0, 80), (2000.0, 10.0, 200), (1000.0, 1.0, 100),
     (5.0, 2.0, 2), (1.0, 2.0, 1), (1.0, 1.0, 0)],
)  # fmt: skip
def test_how_many_answers_are_looked_at(rate: float, seconds: float, count: int) -> None:
    assert (
        AnswerValidator((LoadPage(SessionStep(path="/")),)).count_probes(LoadSpec(rate, seconds))
        == count
    )


def test_with_the_right_body_known_the_look_is_a_trace_of_the_load() -> None:
    validator = AnswerValidator.for_exact_body(Request(Endpoint("h", 80), "/", b"right\n"))
    assert [validator.count_probes(LoadSpec(rate, 3.0)) for rate in (1000.0, 100.0, 5.0)] == [
        18,
        3,
        2,
    ]
    look = validator.inspect_answers([0, 0], [answer("right\n"), answer("wrong\n")])
    assert (look.inspected, look.wrong_count, look.example) == (2, 1, "/: another body")


def test_large_pages_are_looked_at_less_often() -> None:
    known = ReferenceAnswer(5, frozenset({200}), frozenset(), (1 << 22, 1 << 22))
    page = LoadPage(SessionStep(path="/"), expect=Expect(body=("x",)), reference=known)
    assert AnswerValidator((page,)).count_probes(LoadSpec(1000.0, 2.0)) == 16


def test_a_small_look_is_filled_up_from_readings_at_lower_rates() -> None:
    looks = InspectionLog()
    looks.add_inspection(100.0, AnswerInspection(50, 0))
    looks.add_inspection(400.0, AnswerInspection(50, 25, "at 400"))
    looks.add_inspection(200.0, AnswerInspection(50, 1, "at 200"))
    assert looks.pool_latest(200.0) == AnswerInspection(100, 1, "at 200")
    assert looks.pool_latest(50.0) == AnswerInspection()
    validator = validator_of("shop")
    result = LoadResult(1000, 1000, {}, {0.01: 1000})
    small = result.reclassify(
        validator.find_wrong_answers(result, AnswerInspection(50, 0), looks.pool_latest(200.0))
    )
    assert small.errors == {}  # a single odd response, which its own reading counted
    looks.add_inspection(100.0, AnswerInspection(50, 2, "at 100"))
    small = result.reclassify(
        validator.find_wrong_answers(result, AnswerInspection(50, 0), looks.pool_latest(200.0))
    )
    assert small.errors == {WRONG_ANSWER: 15}  # 3 of 200
    assert small.example == "at 100"
    wrong = validator.find_wrong_answers(
        result, AnswerInspection(50, 1, "own"), looks.pool_latest(200.0)
    )
    assert (wrong.count, wrong.example) == (20, "own")  # 1 of 50
    enough = AnswerInspection(ENOUGH_ANSWERS, 0)
    own = result.reclassify(validator.find_wrong_answers(result, enough, looks.pool_latest(200.0)))
    assert own.errors == {}
    looks.keep_last_inspections(1)
    assert looks.pool_latest(1000.0) == AnswerInspection(50, 2, "at 100")


def find_met_readings(wrong: Sequence[int], count: int) -> list[bool]:
    """Return which readings in a row met the SLO, if their samples of ``count`` responses contained so
    many wrong ones.
    """
    validator, looks, met = validator_of("shop"), InspectionLog(), list[bool]()
    for wrong_count in wrong:
        look = AnswerInspection(count, wrong_count, "odd" if wrong_count else "")
        result = LoadResult(1000, 1000, {}, {0.01: 1000})
        wrong_answers = validator.find_wrong_answers(result, look, looks.pool_latest(RATE))
        met.append(SLO.is_met(_outcome(result.reclassify(wrong_answers))))
        looks.add_inspection(RATE, look)
    return met


@pytest.mark.parametrize("count", [2, 60, 120])
def test_one_odd_response_fails_one_reading(count: int) -> None:
    assert find_met_readings([0, 0, 1, 0, 0, 0, 0], count) == [True, True, False, *[True] * 4]


@pytest.mark.parametrize("count", [60, 120, 190])
def test_one_per_cent_of_wrong_pages_is_found_at_low_rates(count: int) -> None:
    """Most of the first readings fail, too, and almost all of the later ones."""
    chance = random.Random(count)
    met = [
        find_met_readings(
            [sum(chance.random() < 0.01 for _ in range(count)) for _ in range(24)], count
        )
        for _ in range(100)
    ]
    print([sum(column) for column in zip(*met, strict=True)])
    assert sum(sum(row[2:12]) for row in met) < 0.2 * 1000
    assert sum(sum(row[12:]) for row in met) < 0.05 * 1200


SIZES = [
    # mean sizes of how many answers; right ones from, to; mean of wrong ones → wrong
    ({9138.0: 1000}, (9138, 9138), None, 0),
    ({9100.0: 1000}, (9138, 9138), None, 0),  # a counter in the page lost some digits
    ({8700.0: 1000}, (9138, 9138), None, 48),
    ({8700.0: 1000}, (9138, 9138), 414.0, 51),
    ({9600.0: 1000}, (9138, 9138), None, 51),
    ({9138.0: 900, 414.0: 100}, (9138, 9138), None, 96),
    ({}, (9138, 9138), 414.0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "right", "known", "wrong"), SIZES)
def test_the_sizes_of_all_answers_show_wrong_ones(
    sizes: dict[float, int], right: tuple[int, int], known: float | None, wrong: int
) -> None:
    assert count_wrong_sizes(sizes, right, known) == wrong


def test_five_per_cent_of_error_pages_show_in_the_mean_size_of_stable_pages() -> None:
    validator, page = validator_of("shop"), SITES["shop"](random.Random(1))
    look = validator.inspect_answers([0] * 40, [page] * 40)
    for name in SIX:
        mean = 0.95 * page.size + 0.05 * len(ERROR_PAGES[name])
        result = LoadResult(1000, 1000, {}, {0.01: 1000}, sizes={round(mean, 1): 1000})
        validated = result.reclassify(
            validator.find_wrong_answers(result, look, AnswerInspection())
        )
        assert not SLO.is_met(_outcome(validated)), name
        assert validated.example
    # News vary by ±30 %: their mean size says nothing.
    assert validator_of("news").find_right_size_range(look) is None


def test_pages_are_chosen_in_proportion_to_the_load() -> None:
    validator = AnswerValidator(
        build_pages(
            [
                (SessionStep(path="/a"), 3.0),
                (SessionStep(path="/b"), 1.0),
                (SessionStep(path="/a"), 1.0),
            ],
            None,
        )
    )
    assert [(page.name, page.share) for page in validator.pages] == [("/a", 0.8), ("/b", 0.2)]
    counts = Counter(validator.choose_pages(1000, 11))
    assert counts[0] == pytest.approx(800, abs=5)


def test_of_many_pages_the_most_frequent_are_looked_at() -> None:
    weighted = build_pages([(SessionStep(path=f"/{n}"), n + 1.0) for n in range(500)], None)
    assert len(weighted) == MAX_PAGES
    assert weighted[0].name == "/499"
    equal = build_pages([(SessionStep(path=f"/{n}"), 1.0) for n in range(500)], None)
    assert [page.name for page in equal[:3]] == ["/0", "/10", "/20"]


EXPECTED = [
    ({"body": ["offers"]}, None),
    ({"body": ["offers", "gone"]}, "/: body lacks 'gone'"),
    ({"not_body": ["offers"]}, "/: body contains 'offers'"),
    ({"min_bytes": "20KB"}, "/: 8810 bytes, fewer than 20KB"),
    ({"status": [301, 302]}, None),  # the generator counts a 200 as 2xx
    ({"status": 201}, "/: status 200 instead of 201"),
    ({"header": {"Content-Type": "TEXT/HTML"}}, None),
    ({"header": {"X-Cache": "HIT"}}, "/: header X-Cache lacks 'HIT'"),
]


@pytest.mark.parametrize(("said", "wrong"), EXPECTED)
def test_what_is_expected_decides(said: dict[str, object], wrong: str | None) -> None:
    page = LoadPage(SessionStep(path="/"), expect=Expect.model_validate(said))
    look = AnswerValidator((page,)).inspect_answers([0], [SITES["shop"](random.Random(1))])
    assert (look.example or None) == wrong


# statuses that the first page may return; the response to it; the error that is counted
OF_ANOTHER_PAGE = [
    (None, 302, "/: status 302"),
    (None, 503, None),  # the generator counts a 503 as 5xx
    ([200], 302, "/: status 302 instead of 200"),
    ([200, 302], 302, None),
]


@pytest.mark.parametrize(("statuses", "status", "wrong"), OF_ANOTHER_PAGE)
def test_a_status_that_is_right_for_another_page_only(
    statuses: list[int] | None, status: int, wrong: str | None
) -> None:
    """A generator accepts the statuses of all pages, so only the sample shows wrong redirects."""
    expect = Expect.model_validate({"status": statuses}) if statuses else None
    validator = AnswerValidator(
        (
            LoadPage(SessionStep(path="/"), 0.5, expect),
            LoadPage(SessionStep(path="/moved"), 0.5, Expect(status=(301,))),
        )
    )
    got = [answer("", status=status), answer("", status=301)] * 10
    look = validator.inspect_answers([0, 1] * 10, got)
    assert (look.wrong_count, look.example or None) == (10 if wrong else 0, wrong)
    result = LoadResult(1000, 1000, {}, {0.01: 1000})
    counted = result.reclassify(validator.find_wrong_answers(result, look, AnswerInspection()))
    assert counted.errors == ({WRONG_ANSWER: 500} if wrong else {})


def test_text_that_is_expected_takes_the_place_of_the_reference() -> None:
    known = validator_of("shop").pages[0].reference
    page = LoadPage(SessionStep(path="/"), expect=Expect(body=("went wrong",)), reference=known)
    assert page.find_error(answer(ERROR_PAGES["rails.html"])) is None
