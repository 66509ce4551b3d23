"""The page in a real browser: every plot drawn, nothing to complain of, nothing fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from autotune.measure.reading import TODAY_PURPOSE, Reading
from autotune.report.latency import estimate_latency_at
from autotune.report.page import write_page
from autotune.report.studies import Study, open_study
from autotune.report.view import build_study_view
from autotune.study.directory import StudyLock
from autotune.study.reading_records import record_reading
from autotune.study.record_codec import encode
from autotune.study.study_state import Phase
from tests.report.browser import Browser, Drawn
from tests.report.recorded_lab import grown, lab_study, shop_study

pytestmark = pytest.mark.browser
STUDIES = Path(__file__).with_name("studies")
SECTIONS = {
    "latency", "progress", "readings", "importance", "slices", "hosts",
}  # fmt: skip
MANY = 500  # trials
MOST_BYTES, MOST_BYTES_OF_MANY = 2_000_000, 3_000_000  # 1.84 MB of it are Plotly


def sections(document: str) -> dict[str, bool]:
    """Which charts there are, and whether each is shown; one that is shown is drawn."""
    found = re.findall(
        r'<section class="chart" id="(\w+)"( hidden="")?>(.*?)</section>', document, re.S
    )
    for section, hidden, content in found:
        assert hidden or "main-svg" in content, section
    return {section: not hidden for section, hidden, _ in found}


@pytest.mark.parametrize("name", [*sorted(path.name for path in STUDIES.iterdir()), "shop"])
def test_every_plot_is_drawn(name: str, browser: Browser, tmp_path: Path) -> None:
    study = open_study(shop_study(tmp_path) if name == "shop" else STUDIES / name)
    page = write_page(study, tmp_path / "report.html")
    document, console = browser.drawn(page, "all&rate=800")
    assert console == []
    assert 'data-drawn="yes"' in document
    found = sections(document)
    assert set(found) == SECTIONS
    shown = {section for section in found if found[section]}
    assert "readings" in shown
    measured = any(trial.peak and trial.peak.is_feasible for trial in study.state.trials)
    assert ("progress" in shown) is measured  # no chart of failures alone
    assert_answered(document, study, 800)
    assert not re.search(r"\d\.\d{4,}</td>", document)  # more digits than anybody reads
    if name == "improved":
        assert shown >= {"latency", "slices"}
        assert document.count('<tr class="trial') == len(study.state.trials)


@pytest.mark.parametrize(("act", "renewed"), [("", True), ('by("renewal").click();', False)])
def test_a_page_under_way_renews_itself_until_that_is_paused(
    act: str, renewed: bool, copied: Callable[[str], Path], browser: Browser, tmp_path: Path
) -> None:
    directory = copied("killed")
    with StudyLock(directory / "lock"):
        page = write_page(open_study(directory), tmp_path / "report.html")
    text = page.read_text().replace("</body>", f"<script>{act}</script></body>")
    # Loaded again, the page would begin anew, with its clock at zero.
    assert text.count("location.reload()") == 1
    text = text.replace("location.reload()", 'document.title = "renewed"')
    page.write_text(text.replace('data-seconds="20"', 'data-seconds="2"'))
    document, _ = browser.drawn(page)
    assert ("<title>renewed</title>" in document) is renewed
    assert ("resume reloading</button>" in document) is not renewed


def test_a_trial_that_met_the_slo_at_no_rate_stops_no_chart(
    copied: Callable[[str], Path], browser: Browser, tmp_path: Path
) -> None:
    directory = copied("improved")
    journal = directory / "events.jsonl"
    text = journal.read_text()
    pattern = r'(?m)^(\{"event":"measured","trial":3,.*"verdict":)"screened"'
    journal.write_text(re.sub(pattern, r'\1"unmet"', text))
    study = open_study(directory)
    peak = study.state.find_trial(3).peak
    assert peak is not None
    assert peak.is_unmet
    document, console = browser.drawn(write_page(study, tmp_path / "report.html"))
    assert console == []
    assert 'data-drawn="yes"' in document
    assert sections(document)["slices"]


def test_names_in_charts_are_text_and_no_markup(browser: Browser, tmp_path: Path) -> None:
    directory, name = lab_study(tmp_path), "<a href='https://evil.example'>here</a><b>x"
    readings = directory / "readings.jsonl"
    host = next(iter(json.loads(readings.read_text().split("\n")[-2])["hosts"]))
    readings.write_text(readings.read_text().replace(f'"{host}":', f"{json.dumps(name)}:"))
    document, console = browser.drawn(write_page(open_study(directory), tmp_path / "report.html"))
    assert console == []
    assert sections(document)["hosts"]
    assert "&lt;a href='https://evil.example'&gt;here&lt;/a&gt;" in document
    assert 'href="https://evil.example' not in document


class OfLab(NamedTuple):
    """The study of the lab, its page, and that with all of its charts drawn."""

    study: Study
    page: Path
    drawn: Drawn


@pytest.fixture(scope="module")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> OfLab:
    directory = tmp_path_factory.mktemp("lab")
    study = open_study(lab_study(directory))
    page = write_page(study, directory / "report.html")
    return OfLab(study, page, browser.drawn(page))


# A printer does not wait: all of it is there when the browser has said that it is about to print.
PRINT = """<script>const asked = setInterval(() => {
  if (!document.documentElement.dataset.drawn) return;
  clearInterval(asked);
  dispatchEvent(new Event("beforeprint"));
  const plots = [...document.querySelectorAll(".chart:not([hidden]) .plot")];
  const empty = plots.filter((plot) => !plot.querySelector(".main-svg")).length;
  const folded = document.querySelectorAll("details:not([open])").length;
  document.title = `${plots.length} charts, ${empty} empty, ${folded} folded`;
}, 20)</script>"""


def test_all_of_it_is_printed(lab: OfLab, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(lab.page.read_text().replace("</body>", f"{PRINT}</body>"))
    document, _ = browser.drawn(page, "")
    assert f"<title>{len(SECTIONS)} charts, 0 empty, 0 folded</title>" in document


def test_a_study_of_the_lab_has_every_chart(lab: OfLab) -> None:
    assert_whole(lab, 1, MOST_BYTES)


def test_a_study_of_many_trials_has_every_chart(browser: Browser, tmp_path: Path) -> None:
    study = open_study(grown(lab_study(tmp_path), tmp_path / "grown", MANY))
    page = write_page(study, tmp_path / "report.html")
    assert_whole(OfLab(study, page, browser.drawn(page)), MANY, MOST_BYTES_OF_MANY)


def assert_whole(lab: OfLab, trials: int, most_bytes: int) -> None:
    assert lab.page.stat().st_size <= most_bytes
    document, console = lab.drawn
    assert console == []
    assert 'data-drawn="yes"' in document
    assert sections(document) == dict.fromkeys(SECTIONS, True)
    assert document.count('<tr class="trial') == len(lab.study.state.trials) >= trials
    assert "+148 % [104, 201]" in document


def chart(document: str, section: str) -> str:
    """What is drawn in a section."""
    rest = document[document.index(f'id="{section}"') :]
    return rest[: rest.index("</section>")]


def labels(document: str, section: str, axis: str) -> list[float]:
    """The numbers at the ticks of an axis."""
    ticks = re.findall(rf'class="{axis}tick"><text.*?>([^<]*)</text>', chart(document, section))
    return [float(tick.replace(",", "")) for tick in ticks]


def test_nothing_is_drawn_over_anything_else(lab: OfLab) -> None:
    document, _ = lab.drawn
    for section, axis, room in (("latency", "y", 20), ("readings", "y2", 8)):
        numbers = labels(document, section, axis)
        assert 0 < len(numbers) <= room
        assert numbers == sorted(set(numbers))  # in full, not the last digit of each decade's
    headings = re.findall(r'<th scope="col"[^>]*><button>(.*?)</button>', document)
    names = [heading.replace("<wbr>", "") for heading in headings]
    assert len(names) == len(set(names)) == 5 + 24  # of a trial, and settings by their full names
    assert document.count('<tr class="trial winner"') == 1


@pytest.mark.parametrize("rate", [250, 330, 800])
def test_the_page_answers_for_a_rate_what_the_terminal_does(
    rate: int, lab: OfLab, browser: Browser
) -> None:
    document, _ = browser.drawn(lab.page, f"rate={rate}")
    assert_answered(document, lab.study, rate)


def edit_target(study: Path, old: str, new: str) -> None:
    target = study / "target.yaml"
    target.write_text(target.read_text().replace(old, new))


def test_a_latency_of_minutes_is_shown_in_whole_seconds(
    copied: Callable[[str], Path], browser: Browser, tmp_path: Path
) -> None:
    directory = copied("improved")
    edit_target(directory, "p99: 50ms", "p99: 120s")
    page = write_page(open_study(directory), tmp_path / "report.html")
    document, console = browser.drawn(page, "rate=5000")
    assert console == []
    assert "more than 120 s (above the capacity of" in chart(document, "latency")


def test_the_latency_of_today_is_shown_as_measured(
    copied: Callable[[str], Path], browser: Browser, tmp_path: Path
) -> None:
    directory = copied("improved")
    edit_target(directory, "load: {", "load: {today: 400/s, ")
    reading = Reading(400.0, 5.0, 2000, 0, histogram={0.002: 1900, 0.0123: 100})
    lines = [
        json.dumps(encode(record_reading(trial.number, trial.ended_at, TODAY_PURPOSE, reading, {})))
        for trial in open_study(directory).state.list_finished_trials(Phase.CONFIRM)
    ]
    with (directory / "readings.jsonl").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    study = open_study(directory)
    page = write_page(study, tmp_path / "report.html")
    document, console = browser.drawn(page, "")  # no rate is requested
    assert console == []
    assert_answered(document, study, 400)
    assert "12.3 ms [" in chart(document, "latency")


def assert_answered(document: str, study: Study, rate: float) -> None:
    """The page answers for each side, with an interval or a bound, and as the terminal does."""
    answers = re.findall(r"<span>(\w+) p99: (.*?)</span>", chart(document, "latency"))
    view = build_study_view(study)
    assert dict(answers).keys() == view.conclusion.sides.keys()
    for side, latency in estimate_latency_at(view, rate).items():
        assert ("[" in dict(answers)[side]) is not bool(latency.why)
        assert rounded(dict(answers)[side]) == rounded(
            f"{latency} ({latency.why})" if latency.why else str(latency)
        )


def rounded(answer: str) -> list[str]:
    """Its words, and its numbers to two digits: the page has the curve's in four."""
    return [f"{float(word):.2g}" if word[0].isdigit() else word
            for word in re.findall(r"[\d.]+|[^\d\s\[\](),]+", answer.replace(",", ""))]  # fmt: skip


def test_what_was_not_recorded_of_hosts_has_no_panel(
    lab: OfLab, browser: Browser, tmp_path: Path
) -> None:
    directory = lab_study(tmp_path)
    readings = directory / "readings.jsonl"
    text = readings.read_text(encoding="utf-8")
    readings.write_text(re.sub(r'"memory": ?[\d.e-]+', '"memory": 0', text), "utf-8")
    page = write_page(open_study(directory), tmp_path / "report.html")
    for drawn, recorded in ((lab.drawn, True), (browser.drawn(page), False)):
        hosts = chart(drawn.document, "hosts")
        assert ("memory in use" in hosts) is recorded
        assert "load average" in hosts
