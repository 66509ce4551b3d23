"""Every rendering of a study shows the figures of its view, or the same rounding of them."""

from __future__ import annotations

import csv
import html
import io
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from autotune.environments.peak import Peak
from autotune.measure.reading import TODAY_PURPOSE
from autotune.report import format as fmt
from autotune.report.charts import build_chart_data
from autotune.report.conclusion import MeasuredConfiguration
from autotune.report.csv_and_metrics import format_csv, format_metrics
from autotune.report.live_progress import LiveProgress
from autotune.report.page import render_page
from autotune.report.status import build_status, format_status
from autotune.report.studies import Study, open_study
from autotune.report.summary import build_latency_at_rate, build_summary
from autotune.report.text_report import format_brief_lines, format_report_lines
from autotune.report.view import StudyView, build_study_view
from autotune.study import proof, ranking
from autotune.study.reading_records import RecordedReading
from autotune.study.study_state import Phase, State, Trial
from tests.report.recorded_lab import lab_study, shop_study
from tests.report.test_progress import Terminal

STUDIES = Path(__file__).with_name("studies")
NAMES = [*sorted(path.name for path in STUDIES.iterdir()), "lab", "shop"]
TAG = re.compile(r"<(?:script|style)[^>]*>.*?</(?:script|style)>|<[^>]+>", re.DOTALL)
ESCAPE = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")


@dataclass(frozen=True)
class Renderings:
    """All renderings of one view. Texts have single spaces."""

    view: StudyView
    text: str
    brief: str
    page: str
    status_text: str
    panel: str

    @property
    def texts(self) -> Mapping[str, str]:
        return {"text": self.text, "page": self.page}


def single_spaced(text: str) -> str:
    return " ".join(text.replace("\u2011", "-").split())


def draw_panel(view: StudyView) -> str:
    stream = Terminal()
    with LiveProgress(view.target, lambda: replace(view.state, verdict=None), stream):
        pass
    return single_spaced(re.sub("[│╭╮╰╯─]", " ", ESCAPE.sub("", stream.getvalue())))


def render(view: StudyView) -> Renderings:
    page = html.unescape(TAG.sub(" ", render_page(view)))
    return Renderings(
        view,
        single_spaced("\n".join(line for line, _ in format_report_lines(view))),
        single_spaced("\n".join(line for line, _ in format_brief_lines(view))),
        single_spaced(page),
        single_spaced(format_status(view)),
        draw_panel(view),
    )


def check_figures(renderings: Renderings) -> None:
    """Compare every figure in every rendering with the view's."""
    check_capacities(renderings)
    check_requests(renderings)
    check_gain(renderings)
    check_counts(renderings)
    check_shares(renderings)
    check_latency(renderings)
    check_next_steps(renderings)
    check_warnings(renderings)
    check_trials(renderings)


def check_capacities(renderings: Renderings) -> None:
    view, units = renderings.view, renderings.view.units
    summary = build_summary(view)
    sides = {"baseline": summary["baseline"], "best": summary["best"], "preset": summary["preset"]}
    for label, side in sides.items():
        figures = view.capacities.get(label)
        if side is None or figures is None:
            continue
        assert (side["peak"], side["low"], side["high"]) == (
            figures.peak, figures.low, figures.high,
        )  # fmt: skip
        is_shown = label != "preset" or view.conclusion.shows_preset
        measured = view.conclusion.preset if label == "preset" else view.conclusion.sides[label]
        if not is_shown or not figures.peak or _is_limited(measured):
            continue
        amount = units.format_amount(figures.peak)
        interval = units.format_interval(figures.low or 0.0, figures.high or 0.0)
        for name, text in renderings.texts.items():
            assert amount in text, (name, label, amount)
            assert interval in text, (name, label, interval)
        assert f"{amount} {interval}" in renderings.brief
    check_status(renderings)


