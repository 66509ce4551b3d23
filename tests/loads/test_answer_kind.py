"""Answers of sites that vary, and the error pages of applications in their place."""

from __future__ import annotations

import random

import pytest

from autotune.loads.answer_kind import ReferenceAnswer, find_difference, find_error, format_size
from autotune.loads.probes import ProbeAnswer
from tests.loads.pages import ERROR_PAGES, HTML, JSON, SITES, answer, shop

ANSWERS = 10_000  # of all sites together
REFERENCES = 5  # of each site
SLOW = {"large": 20}  # answers of a site whose pages take long to make


def reference(site: str, seed: int = 0) -> ReferenceAnswer:
    chance = random.Random(seed)
    return ReferenceAnswer.from_samples([SITES[site](chance) for _ in range(20 if seed % 2 else 5)])


def test_no_answer_of_a_site_that_varies_is_wrong() -> None:
    counts = {}
    for site, page in SITES.items():
        each = SLOW.get(site, ANSWERS // (len(SITES) - len(SLOW)) + 1)
        for seed in range(REFERENCES):
            known, chance = reference(site, seed), random.Random(1000 + seed)
            for _ in range(-(-each // REFERENCES)):
                got = page(chance)
                assert find_difference(known, got) is None, (site, find_difference(known, got))
                counts[site] = counts.get(site, 0) + 1
    assert sum(counts.values()) >= ANSWERS
    print(f"0 of {sum(counts.values())} right answers differ: {counts}")


@pytest.mark.parametrize("site", SITES)
def test_each_error_page_differs_from_each_site(site: str) -> None:
    known = [reference(site, seed) for seed in range(2)]
    for name, text in ERROR_PAGES.items():
        kind = JSON if name.endswith(".json") else HTML
        assert all(find_difference(each, answer(text, kind)) for each in known), name


@pytest.mark.parametrize("name", [name for name in ERROR_PAGES if name != "laravel.json"])
def test_an_error_page_is_known_by_what_it_says(name: str) -> None:
    assert find_error(answer(ERROR_PAGES[name]))


@pytest.mark.parametrize(
    "body",
    [
        "<h1>ProgramName 1.39 internal error</h1><p>It needs an extension.</p>",
        "<h1>TimeoutError at /</h1>" + 60 * "<p>Traceback (most recent call last)</p>\n"
        + "<footer>You're seeing this error because debugging is on.</footer>",
    ],
    ids=["heading", "explained at the end of a debugger's page"],
)  # fmt: skip
def test_an_error_page_is_known_by_its_heading_or_end(body: str) -> None:
    assert find_error(answer(f"<!DOCTYPE html><html><body>{body}</body></html>"))


@pytest.mark.parametrize("site", SITES)
def test_a_page_is_no_error_page(site: str) -> None:
    chance = random.Random(5)
    assert not any(find_error(SITES[site](chance)) for _ in range(20))


def test_what_differs_is_named() -> None:
    known = reference("shop")
    said = {
        "php-fatal.html": "no </html> at the end, 414 B instead of 8.8 KB, title 'Shop'",
        "wordpress-database.html": "680 B instead of 8.8 KB, title 'Database Error'",
    }
    for name, words in said.items():
        assert find_difference(known, answer(ERROR_PAGES[name])) == words
    assert find_difference(known, answer("", status=204)) == "status 204 instead of 200"
    other = find_difference(known, answer("{}", JSON))
    assert other is not None
    assert other.startswith("application/json instead of text/html")


def test_an_error_within_a_page_of_the_site_is_found() -> None:
    page = shop(random.Random(3)).text
    broken = page[: len(page) // 2] + "<br />\n<b>Fatal error</b>:  Allowed memory size exhausted"
    assert "no </html>" in (find_difference(reference("shop"), answer(broken)) or "")
    themed = page.replace("Shop – offers", "Oops").replace(
        "<main", "<p>Internal Server Error</p><main"
    )
    assert find_difference(reference("shop"), answer(themed))


def test_what_is_shown_is_bounded_and_holds_no_secret_or_control_character() -> None:
    title = "\x1b]52;c;eA==\x07 password=hunter2hunter2 \u202e" + "x" * 500
    words = find_difference(reference("shop"), answer(f"<title>{title}</title></html>"))
    assert words is not None
    assert words.isprintable()
    assert "hunter2" not in words
    assert len(words) < 200


def test_an_answer_is_compared_whatever_it_holds() -> None:
    known = reference("shop")
    for text in (
        "",
        "\x00",
        "<title",
        "{" * 100_000,
        "<script>" * 5000,
        "a: \n" * 20_000,
        "error: " * 20_000,
        f"{'error: ' * 15}{chr(10) * 25}" * 400,
        f"Fatal error: {'<script' * 140_000}",
        f"Fatal error: {'<' * 1_000_000}",
    ):
        assert find_difference(known, answer(text))
        find_error(answer(text))


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (1234, "1.2 KB"), (14_600, "15 KB")]
)
def test_sizes_in_words(size: int, words: str) -> None:
    assert format_size(size) == words


def test_without_samples_there_is_no_reference() -> None:
    with pytest.raises(ValueError, match="reference responses are missing"):
        ReferenceAnswer.from_samples([])


def test_a_page_without_stable_text_is_known_by_its_size() -> None:
    known = ReferenceAnswer.from_samples(
        [ProbeAnswer(200, 24, "ok: all 3 shards are up\n", {})] * 5
    )
    assert find_difference(known, ProbeAnswer(200, 24, "ok: all 3 shards are up\n", {})) is None
    assert (
        find_difference(known, ProbeAnswer(200, 0, "", {})) is not None or known.size_range[0] < 256
    )
