"""The HTML report of recorded studies."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from autotune.measure.reading import Reading
from autotune.monitor.activity import HostUsage
from autotune.report.charts import build_chart_data as page_data
from autotune.report.page import encode_json, mark_code_spans, write_page
from autotune.report.page import render_page as whole_page
from autotune.report.studies import DatedEvent, Study, open_study
from autotune.report.timeline import build_study_time_axis
from autotune.report.view import build_study_view
from autotune.study.directory import StudyLock
from autotune.study.ranking import MIN_CONFIGURATIONS, list_measured_trials
from autotune.study.reading_records import record_reading
from autotune.study.record_codec import encode
from autotune.study.study_state import Phase
from autotune.unified_diff import format_file_diff
from tests.report.recorded_lab import lab_study

STUDIES = Path(__file__).with_name("studies")
NAMES = sorted(path.name for path in STUDIES.iterdir())
MOST_BYTES = 2_000_000


def opened(name: str) -> Study:
    return open_study(STUDIES / name)


def page(study: Study) -> str:
    return whole_page(build_study_view(study))


def data(study: Study) -> Any:
    return page_data(build_study_view(study))


def embedded(document: str) -> Any:
    found = re.search(r'id="data">([^<]*)</script>', document)
    assert found
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


class Outside(HTMLParser):
    """Everything an element would fetch, and which elements there are."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_stands_alone(name: str) -> None:
    document = page(opened(name))
    outside = Outside()
    outside.feed(document)
    assert outside.fetched == []
    assert "link" not in outside.tags
    assert len(document.encode()) < MOST_BYTES
    assert embedded(document) == json.loads(json.dumps(data(opened(name))))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("improved", "✓</span> +78 % [72, 84] requests/s at p99 ≤ 50 ms"),
        ("aa", "=</span> no distinguishable improvement"),
        ("unmeetable", "✗</span>"),
        ("killed", "unfinished: no verdict for killed yet"),
    ],
)
def test_the_verdict_comes_first(name: str, said: str) -> None:
    document = page(opened(name))
    assert said in document[: document.index("<main>")]


def test_each_command_is_a_line_of_its_own(tmp_path: Path) -> None:
    study = open_study(lab_study(tmp_path))
    commands = build_study_view(study).next_steps.apply
    assert len(commands) > 1
    (block,) = re.findall(r"To apply:</p>\s*<pre[^>]*>(.*?)</pre>", page(study), re.S)
    assert unescape(re.sub("<[^>]+>", "", block)).splitlines() == [*commands]


def test_a_study_that_stopped_after_its_baseline_can_be_resumed() -> None:
    study = opened("killed")
    state = replace(study.state, trials=study.state.trials[:1], verdict=None, posterior=None)
    words = re.sub(r"<[^>]*>", "", page(replace(study, state=state)))
    assert "autotune resume killed" in words


def test_the_page_of_a_study_that_runs_renews_itself(copied: Callable[[str], Path]) -> None:
    directory = copied("killed")
    assert 'id="renewal"' not in page(open_study(directory))
    with StudyLock(directory / "lock"):
        running = page(open_study(directory))
    assert 'id="renewal"' in running
    assert 'http-equiv="refresh"' not in running  # which nobody could pause


def test_what_a_configuration_says_is_text(copied: Callable[[str], Path]) -> None:
    directory = copied("improved")
    for conf in (directory / "configs" / "1").rglob("nginx.conf"):
        conf.write_text("</script><script>alert(1)</script>")
    target = directory / "target.yaml"
    target.write_text(target.read_text().replace("generator: httperf", "generator: httperf"))
    document = page(open_study(directory))
    assert "alert(1)" not in document
    assert "alert(1)" in json.dumps(embedded(document))


def test_what_stands_between_backticks_is_code_and_nothing_else_is_markup() -> None:
    text = "take `simulated:` out, <b>&amp; `a<b`"
    marked = "take <code>simulated:</code> out, &lt;b&gt;&amp;amp; <code>a&lt;b</code>"
    assert mark_code_spans(text) == marked