def check_requests(renderings: Renderings) -> None:
    """The number of requests behind each capacity is equal in JSON, text and page."""
    view, summary = renderings.view, build_summary(renderings.view)
    sides = {"baseline": summary["baseline"], "best": summary["best"], "preset": summary["preset"]}
    for label, readings in view.deciding_readings.items():
        side, measured = sides[label], view.conclusion.configurations[label]
        assert side is not None
        assert (side["requests"], side["lowest_rate"]) == (readings.requests, readings.lowest_rate)
        is_shown = label != "preset" or view.conclusion.shows_preset
        if not is_shown or not view.capacities[label].peak or _is_limited(measured):
            continue
        assert readings.requests == sum(
            reading.intended
            for reading in view.study.readings
            if reading.trial in measured.deciding_trials and reading.purpose == "peak"
        )
        if readings.requests:
            assert readings.text in renderings.text
            assert readings.text in renderings.brief
            assert readings.text in renderings.page
    if view.verdict == "unmeetable" and view.conclusion.best is None:
        assert view.all_readings.failure_text in single_spaced(view.headline.text)


def _is_limited(side: MeasuredConfiguration | None) -> bool:
    peak = side.best_estimate if side else None
    return peak is not None and peak.is_load_limited


def check_status(renderings: Renderings) -> None:
    """`status` and the metrics show the leader before the verdict, and the view's figures after it."""
    view, status = renderings.view, build_status(renderings.view)
    metrics = {
        (sample.labels["side"], sample.labels["value"]): sample.value
        for family in text_string_to_metric_families(format_metrics(view))
        if family.name == "autotune_capacity"
        for sample in family.samples
    }
    for label, side in (("baseline", status["baseline"]), ("best", status["best"])):
        if side is None:
            continue
        figures = view.capacities[label]
        if view.state.verdict and figures.peak is not None:
            assert (side["peak"], side["low"], side["high"]) == (
                figures.peak, figures.low, figures.high,
            )  # fmt: skip
        for key, value in (("peak", side["peak"]), ("low", side["low"]), ("high", side["high"])):
            if value is not None:
                assert metrics[label, key] == pytest.approx(value, rel=1e-12)
        if side["peak"] and not side["limit"]:
            assert view.units.format_amount(side["peak"]) in renderings.status_text


def check_gain(renderings: Renderings) -> None:
    view = renderings.view
    summary, status = build_summary(view), build_status(view)
    assert (summary["gain"] is None) == (view.gain is None)
    if view.gain is None or summary["gain"] is None:
        return
    gain = summary["gain"]
    assert (gain["ratio"], gain["low"], gain["high"], gain["pairs"]) == (
        view.gain.ratio, view.gain.low, view.gain.high, view.gain.pairs,
    )  # fmt: skip
    assert status["ratio"] == view.gain.ratio
    headline = single_spaced(view.headline.text)
    assert view.gain.text in headline
    for name, text in {**renderings.texts, "brief": renderings.brief}.items():
        assert headline in text, (name, headline)
    assert headline in renderings.status_text
    ratio = [
        sample.value
        for family in text_string_to_metric_families(format_metrics(view))
        if family.name == "autotune_ratio"
        for sample in family.samples
    ]
    assert ratio == [view.gain.ratio]


def check_counts(renderings: Renderings) -> None:
    view, status = renderings.view, build_status(renderings.view)
    counts, total = dict(view.trial_counts), sum(view.trial_counts.values())
    measurements = len(view.state.list_finished_trials())
    assert build_summary(view)["trials"] == counts
    assert {key: status["trials"][key] for key in counts} == counts  # type: ignore[literal-required]
    assert status["trials"]["done"] == total == view.outlook.trial_count
    outcomes = {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(format_metrics(view))
        if family.name == "autotune_trials"
        for sample in family.samples
    }
    assert outcomes == counts
    budget = view.target.budget.trials
    if total:
        assert f"{total} of {budget} in {measurements} measurement" in renderings.text
    assert f"{total} of {budget} configuration" in renderings.page
    assert f"in {measurements} measurement" in renderings.page
    assert f"{total} of {budget} configuration" in renderings.status_text
    assert f"measured {measurements} measurement" in renderings.status_text
    assert f"configuration {total} of {budget}" in renderings.panel
    if view.state.verdict is None:
        assert single_spaced(view.outlook.best_text) in renderings.panel


def check_shares(renderings: Renderings) -> None:
    split = renderings.view.gain_split
    if split:
        for name, text in {**renderings.texts, "brief": renderings.brief}.items():
            assert split in text, (name, split)
    shares, figures = build_summary(renderings.view)["gain_shares"], renderings.view.gain_shares
    if shares is None:
        return
    for document, share in ((shares["preset"], figures.preset), (shares["search"], figures.search)):
        if document is not None and share is not None and not renderings.view.conclusion.preset_won:
            assert document["ratio"] == round(share.value, 4)


def check_latency(renderings: Renderings) -> None:
    """The latency at today's rate is the same everywhere, also for those who ask for this rate."""
    view, latency = renderings.view, renderings.view.latency
    document, status = build_summary(view)["latency"], build_status(view)["latency"]
    assert document == status
    samples = {
        (sample.labels["side"], sample.labels["value"]): sample.value
        for family in text_string_to_metric_families(format_metrics(view))
        if family.name == "autotune_latency_seconds"
        for sample in family.samples
    }
    today = build_chart_data(view)["today"]
    if latency is None or document is None or today is None:
        assert latency is document is today is None
        assert samples == {}
        return
    assert {**build_latency_at_rate(view, latency.rate), "today": latency.is_declared} == document
    for text in (renderings.text, renderings.brief, renderings.status_text):
        assert single_spaced(latency.text) in text
    assert f"{latency.percentile} at {latency.rate_text}" in renderings.page
    assert latency.change_text in renderings.page
    assert today["rate"] == document["rate"] == latency.rate
    for label, encoded in (("baseline", document["baseline"]), ("best", document["best"])):
        side = latency.sides.get(label)
        if side is None or encoded is None:
            assert side is encoded is None
            continue
        figures = (side.seconds, side.low, side.high)
        assert (encoded["latency"], encoded["low"], encoded["high"]) == figures
        assert today["answers"][label].startswith(str(side))
        shown = [samples.get((label, end)) for end in ("latency", "low", "high")]
        assert shown == (list(map(pytest.approx, figures)) if side.is_measured else [None] * 3)


def check_next_steps(renderings: Renderings) -> None:
    steps, document = renderings.view.next_steps, build_summary(renderings.view)["next"]
    assert document["commands"] == list(steps.commands)
    assert (document["resume"], document["apply"]) == (list(steps.resume), list(steps.apply))
    for command in (*steps.commands, *steps.apply, *steps.undo):
        assert single_spaced(command) in renderings.text
    assert single_spaced(steps.status_command) in renderings.status_text


def check_warnings(renderings: Renderings) -> None:
    warnings, documents = renderings.view.warnings, build_summary(renderings.view)["warnings"]
    assert [warning["text"] for warning in documents] == [warning.text for warning in warnings]
    for name, text in renderings.texts.items():
        for sentence in (sentence for w in warnings for sentence in (w.text, w.remedy)):
            assert bare(sentence) in bare(text), (name, sentence)


def bare(text: str) -> str:
    """The text without spaces and marks of code, which the page turns into elements."""
    return "".join(text.split()).replace("`", "")


def check_trials(renderings: Renderings) -> None:
    """Capacity and p99 of each trial are equal in CSV, in the page's table and in the metrics."""
    view = renderings.view
    rows = list(csv.DictReader(io.StringIO(format_csv(view, "trials"))))
    page_rows = build_chart_data(view)["trials"]
    assert len(rows) == len(page_rows) == len(view.state.trials)
    for row, page_row, trial in zip(rows, page_rows, view.state.trials, strict=True):
        peak = trial.peak
        for column, key in (("capacity", page_row["peak"]), ("low", page_row["low"])):
            assert row[column] == ("" if key is None else str(key)), (trial.number, column)
        assert row["p99"] == ("" if peak is None or peak.p99 is None else str(peak.p99))
        if peak is not None and peak.p99 is not None and peak.is_feasible:
            assert f"p99 {fmt.format_latency(peak.p99):>7}" in page_row["outcome"]