def test_the_dots_show_any_percentile_that_the_slo_names(copied: Callable[[str], Path]) -> None:
    """Plotly draws points without values at 0, 1, 2 …, so the column of the SLO must exist."""
    directory = copied("improved")
    target = directory / "target.yaml"
    target.write_text(target.read_text().replace("p99: 50ms", "p98: 50ms"))
    shown = data(open_study(directory))
    assert shown["slo"]["percentile"] == "p98"
    for curve in shown["latency"].values():
        known = list(zip(curve["p95"], curve["p98"], curve["p99"], strict=True))
        assert all(low <= own <= high for low, own, high in known if low and own and high)
        assert any(own for _, own, _ in known)


def test_readings_and_trials_are_all_there() -> None:
    study = opened("improved")
    found = data(study)
    assert len(found["readings"]["at"]) == len(study.readings)
    assert [row["trial"] for row in found["trials"]] == [t.number for t in study.state.trials]
    assert found["readings"]["at"] == sorted(found["readings"]["at"])
    assert set(found["readings"]["state"]) == {"met", "broken"}
    curve = found["latency"]["best"]
    assert curve["rate"] == sorted(curve["rate"])
    assert all(a <= b for a, b in zip(curve["p50"], curve["p99"], strict=True) if a and b)


def test_pauses_between_sittings_do_not_count() -> None:
    clock = "2026-03-02T09:{}:00+00:00".format
    events = [
        DatedEvent("study", clock("00")),
        DatedEvent("session", clock("00")),
        DatedEvent("trial", clock("02")),
        DatedEvent("session", clock("30")),
        DatedEvent("trial", clock("31")),
    ]
    readings = [record_reading(0, clock(at), "peak", ANY, {}) for at in ("05", "33")]
    time = build_study_time_axis(events, readings)
    assert [time.seconds_until(clock(minute)) for minute in ("02", "05", "30", "33")] == [
        120.0, 300.0, 300.0, 480.0,
    ]  # fmt: skip


def test_a_model_has_no_time_but_that_of_its_load(copied: Callable[[str], Path]) -> None:
    directory = copied("improved")
    target = directory / "target.yaml"
    target.write_text(f"{target.read_text()}simulated: {{seed: 1}}\n")
    study = open_study(directory)
    found = data(study)
    assert found["time"] == "minutes of load (virtual time)"
    assert data(opened("improved"))["time"] == "minutes of study"
    lengths = [reading.seconds for reading in study.readings]
    assert found["readings"]["at"] == pytest.approx(
        [sum(lengths[: n + 1]) for n in range(len(lengths))], abs=0.051
    )
    ends = {point["trial"]: point["at"] for point in found["peaks"]}
    for trial, at in ends.items():
        until = [n for n, r in enumerate(study.readings) if r.trial <= trial]
        assert at == pytest.approx(sum(lengths[: until[-1] + 1]), abs=0.051)


ANY = Reading(100.0, 1.0, 100, 0)
HOSTS = {"web1": HostUsage(0.5, 0.0, 1.5, 1.0, 0.1, 9, 3, 1000.0)}


@pytest.mark.parametrize(
    ("sides", "shown", "said"),
    [
        (("baseline", "best"), {"baseline", "best"}, None),
        (("best",), {"best"}, "No reading of the baseline met the SLO"),
        ((), set(), "No reading of the baseline or the best met the SLO"),
    ],
)
def test_hosts_of_what_never_met_the_objective(
    copied: Callable[[str], Path], sides: tuple[str, ...], shown: set[str], said: str | None
) -> None:
    directory = copied("improved")
    study = open_study(directory)
    known = build_study_view(study).conclusion.sides.items()
    met = {number for name, side in known if name in sides for number in side.trial_numbers}
    lines = []
    for reading in study.readings:
        late = reading.violations if reading.trial in met else reading.intended
        lines.append(json.dumps(encode(replace(reading, hosts=HOSTS, violations=late))))
    (directory / "readings.jsonl").write_text("\n".join([*lines, ""]))
    study = open_study(directory)
    assert set(data(study)["hosts"]) == shown
    document = page(study)
    assert ("met the SLO, so" in document) == (said is not None)
    assert said is None or said in document


def test_the_page_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.html"
    write_page(opened("aa"), path)
    write_page(opened("improved"), path)
    assert "+78 %" in path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_cards_and_provenance_come_before_anything_else() -> None:
    document = page(opened("improved"))
    start, end = document.index('class="cards"'), document.index("<h2>Bottleneck")
    front = re.sub(r"<[^>]+>", " ", document[start:end])
    for shown in (
        "1,215 requests/s", "[1,189, 1,241]", "2,174 requests/s", "+78 %", "[72, 84]", "p99 ≤ 50 ms",
        "autotune 0.1.0", "httperf on", "7 of 7 configurations in 15 measurements", "2026-03-02 09:00",
    ):  # fmt: skip
        assert shown in front, shown


def test_what_an_ablation_measured_stands_beside_each_change(
    copied: Callable[[str], Path],
) -> None:
    directory = copied("improved")
    record = {
        "event": "explained", "kept": ["web.php_fpm.max_children"], "dropped": ["lb.nginx.backlog"],
        "changes": 18, "share": 0.97, "low": 0.91, "high": 1.03, "measurements": 14, "trial": None,
    }  # fmt: skip
    with (directory / "events.jsonl").open("a", encoding="utf-8") as journal:
        journal.write(json.dumps(record) + "\n")
    document = page(open_study(directory))
    assert "1 of 18 changes keep 97% of the gain [91%, 103%], 14 measurements" in document
    row = document[document.index("php_<wbr>fpm.<wbr>max_<wbr>children") :]
    assert "<td>needed for the gain</td>" in row[: row.index("</tr>")]
    assert "the effects of single changes" not in document


def test_importance_is_not_told_from_a_few_trials() -> None:
    study = opened("improved")
    count = len(list_measured_trials(study.state))
    assert 1 < count < MIN_CONFIGURATIONS
    assert "importance" not in data(study)
    assert f"Too few configurations to estimate effects: {count} measured" in page(study)


def test_settings_that_always_changed_together_are_one_row(tmp_path: Path) -> None:
    study = open_study(lab_study(tmp_path))
    assert study.state.model
    effects = {row.parameter: row.effect for row in study.state.model.importance}
    rows = data(study)["importance"]["rows"]
    (together,) = [row for row in rows if len(row["names"]) > 1][:1]
    trials = list_measured_trials(study.state)
    patterns = {tuple(values.index(v) for v in values)
                for name in together["names"]
                for values in [[trial.settings.get(name) for trial in trials]]}  # fmt: skip
    assert len(patterns) == 1
    summed = 100 * sum(effects[name] for name in together["names"])
    assert together["effect"] == pytest.approx(summed, abs=0.01)


def test_a_simplified_winner_shows_its_settings_and_a_repeat_does_not(
    copied: Callable[[str], Path],
) -> None:
    study = open_study(copied("improved"))
    winner = study.state.find_trial(1)
    reverted = {**winner.settings, "lb.nginx.backlog": 511}
    number = len(study.state.trials)
    simplified = replace(
        winner,
        number=number,
        phase=Phase.SIMPLIFIED,
        settings=reverted,
        source_trial=1,
        effective={},
    )
    state = replace(study.state, trials=(*study.state.trials, simplified))
    rows = data(replace(study, state=state))["trials"]
    assert "lb.nginx.backlog" not in [name for name, *_ in rows[number]["changes"]]
    assert len(rows[number]["changes"]) == len(rows[1]["changes"]) - 1
    repeats = [row for row in rows if row["phase"] == "confirm"]
    assert repeats
    assert not any("changes" in row for row in repeats)


def test_the_page_of_a_study_below_a_path_that_is_not_utf_8_is_written(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(STUDIES / "improved", tmp_path / "jos\udce9" / "improved"))
    written = write_page(open_study(directory), tmp_path / "page.html")
    assert r"/jos\xe9" in written.read_text(encoding="utf-8")


def test_no_command_of_a_page_contains_control_characters(tmp_path: Path) -> None:
    directory = shutil.copytree(STUDIES / "improved", tmp_path / "improved\x15echo evil\r\x1b]")
    document = page(open_study(Path(directory)))
    assert "<span>&#39;improvedecho</span> <span>evil&#39;</span>" in document
    assert not {*document} & {*"\x15\r\x1b"}


def test_bytes_that_are_not_utf_8_are_escaped() -> None:
    before, after = ({"web/a.conf": b"# Gr\xf6\xdfe \xc3\xb6\nworkers %d\n" % n} for n in (1, 2))
    diff = format_file_diff(before, after, "baseline", "trial-1")
    packed = encode_json({"diff": diff, "path": "C:\\x"})
    read = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert read["path"] == "C:\\x"
    assert " # Gr\\xf6\\xdfe ö\n-workers 1\n+workers 2\n" in read["diff"]