def open_named(name: str, directory: Path) -> Study:
    unpack = {"lab": lab_study, "shop": shop_study}.get(name)
    return open_study(unpack(directory) if unpack else STUDIES / name)


@pytest.mark.parametrize("name", NAMES)
def test_all_renderings_of_a_recorded_study_agree(name: str, tmp_path: Path) -> None:
    check_figures(render(build_study_view(open_named(name, tmp_path))))


@pytest.mark.parametrize("name", ["improved", "aa", "noisy"])
def test_all_renderings_agree_while_a_study_runs(name: str, tmp_path: Path) -> None:
    study = open_named(name, tmp_path)
    for count in (1, 3, len(study.state.trials) - 2):
        state = replace(study.state, trials=study.state.trials[:count], verdict=None)
        check_figures(render(build_study_view(replace(study, state=state))))


def generate_state(study: Study, seed: int, *, ended: bool) -> State:
    """A state with other capacities, outcomes and repeats than the recorded one."""
    draws = random.Random(seed)
    level = 10 ** draws.uniform(0, 5)
    trials = tuple(
        _generate_trial(trial, level * draws.lognormvariate(0, 0.5), draws)
        for trial in study.state.trials
    )
    state = replace(study.state, trials=trials, verdict=None, posterior=None)
    return replace(state, verdict=proof.decide_verdict(state)) if ended else state


def _generate_trial(trial: Trial, capacity: float, draws: random.Random) -> Trial:
    if trial.peak is None:
        return trial
    kinds = ["measured"] * 8 + ["screened", "unsettled", "rough", "unmeetable"]
    verdict = draws.choice(kinds) if trial.phase is not Phase.BASELINE else "measured"
    if verdict == "unmeetable":
        return replace(trial, peak=Peak(0.0, 0.0, capacity, 0.0, verdict))
    sd = draws.uniform(0.005, 0.3)
    half, p99 = exp(1.645 * sd), draws.uniform(0.001, 2.0)
    peak = Peak(capacity, capacity / half, capacity * half, sd, verdict, p99)
    return replace(trial, peak=peak)


def with_latencies(study: Study, seed: int) -> Study:
    """The study with readings at today's rate, some of which are slow, invalid or too few to count."""
    draws = random.Random(seed)
    rate = draws.choice([40.0, 0.5 * find_level(study.state), 2.0 * find_level(study.state)])
    declared = {"today": draws.choice([None, rate, 7.0])}
    load = study.target.load.model_copy(update=declared)
    target = study.target.model_copy(update={"load": load})
    readings = [
        _generate_reading(trial.number, rate, draws)
        for trial in study.state.list_finished_trials(Phase.CONFIRM)
    ]
    changed = replace(study, target=target)
    vars(changed)["_all_readings"] = (*study.readings, *readings)
    return changed


def find_level(state: State) -> float:
    """The capacity of the baseline."""
    baseline = ranking.find_baseline(state)
    return baseline.peak.peak if baseline and baseline.peak and baseline.peak.peak else 100.0


def _generate_reading(trial: int, rate: float, draws: random.Random) -> RecordedReading:
    count, slow = draws.randrange(1, 5000), draws.choice([0.0, 0.005, 0.02, 1.0])
    late = round(slow * count)
    edge = draws.lognormvariate(3, 1)
    histogram = {f"{edge:.4g}": count - late, f"{30 * edge:.4g}": round(late * draws.random())}
    limited = draws.choice([None, None, None, "no free port"])
    return RecordedReading(
        trial, "2026-03-02T09:30:00+00:00", TODAY_PURPOSE, rate, 5.0, count, late,
        histogram=histogram, limited=limited, truncated=draws.random() < 0.1,
    )  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["improved", "aa", "noisy"]),
       ended=st.booleans())  # fmt: skip
def test_all_renderings_of_generated_studies_agree(
    seed: int, name: str, ended: bool, study: Callable[[str], Study]
) -> None:
    recorded = study(name)
    state = generate_state(recorded, seed, ended=ended)
    view = build_study_view(with_latencies(replace(recorded, state=state), seed))
    check_figures(render(view))
    json.dumps(build_summary(view), allow_nan=False)
